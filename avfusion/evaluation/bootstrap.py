"""Intervals: how far a figure would move if other videos had been filmed.

Frames of one video are anything but independent, so whole videos are drawn with replacement, as many as there are, and
the figure is computed on all their rows. A drawn set of videos reaches the figure as weights ``(N,)``, one a row.
Scenes made from one source clip are no more independent than its frames: there the clip is the group, not the scene.

Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), percentile interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.evaluation.groups import group_index
from avfusion.evaluation.ranking import Ranking

MIN_RESAMPLES = 100  # 95 % intervals of fewer are read off one or two resamples at either end
MIN_GROUPS = 10
_SILENT_S = 3.0  # no progress bar before


def enough_resamples(resamples: int) -> tuple[int, list[str]]:
    """How many resamples to draw: those that were asked for, or none where they are too few for an interval.

    Returns:
        The number, and the note to set beside the figures where there is something to say.
    """
    if 0 < resamples < MIN_RESAMPLES:
        return 0, [f"{resamples} resamples: no intervals, which take {MIN_RESAMPLES} or more"]
    return resamples, []


def few_groups(num_groups: int, drawn: str = "videos") -> str:
    """What to say beside an interval over few groups; empty where they are enough, or allow none."""
    if not 1 < num_groups < MIN_GROUPS:
        return ""
    return f"{num_groups} {drawn}: an interval over so few says little"


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
    sets = times_drawn(len(names), resamples, seed)
    figures = np.array([statistic(drawn[index].astype(np.float64)) for drawn in sets])
    return percentile_interval(figures, level)


def times_drawn(num_groups: int, resamples: int, seed: int = 0) -> Iterator[NDArray[np.int64]]:
    """Draws the groups again and again, as many as there are, with replacement.

    Args:
        num_groups: ``G``.
        resamples: how many sets are drawn.
        seed: same seed, same sets.

    Yields:
        ``(G,)`` how often each group was drawn.
    """
    generator = np.random.default_rng(seed)
    for _ in range(resamples):
        drawn = generator.integers(num_groups, size=num_groups)
        yield np.bincount(drawn, minlength=num_groups)


def percentile_interval(figures: NDArray[np.float64], level: float = 0.95) -> tuple[float, float] | None:
    """The interval of figures of resamples; None where half of them or more are undefined (NaN).

    Args:
        figures: ``(R,)``; NaN is otherwise left out.
        level: share of the resamples inside the interval.
    """
    defined = figures[~np.isnan(figures)]
    if len(defined) <= len(figures) / 2:
        return None
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def figures_of_resamples(
    groups: NDArray[Any], rankings: Sequence[Ranking], resamples: int = 1000, seed: int = 0
) -> NDArray[np.float64]:
    """AP, AUROC, EER and FPR at 95 % TPR of rankings of the same rows, all on the same drawn groups.

    Args:
        groups: ``(N,)`` the group of each row, as ids or numbers.
        rankings: ``K`` of them.
        resamples: ``R``.
        seed: same seed, same groups.

    Returns:
        ``(R, K, 4)`` figures, NaN where the drawn groups do not allow one; ``R`` = 0 for fewer than two groups.
    """
    index, names = group_index(groups)
    if len(names) < 2:
        return np.empty((0, len(rankings), 4))
    grouped = [ranking.of_groups(index) for ranking in rankings]
    sets = tqdm(
        times_drawn(len(names), resamples, seed), "bootstrap", resamples, leave=False, delay=_SILENT_S, disable=None
    )
    figures = [[one.figures(drawn) for one in grouped] for drawn in sets]
    return np.array(figures).reshape(-1, len(rankings), 4)
