"""Where one shot of a film ends and the next begins: hard cuts, dissolves and fades.

A hard cut: none of the few frames before it shows the same place as any of the few after it (so a flash, which comes
back to where it was, is none). A dissolve: over 21 frames the place changes, the frame in the middle is a mixture of
both ends, the share of the second end grows from frame to frame (a pan's middle is no such mixture), and the change is
not what a moving camera would make. A fade passes through a picture without content, which is a place of its own.

Streaming: frames go in one by one, and a cut comes out at most ``LOOK_AHEAD`` frames later. Memory: some thumbnails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.faces.thumbnails import FLAT_LEVELS, correlation, explained_by_motion, same_place, thumbnail

AROUND_CUT = 4  # frames on each side of a hard cut that must differ: a flash of three frames is none
HALF_DISSOLVE = 10  # frames on each side of a dissolve's middle; one of 25 frames is all but over then
_PATIENCE = 5  # frames of a dissolve that may look otherwise
LOOK_AHEAD = 3 * HALF_DISSOLVE + _PATIENCE + 1
_NEARBY = 3  # frames from a dissolve's middle, where it is told from a moving camera
_DIFFERENT_ENDS = 0.85  # correlation of the ends, above which nobody looks for a dissolve
_LEAST_SHARE = 0.3  # of each end in the middle frame
_LARGEST_REST = 0.4  # of a frame's variance, unexplained by the mixture: people move meanwhile
_SHARES_SUM = (0.7, 1.2)  # a mixture of pictures has shares of sum 1; what moved lowers it


@dataclass(frozen=True)
class Cut:
    """A shot's beginning.

    Attributes:
        frame: the new shot's first frame; in a dissolve that which shows both shots equally.
        gradual: whether it is the middle of a dissolve.
    """

    frame: int
    gradual: bool


class ShotFinder:
    """Finds the cuts of a film, frame by frame.

    Attributes:
        settled: all cuts at frames below this one have come out.
    """

    def __init__(self) -> None:
        self.settled = 0
        self._count = 0
        self._kept: deque[NDArray[np.float32]] = deque(maxlen=2 * HALF_DISSOLVE + AROUND_CUT + 1)
        self._last_cut = 0
        self._hard: deque[int] = deque()  # known, not yet given out
        self._mixtures: list[tuple[float, int]] = []  # (distance from equal shares, frame) of the dissolve under way

    def push(self, picture: NDArray[np.uint8]) -> Iterator[Cut]:
        """Takes the next frame.

        Args:
            picture: ``(H, W)`` grey or ``(H, W, 3)`` RGB, any size.

        Yields:
            Cuts that are now known, in order.
        """
        self._kept.append(thumbnail(picture))
        self._count += 1
        yield from self._see(self._count - AROUND_CUT, self._count - 1 - HALF_DISSOLVE)

    def finish(self) -> Iterator[Cut]:
        """Yields the cuts among the last frames, of which less is known."""
        for late in range(AROUND_CUT - 1, 0, -1):
            if (frame := self._count - late) > 0 and self._is_hard(frame):
                self._hard.append(frame)
        yield from self._end_dissolve()
        while self._hard:
            yield self._cut(self._hard.popleft(), False)
        self.settled = self._count

    def _see(self, sharp: int, middle: int) -> Iterator[Cut]:
        """Looks for a hard cut at one frame and a dissolve around an earlier one."""
        if sharp > 0 and self._is_hard(sharp):
            self._hard.append(sharp)
        if middle < 0:
            return
        distance = self._mixture(middle)
        if distance is not None:
            self._mixtures.append((distance, middle))
        elif self._mixtures and middle > self._mixtures[-1][1] + _PATIENCE:
            yield from self._end_dissolve()
        if not self._mixtures:
            while self._hard and self._hard[0] <= middle + 1:
                yield self._cut(self._hard.popleft(), False)
            self.settled = middle + 1
        elif middle - self._mixtures[0][1] > 2 * HALF_DISSOLVE:  # nothing dissolves that long
            yield from self._end_dissolve()

    def _end_dissolve(self) -> Iterator[Cut]:
        if self._mixtures:
            frame = min(self._mixtures)[1]
            self._mixtures.clear()
            if frame - self._last_cut > AROUND_CUT:
                yield self._cut(frame, True)

    def _cut(self, frame: int, gradual: bool) -> Cut:
        self._last_cut = frame
        return Cut(frame, gradual)

    def _at(self, frame: int) -> NDArray[np.float32]:
        return self._kept[frame - self._count + len(self._kept)]

    def _is_hard(self, frame: int) -> bool:
        """Whether a shot begins at this frame."""
        first = max(0, self._count - len(self._kept), frame - AROUND_CUT)
        before = range(frame - 1, first - 1, -1)
        after = range(frame, min(frame + AROUND_CUT, self._count))
        return not any(same_place(self._at(one), self._at(two)) for two in after for one in before)

    def _mixture(self, frame: int) -> float | None:
        """How far from equal the shares of both ends are in this frame; None where it is no such mixture."""
        first, last = frame - HALF_DISSOLVE, frame + HALF_DISSOLVE
        if first < max(self._last_cut, self._count - len(self._kept)) or last >= self._count:
            return None
        if any(first < cut <= last for cut in self._hard):
            return None
        ends = self._at(first), self._at(last)
        if min(end.std() for end in ends) < FLAT_LEVELS or correlation(*ends) > _DIFFERENT_ENDS:
            return None
        quarter = HALF_DISSOLVE // 2
        shares = [second_share(*ends, self._at(at)) for at in (frame - quarter, frame, frame + quarter)]
        if any(share is None for share in shares):
            return None
        early, middle, late = (float(share) for share in shares if share is not None)
        if not early + 0.1 < middle < late - 0.1 or not _LEAST_SHARE <= middle <= 1 - _LEAST_SHARE:
            return None
        if early > 0.5 - _LEAST_SHARE / 3 or late < 0.5 + _LEAST_SHARE / 3:
            return None
        nearby = self._at(frame - _NEARBY), self._at(frame + _NEARBY)
        return None if explained_by_motion(*nearby) or same_place(*ends) else abs(middle - 0.5)


def second_share(one: NDArray[np.float32], two: NDArray[np.float32], between: NDArray[np.float32]) -> float | None:
    """The share of the second of two pictures in one that may be a mixture of both.

    Returns:
        About 0..1, or None where it is no mixture of them.
    """
    ends = np.stack([one.ravel() - one.mean(), two.ravel() - two.mean()], axis=1)
    middle = between.ravel() - between.mean()
    shares, *_ = np.linalg.lstsq(ends, middle, rcond=None)
    rest = middle - ends @ shares
    total = float(shares.sum())
    if (rest**2).sum() > _LARGEST_REST * (middle**2).sum() or not _SHARES_SUM[0] <= total <= _SHARES_SUM[1]:
        return None
    return float(shares[1]) / total


def find_cuts(pictures: Iterable[NDArray[np.uint8]]) -> Iterator[Cut]:
    """The cuts of a whole film.

    Args:
        pictures: its frames in order, ``(H, W)`` grey or ``(H, W, 3)`` RGB.
    """
    finder = ShotFinder()
    for picture in pictures:
        yield from finder.push(picture)
    yield from finder.finish()
