"""Any video file as constant 25 fps pictures and 16 kHz mono sound on one clock, read with PyAV.

Time 0 is the start of the file's timeline (``media/source.py``). Picture ``i`` is what a player shows at ``i / 25`` s
(``media/retime.py``), whatever the file's frame rate, so variable rates stay in sync. Sound that starts later gets
silence in front, gaps are filled with silence, overlaps are cut. The iterators hold a few pictures or blocks at a time.

Shapes: pictures ``(H, W)`` grey or ``(H, W, 3)`` RGB uint8, sound ``(N,)`` float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.errors import AvfusionError
from avfusion.media.audio import fit_to_frames
from avfusion.media.damage import ReadReport
from avfusion.media.demux import Decoded, read_frames_once
from avfusion.media.picture import Deinterlacer, upright
from avfusion.media.retime import Retimer
from avfusion.media.sound_clock import SoundClock, samples_of
from avfusion.media.source import SourceFacts, probe

MOST_BAD_SAMPLES = 0.01  # of a sound, as a share: NaN, infinite or far out of range; more is no sound
LONG_HOLD_S = 1.0  # a picture that is shown as long is told: some may be missing behind it
LONGEST_HOLD_S = 600.0  # one that is shown longer is none: a stamp is wrong, and the disk would fill with copies
_PADDING_S = 0.002  # a sound frame this much longer than declared ends with what the encoder appended


@dataclass(frozen=True)
class RetimedVideo:
    """A whole short video in memory.

    Attributes:
        frames: ``(T, H, W)`` grey or ``(T, H, W, 3)`` RGB uint8.
        source_index: ``(T,)`` number of the source picture shown at each frame (for boxes counted in source frames).
        audio: ``(640 T,)`` float32, zeros where the file has no sound stream.
        has_audio: whether it has one.
    """

    frames: NDArray[np.uint8]
    source_index: NDArray[np.int64]
    audio: NDArray[np.float32]
    has_audio: bool


def read_retimed(path: str | Path, color: bool = False) -> RetimedVideo:
    """Decodes a short video whole.

    Args:
        path: the video.
        color: RGB instead of grey.

    Raises:
        AvfusionError: the file is missing, cannot be decoded, is cut short, or has no picture.
    """
    indexed = list(iterate_retimed(path, color))
    frames = np.stack([frame for _, frame in indexed])
    audio = read_sound(path)
    fitted = fit_to_frames(np.zeros(0, dtype=np.float32) if audio is None else audio, len(frames))
    return RetimedVideo(frames, np.array([index for index, _ in indexed]), fitted, audio is not None)


def iterate_retimed(
    path: str | Path,
    color: bool = False,
    *,
    salvage: bool = False,
    threads: int = 1,
    longest_side_px: int | None = None,
    report: ReadReport | None = None,
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yields the pictures at ``i / 25`` s one by one, holding a few at a time.

    Args:
        path: the video.
        color: RGB instead of grey.
        salvage: keep what can be decoded of a damaged or cut-short file, instead of raising.
        threads: decoding threads; 0 lets FFmpeg choose.
        longest_side_px: pictures with a longer side are scaled down to it; None leaves them.
        report: filled with what was met on the way.

    Yields:
        ``(number of the source picture, picture)``.

    Raises:
        AvfusionError: the file is missing, cannot be decoded, is cut short, or has no picture.
    """
    path = Path(path)
    facts = probe(path)
    report = ReadReport() if report is None else report
    pictures = PictureLine(path, salvage, longest_side_px)
    events = read_frames_once(path, facts, sound=False, salvage=salvage, threads=threads, report=report)
    try:
        with closing(events):
            for event in events:
                for picture in pictures.push(event):
                    yield picture.number, picture.array(color)
        for picture in pictures.finish():
            yield picture.number, picture.array(color)
    finally:
        report.notes += pictures.notes(facts)


def iterate_sound(
    path: str | Path,
    audio_track: int | None = None,
    *,
    salvage: bool = False,
    report: ReadReport | None = None,
) -> Iterator[NDArray[np.float32]]:
    """Yields the sound from time 0, mixed to mono at 16 kHz, in blocks of at most a second or a codec's frame.

    Args:
        path: the video, or a sound file.
        audio_track: number of the sound track; None takes the one flagged default, else the first.
        salvage: keep what can be decoded of a damaged or cut-short file, instead of raising.
        report: filled with what was met on the way.

    Yields:
        ``(N,)`` float32 in -1..1.

    Raises:
        AvfusionError: the file is missing, cannot be decoded, is cut short, or has no sound; its samples are no sound.
        UsageError: there is no such track.
    """
    path = Path(path)
    facts = probe(path, audio_track)
    if facts.audio_track is None:
        raise AvfusionError(f"no audio stream in {path}")
    report = ReadReport() if report is None else report
    clock = SoundClock()
    events = read_frames_once(path, facts, picture=False, salvage=salvage, report=report)
    try:
        with closing(events):
            for event in events:
                yield from push_sound(clock, event)
        yield from clock.finish()
    finally:
        report.notes += clock.notes()
    check_samples(path, clock, salvage)


def read_sound(path: str | Path, audio_track: int | None = None) -> NDArray[np.float32] | None:
    """Decodes the sound, mixed to mono at 16 kHz, with sample 0 at time 0.

    Args:
        path: the video, or a sound file.
        audio_track: number of the sound track; None takes the one flagged default, else the first.

    Returns:
        ``(N,)`` float32, or None where the file has no sound stream, or an empty one.

    Raises:
        AvfusionError: the file is missing or cannot be decoded.
    """
    if probe(path, audio_track).audio_track is None:
        return None
    blocks = list(iterate_sound(path, audio_track))
    return np.concatenate(blocks) if blocks else None


