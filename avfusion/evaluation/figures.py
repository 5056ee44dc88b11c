"""Figures of some rows with their intervals: one way for a whole split and for each of its subsets.

Shapes: ``(N,)`` bool labels, True = speaking audibly; ``(N,)`` finite scores; ``(N,)`` groups, drawn as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.evaluation.bootstrap import few_groups, figures_of_resamples, percentile_interval
from avfusion.evaluation.groups import group_index
from avfusion.evaluation.ranking import Ranking
from avfusion.evaluation.roc import equal_error_rate_of, false_positive_rate_of, roc_of

ONE_GROUP = "one source: no interval"
FIGURES = ("average_precision", "auroc", "equal_error_rate", "fpr_at_95_tpr")
NOTHING = dict.fromkeys((*FIGURES, *(f"{name}_interval" for name in FIGURES)))


def figures_of(
    labels: NDArray[np.bool_], scores: NDArray[np.float64], groups: NDArray[Any], resamples: int, seed: int
) -> dict[str, Any]:
    """``FIGURES`` with their 95 % bootstrap intervals (``NAME_interval``), and the ``reason`` where one is missing.

    Draws without speaking or without silent rows say nothing and are left out: the AP of 1 that the latter have would
    flatter a split of few groups.

    Args:
        labels: ``(N,)``.
        scores: ``(N,)``.
        groups: ``(N,)``.
        resamples: 0 for no intervals.
        seed: of the bootstrap.

    Returns:
        None for each figure that the rows do not allow; the reason may also say that an interval means little.
    """
    reason = why_no_figures(labels)
    if reason:
        return NOTHING | {"average_precision": 1.0 if len(labels) and labels.all() else None, "reason": reason}
    ranking = Ranking(labels, scores)
    roc = roc_of(ranking)
    values = (ranking.average_precision(), ranking.auroc(), equal_error_rate_of(*roc), false_positive_rate_of(*roc))
    drawn = figures_of_resamples(groups, [ranking], resamples, seed)[:, 0]
    drawn[np.isnan(drawn[:, 1])] = np.nan
    found: dict[str, Any] = {"reason": interval_reason(len(group_index(groups)[1]), resamples)}
    for index, (name, value) in enumerate(zip(FIGURES, values, strict=True)):
        found |= {name: value, f"{name}_interval": percentile_interval(drawn[:, index])}
    return found


def interval_reason(num_groups: int, resamples: int, drawn: str = "sources") -> str:
    """Why there is no interval, or why it says little; empty where it is fine."""
    if num_groups == 1:
        return ONE_GROUP
    return few_groups(num_groups, drawn) if resamples else ""


def why_no_figures(labels: NDArray[np.bool_]) -> str:
    """What keeps some rows from having an AP and an AUROC; empty where nothing does."""
    if not len(labels):
        return "no rows"
    if not labels.any():
        return "no row speaks"
    return "every row speaks" if labels.all() else ""
