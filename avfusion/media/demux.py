"""Goes through a media file once and gives its pictures and its sound in the order they come, stamped on its clock.

Stamps are repaired on the way: joined transport streams go on where the part before ended, missing stamps follow the
frame rate, absurd ones count as missing. Jumps are told as the ``ffmpeg`` command tells them (10 s forward in transport
streams), backward from 0.5 s on. Damage and a missing end (``media/damage.py``) are errors, unless the caller wants to
salvage.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from avfusion.errors import AvfusionError
from avfusion.media.container import codec_name, frame_rate, open_source, picture_stream, require_decoder
from avfusion.media.damage import Beginning, Ends, Reading, ReadReport
from avfusion.media.source import SourceFacts

_FORWARD_S, _BACKWARD_S = 10, Fraction(1, 2)
_ABSURD_S = 60.0  # a stamp so far behind the declared end is no stamp


@dataclass(frozen=True)
class Decoded:
    """One decoded frame.

    Attributes:
        kind: picture or sound.
        time_s: on the file's clock; None for sound without a stamp.
        duration_s: as the file says, 0 where it does not. A sound frame may hold more: what encoders append.
        frame: PyAV's frame.
    """

    kind: Literal["picture", "sound"]
    time_s: float | None
    duration_s: float
    frame: Any


def read_frames_once(
    path: Path,
    facts: SourceFacts,
    *,
    picture: bool = True,
    sound: bool = True,
    salvage: bool = False,
    threads: int = 1,
    report: ReadReport | None = None,
) -> Generator[Decoded]:
    """Decodes a file from start to end, once.

    Args:
        path: the file.
        facts: what :func:`avfusion.media.source.probe` says about it.
        picture: whether pictures are wanted.
        sound: whether sound is wanted (of the track the facts name).
        salvage: go on over damage and a missing end, and report them, instead of raising.
        threads: decoding threads of the picture; 0 lets FFmpeg choose.
        report: filled while reading.

    Raises:
        AvfusionError: a codec without decoder; damage or a missing end, without ``salvage``.
    """
    report = ReadReport() if report is None else report
    try:
        with open_source(path) as container:
            yield from _read(Reading(path, facts, report, salvage), container, picture, sound, threads)
    finally:
        report.notes += report.told()


def _read(reading: Reading, container: Any, picture: bool, sound: bool, threads: int) -> Iterator[Decoded]:
    import av

    wanted = _wanted(reading.path, container, reading.facts, picture, sound)
    for stream in wanted.values():
        stream.thread_count = threads if stream.type == "video" else 1
        if threads != 1 and stream.type == "video":
            stream.thread_type = "SLICE"  # threads that share out frames swallow a damaged packet and pictures with it
        if codec_name(stream) == "hevc":  # of damaged headers this decoder else says nothing, the pictures just vanish
            stream.codec_context.options = {"err_detect": "explode"}
    stamps = _Stamps(container, reading.facts, reading.report)
    ends = Ends(container, reading.facts)
    beginnings = {index: Beginning(reading, stream.type) for index, stream in wanted.items()}
    try:
        for packet in container.demux():
            ends.see(packet)
            stamps.repair(packet)
            if packet.stream_index not in wanted:
                continue
            beginning = beginnings[packet.stream_index]
            at_s = stamps.time_of(packet)
            beginning.see(packet, at_s)
            try:
                frames = packet.decode()
            except av.FFmpegError as error:
                beginning.failed(stamps.latest_s if at_s is None else at_s, error)
                continue
            for frame in frames:
                decoded = stamps.decoded(packet.stream, frame)
                if beginning.passes(frame, decoded.time_s):
                    yield decoded
    except av.FFmpegError as error:
        reading.damaged(f"the file at {stamps.latest_s:.2f} s", error)
    for beginning in beginnings.values():
        beginning.end()
    ends.end(reading)


def _wanted(path: Path, container: Any, facts: SourceFacts, picture: bool, sound: bool) -> dict[int, Any]:
    chosen: dict[int, Any] = {}
    if picture:
        stream = picture_stream(container)
        if stream is None:
            raise AvfusionError(f"{path} has no video stream")
        chosen[stream.index] = stream
    if sound:
        if facts.audio_track is None:
            raise AvfusionError(f"no audio stream in {path}")
        stream = container.streams.audio[facts.audio_track]
        chosen[stream.index] = stream
    for stream in chosen.values():
        require_decoder(path, stream)
    return chosen


class _Stamps:
    """Turns the stamps of packets and frames into seconds on the file's clock."""

    def __init__(self, container: Any, facts: SourceFacts, report: ReadReport) -> None:
        self.report = report
        self.latest_s = 0.0
        self._origin_s = facts.origin_s
        self._forward_s = None if facts.declares_length else _FORWARD_S
        # All of them, also when only one is read: a join lies where the first of them jumps, for every reader alike.
        self._timed = {s.index for s in [picture_stream(container), *container.streams.audio] if s is not None}
        self._exact = container.format.name.startswith("mov")  # others round to milliseconds
        declared = facts.duration_s if self._forward_s is None else None  # joined streams are longer than they think
        self._limit_s = None if declared is None else declared + _ABSURD_S
        self._shifts_s = [Fraction(0)]  # one for every unbroken part of the file
        self._part: dict[int, int] = {}  # which part each stream is in: they do not change over at the same packet
        self._end_s: dict[int, Fraction] = {}
        self._numbers: dict[int, int] = {}
        self._last_s: dict[int, float] = {}

    def repair(self, packet: Any) -> None:
        """Moves the stamps of a packet that comes after a jump of the clock."""
        stamp = packet.dts if packet.dts is not None else packet.pts
        if stamp is None or packet.stream_index not in self._timed:
            return
        raw_s = stamp * packet.time_base
        index = packet.stream_index
        part = self._part.get(index, len(self._shifts_s) - 1)
        end_s = self._end_s.get(index)
        if end_s is not None and self._jumps(raw_s + self._shifts_s[part] - end_s):
            later = [
                p for p in range(part + 1, len(self._shifts_s)) if not self._jumps(raw_s + self._shifts_s[p] - end_s)
            ]
            if not later:
                self._shifts_s.append(end_s - raw_s)
                self.report.clock_jumps += 1
            part = later[0] if later else len(self._shifts_s) - 1
        self._part[index] = part
        shift_s = self._shifts_s[part]
        self._end_s[index] = raw_s + shift_s + (packet.duration or 0) * packet.time_base
        if shift_s:
            ticks = round(shift_s / packet.time_base)
            packet.dts = None if packet.dts is None else packet.dts + ticks
            packet.pts = None if packet.pts is None else packet.pts + ticks

    def decoded(self, stream: Any, frame: Any) -> Decoded:
        """A decoder's frame with its time."""
        number = self._numbers[stream.index] = self._numbers.get(stream.index, -1) + 1
        time_s = None if frame.pts is None else float(frame.pts * frame.time_base - self._origin_s)
        if time_s is None or (self._limit_s is not None and time_s > self._limit_s):
            self.report.bad_stamps += 1
            time_s = None
        duration_s = float((frame.duration or 0) * (frame.time_base or 0))
        if stream.type == "audio":
            duration_s = duration_s if self._exact else 0.0
            return Decoded("sound", time_s, duration_s, frame)
        if time_s is None:
            step_s = 1 / float(frame_rate(stream) or 25)
            time_s = self._last_s.get(stream.index, -step_s) + step_s if number else 0.0
        self._last_s[stream.index] = self.latest_s = time_s
        return Decoded("picture", time_s, duration_s, frame)

    def time_of(self, packet: Any) -> float | None:
        """Time of a packet; None without a stamp."""
        stamp = packet.pts if packet.pts is not None else packet.dts
        return None if stamp is None else float(stamp * packet.time_base - self._origin_s)

    def _jumps(self, delta_s: Fraction) -> bool:
        return delta_s < -_BACKWARD_S or (self._forward_s is not None and delta_s > self._forward_s)