@dataclass(frozen=True)
class _Numbered:
    """A source picture that is turned into an array only when it is shown, once."""

    number: int
    frame: Any
    size: tuple[int, int]
    made: dict[bool, NDArray[np.uint8]]

    def array(self, color: bool) -> NDArray[np.uint8]:
        if color not in self.made:
            self.made[color] = upright(self.frame, color, self.size)
        return self.made[color]


class PictureLine:
    """Decoded pictures in, pictures at ``i / 25`` s out, one event at a time.

    Args:
        path: the file, to be named.
        salvage: take any stamps.
        longest_side_px: scale pictures with a longer side down to it when they become arrays.

    Attributes:
        retimer: knows how many came out.
        deinterlacer: knows whether it was used.
        size: width and height of the first stored picture; later ones are scaled to it.
        num_resized: how many were.
        num_source: how many source pictures came.
    """

    def __init__(self, path: Path, salvage: bool = False, longest_side_px: int | None = None) -> None:
        self.path, self.salvage, self.longest_side_px = path, salvage, longest_side_px
        self.retimer: Retimer[_Numbered] = Retimer()
        self.deinterlacer = Deinterlacer()
        self.size: tuple[int, int] | None = None
        self.num_resized = self.num_source = 0
        self._waiting: list[tuple[float, float]] = []  # times and durations of pictures inside the deinterlacer
        self._last_s = self._duration_s = 0.0

    def push(self, event: Decoded) -> Iterator[_Numbered]:
        """Takes a picture, yields those that are now decided.

        Raises:
            AvfusionError: the one before would stand still for more than ``LONGEST_HOLD_S``.
        """
        self._waiting.append((event.time_s or 0.0, event.duration_s))
        for frame in self.deinterlacer.push(event.frame):
            yield from self._place(frame)

    def finish(self) -> Iterator[_Numbered]:
        """Yields the rest.

        Raises:
            AvfusionError: no picture came, or the last one would stand still for more than ``LONGEST_HOLD_S``.
        """
        for frame in self.deinterlacer.finish():
            yield from self._place(frame)
        if self.num_source == 0:
            raise AvfusionError(f"{self.path} has no picture that can be decoded")
        self._check_hold(self._last_s + self._duration_s, "the file's end")
        yield from self.retimer.finish(self._duration_s)

    def notes(self, facts: SourceFacts) -> Iterator[str]:
        """What a user should know about the pictures, a sentence each."""
        if (facts.picture_starts_s or 0.0) >= 1 / VIDEO_HZ:
            yield f"the picture starts {facts.picture_starts_s:.2f} s after the sound; its first one is shown before"
        if self.num_resized:
            width, height = self.size or (0, 0)
            yield f"{self.num_resized} pictures of another size were scaled to the first's {width}x{height}"
        if self.deinterlacer.used:
            yield "interlaced pictures were deinterlaced (bwdif)"
        if self.retimer.longest_hold_s >= LONG_HOLD_S:
            held_s, at_s = self.retimer.longest_hold_s, self.retimer.held_at_s
            yield f"the picture stands still for {held_s:.2f} s from {at_s:.2f} s on: no other comes in between"
        if self.retimer.backward:
            yield f"{self.retimer.backward} pictures were left out: their stamps run backward or repeat"

    def _place(self, frame: Any) -> Iterator[_Numbered]:
        time_s, self._duration_s = self._waiting.pop(0)
        size = (frame.width, frame.height)
        self.size = self.size or size
        self.num_resized += size != self.size
        self._check_hold(time_s, f"picture {self.num_source}")
        self._last_s = max(time_s, self._last_s)
        yield from self.retimer.push(time_s, _Numbered(self.num_source, frame, self._shown_size(), {}))
        self.num_source += 1

    def _shown_size(self) -> tuple[int, int]:
        """Width and height of the arrays, before they are turned upright."""
        width, height = self.size or (0, 0)
        longest = max(width, height)
        if self.longest_side_px is None or longest <= self.longest_side_px:
            return width, height
        return max(1, round(width * self.longest_side_px / longest)), max(
            1, round(height * self.longest_side_px / longest)
        )

    def _check_hold(self, until_s: float, what: str) -> None:
        if until_s - self._last_s > LONGEST_HOLD_S and not self.salvage:
            raise AvfusionError(
                f"{self.path} jumps from {self._last_s:.2f} s to {until_s:.2f} s at {what}: one picture would stand "
                f"still for {until_s - self._last_s:.0f} s; expected at most {LONGEST_HOLD_S:.0f} s. Write its stamps "
                "anew, or take it so (--salvage)"
            )


def push_sound(clock: SoundClock, event: Decoded) -> Iterator[NDArray[np.float32]]:
    """Passes a decoded block on to the clock."""
    frame, samples = event.frame, samples_of(event.frame)
    declared = round(event.duration_s * frame.sample_rate)
    if 0 < declared < samples.shape[1] - _PADDING_S * frame.sample_rate:
        samples = samples[:, :declared]
    names = [channel.name for channel in frame.layout.channels]
    yield from clock.push(event.time_s, samples, names, frame.sample_rate)


def check_samples(path: Path, clock: SoundClock, salvage: bool) -> None:
    """Refuses a sound with too many samples that are no sound.

    Raises:
        AvfusionError: more than a hundredth is NaN, infinite or beyond ``OVER_RANGE``, and nothing is to be salvaged.
    """
    if clock.bad_share > MOST_BAD_SAMPLES and not salvage:
        raise AvfusionError(
            f"the sound of {path} is damaged: {clock.num_not_finite} samples are NaN or infinite and "
            f"{clock.num_over_range} beyond -1.5..1.5, of {clock.num_samples}; expected samples in -1..1. "
            "Write it anew, or go on with them zeroed and clipped (--salvage)"
        )
