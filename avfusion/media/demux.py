"""Goes through a media file once and gives its pictures and its sound in the order they come, stamped on its clock.

Stamps are repaired on the way: joined transport streams go on where the part before ended, missing stamps follow the
frame rate, absurd ones count as missing. Jumps are told as the ``ffmpeg`` command tells them (10 s forward in transport
streams), backward from 0.5 s on. Damage and a missing end are errors, unless the caller wants to salvage; the end of a
transport stream cannot be missed, because it declares no length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from avfusion.errors import AvfusionError
from avfusion.media.container import frame_rate, open_source, picture_stream, require_decoder
from avfusion.media.source import SourceFacts

_JUMPING = ("mpegts", "mpeg")  # formats whose clock may jump
_FORWARD_S, _BACKWARD_S = 10, Fraction(1, 2)
_MISSING_S = 0.5  # a stream that ends so much before its declared end is cut short
_MISSING_WHOLE_S = 1.0  # likewise the whole file, where only its length is declared
_ABSURD_S = 60.0  # a stamp so far behind the declared end is no stamp


@dataclass
class ReadReport:
    """What was met on the way, filled while reading.

    Attributes:
        damage: descriptions of what could not be decoded, the first 20.
        num_damaged: how many packets could not be decoded.
        cut_short: the sentence that says how much is missing; empty for a whole file.
        clock_jumps: how often the stamps jumped and were joined.
        bad_stamps: how many stamps were missing or absurd.
    """

    damage: list[str] = field(default_factory=list)
    num_damaged: int = 0
    cut_short: str = ""
    clock_jumps: int = 0
    bad_stamps: int = 0


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
) -> Iterator[Decoded]:
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
    import av

    report = ReadReport() if report is None else report
    with open_source(path) as container:
        wanted = _wanted(path, container, facts, picture, sound)
        for stream in wanted.values():
            stream.thread_count = threads if stream.type == "video" else 1
            if threads != 1 and stream.type == "video":
                stream.thread_type = "AUTO"
        stamps = _Stamps(container, facts, report)
        ends = _Ends(container)
        begun: set[int] = set()
        try:
            for packet in container.demux():
                ends.see(packet)
                stamps.repair(packet)
                if packet.stream_index not in wanted:
                    continue
                try:
                    frames = packet.decode()
                except av.FFmpegError as error:
                    # Streams cut out of a broadcast begin with packets that nothing can be made of.
                    if packet.stream_index in begun:
                        _damage(path, report, stamps.describe(packet), error, salvage)
                    continue
                for frame in frames:
                    begun.add(packet.stream_index)
                    yield stamps.decoded(packet.stream, frame)
        except av.FFmpegError as error:
            _damage(path, report, f"the file at {stamps.latest_s:.2f} s", error, salvage)
        report.cut_short = ends.missing(facts)
        if report.cut_short and not salvage:
            raise AvfusionError(f"{path} is cut short: {report.cut_short}; {_REMEDY}")


_REMEDY = "get the whole file, or keep what is there with salvage (--salvage)"


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


def _damage(path: Path, report: ReadReport, where: str, error: Exception, salvage: bool) -> None:
    reason = getattr(error, "strerror", None) or str(error)
    if not salvage:
        raise AvfusionError(
            f"{path} is damaged or cut short: {where} cannot be decoded ({reason}); {_REMEDY}"
        ) from error
    report.num_damaged += 1
    if len(report.damage) < 20:
        report.damage.append(f"{where}: {reason}")


class _Stamps:
    """Turns the stamps of packets and frames into seconds on the file's clock."""

    def __init__(self, container: Any, facts: SourceFacts, report: ReadReport) -> None:
        self.report = report
        self.latest_s = 0.0
        self._origin_s = facts.origin_s
        self._forward_s = _FORWARD_S if container.format.name in _JUMPING else None
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

    def describe(self, packet: Any) -> str:
        kind = "picture" if packet.stream.type == "video" else "sound"
        stamp = packet.pts if packet.pts is not None else packet.dts
        at_s = self.latest_s if stamp is None else float(stamp * packet.time_base - self._origin_s)
        return f"the {kind} at {at_s:.2f} s"

    def _jumps(self, delta_s: Fraction) -> bool:
        return delta_s < -_BACKWARD_S or (self._forward_s is not None and delta_s > self._forward_s)


class _Ends:
    """Compares how far the streams of a file reach with how far it says they do."""

    def __init__(self, container: Any) -> None:
        self.container = container
        self._ends: dict[int, Fraction] = {}
        self._packets: dict[int, int] = {}

    def see(self, packet: Any) -> None:
        index = packet.stream_index
        if packet.size:
            self._packets[index] = self._packets.get(index, 0) + 1
        stamp = packet.pts if packet.pts is not None else packet.dts
        if stamp is not None and packet.size:
            end_s = (stamp + (packet.duration or 0)) * packet.time_base
            self._ends[index] = max(self._ends.get(index, end_s), end_s)

    def missing(self, facts: SourceFacts) -> str:
        """How much is missing, in words; empty where nothing is known to be."""
        if self.container.format.name in _JUMPING:
            return ""  # they declare no length
        for stream in self.container.streams:
            # Both the number and the length must fall short: edit lists hide packets, headers round.
            seen = self._packets.get(stream.index, 0)
            if self.container.format.name == "avi" and stream.type == "video":
                # FFmpeg shortens the length of a cut AVI to what is there; the count in the header stays.
                if float(stream.frames - seen) * float(1 / (frame_rate(stream) or 25)) > _MISSING_S:
                    return f"it holds {seen} of {stream.frames} pictures"
                continue
            if stream.type in ("video", "audio") and stream.frames and stream.duration and seen < stream.frames:
                start_s = (stream.start_time or 0) * stream.time_base
                declared_s = float(start_s + stream.duration * stream.time_base)
                end_s = float(self._ends.get(stream.index, start_s))
                if end_s < declared_s - _MISSING_S:
                    kind = "picture" if stream.type == "video" else "sound"
                    return f"its {kind} ends at {end_s:.2f} of {declared_s:.2f} s"
        if facts.duration_s is not None and self._ends:
            end_s = float(max(self._ends.values()))
            declared_s = facts.duration_s + (self.container.start_time or 0) / 1e6
            if end_s < declared_s - _MISSING_WHOLE_S:
                return f"it ends at {end_s:.2f} of {declared_s:.2f} s"
        return ""
