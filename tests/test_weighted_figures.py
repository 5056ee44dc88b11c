"""Figures of weighted frames against the library's own, and intervals derived a second way."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.evaluation.average_precision import average_precision
from avfusion.evaluation.bootstrap import times_drawn
from avfusion.evaluation.desync import (
    false_accept_rate,
    threshold_at_miss_rate,
    weighted_threshold_at_miss_rate,
)
from benchmarks.weighted_figures import Frames, compared, in_words, together


def drawn_frames(count: int, seed: int, columns: int, shift: float) -> Frames:
    rng = np.random.default_rng(seed)
    talkers = np.stack([rng.permutation(6)[:columns] for _ in range(count)])
    return Frames(rng.normal(shift, 1.0, count), talkers)


def test_by_hand() -> None:
    own = together([(np.arange(1, 11) / 10, [0]), (np.arange(11, 21) / 10, [1])])  # .1 .. 2.0: one may be missed, .1
    other = together([(np.array([0.15, 0.2, 0.25]), [0]), (np.array([0.0]), [1])])
    row = compared(own, other, resamples=0)
    assert row["threshold"] == pytest.approx(0.2)
    assert row["false_accept_rate"] == 0.5
    assert row["prevalence"] == pytest.approx(20 / 24)
    assert row["average_precision_interval"] is None
    # Falling scores: 2.0 .. 0.3 (18 right), .25 wrong, .2 right and wrong at once, .15 wrong, .1 right.
    assert row["average_precision"] == pytest.approx((18 + 19 / 21 + 20 / 23) / 20)
    assert row["talkers"] == 2
    assert "2 talkers" in row["note"]


@pytest.mark.parametrize("columns", [1, 2])
def test_intervals_are_those_of_frames_written_out_as_often_as_drawn(columns: int) -> None:
    own, other = drawn_frames(200, 1, columns, 1.0), drawn_frames(300, 2, columns, 0.0)
    row = compared(own, other, resamples=200)
    found = []
    for counts in times_drawn(6, 200):
        times = [np.prod(counts[frames.talkers], axis=1) for frames in (own, other)]
        positives, negatives = np.repeat(own.scores, times[0]), np.repeat(other.scores, times[1])
        if not len(positives):
            continue
        labels = np.arange(len(positives) + len(negatives)) < len(positives)
        rate = false_accept_rate(negatives, threshold_at_miss_rate(positives)) if len(negatives) else np.nan
        found.append((average_precision(labels, np.concatenate([positives, negatives])), rate))
    low, high = np.nanquantile(np.array(found), [0.025, 0.975], axis=0)
    assert row["average_precision_interval"] == pytest.approx([low[0], high[0]], abs=1e-6)
    assert row["false_accept_rate_interval"] == pytest.approx([low[1], high[1]], abs=1e-6)


def test_a_weighted_threshold_is_that_of_the_scores_written_out() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        rising, weights = np.sort(rng.random(50)), rng.integers(0, 4, 50)
        expected = threshold_at_miss_rate(np.repeat(rising, weights))
        assert weighted_threshold_at_miss_rate(rising, weights) == expected
    assert np.isnan(weighted_threshold_at_miss_rate(rising, np.zeros(50, np.int64)))


def test_figures_in_words() -> None:
    assert in_words(0.714, [0.65, 0.77]) == ".714 (.650-.770)"
    assert in_words(1.0, None) == "1.000"
    assert in_words(0.0, [0.0, 1.0]) == ".000 (.000-1.000)"
    assert in_words(None, None) == "-"
