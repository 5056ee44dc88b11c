"""``N`` rows sorted once by score: the counts behind AP, AUROC and every figure read off the ROC curve.

Rows of equal score form one threshold, so no figure depends on the order of the rows. Weights ``(N,)`` count a row as
often as they say: a bootstrap resample of videos is a set of weights and costs a few sums, not a sort.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError


class Ranking:
    """Rows in order of falling score, ties as one of ``K`` thresholds.

    Args:
        labels: ``(N,)`` bool, True = speaking audibly.
        scores: ``(N,)`` finite numbers, higher = more likely speaking.

    Raises:
        ValueError: shapes or the type of the labels are wrong.
        AvfusionError: a score is NaN or infinite.
    """

    def __init__(self, labels: NDArray[np.bool_], scores: NDArray[np.floating[Any]]) -> None:
        labels, scores = np.asarray(labels), np.asarray(scores, dtype=np.float64)
        if labels.dtype != np.bool_:
            raise ValueError(f"labels are {labels.dtype}, expected bool (True = speaking)")
        if labels.ndim != 1 or labels.shape != scores.shape:
            raise ValueError(f"labels {labels.shape} and scores {scores.shape}, expected one shape (N,)")
        if not np.isfinite(scores).all():
            row = int(np.argmin(np.isfinite(scores)))
            raise AvfusionError(f"score {scores[row]} in row {row} of {len(scores)}, expected finite numbers")
        self._order = np.argsort(-scores)  # in a tie rows may stand in any order: no figure looks inside
        positive, falling = labels[self._order], scores[self._order]
        new_tie = np.append(True, falling[1:] != falling[:-1])[: len(falling)]
        first_of_tie = np.flatnonzero(new_tie)
        self._thresholds = falling[first_of_tie].astype(np.float64)
        self._last_of_tie = np.append(first_of_tie[1:], len(falling))[: len(first_of_tie)] - 1
        # AP and AUROC need only the P' ties that hold a positive: precision never rises at the others.
        self._positive_rows = np.flatnonzero(positive)
        tie_of_positive = (np.cumsum(new_tie) - 1)[self._positive_rows]
        held, self._first_positive = np.unique(tie_of_positive, return_index=True)
        self._before_held, self._end_of_held = first_of_tie[held], self._last_of_tie[held] + 1
        self._positive = positive

    def counts(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """True and false positives when everything down to each threshold is accepted.

        Returns:
            ``(K,)`` true positives and ``(K,)`` false positives, both growing.
        """
        true_positives = np.cumsum(self._positive, dtype=np.float64)[self._last_of_tie]
        return true_positives, self._last_of_tie + 1.0 - true_positives

    def thresholds(self) -> NDArray[np.float64]:
        """``(K,)`` the score of each threshold, falling, in the order of :meth:`counts`."""
        return self._thresholds

    def average_precision(self, weights: NDArray[np.float64] | None = None) -> float:
        """VOC all-point AP (see :mod:`avfusion.evaluation.average_precision`); NaN without positives.

        Args:
            weights: ``(N,)`` how often each row counts, in the order the rows were given; None counts each once.
        """
        gains, _, accepted = self._held_ties(weights)
        return _average_precision(gains, np.cumsum(gains), accepted)

    def auroc(self, weights: NDArray[np.float64] | None = None) -> float:
        """Share of (positive, negative) pairs in which the positive scores higher, ties half; NaN without a pair.

        Args:
            weights: ``(N,)`` how often each row counts, in the order the rows were given; None counts each once.
        """
        gains, before, accepted = self._held_ties(weights)
        total = float(len(self._order) if weights is None else weights.sum())
        return _auroc(gains, np.cumsum(gains), before, accepted, total)

    def of_groups(self, group: NDArray[np.int64]) -> GroupedRanking:
        """The same ranking for resamples of whole groups.

        Args:
            group: ``(N,)`` number of each row's group, in the order the rows were given.
        """
        return GroupedRanking(self, group)

    def _held_ties(self, weights: NDArray[np.float64] | None) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """For each tie that holds a positive: weight of its positives, of all rows above it, and of those with it."""
        if weights is None:
            return self._joined_ties(np.ones(len(self._positive_rows)), np.arange(len(self._order) + 1.0))
        in_order = weights[self._order]
        return self._joined_ties(in_order[self._positive_rows], np.append(0.0, np.cumsum(in_order)))

    def _joined_ties(
        self, positive_weights: NDArray[Any], sums: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The same from the weights of the positives and the running sums of all weights, by falling score."""
        if len(self._first_positive) < len(self._positive_rows):
            positive_weights = np.add.reduceat(positive_weights, self._first_positive)
        return positive_weights, sums[self._before_held], sums[self._end_of_held]


