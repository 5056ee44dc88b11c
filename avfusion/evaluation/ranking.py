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
        self._order = np.argsort(-scores, kind="stable")
        positive, falling = labels[self._order], scores[self._order]
        new_tie = np.append(True, falling[1:] != falling[:-1])[: len(falling)]
        first_of_tie = np.flatnonzero(new_tie)
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

    def average_precision(self, weights: NDArray[np.float64] | None = None) -> float:
        """VOC all-point AP (see :mod:`avfusion.evaluation.average_precision`); NaN without positives.

        Args:
            weights: ``(N,)`` how often each row counts, in the order the rows were given; None counts each once.
        """
        gains, _, accepted = self._held_ties(weights)
        true_positives = np.cumsum(gains)
        if not len(gains) or true_positives[-1] == 0:
            return float("nan")
        # Ties of weight 0 at the head accept nothing; they add no recall, so their precision may be anything.
        precision = true_positives / np.maximum(accepted, np.finfo(np.float64).tiny)
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        return float(gains @ envelope / true_positives[-1])

    def auroc(self, weights: NDArray[np.float64] | None = None) -> float:
        """Share of (positive, negative) pairs in which the positive scores higher, ties half; NaN without a pair.

        Args:
            weights: ``(N,)`` how often each row counts, in the order the rows were given; None counts each once.
        """
        gains, before, accepted = self._held_ties(weights)
        true_positives = np.cumsum(gains)
        positives = true_positives[-1] if len(gains) else 0.0
        negatives = (len(self._order) if weights is None else weights.sum()) - positives
        if positives == 0 or negatives == 0:
            return float("nan")
        higher = before - (true_positives - gains)  # negatives that score above the tie
        tied = accepted - before - gains
        return float(1 - gains @ (higher + tied / 2) / (positives * negatives))

    def _held_ties(
        self, weights: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """For each tie that holds a positive: weight of its positives, of all rows above it, and of those with it."""
        if weights is None:
            sums = np.arange(len(self._order) + 1.0)
            positive_weights = np.ones(len(self._positive_rows))
        else:
            in_order = weights[self._order]
            sums = np.append(0.0, np.cumsum(in_order))
            positive_weights = in_order[self._positive_rows]
        if len(self._first_positive) < len(self._positive_rows):
            positive_weights = np.add.reduceat(positive_weights, self._first_positive)
        return positive_weights, sums[self._before_held], sums[self._end_of_held]
