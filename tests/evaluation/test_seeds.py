"""Means over seeds: the interval by hand, and Student's t against printed tables."""

from __future__ import annotations

import math

import pytest

from avfusion.evaluation.seeds import SeedMean, difference_over_seeds, mean_over_seeds, student_quantile


@pytest.mark.parametrize(
    ("level", "degrees", "expected"),
    [  # any printed table of Student's t
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 3, 3.182),
        (0.95, 4, 2.776),
        (0.95, 9, 2.262),
        (0.95, 10, 2.228),
        (0.95, 30, 2.042),
        (0.95, 120, 1.980),
        (0.90, 2, 2.920),
        (0.99, 5, 4.032),
    ],
)
def test_student_quantile_equals_the_printed_tables(level, degrees, expected):
    assert student_quantile(level, degrees) == pytest.approx(expected, abs=6e-4)


def test_mean_and_interval_by_hand():
    found = mean_over_seeds([0.7, 0.8, 0.9])
    # Standard deviation 0.1; t 4.3027; 0.43027 / sqrt 3.
    assert found.mean == pytest.approx(0.8)
    assert found.half_width == pytest.approx(4.302653 * 0.1 / math.sqrt(3), abs=1e-6)
    assert found.num_seeds == 3


def test_one_seed_has_no_interval():
    assert mean_over_seeds([0.5]) == SeedMean(0.5, None, 1)


def test_differences_are_paired_by_seed():
    # Seed by seed 0.1, 0.2, 0.3, whatever the order; the seeds without a partner do not count.
    ours = {"0": 0.5, "1": 0.9, "2": 0.6, "7": 0.0}
    theirs = {"2": 0.3, "1": 0.7, "0": 0.4, "9": 1.0}
    found = difference_over_seeds(ours, theirs)
    assert found.mean == pytest.approx(0.2)
    assert found.half_width == pytest.approx(4.302653 * 0.1 / math.sqrt(3), abs=1e-6)


def test_a_figure_without_seeds_is_subtracted_from_each():
    assert difference_over_seeds({"0": 0.5, "1": 0.7}, 0.4).mean == pytest.approx(0.2)


def test_wrong_numbers_are_refused():
    with pytest.raises(ValueError, match="at least one value"):
        mean_over_seeds([])
    with pytest.raises(ValueError, match="0 degrees of freedom"):
        student_quantile(0.95, 0)
    with pytest.raises(ValueError, match="at least one value"):
        difference_over_seeds({"0": 1.0}, {"1": 1.0})
