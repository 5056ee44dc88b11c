"""Smoothing worked out by hand: a centred mean that moves nothing, and silence that nobody speaks in."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import UsageError
from avfusion.inference.settings import Settings
from avfusion.inference.smoothing import only_where_heard, smoothed, window_frames


def test_the_window_is_the_nearest_odd_number_of_frames() -> None:
    lengths = {0.0: 1, 0.04: 1, 0.07: 1, 0.12: 3, 0.2: 5, 0.25: 7, 0.5: 13, 1.0: 25}
    assert {seconds: window_frames(seconds) for seconds in lengths} == lengths


def test_the_mean_is_over_the_frames_around_and_at_the_ends_over_those_that_are_there() -> None:
    raw = np.array([1.0, 0.0, 0.0, 0.5, 0.5, 0.0], dtype=np.float32)
    np.testing.assert_allclose(smoothed(raw, 0.12), [1 / 2, 1 / 3, 1 / 6, 1 / 3, 1 / 3, 1 / 4], atol=1e-7)


def test_no_smoothing_leaves_every_bit() -> None:
    raw = np.random.default_rng(0).random(50).astype(np.float32)
    np.testing.assert_array_equal(smoothed(raw, 0.0), raw)


def test_tracks_shorter_than_the_window_get_their_mean() -> None:
    np.testing.assert_allclose(smoothed(np.array([0.3], dtype=np.float32), 1.0), [0.3])
    np.testing.assert_allclose(smoothed(np.array([0.2, 0.4], dtype=np.float32), 1.0), [0.3, 0.3])
    assert smoothed(np.zeros(0, dtype=np.float32), 1.0).shape == (0,)


def test_a_symmetric_peak_stays_where_it_is_and_scores_stay_probabilities() -> None:
    raw = np.zeros(31, dtype=np.float32)
    raw[15] = 1.0
    found = smoothed(raw, 0.2)
    np.testing.assert_allclose(found, found[::-1])
    np.testing.assert_allclose(found[13:18], 0.2)
    assert smoothed(np.ones(1000, dtype=np.float32), 0.2).max() <= 1.0


def test_scores_count_where_there_is_sound() -> None:
    scores = np.full(6, 0.5, dtype=np.float32)
    np.testing.assert_array_equal(only_where_heard(scores, 10, 12, 15), [0, 0, 0.5, 0.5, 0.5, 0])
    np.testing.assert_array_equal(only_where_heard(scores, 10, 0, 0), np.zeros(6))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"smooth_s": -0.1}, "--smooth=-0.1: expected seconds from 0 to 10"),
        ({"smooth_s": float("nan")}, "--smooth=nan"),
        ({"threshold": 1.5}, "--threshold=1.5: expected a probability above 0, up to 1"),
        ({"shortest_frames": -1}, "--shortest-track=-1: expected a number from 0"),
        ({"audio_track": -2}, "--audio-track=-2"),
        ({"threads": -1}, "--threads=-1"),
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Settings(**wrong)  # type: ignore[arg-type]
