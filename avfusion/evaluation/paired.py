"""Two score files on the same rows: how far the first is ahead, on the same drawn videos.

Videos differ far more than models do, so two intervals overlap although one model is ahead on nearly every video. Here
each resample draws one set of videos and takes both figures on it; the interval is that of their difference.

Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.evaluation.bootstrap import figures_of_resamples, percentile_interval
from avfusion.evaluation.figures import interval_reason, why_no_figures
from avfusion.evaluation.groups import group_index
from avfusion.evaluation.ranking import Ranking
from avfusion.evaluation.subsets import Subset

WHOLE = "all"


@dataclass(frozen=True)
class Difference:
    """First minus second.

    Attributes:
        first: the figure of the first scores.
        second: that of the second.
        difference: between them.
        interval: its 95 % bootstrap interval over the groups; None where there is none.
        share_ahead: share of the resamples in which the first is strictly ahead; None where there is no interval.
    """

    first: float
    second: float
    difference: float
    interval: tuple[float, float] | None
    share_ahead: float | None


@dataclass(frozen=True)
class PairedRow:
    """The comparison on one subset, or on all rows.

    Attributes:
        kind: as in :class:`~avfusion.evaluation.subsets.SubsetRow`; ``all`` for all rows.
        name: as there.
        average_precision: difference of the AP; None where the rows do not allow one.
        auroc: difference of the AUROC; None where the rows do not allow one.
        num_groups: what is drawn.
        reason: why a difference or its interval is None or says little.
    """

    kind: str
    name: str
    average_precision: Difference | None
    auroc: Difference | None
    num_groups: int
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts and None, as JSON takes them."""
        return asdict(self)


def paired_rows(
    speaking: NDArray[np.bool_],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    groups: NDArray[Any],
    chosen: Sequence[Subset] = (),
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> list[PairedRow]:
    """Compares two scores of the same rows: over all of them, then on each subset by itself.

    Args:
        speaking: ``(N,)`` bool.
        first: ``(N,)`` scores.
        second: ``(N,)`` scores, of any other scale.
        groups: ``(N,)`` the group of each row, which is drawn as a whole.
        chosen: subsets of the rows.
        resamples: how many sets of groups are drawn; 0 for no intervals.
        seed: of the bootstrap.

    Raises:
        AvfusionError: a score is not finite.
    """
    whole = Subset(WHOLE, WHOLE, np.ones(len(speaking), np.bool_))
    rows = []
    for subset in (whole, *chosen):
        kept = subset.kept
        labels, reason = speaking[kept], why_no_figures(speaking[kept])
        num_groups = len(group_index(groups[kept])[1])
        if reason:
            rows.append(PairedRow(subset.kind, subset.name, None, None, num_groups, reason))
            continue
        rankings = [Ranking(labels, scores[kept]) for scores in (first, second)]
        found = figures_of_resamples(groups[kept], rankings, resamples, seed)
        found[np.isnan(found[:, :, 1])] = np.nan  # groups of one kind of rows say nothing, see figures.figures_of
        rows.append(
            PairedRow(
                subset.kind,
                subset.name,
                _difference([ranking.average_precision() for ranking in rankings], found[:, :, 0]),
                _difference([ranking.auroc() for ranking in rankings], found[:, :, 1]),
                num_groups,
                interval_reason(num_groups, resamples),
            )
        )
    return rows


def _difference(figures: Sequence[float], drawn: NDArray[np.float64]) -> Difference:
    """From both figures and ``(R, 2)`` those of the resamples."""
    differences = drawn[:, 0] - drawn[:, 1]
    defined = differences[~np.isnan(differences)]
    interval = percentile_interval(differences)
    share = None if interval is None else float((defined > 0).mean())
    return Difference(figures[0], figures[1], figures[0] - figures[1], interval, share)
