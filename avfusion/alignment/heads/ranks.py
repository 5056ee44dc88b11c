"""Medians and AUROC on a thousand draws of groups at once: values are sorted into ranks once, and draws count ranks.

``N`` values of ``G`` groups, ``R`` draws, ``Q`` bins of ranks. A draw of groups is a row of counts; the counts of the
bins under all draws are one product of matrices. With up to 256 values a bin is one value; with more a draw's quantile
is known to a 256th of the ranks, interpolated between the ends of its bin, which is far less than draws differ by.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from avfusion.alignment.measures.resampling import Floats, ratio

BINS = 256


def drawn_quantiles(
    values: NDArray[np.floating], group: NDArray[np.int64], counts: Floats, shares: Sequence[float]
) -> Floats:
    """Quantiles of each draw.

    Args:
        values: ``(N,)``; NaN does not count.
        group: ``(N,)`` numbers of groups.
        counts: ``(R, G)`` how often each group was drawn.
        shares: which quantiles, 0..1.

    Returns:
        ``(R, len(shares))``; NaN where a draw has no value.
    """
    real = ~np.isnan(values)
    order = np.argsort(values[real], kind="stable")
    ascending, group = np.asarray(values[real][order], dtype=np.float64), group[real][order]
    if not len(ascending):
        return np.full((len(counts), len(shares)), np.nan)
    starts = np.unique(np.linspace(0, len(ascending), min(len(ascending), BINS) + 1).astype(np.int64))[:-1]
    ends = np.append(starts[1:], len(ascending))
    bin_of = np.repeat(np.arange(len(starts)), ends - starts)
    low, span = ascending[starts], ascending[ends - 1] - ascending[starts]
    until = _drawn_until(group, bin_of, counts, len(starts))
    found, draw = np.full((len(counts), len(shares)), np.nan), np.arange(len(counts))
    for column, share in enumerate(shares):
        target = share * until[:, -1]
        at = (until[:, 1:-1] < target[:, None]).sum(axis=1)
        before, after = until[draw, at], until[draw, at + 1]
        within = ratio(target - before, after - before).clip(0, 1)
        found[:, column] = low[at] + within * span[at]
    return found


def drawn_auroc(
    labels: NDArray[np.bool_], scores: NDArray[np.floating], group: NDArray[np.int64], counts: Floats
) -> Floats:
    """AUROC of each draw: how often a positive scores higher than a negative; of equal bins half.

    Args:
        labels: ``(N,)``, True = positive.
        scores: ``(N,)`` finite.
        group: ``(N,)`` numbers of groups.
        counts: ``(R, G)`` how often each group was drawn.

    Returns:
        ``(R,)``; NaN where a draw lacks positives or negatives.
    """
    ascending = np.sort(scores)
    at = np.unique(np.linspace(0, len(ascending), min(len(ascending), BINS), endpoint=False).astype(np.int64))
    edges = np.unique(ascending[at])
    bin_of = np.searchsorted(edges, scores, side="right") - 1
    positive = np.diff(_drawn_until(group[labels], bin_of[labels], counts, len(edges)), axis=1)
    negative = _drawn_until(group[~labels], bin_of[~labels], counts, len(edges))
    lower = (negative[:, 1:] + negative[:, :-1]) / 2
    return ratio((positive * lower).sum(axis=1), positive.sum(axis=1) * negative[:, -1])


def _drawn_until(group: NDArray[np.int64], bin_of: NDArray[np.int64], counts: Floats, bins: int) -> Floats:
    """``(R, Q + 1)`` how many values each draw has before each bin, and in all."""
    held = np.bincount(group * (bins + 1) + bin_of + 1, minlength=counts.shape[1] * (bins + 1))
    until = held.reshape(counts.shape[1], bins + 1).cumsum(axis=1)  # of each group: drawn afterwards, it is one product
    return np.asarray(counts @ until.astype(np.float64))
