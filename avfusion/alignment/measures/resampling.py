"""Values with their intervals over groups, many at once: sums per group go in, and whole groups are drawn.

A figure that is a function of sums over frames is computed on all draws at once from ``(G, ...)`` sums per group, so
its interval costs a product of matrices. Shapes: ``G`` groups, ``R`` draws; an estimate is ``(..., 3)``: the value, and
the low and high end of its 95 % interval, NaN where there is none.

Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), percentile interval.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from avfusion.tracks import FaceTrack

Floats = NDArray[np.float64]

LEVEL = 0.95


def group_of(track: FaceTrack) -> str:
    """What is drawn as a whole: the track's group, or its video where it has none."""
    return track.group or track.video_id


def draws(num_groups: int, resamples: int, seed: int = 0) -> Floats:
    """``(R, G)``: how often each group is in each draw of ``G`` groups with replacement; no draws below two groups."""
    resamples = resamples if num_groups > 1 else 0
    generator = np.random.default_rng(seed)
    drawn = generator.integers(num_groups, size=(resamples, num_groups)) if resamples else np.zeros((0, 1), np.int64)
    counts = np.zeros((resamples, num_groups))
    np.add.at(counts, (np.arange(resamples)[:, None], drawn), 1.0)
    return counts


def estimate(value: NDArray[np.floating], drawn: NDArray[np.floating]) -> Floats:
    """Joins a value with the interval that its draws span.

    Args:
        value: ``(...)``.
        drawn: ``(R, ...)`` the same figure on each draw; NaN where a draw does not allow it. Those are left out; where
            they are half of the draws or more there is no interval.

    Returns:
        ``(..., 3)``.
    """
    value = np.asarray(value, dtype=np.float64)
    ends = np.full((2, *value.shape), np.nan)
    if len(drawn):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # figures that no draw allows
            quantile = np.nanquantile if np.isnan(drawn).any() else np.quantile  # the first is far slower
            ends[:] = quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        ends[:, np.isnan(drawn).mean(axis=0) >= 0.5] = np.nan
    return np.stack([value, *ends], axis=-1)


def estimate_of_sums(
    sums: Sequence[Floats], figure: Callable[..., Floats], resamples: int = 1000, seed: int = 0
) -> Floats:
    """The estimate of a figure that depends on sums alone.

    Args:
        sums: arrays ``(G, ...)``, one row a group.
        figure: takes the totals over groups, each with a leading axis of draws, and gives ``(draws, ...)``.
        resamples: R; 0 for no interval.
        seed: of the draws: figures with the same seed and groups are drawn together.
    """
    counts = draws(len(sums[0]), resamples, seed)
    value = figure(*(array.sum(axis=0, dtype=np.float64)[None] for array in sums))[0]
    return estimate(value, figure(*(np.tensordot(counts, array, axes=1) for array in sums)))


def ratio(over: Floats, under: Floats) -> Floats:
    """``over / under``, NaN where nothing is under it."""
    unknown = np.full(np.broadcast_shapes(over.shape, under.shape), np.nan)
    return np.asarray(np.divide(over, under, out=unknown, where=under > 0))
