"""AP beside the clean one: the same figures as elsewhere, and differences that are paired."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.evaluation.average_precision import average_precision
from avfusion.evaluation.bootstrap import bootstrap_interval
from avfusion.evaluation.ranking import Ranking
from avfusion.robustness.precision import PairedPrecision
from tests.robustness.planted import a_track

LENGTHS = [20, 30, 15, 40, 25, 10]
GROUPS = ["g", "", "g", "", "", "h"]


def made() -> tuple[list, list, list]:
    rng = np.random.default_rng(0)
    tracks = [
        a_track(f"v{i}", rng.random(n) < 0.4, group=g) for i, (n, g) in enumerate(zip(LENGTHS, GROUPS, strict=True))
    ]
    clean = [(track.speaking + rng.normal(0, 0.5, track.num_frames)).astype(np.float32) for track in tracks]
    worse = [(scores + rng.normal(0, 1, len(scores))).astype(np.float32) for scores in clean]
    return tracks, clean, worse


def test_figures_are_those_of_the_report_and_differences_are_paired() -> None:
    tracks, clean, worse = made()
    paired = PairedPrecision(tracks, clean, resamples=300)
    row = paired.row(worse)
    speaking = np.concatenate([track.speaking for track in tracks])
    before, after = (np.concatenate(scores).astype(np.float64) for scores in (clean, worse))
    assert paired.prevalence == speaking.mean()
    assert paired.num_groups == 5
    assert row["average_precision"] == average_precision(speaking, after)
    assert row["clean_average_precision"] == paired.clean()["average_precision"] == average_precision(speaking, before)
    assert row["change"] == pytest.approx(row["average_precision"] - row["clean_average_precision"])
    assert row["share_of_clean"] == pytest.approx(row["average_precision"] / row["clean_average_precision"])

    groups = np.repeat([g or f"v{i}" for i, g in enumerate(GROUPS)], LENGTHS)
    one, other = Ranking(speaking, before), Ranking(speaking, after)
    assert paired.clean()["average_precision_interval"] == pytest.approx(
        bootstrap_interval(groups, one.average_precision, 300)
    )
    assert row["average_precision_interval"] == pytest.approx(bootstrap_interval(groups, other.average_precision, 300))
    assert row["change_interval"] == pytest.approx(
        bootstrap_interval(groups, lambda w: other.average_precision(w) - one.average_precision(w), 300)
    )


def test_the_same_scores_differ_by_nothing() -> None:
    tracks, clean, _ = made()
    row = PairedPrecision(tracks, clean, resamples=50).row(clean)
    assert row["change"] == 0
    assert row["change_interval"] == [0, 0]
    assert row["share_of_clean"] == 1


def test_without_draws_or_with_one_group_there_is_no_interval() -> None:
    tracks, clean, worse = made()
    assert PairedPrecision(tracks, clean, resamples=0).row(worse)["change_interval"] is None
    assert PairedPrecision(tracks[:1], clean[:1], resamples=50).row(worse[:1])["average_precision_interval"] is None
