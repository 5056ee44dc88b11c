"""The precision-recall curve, against counts made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.curve import precision_recall


def test_a_curve_counted_by_hand() -> None:
    labels = np.array([True, False, True, False, False, True])
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    # After each positive from the top: 1 of 1, 2 of 3, 3 of 6.
    expected = np.array([(1 / 3, 1.0), (2 / 3, 2 / 3), (1.0, 0.5)])
    assert np.array(precision_recall(labels, scores)) == pytest.approx(expected)


def test_equal_scores_are_one_threshold() -> None:
    assert precision_recall(np.array([True, False, True]), np.array([0.5, 0.5, 0.5])) == [(1.0, 2 / 3)]


def test_it_is_thinned_and_keeps_both_ends() -> None:
    rng = np.random.default_rng(1)
    labels, scores = rng.random(20_000) < 0.3, rng.random(20_000)
    points = precision_recall(labels, scores, 200)
    assert 190 <= len(points) <= 200
    assert points[0][0] <= 2 / labels.sum()
    assert points[-1] == (1.0, pytest.approx(labels.mean(), abs=0.001))
    for recall, precision in points[1:-1:37]:
        accepted = scores >= np.sort(scores[labels])[::-1][round(recall * labels.sum()) - 1]
        assert precision == pytest.approx(labels[accepted].mean())


def test_without_a_positive_there_is_no_recall() -> None:
    with pytest.raises(AvfusionError, match="none of 2 rows is SPEAKING_AUDIBLE"):
        precision_recall(np.array([False, False]), np.array([0.1, 0.2]))
