"""A whole benchmark table from scores: who is measured against whom, by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from avfusion.evaluation.benchmark import Benchmark
from avfusion.tracks import FaceTrack


def track(name, role, labels):
    speaking = np.array(labels, bool)
    return FaceTrack(name, f"{name}:0", 0.0, speaking, np.zeros((len(speaking), 4), np.float32), name, role=role)


TRACKS = [
    track("s1", "solo", [1, 0]),
    track("s2", "solo", [1, 1]),
    track("d1", "dub", [0, 0]),
    track("o1", "overlap", [1, 0]),
    track("o2", "overlap", [0, 0]),
]


def scores(*values):
    """Two scores for each track."""
    return [np.array(pair, float) for pair in np.reshape(values, (5, 2))]


#                      solo 1 0    solo 1 1    dub 0 0     overlap 1 0  0 0
GOOD = scores(*[0.9, 0.1], *[0.8, 0.7], *[0.2, 0.3], *[0.6, 0.1], *[0.2, 0.1])
POOR = scores(*[0.9, 0.1], *[0.8, 0.7], *[0.95, 0.75], *[0.1, 0.6], *[0.2, 0.1])


@pytest.fixture(scope="module")
def table():
    return Benchmark(TRACKS, ["solo", "own_sound"], ["dub", "overlap", "absent"], resamples=40).table(
        scores={"full": {"0": GOOD, "1": GOOD, "5": POOR}, "video": {"1": POOR, "0": GOOD}, "loud": {"": POOR}},
        trained=["full", "video", "audio"],
        main="full",
        minutes={"full": {"0": 3.0}},
        raw={"rms": np.array([1.0, 3.0, 4.0, 6.0, 2.0])},
    )


def test_columns_and_chance(table):
    assert table.columns == ["all", "dub", "overlap", "solo"]
    # dub: its two frames and the three of solo that speak; overlap and solo by themselves.
    assert table.chance == {"all": 0.4, "dub": 0.6, "overlap": 0.25, "solo": 0.75}


def test_cells_by_hand(table):
    full, video, loud = table.contenders
    assert [c.trained for c in table.contenders] == [True, True, False]
    # dub, POOR: N .95, P .9, P .8, N .75, P .7: precisions 1/2, 2/3, 3/5, raised to 2/3, 2/3, 3/5.
    dub = (2 / 3 + 2 / 3 + 3 / 5) / 3
    assert full.column("dub") == {"0": 1.0, "1": 1.0, "5": pytest.approx(dub)}
    assert loud.cell("dub").mean == pytest.approx(dub)
    # overlap, POOR: N .6, N .2, then P and N at .1: 1 of 4.
    assert video.column("overlap") == {"1": pytest.approx(1 / 4), "0": 1.0}
    assert full.minutes == {"0": 3.0}


def test_differences_pair_common_seeds(table):
    found = {(d.column, d.other): d for d in table.differences}
    assert set(found) == {(role, other) for role in ("dub", "overlap") for other in ("video", "loud")}
    assert found["overlap", "video"].over_seeds.mean == pytest.approx((0 + 3 / 4) / 2)  # seeds 0 and 1
    assert found["overlap", "loud"].over_seeds.mean == pytest.approx((3 / 4 + 3 / 4 + 0) / 3)
    low, high = found["dub", "video"].over_scenes
    assert 0 <= low < high  # GOOD has AP 1 in every draw


def test_balance_takes_heard_tracks_of_the_role_or_else_of_plain_talkers(table):
    dub, of_dub = table.balances["dub", "rms"]
    assert (dub.heard, dub.unheard, dub.ratio, of_dub) == (2.0, 4.0, 0.5, "solo")
    overlap, of_overlap = table.balances["overlap", "rms"]
    assert (overlap.heard, overlap.unheard, overlap.ratio, of_overlap) == (6.0, 2.0, 3.0, "own")


def test_the_table_is_json_and_markdown(table):
    content = json.loads(json.dumps(table.to_dict()))
    (full, _, loud) = content["rows"]
    assert full["cells"]["overlap"]["mean"] == pytest.approx((1 + 1 + 1 / 4) / 3)
    assert full["runs"]["5"]["overlap"]["average_precision"] == pytest.approx(1 / 4)
    assert loud["cells"]["solo"]["mean"] == 1.0
    text = table.to_markdown()
    assert "5 tracks of 5 independent scenes" in text
    assert "| full | " in text
    assert text.splitlines()[-2].startswith("- dub: full is on average ahead of every other row")


def test_without_the_main_contender_nothing_is_compared():
    alone = Benchmark(TRACKS, ["solo"], ["dub"], resamples=0).table({"loud": {"": POOR}}, [], "full", {}, {})
    assert (alone.differences, alone.balances) == ([], {})
    assert "How far" not in alone.to_markdown()
