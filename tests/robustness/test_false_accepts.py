"""False accepts on scores made by hand, and their intervals derived a second way."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.bootstrap import bootstrap_interval
from avfusion.evaluation.desync import threshold_at_miss_rate
from avfusion.robustness.false_accepts import FalseAccepts
from tests.robustness.planted import a_track


def ones(frames: int) -> np.ndarray:
    return np.ones(frames, bool)


def test_rates_by_hand() -> None:
    speaking = np.array([False] + [True] * 10)
    tracks = [a_track("a", speaking), a_track("b", speaking)]
    # 20 speaking frames, 0.01 .. 0.20; one of them, 0.01, may be missed.
    own = [np.append(9.0, np.arange(1, 11) / 100), np.append(9.0, np.arange(11, 21) / 100)]
    accepts = FalseAccepts(tracks, own, resamples=0)
    assert accepts.threshold == pytest.approx(0.02)
    changed = [np.append(9.0, [0.02] * 3 + [0.019] * 7), np.append(9.0, [0.5] * 4 + [0.0] * 6)]
    row = accepts.row(changed)
    assert row == {
        "false_accept_rate": pytest.approx(7 / 20),
        "false_accept_rate_interval": None,
        "own_sound_rate": pytest.approx(19 / 20),
        "num_frames": 20,
        "num_tracks": 2,
        "num_groups": 2,
    }
    counting = [np.arange(11) < 3, np.arange(11) >= 11]  # the second frame and the third of the first track
    row = accepts.row(changed, counting)
    assert (row["false_accept_rate"], row["own_sound_rate"]) == (1.0, 0.5)
    assert (row["num_frames"], row["num_tracks"], row["num_groups"]) == (2, 1, 1)


def test_the_same_scores_are_accepted_but_for_the_missed() -> None:
    rng = np.random.default_rng(0)
    tracks = [a_track(f"v{i}", ones(50)) for i in range(20)]
    own = [rng.random(50) for _ in tracks]
    assert FalseAccepts(tracks, own, 0).row(own)["false_accept_rate"] == pytest.approx(0.95)


def test_no_frame_left_is_no_figure() -> None:
    tracks = [a_track("a", ones(10)), a_track("b", ones(10))]
    scores = [np.linspace(0, 1, 10)] * 2
    row = FalseAccepts(tracks, scores, 50).row(scores, [np.zeros(10, bool)] * 2)
    assert row["false_accept_rate"] is None
    assert row["false_accept_rate_interval"] is None
    assert row["own_sound_rate"] is None
    assert row["num_frames"] == row["num_tracks"] == row["num_groups"] == 0


@pytest.mark.parametrize("part", [False, True])
def test_intervals_find_the_threshold_again_in_every_draw(part: bool) -> None:
    rng = np.random.default_rng(1)
    lengths = [5, 40, 17, 30, 8, 25]
    groups = ["g0", "g1", "g0", "", "g2", ""]
    tracks = [a_track(f"v{i}", ones(n), group=g) for i, (n, g) in enumerate(zip(lengths, groups, strict=True))]
    own = [rng.normal(i / 3, 1, n).round(2) for i, n in enumerate(lengths)]
    other = [rng.normal(0, 1, n).round(2) for n in lengths]
    counting = [np.arange(n) % 3 > 0 for n in lengths] if part else [ones(n) for n in lengths]
    found = FalseAccepts(tracks, own, resamples=200).row(other, counting)["false_accept_rate_interval"]

    row_group = np.repeat([g or f"v{i}" for i, g in enumerate(groups)], lengths)
    own_row, other_row, kept = (np.concatenate(x) for x in (own, other, counting))

    def rate(weights: np.ndarray) -> float:
        times = weights.astype(int)
        if not (times * kept).any():
            return float("nan")
        threshold = threshold_at_miss_rate(np.repeat(own_row, times))
        return float((np.repeat(other_row, times * kept) >= threshold).mean())

    assert found == pytest.approx(bootstrap_interval(row_group, rate, 200))
    assert found[0] < found[1]


def test_scores_that_are_no_numbers_are_refused() -> None:
    tracks = [a_track("a", ones(4))]
    with pytest.raises(AvfusionError, match="score nan at frame 2 of 'a:0'"):
        FalseAccepts(tracks, [np.array([0, 1, np.nan, 1])], 0)
