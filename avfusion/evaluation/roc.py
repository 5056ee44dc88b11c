"""Figures that do not move with the share of speaking frames (AUROC, EER, FPR at 95 % TPR), and calibration (ECE).

Shapes: ``(N,)`` bool labels, True = speaking audibly; ``(N,)`` finite scores, higher = more likely speaking. A
threshold accepts all rows with at least its score, so rows of one score are accepted together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.evaluation.ranking import Ranking


def auroc(labels: NDArray[np.bool_], scores: NDArray[np.floating[Any]]) -> float:
    """Probability that a random positive scores higher than a random negative; a tie counts one half.

    Raises:
        AvfusionError: the rows are all positive or all negative, or a score is not finite.
    """
    ranking = Ranking(labels, scores)
    _need_both(labels, "AUROC")
    return ranking.auroc()


def equal_error_rate(labels: NDArray[np.bool_], scores: NDArray[np.floating[Any]]) -> float:
    """The rate at which misses and false accepts are equally frequent, on the straight lines between ROC points.

    Raises:
        AvfusionError: the rows are all positive or all negative, or a score is not finite.
    """
    return equal_error_rate_of(*_roc(labels, scores, "EER"))


def equal_error_rate_of(fpr: NDArray[np.float64], tpr: NDArray[np.float64]) -> float:
    """:func:`equal_error_rate` of a ROC curve as :func:`roc_of` gives it."""
    excess = (1 - tpr) - fpr  # misses minus false accepts: falls from 1 (accept nothing) to -1 (accept all)
    after = int(np.argmax(excess <= 0))
    before = after - 1
    share = excess[before] / (excess[before] - excess[after])
    return float(fpr[before] + share * (fpr[after] - fpr[before]))


def false_positive_rate_at(
    labels: NDArray[np.bool_], scores: NDArray[np.floating[Any]], true_positive_rate: float = 0.95
) -> float:
    """The lowest false positive rate of any threshold that accepts at least that share of the positives.

    No interpolation: the rate belongs to a threshold that can be set.

    Raises:
        AvfusionError: the rows are all positive or all negative, or a score is not finite.
    """
    return false_positive_rate_of(*_roc(labels, scores, "FPR at 95 % TPR"), true_positive_rate)


def false_positive_rate_of(
    fpr: NDArray[np.float64], tpr: NDArray[np.float64], true_positive_rate: float = 0.95
) -> float:
    """:func:`false_positive_rate_at` of a ROC curve as :func:`roc_of` gives it."""
    return float(fpr[np.argmax(tpr >= true_positive_rate)])


def expected_calibration_error(
    labels: NDArray[np.bool_], probabilities: NDArray[np.floating[Any]], bins: int = 15
) -> float:
    """How far probabilities are from frequencies: mean over rows of |share speaking - mean score| of the row's bin.

    Bins have equal width over 0..1; bin ``b`` of ``B`` holds ``b / B <= p < (b + 1) / B``, the last one 1 as well.

    Args:
        labels: ``(N,)`` bool.
        probabilities: ``(N,)`` in 0..1; logits are refused.
        bins: ``B``.

    Raises:
        ValueError: no rows, or a score outside 0..1.

    Source: Guo et al., On Calibration of Modern Neural Networks (2017).
    """
    probabilities = np.asarray(probabilities, dtype=np.float64)
    if not len(probabilities) or not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ValueError("calibration needs at least one row and probabilities in 0..1")
    one_group = np.zeros(len(probabilities), np.int64)
    return float(np.abs(calibration_gaps(labels, probabilities, one_group, bins)).sum() / len(probabilities))


def calibration_gaps(
    labels: NDArray[np.bool_], probabilities: NDArray[np.floating[Any]], group: NDArray[np.int64], bins: int = 15
) -> NDArray[np.float64]:
    """``(G, B)`` sum of labels minus sum of scores of each group's rows in each bin; over groups they add up.

    For a bin, rows * |mean label - mean score| is the absolute value of the sum.

    Args:
        labels: ``(N,)`` bool.
        probabilities: ``(N,)`` in 0..1.
        group: ``(N,)`` number of each row's group, from 0.
        bins: ``B``.
    """
    row_bin = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    cell, cells = group * bins + row_bin, (int(group.max()) + 1) * bins
    speaking = np.bincount(cell, weights=np.asarray(labels, dtype=np.float64), minlength=cells)
    predicted = np.bincount(cell, weights=probabilities, minlength=cells)
    return np.asarray(speaking - predicted, dtype=np.float64).reshape(-1, bins)


def roc_of(ranking: Ranking) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """False and true positive rates from (0, 0), accept nothing, to (1, 1), accept all; rows of both kinds needed."""
    true_positives, false_positives = ranking.counts()
    fpr = np.append(0.0, false_positives / false_positives[-1])
    tpr = np.append(0.0, true_positives / true_positives[-1])
    return fpr, tpr


def _roc(
    labels: NDArray[np.bool_], scores: NDArray[np.floating[Any]], figure: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    ranking = Ranking(labels, scores)
    _need_both(labels, figure)
    return roc_of(ranking)


def _need_both(labels: NDArray[np.bool_], figure: str) -> None:
    positives = int(np.sum(labels))
    if positives in (0, len(labels)):
        raise AvfusionError(
            f"{positives} of {len(labels)} rows are SPEAKING_AUDIBLE, expected rows of both kinds: {figure} compares "
            "speaking with not speaking, check the label file or choose another split"
        )
