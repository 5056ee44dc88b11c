"""Films of planted people: textured squares that move, and a detector that knows where they are.

A hidden person (another one in front covers more than a third of the box) is not found, as with a real detector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from avfusion.faces.track_records import DETECTED, DetectedTrack

HEIGHT, WIDTH, SIDE = 120, 320, 40
HIDDEN = 0.35


@lru_cache
def texture(seed: int, height: int = SIDE, width: int = SIDE, cell: int = 8) -> NDArray[np.uint8]:
    coarse = np.random.default_rng(seed).integers(0, 256, (-(-height // cell), -(-width // cell), 3))
    return np.kron(coarse, np.ones((cell, cell, 1)))[:height, :width].astype(np.uint8)


@dataclass
class Person:
    """A square of ``SIDE`` pixels.

    Attributes:
        at: left edge by frame; None where absent.
        look: seed of its texture.
        top: upper edge.
        confidence: of its detections.
    """

    at: Callable[[int], float | None]
    look: int
    top: int = 40
    confidence: float = 0.9

    def box(self, frame: int) -> NDArray[np.float32] | None:
        left = self.at(frame)
        if left is None:
            return None
        return np.array([left, self.top, left + SIDE, self.top + SIDE], dtype=np.float32)


@dataclass
class Stage:
    """People in front of a wall, the later ones in front of the earlier; also the detector of its own film.

    Attributes:
        people: who.
        num_frames: of the film.
        missed: ``(person, frame)`` pairs that the detector does not find.
        looks: the frames it was asked for.
    """

    people: Sequence[Person]
    num_frames: int
    missed: set[tuple[int, int]] = field(default_factory=set)
    wall: Callable[[int], int] = lambda frame: 100
    looks: list[int] = field(default_factory=list)
    name: str = "planted"
    longest_side_px: int = 1000
    min_confidence: float = 0.4

    def pictures(self) -> list[NDArray[np.uint8]]:
        film = []
        for frame in range(self.num_frames):
            picture = texture(self.wall(frame), HEIGHT, WIDTH, 20) // 2 + 60
            for person in self.people:
                box = person.box(frame)
                if box is None:
                    continue
                left, right = max(int(box[0]), 0), min(int(box[0]) + SIDE, WIDTH)
                if left < right:
                    face = texture(person.look)[:, left - int(box[0]) : right - int(box[0])]
                    picture[person.top : person.top + SIDE, left:right] = face
            picture[0, 0] = (frame // 256, frame % 256, 0)  # the frame's number, for the detector
            film.append(picture)
        return film

    def __call__(self, picture_rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
        frame = 256 * int(picture_rgb[0, 0, 0]) + int(picture_rgb[0, 0, 1])
        self.looks.append(frame)
        boxes = [
            [*box, person.confidence]
            for number, person in enumerate(self.people)
            if (box := person.box(frame)) is not None
            and (number, frame) not in self.missed
            and not self._is_hidden(number, frame)
        ]
        return np.array(boxes, dtype=np.float32).reshape(-1, 5)

    def _is_hidden(self, number: int, frame: int) -> bool:
        own = self.people[number].at(frame)
        assert own is not None
        for other in self.people[number + 1 :]:
            left = other.at(frame)
            same_row = abs(other.top - self.people[number].top) < SIDE
            if left is not None and same_row and 1 - abs(left - own) / SIDE > HIDDEN:
                return True
        return False

    def whom(self, track: DetectedTrack) -> set[int]:
        """Whom a track shows where it was detected, over all such frames: one person, if none was swapped."""
        found = set()
        for index in np.flatnonzero(track.seen == DETECTED):
            left, top = track.boxes_xyxy_px[index, :2]
            frame = track.start_frame + int(index)
            distances = {
                number: abs(float(left) - at) + abs(float(top) - person.top)
                for number, person in enumerate(self.people)
                if (at := person.at(frame)) is not None and not self._is_hidden(number, frame)
            }
            found.add(min(distances, key=distances.__getitem__))
        return found
