"""Pictures at any times in, pictures at ``i / 25`` s out, each within half a frame of what a player shows then.

At 25 a second and faster that is the picture whose stamp is nearest. Where pictures come more slowly, or one stands
still, it stays until half a frame (20 ms) before the next one's stamp: the next one never appears early.

Works on whatever stands for a picture (an array, a decoder's frame, a number); holds two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from avfusion.clock import VIDEO_HZ

Item = TypeVar("Item")


class Retimer(Generic[Item]):
    """Resamples a sequence of stamped items to 25 a second from time 0.

    Attributes:
        emitted: how many came out.
        longest_hold_s: the longest time between one stamp and the next.
        held_at_s: the earlier of those two.
        backward: how many were left out because their stamp was not later than the one before.
    """

    def __init__(self) -> None:
        self.emitted = 0
        self.backward = 0
        self.longest_hold_s = self.held_at_s = 0.0
        self._first_s = 0.0
        self._count = 0
        self._step_s = 1 / VIDEO_HZ
        self._last: tuple[float, Item] | None = None

    def push(self, time_s: float, item: Item) -> Iterator[Item]:
        """Takes the next item.

        Args:
            time_s: its time; an item that is not later than the one before shows no new instant and is left out.
            item: the item.

        Yields:
            The items of the instants that are now decided.
        """
        if self._last is None:
            self._first_s = time_s
        else:
            last_s, last = self._last
            if time_s <= last_s:
                self.backward += 1
                return
            self._step_s = time_s - last_s
            if self._step_s > self.longest_hold_s:
                self.longest_hold_s, self.held_at_s = self._step_s, last_s
            until_s = max((last_s + time_s) / 2, time_s - 0.5 / VIDEO_HZ)
            while self.emitted / VIDEO_HZ < until_s:
                self.emitted += 1
                yield last
        self._count += 1
        self._last = time_s, item

    def finish(self, duration_s: float = 0.0) -> Iterator[Item]:
        """Yields the last item as long as it is shown.

        Args:
            duration_s: how long the file says it is shown; 0 where it does not. Many files say too little: it is
                shown at least as long as the picture before, unless that one stood still (twice the mean step).
        """
        if self._last is None:
            return
        last_s, last = self._last
        if self._count < 2:
            shown_s = duration_s or 1 / VIDEO_HZ
        else:
            shown_s = max(duration_s, min(self._step_s, 2 * (last_s - self._first_s) / (self._count - 1)))
        while self.emitted / VIDEO_HZ < last_s + shown_s - 0.5 / VIDEO_HZ or self.emitted == 0:
            self.emitted += 1
            yield last
