"""Intervals over videos: equal to an explicit resampling of rows, honest about one video."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.evaluation.average_precision import average_precision
from avfusion.evaluation.bootstrap import bootstrap_interval
from avfusion.evaluation.ranking import Ranking


def make_rows(seed=0, videos=8, rows=200):
    generator = np.random.default_rng(seed)
    groups = np.array([f"v{index}" for index in generator.integers(0, videos, rows)], dtype=object)
    labels = generator.random(rows) < 0.4
    return groups, labels, np.round(generator.normal(size=rows) + labels, 2)


def test_equals_rows_of_drawn_videos_put_together():
    groups, labels, scores = make_rows()
    names = list(dict.fromkeys(groups))
    generator = np.random.default_rng(7)
    figures = []
    for _ in range(50):
        drawn = generator.integers(len(names), size=len(names))
        rows = np.concatenate([np.flatnonzero(groups == names[index]) for index in drawn])
        figures.append(average_precision(labels[rows], scores[rows]))
    expected = np.quantile(figures, [0.025, 0.975])
    found = bootstrap_interval(groups, Ranking(labels, scores).average_precision, resamples=50, seed=7)
    assert found == pytest.approx(tuple(expected), abs=1e-12)


def test_same_seed_same_interval_and_it_holds_the_figure():
    groups, labels, scores = make_rows()
    ranking = Ranking(labels, scores)
    first = bootstrap_interval(groups, ranking.average_precision, resamples=200, seed=1)
    assert first == bootstrap_interval(groups, ranking.average_precision, resamples=200, seed=1)
    assert first != bootstrap_interval(groups, ranking.average_precision, resamples=200, seed=2)
    assert first[0] < ranking.average_precision() < first[1]


def test_the_level_is_the_share_inside():
    # The figure is the weight of video 0 of two: drawn 0, 1 or 2 times with odds 1/4, 1/2, 1/4.
    groups = np.array([0, 1])
    assert bootstrap_interval(groups, lambda weights: float(weights[0]), resamples=400) == (0.0, 2.0)
    assert bootstrap_interval(groups, lambda weights: float(weights[0]), resamples=400, level=0.2) == (1.0, 1.0)


def test_identical_videos_have_an_interval_of_one_point():
    labels, scores = np.tile([True, False, True], 4), np.tile([0.9, 0.8, 0.7], 4)
    interval = bootstrap_interval(np.repeat(np.arange(4), 3), Ranking(labels, scores).average_precision, resamples=100)
    # P | N | P in each: precisions 1 and 2/3, AP 5/6
    assert interval == pytest.approx((5 / 6, 5 / 6), abs=1e-12)


def test_one_video_or_no_resamples_have_no_interval():
    _, labels, scores = make_rows()
    ranking = Ranking(labels, scores)
    assert bootstrap_interval(np.zeros(200, int), ranking.average_precision) is None
    assert bootstrap_interval(np.arange(200), ranking.average_precision, resamples=0) is None


def test_resamples_without_a_figure_are_left_out_unless_they_are_many():
    # Only one of n videos has positives: a resample misses it with (1 - 1/n)^n, 1/4 for two and about 1/e for ten.
    labels, scores = np.arange(10) == 0, np.arange(10.0)
    assert bootstrap_interval(np.arange(10), Ranking(labels, scores).average_precision, resamples=200) is not None
    # A figure that is defined only when video 0 is drawn twice or more (about 26 %) is none.
    rare = bootstrap_interval(np.arange(10), lambda weights: 1.0 if weights[0] >= 2 else float("nan"), resamples=200)
    assert rare is None
