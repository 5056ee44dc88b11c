"""Figures of drawn groups are those of the rows repeated as often as they were drawn."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.evaluation.average_precision import average_precision
from avfusion.evaluation.ranking import Ranking
from avfusion.evaluation.roc import auroc, equal_error_rate, false_positive_rate_at


@pytest.mark.parametrize("ties", [False, True])
def test_drawn_rows_count_as_often_as_drawn(ties):
    generator = np.random.default_rng(5)
    for _ in range(40):
        labels, scores = generator.random(60) < 0.4, generator.normal(size=60)
        scores = np.round(scores) if ties else scores
        drawn = generator.integers(0, 4, 60)
        rows = np.repeat(labels, drawn), np.repeat(scores, drawn)
        expected = [figure(*rows) for figure in (average_precision, auroc, equal_error_rate, false_positive_rate_at)]
        found = Ranking(labels, scores).of_groups(np.arange(60)).figures(drawn)
        assert found == pytest.approx(expected, abs=1e-12)


def test_draws_of_one_kind_of_rows_have_no_rates():
    labels = np.array([True, False, True])
    grouped = Ranking(labels, np.array([0.9, 0.5, 0.1])).of_groups(np.arange(3))
    assert np.isnan(grouped.figures(np.array([1, 0, 2]))[1:]).all()
    assert np.isnan(grouped.figures(np.array([0, 3, 0]))).all()
