"""A benchmark table: contenders (trained models with several seeds, scores without training) by columns of AP.

A cell of a trained contender is the mean over its seeds ± half the interval of :mod:`avfusion.evaluation.seeds`; a cell
of a training-free one is its value ± half its bootstrap interval over groups of scenes. Contenders are compared pair by
pair on the same scenes. Numbers in, numbers and Markdown out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.evaluation.bootstrap import bootstrap_interval
from avfusion.evaluation.ranking import Ranking
from avfusion.evaluation.seeds import SeedMean, difference_over_seeds, mean_over_seeds

Interval = tuple[float, float]


@dataclass(frozen=True)
class Figure:
    """One run in one column: AP with its bootstrap interval over groups, and AUROC; None where there is none."""

    average_precision: float
    interval: Interval | None
    auroc: float | None = None


@dataclass(frozen=True)
class Contender:
    """One row of the table.

    Attributes:
        name: of the row.
        trained: whether chance in training decides over the figures, and seeds measure it.
        runs: seed to column to figure; a training-free contender has one run, of any name.
        minutes: seed to the wall time of its training, as far as known.
    """

    name: str
    trained: bool
    runs: Mapping[str, Mapping[str, Figure]]
    minutes: Mapping[str, float]

    def column(self, column: str) -> dict[str, float]:
        """Seed to AP."""
        return {seed: figures[column].average_precision for seed, figures in self.runs.items()}

    def cell(self, column: str) -> SeedMean:
        """Value and half interval of one cell."""
        over_seeds = mean_over_seeds(list(self.column(column).values()))
        if self.trained:
            return over_seeds
        (figures,) = self.runs.values()
        interval = figures[column].interval
        half = None if interval is None else (interval[1] - interval[0]) / 2
        return SeedMean(over_seeds.mean, half, 1)


@dataclass(frozen=True)
class Difference:
    """How far one contender is ahead of another in one column.

    Attributes:
        column: the column.
        other: the contender that is subtracted.
        over_seeds: mean over the seeds of the difference, and half its interval by Student's t.
        over_scenes: bootstrap interval over groups of scenes of the difference of the means over seeds; None where
            there is none.
    """

    column: str
    other: str
    over_seeds: SeedMean
    over_scenes: Interval | None

    @property
    def clear(self) -> bool:
        """Whether both intervals lie above 0, as far as there are any; False where there is none."""
        half = self.over_seeds.half_width
        lows = [] if half is None else [self.over_seeds.mean - half]
        lows += [] if self.over_scenes is None else [self.over_scenes[0]]
        return bool(lows) and min(lows) > 0


def compare(ours: Contender, theirs: Contender, column: str, over_scenes: Interval | None) -> Difference:
    """The difference ours minus theirs: seed by seed, or against the one value of a training-free contender."""
    other = theirs.column(column)
    (one,) = [None] if theirs.trained else other.values()
    return Difference(
        column, theirs.name, difference_over_seeds(ours.column(column), other if one is None else one), over_scenes
    )


def interval_of_difference(
    labels: NDArray[np.bool_],
    ours: Sequence[NDArray[np.float64]],
    theirs: Sequence[NDArray[np.float64]],
    groups: NDArray[Any],
    resamples: int = 1000,
    seed: int = 0,
) -> Interval | None:
    """Bootstrap interval of (mean AP of ours) - (mean AP of theirs), both on the same drawn groups of scenes.

    Args:
        labels: ``(N,)`` bool.
        ours: for each seed ``(N,)`` scores.
        theirs: for each seed ``(N,)`` scores.
        groups: ``(N,)`` the group of each row.
        resamples: how many sets of groups are drawn; 0 for no interval.
        seed: of the bootstrap.
    """
    our_rankings, their_rankings = ([Ranking(labels, scores) for scores in side] for side in (ours, theirs))

    def difference(weights: NDArray[np.float64]) -> float:
        if not weights[~labels].any():
            return float("nan")  # no negatives drawn: every AP is 1
        means = [
            np.mean([ranking.average_precision(weights) for ranking in side]) for side in (our_rankings, their_rankings)
        ]
        return float(means[0] - means[1])

    return bootstrap_interval(groups, difference, resamples, seed=seed)


@dataclass(frozen=True)
class Balance:
    """Whether a shortcut's raw material differs between heard and unheard faces.

    Attributes:
        heard: mean over the tracks that are heard.
        unheard: mean over those that are not.
        ratio: heard / unheard; 1 gives a shortcut nothing.
        interval: bootstrap interval of the ratio over groups.
        num_heard: tracks.
        num_unheard: tracks.
    """

    heard: float
    unheard: float
    ratio: float
    interval: Interval | None
    num_heard: int
    num_unheard: int


def balance(
    values: NDArray[np.float64],
    heard: NDArray[np.bool_],
    groups: NDArray[Any],
    resamples: int = 1000,
    seed: int = 0,
) -> Balance | None:
    """Ratio of the means of one figure per track; None unless there are tracks of both kinds.

    Args:
        values: ``(N,)`` above 0.
        heard: ``(N,)`` bool.
        groups: ``(N,)`` the group of each track.
        resamples: how many sets of groups are drawn; 0 for no interval.
        seed: of the bootstrap.
    """
    if heard.all() or not heard.any():
        return None

    def ratio(weights: NDArray[np.float64]) -> float:
        of_heard, of_unheard = weights * heard, weights * ~heard
        if not of_heard.any() or not of_unheard.any():
            return float("nan")
        return float((of_heard @ values / of_heard.sum()) / (of_unheard @ values / of_unheard.sum()))

    return Balance(
        heard=float(values[heard].mean()),
        unheard=float(values[~heard].mean()),
        ratio=ratio(np.ones(len(values))),
        interval=bootstrap_interval(groups, ratio, resamples, seed=seed),
        num_heard=int(heard.sum()),
        num_unheard=int((~heard).sum()),
    )
