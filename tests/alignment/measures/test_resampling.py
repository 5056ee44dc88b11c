"""Intervals over groups, many figures at once: the draws of the plain bootstrap, and what cannot be drawn."""

from __future__ import annotations

import numpy as np

from avfusion.alignment.measures.resampling import draws, estimate, estimate_of_sums, ratio
from avfusion.evaluation.bootstrap import bootstrap_interval


def test_a_mean_has_the_interval_of_the_plain_bootstrap() -> None:
    rng = np.random.default_rng(3)
    group = rng.integers(0, 9, 200)
    values = rng.normal(size=200) + group
    plain = bootstrap_interval(group, lambda weights: float(weights @ values / weights.sum()), 300, seed=4)
    order = list(dict.fromkeys(group.tolist()))
    sums = np.array([[values[group == one].sum()] for one in order])
    counts = np.array([[float((group == one).sum())] for one in order])
    found = estimate_of_sums([sums, counts], ratio, 300, seed=4)
    np.testing.assert_allclose(found[0], [values.mean(), *plain], rtol=1e-12)


def test_draws_are_whole_sets_of_groups() -> None:
    times = draws(7, 50)
    assert times.shape == (50, 7)
    assert (times.sum(axis=1) == 7).all()
    assert len(np.unique(times, axis=0)) > 40
    assert draws(1, 50).shape == (0, 1)
    assert draws(7, 0).shape == (0, 7)


def test_draws_that_allow_no_figure_are_left_out_unless_they_are_half_of_them() -> None:
    drawn = np.array([[1.0, np.nan, 1.0], [2.0, np.nan, np.nan], [3.0, 5.0, np.nan], [np.nan, 6.0, np.nan]])
    found = estimate(np.array([2.0, 5.0, 1.0]), drawn)
    np.testing.assert_allclose(found[0], [2.0, 1.05, 2.95])
    assert np.isnan(found[1:, 1:]).all()


def test_nothing_over_nothing_is_unknown() -> None:
    np.testing.assert_array_equal(ratio(np.array([4.0, 0.0]), np.array([2.0, 0.0])), [2.0, np.nan])