class GroupedRanking:
    """A ranking whose rows are drawn by whole groups: all figures of a resample from one pass over the rows."""

    def __init__(self, ranking: Ranking, group: NDArray[np.int64]) -> None:
        self._ranking, self._group = ranking, np.asarray(group)[ranking._order]
        self._rows_of_group = np.bincount(self._group)
        # No sum of rows can be larger than this. Memory is used again: fresh pages of it cost more than the sums.
        largest = len(self._group) * len(self._rows_of_group)
        self._weights = np.empty(len(self._group), np.int32 if largest < 2**31 else np.int64)
        self._sums = np.zeros(len(self._group) + 1, self._weights.dtype)

    def figures(self, times_drawn: NDArray[np.int64]) -> tuple[float, float, float, float]:
        """AP, AUROC, EER and FPR at 95 % TPR when each group counts as often as it was drawn.

        NaN as in :class:`Ranking`; EER and FPR where AUROC is.

        Args:
            times_drawn: ``(G,)`` for each group.
        """
        np.take(times_drawn.astype(self._weights.dtype), self._group, out=self._weights, mode="clip")
        np.cumsum(self._weights, dtype=self._weights.dtype, out=self._sums[1:])
        gains, before, accepted = self._ranking._joined_ties(self._weights[self._ranking._positive_rows], self._sums)
        true_positives, total = np.cumsum(gains), float(self._rows_of_group @ times_drawn)
        area = _auroc(gains, true_positives, before, accepted, total)
        rates = (float("nan"),) * 2
        if not np.isnan(area):
            negatives = total - float(true_positives[-1])
            rates = self._equal_error_rate(true_positives, negatives), _fpr_at(true_positives, accepted, negatives)
        return _average_precision(gains, true_positives, accepted), area, *rates

    def _equal_error_rate(self, true_positives: NDArray[Any], negatives: float) -> float:
        """The rate at which misses and false accepts meet; misses minus false accepts falls, so halving finds it."""
        ends, held = self._ranking._last_of_tie + 1, self._ranking._end_of_held
        positives = float(true_positives[-1])

        def rates(tie: int) -> tuple[float, float]:
            """Misses and false accepts when everything down to a tie is accepted; nothing at -1."""
            if tie < 0:
                return 1.0, 0.0
            reached = int(np.searchsorted(held, ends[tie], side="right"))
            right = float(true_positives[reached - 1]) if reached else 0.0
            return 1 - right / positives, (float(self._sums[ends[tie]]) - right) / negatives

        above, below = -1, len(ends) - 1
        while below - above > 1:
            middle = (above + below) // 2
            missed, accepted = rates(middle)
            above, below = (above, middle) if missed <= accepted else (middle, below)
        (missed, accepted), (missed_below, accepted_below) = rates(above), rates(below)
        excess, excess_below = missed - accepted, missed_below - accepted_below
        return accepted + excess / (excess - excess_below) * (accepted_below - accepted)


def _fpr_at(
    true_positives: NDArray[Any], accepted: NDArray[Any], negatives: float, true_positive_rate: float = 0.95
) -> float:
    tie = int(np.searchsorted(true_positives / true_positives[-1], true_positive_rate))
    return float(accepted[tie] - true_positives[tie]) / negatives


def _average_precision(gains: NDArray[Any], true_positives: NDArray[Any], accepted: NDArray[Any]) -> float:
    if not len(gains) or true_positives[-1] == 0:
        return float("nan")
    # Ties of weight 0 at the head accept nothing; they add no recall, so their precision may be anything.
    precision = true_positives / np.maximum(accepted, np.finfo(np.float64).tiny)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(gains @ envelope / true_positives[-1])


def _auroc(
    gains: NDArray[Any], true_positives: NDArray[Any], before: NDArray[Any], accepted: NDArray[Any], total: float
) -> float:
    positives = float(true_positives[-1]) if len(gains) else 0.0
    if positives == 0 or total == positives:
        return float("nan")
    higher = before - (true_positives - gains)  # negatives that score above the tie
    tied = accepted - before - gains
    return float(1 - gains @ (higher + tied / 2) / (positives * (total - positives)))
