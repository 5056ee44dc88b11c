"""What tracking takes and gives: its settings, a track with a box in every frame, and the count of what was left out.

Shapes: boxes ``(T, 4)`` as x1, y1, x2, y2 in pixels, ``seen`` and confidence ``(T,)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.errors import UsageError
from avfusion.faces.shots import Cut
from avfusion.tracks import GridTrack

MISSED, BETWEEN, DETECTED = 0, 1, 2  # looked for and not found; not looked for; found


@dataclass(frozen=True)
class TrackSettings:
    """How tracks are made.

    Attributes:
        every_frames: frames from one regular look to the next.
        further_looks: looks between them for each regular one, on average at most; made where faces come, go or cross.
        start_confidence: a track begins with a face at least so certain.
        longest_gap_frames: a face that is out of sight for longer begins a new track when it comes back.
        shortest_frames: shorter tracks are dropped, and counted; 0 keeps all.
        mean_confidence: tracks whose detections are less certain on average are dropped, and counted; 0 keeps all.
    """

    every_frames: int = 6
    further_looks: float = 0.5
    start_confidence: float = 0.7
    longest_gap_frames: int = 15
    shortest_frames: int = 10
    mean_confidence: float = 0.65  # in a street scene false faces had 0.63, faces of 20 px and up 0.72 to 0.94

    def __post_init__(self) -> None:
        if self.every_frames < 1 or min(self.further_looks, self.longest_gap_frames, self.shortest_frames) < 0:
            raise UsageError(f"{self}: expected a look every frame or more seldom, and nothing below 0")


@dataclass(frozen=True, eq=False)
class DetectedTrack:
    """One face over ``T`` consecutive frames of one shot.

    Attributes:
        entity_id: names it within the film.
        shot: number of its shot, from 0.
        start_frame: first frame; frame ``n`` stands at ``n / 25`` s.
        boxes_xyxy_px: ``(T, 4)`` float32; they may reach beyond the picture.
        seen: ``(T,)`` uint8: ``DETECTED``, ``BETWEEN`` (interpolated, nobody looked) or ``MISSED`` (interpolated).
        confidence: ``(T,)`` float32 in 0..1, interpolated as the boxes are.
    """

    entity_id: str
    shot: int
    start_frame: int
    boxes_xyxy_px: NDArray[np.float32]
    seen: NDArray[np.uint8]
    confidence: NDArray[np.float32]

    @property
    def num_frames(self) -> int:
        """``T``."""
        return len(self.boxes_xyxy_px)

    @property
    def times_s(self) -> NDArray[np.float64]:
        """``(T,)`` times of the frames in seconds."""
        return (self.start_frame + np.arange(self.num_frames)) / VIDEO_HZ

    def on_grid(self, width: int, height: int) -> GridTrack:
        """The track as the crop rule takes it, for a picture of this size in pixels."""
        size = np.array([width, height, width, height], dtype=np.float32)
        return GridTrack(self.entity_id, self.start_frame, self.boxes_xyxy_px / size)


@dataclass
class TrackReport:
    """What was done and what was left out.

    Attributes:
        frames: of the film.
        looks: detections made; ``further_looks`` of them between the regular ones.
        cuts: where shots begin, but the first.
        tracks: given out; ``track_frames`` and of these ``missed_frames`` in all.
        short: tracks dropped, ``short_frames`` long together, since they were shorter than ``shortest_frames``.
        weak: tracks dropped, ``weak_frames`` long together, since they were less certain than ``mean_confidence``.
        split: tracks ended since it was not clear whose face was whose.
        uncertain: faces left out, too uncertain to begin a track.
    """

    shortest_frames: int = 0
    mean_confidence: float = 0.0
    frames: int = 0
    looks: int = 0
    further_looks: int = 0
    cuts: list[Cut] = field(default_factory=list)
    tracks: int = 0
    track_frames: int = 0
    missed_frames: int = 0
    short: int = 0
    short_frames: int = 0
    weak: int = 0
    weak_frames: int = 0
    split: int = 0
    uncertain: int = 0

    def lines(self) -> Iterator[str]:
        """The same for a reader, a line each; what did not happen is not told, but for the number of faces."""
        yield (
            f"{counted(self.tracks, 'face track')} ({counted(self.track_frames, 'box')}) in"
            f" {counted(self.frames, 'frame')}, {counted(len(self.cuts) + 1, 'shot')}; {self.looks} looked at"
        )
        if self.missed_frames:
            yield f"{counted(self.missed_frames, 'box')} interpolated where the face was looked for and not found"
        if self.short:
            shortest, boxes = counted(self.shortest_frames, "frame"), counted(self.short_frames, "box")
            yield f"dropped {counted(self.short, 'track')} shorter than {shortest} ({boxes})"
        if self.weak:
            yield (
                f"dropped {counted(self.weak, 'track')} with a mean confidence below {self.mean_confidence} "
                f"({counted(self.weak_frames, 'box')})"
            )
        if self.split:
            yield f"{counted(self.split, 'track')} ended early: it was not clear whose face was whose"
        if self.uncertain:
            yield f"left out {counted(self.uncertain, 'single detection')}, too uncertain to begin a track"


def counted(number: int, noun: str) -> str:
    """A number of things, in words that fit one as well: ``1 box``, ``2 boxes``."""
    ending = "" if number == 1 else "es" if noun.endswith("x") else "s"
    return f"{number} {noun}{ending}"
