"""Where to look for faces: every few frames, and in between only where something happened.

Detection is what costs. Two looks *agree* if every certain face of one has exactly one counterpart in the other, near
and alike. Between two that do not (somebody came, went, crossed, or was replaced by a cut) the middle frame is looked
at, and so on, down to neighbouring frames, as long as the allowance of further looks lasts.

Shapes: boxes ``(N, 5)`` as x1, y1, x2, y2 in pixels and confidence, appearances ``(N, K)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.faces.appearance import SIZE, appearance
from avfusion.faces.boxes import overlaps, without_repeats
from avfusion.faces.detect import Detector

NEAR_OVERLAP = 0.3  # of the boxes of one face in two looks
ALIKE = 0.65  # correlation of its appearances
_APART_OVERLAP = 0.1  # of boxes of two faces, above which they may be taken for each other


@dataclass(frozen=True, eq=False)
class Look:
    """What was found in one frame.

    Attributes:
        frame: its number.
        boxes: ``(N, 5)``.
        appearances: ``(N, K)``.
    """

    frame: int
    boxes: NDArray[np.float32]
    appearances: NDArray[np.float32]


def look_at(frame: int, picture_rgb: NDArray[np.uint8], detector: Detector) -> Look:
    """Detects the faces of one frame."""
    boxes = detector(picture_rgb)
    boxes = boxes[without_repeats(boxes)]
    looks = [appearance(picture_rgb, box) for box in boxes]
    return Look(frame, boxes, np.stack(looks) if looks else np.zeros((0, SIZE), dtype=np.float32))


class Allowance:
    """How many further looks there may be, so that a restless film costs no more than a known multiple.

    Args:
        per_look: further looks for each regular one, on average.
        most_saved: how many may be saved up in quiet stretches.
    """

    def __init__(self, per_look: float, most_saved: int) -> None:
        self.per_look, self.most_saved = per_look, most_saved
        self._left = float(most_saved) if per_look > 0 else 0.0

    def earn(self) -> None:
        """A regular look was made."""
        self._left = min(self._left + self.per_look, float(self.most_saved))

    def spend(self) -> bool:
        """Takes one, if there is one."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


def fill_between(
    first: Look, last: Look, look: Callable[[int], Look], allowance: Allowance, certain: float
) -> list[Look]:
    """The further looks between two, in order of time.

    Args:
        first: a look.
        last: a later one.
        look: makes the look at a frame.
        allowance: is spent.
        certain: confidence from which a face must have a counterpart.
    """
    gaps = [(first, last)]
    found: list[Look] = []
    while gaps:
        one, two = gaps.pop(0)
        if two.frame - one.frame < 2 or agree(one, two, certain):
            continue
        if not allowance.spend():
            break
        middle = look((one.frame + two.frame) // 2)
        found.append(middle)
        gaps += [(one, middle), (middle, two)]
    return sorted(found, key=lambda each: each.frame)


def agree(one: Look, two: Look, certain: float) -> bool:
    """Whether every certain face of each look has exactly one counterpart in the other."""
    if not len(one.boxes) or not len(two.boxes):
        return not (np.concatenate([one.boxes[:, 4], two.boxes[:, 4]]) >= certain).any()
    overlap = overlaps(one.boxes, two.boxes)
    counterpart = (overlap >= NEAR_OVERLAP) & (one.appearances @ two.appearances.T >= ALIKE)
    possible = overlap >= _APART_OVERLAP
    for axis, look in ((1, one), (0, two)):
        must = look.boxes[:, 4] >= certain
        if not ((counterpart.sum(axis=axis) == 1) & (possible.sum(axis=axis) == 1))[must].all():
            return False
    return True
