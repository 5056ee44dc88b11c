"""The paired bootstrap: equal to drawing videos by hand, nothing between a file and itself, and its sign."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.evaluation.average_precision import average_precision
from avfusion.evaluation.paired import paired_rows
from avfusion.evaluation.roc import auroc
from avfusion.evaluation.subsets import Subset


def make_rows(videos=8, rows=400, seed=0):
    generator = np.random.default_rng(seed)
    groups = np.array([f"v{n}" for n in generator.integers(0, videos, rows)], dtype=object)
    labels = generator.random(rows) < 0.4
    good = generator.normal(size=rows) + 2.0 * labels
    return groups, labels, good, good + generator.normal(0, 2, rows), generator


def test_equals_rows_of_drawn_videos_put_together():
    groups, labels, good, bad, _ = make_rows()
    names = list(dict.fromkeys(groups))
    generator = np.random.default_rng(3)
    expected = []
    for _ in range(40):
        drawn = generator.integers(len(names), size=len(names))
        rows = np.concatenate([np.flatnonzero(groups == names[index]) for index in drawn])
        expected.append([f(labels[rows], good[rows]) - f(labels[rows], bad[rows]) for f in (average_precision, auroc)])
    (row,) = paired_rows(labels, good, bad, groups, resamples=40, seed=3)
    for found, figure, drawn in ((row.average_precision, average_precision, 0), (row.auroc, auroc, 1)):
        assert (found.first, found.second) == (figure(labels, good), figure(labels, bad))
        assert found.difference == pytest.approx(figure(labels, good) - figure(labels, bad), abs=1e-12)
        assert found.interval == pytest.approx(np.quantile([e[drawn] for e in expected], [0.025, 0.975]), abs=1e-12)
        assert found.share_ahead == np.mean([e[drawn] > 0 for e in expected])


def test_nothing_lies_between_scores_and_themselves_on_any_scale():
    groups, labels, good, _, _ = make_rows()
    for same in (good, 3 * good + 100):
        (row,) = paired_rows(labels, good, same, groups, resamples=50)
        for found in (row.average_precision, row.auroc):
            assert (found.difference, found.interval, found.share_ahead) == (0.0, (0.0, 0.0), 0.0)


def test_a_clearly_better_one_leads_and_the_sign_turns_with_the_order():
    groups, labels, good, bad, _ = make_rows()
    (ahead,) = paired_rows(labels, good, bad, groups, resamples=200)
    (behind,) = paired_rows(labels, bad, good, groups, resamples=200)
    for one, other in ((ahead.average_precision, behind.average_precision), (ahead.auroc, behind.auroc)):
        assert one.interval[0] > 0
        assert (one.share_ahead, other.share_ahead) == (1.0, 0.0)
        assert other.difference == pytest.approx(-one.difference, abs=1e-12)
        assert other.interval == pytest.approx((-one.interval[1], -one.interval[0]), abs=1e-12)


def test_pairs_tell_apart_what_two_intervals_do_not():
    # Videos differ by far more than the two models, and one model is a little better on every video.
    generator = np.random.default_rng(1)
    groups = np.repeat(np.arange(20), 60)
    labels = generator.random(1200) < 0.5
    skill = np.linspace(0, 4, 20)[groups]
    weak = generator.normal(size=1200) + skill * labels
    strong = weak + 0.3 * labels
    (row,) = paired_rows(labels, strong, weak, groups, resamples=200)
    from avfusion.evaluation.bootstrap import bootstrap_interval
    from avfusion.evaluation.ranking import Ranking

    apart = [bootstrap_interval(groups, Ranking(labels, s).average_precision, 200) for s in (weak, strong)]
    assert apart[0][1] > apart[1][0]
    assert row.average_precision.interval[0] > 0


def test_each_subset_is_compared_by_itself_and_an_empty_one_says_why():
    groups, labels, good, bad, generator = make_rows()
    some = generator.random(len(labels)) < 0.5
    chosen = [Subset("kind", "some", some), Subset("kind", "none", some & ~some), Subset("kind", "mute", ~labels)]
    whole, part, none, mute = paired_rows(labels, good, bad, groups, chosen, resamples=30)
    (alone,) = paired_rows(labels[some], good[some], bad[some], groups[some], resamples=30)
    assert (whole.kind, part.name) == ("all", "some")
    assert part.average_precision == alone.average_precision
    assert part.auroc == alone.auroc
    assert (none.average_precision, none.reason) == (None, "no rows")
    assert (mute.auroc, mute.reason) == (None, "no row speaks")


def test_one_video_or_no_resamples_leave_the_difference_without_an_interval():
    groups, labels, good, bad, _ = make_rows()
    for row in (
        *paired_rows(labels, good, bad, np.zeros(len(labels), int), resamples=50),
        *paired_rows(labels, good, bad, groups, resamples=0),
    ):
        assert row.average_precision.difference > 0
        assert (row.average_precision.interval, row.average_precision.share_ahead) == (None, None)
        assert row.reason == ("one source: no interval" if row.num_groups == 1 else "")
