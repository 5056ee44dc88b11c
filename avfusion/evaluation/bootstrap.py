"""Intervals: how far a figure would move if other videos had been filmed.

Frames of one video are anything but independent, so whole videos are drawn with replacement, as many as there are, and
the figure is computed on all their rows. A drawn set of videos reaches the figure as weights ``(N,)``, one a row.
Scenes made from one source clip are no more independent than its frames: there the clip is the group, not the scene.

Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), percentile interval.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.evaluation.groups import group_index


def bootstrap_interval(
    groups: NDArray[Any],
    statistic: Callable[[NDArray[np.float64]], float],
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Percentile bootstrap interval over groups (videos, or the source clips that scenes were made from).

    Args:
        groups: ``(N,)`` the group of each row, as ids or numbers.
        statistic: takes ``(N,)`` weights, how often each row was drawn, and gives the figure; NaN where the drawn
            groups do not allow it (no positives). :class:`~avfusion.evaluation.ranking.Ranking` offers such functions.
        resamples: how many sets of groups are drawn; 0 for no interval.
        level: share of the resamples inside the interval.
        seed: same seed, same interval.

    Returns:
        ``(low, high)``, or None where there is no interval to give: fewer than two groups, no resamples wanted, or a
        figure that is undefined in half of the resamples or more. Undefined resamples are otherwise left out.
    """
    index, names = group_index(groups)
    if len(names) < 2 or resamples == 0:
        return None
    generator = np.random.default_rng(seed)
    figures = np.empty(resamples)
    for resample in range(resamples):
        drawn = generator.integers(len(names), size=len(names))
        times_drawn = np.bincount(drawn, minlength=len(names)).astype(np.float64)
        figures[resample] = statistic(times_drawn[index])
    figures = figures[~np.isnan(figures)]
    if len(figures) <= resamples / 2:
        return None
    low, high = np.quantile(figures, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
