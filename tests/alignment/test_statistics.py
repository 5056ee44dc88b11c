"""The figures of a head equal numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.alignment.reach import KeyReach
from avfusion.alignment.statistics import alignment_statistics, lag_image, median_over
from avfusion.models.window import Window


def test_lag_width_null_and_entropy_of_three_keys() -> None:
    # One frame at 0.04 s; keys at 0.04, 0.06 and 0.10 s, so lags of 0, 20 and 60 ms; a fifth falls on the null key.
    weights = [[[0.2, 0.2, 0.4]]]
    result = alignment_statistics(weights, query_s=[0.04], key_s=[0.04, 0.06, 0.10])
    assert result.null_mass[0, 0] == pytest.approx(0.2)
    # Renormalised: 1/4, 1/4, 1/2. Mean 0 + 5 + 30 = 35 ms; variance (35² + 15²) / 4 + 25² / 2 = 675 ms².
    assert result.lag_ms[0, 0] == pytest.approx(35.0)
    assert result.width_ms[0, 0] == pytest.approx(np.sqrt(675.0))
    # -2 · 1/4 ln 1/4 - 1/2 ln 1/2 = 1.5 ln 2, over ln 3.
    assert result.entropy[0, 0] == pytest.approx(1.5 * np.log(2) / np.log(3))


def test_the_default_clock_is_25_and_100_a_second() -> None:
    weights = np.zeros((1, 3, 12))
    weights[0, :, 6] = 1.0  # sound at 60 ms, frames at 0, 40 and 80 ms
    result = alignment_statistics(weights)
    np.testing.assert_allclose(result.lag_ms[0], [60.0, 20.0, -20.0], atol=1e-9)
    np.testing.assert_allclose(result.width_ms[0], 0.0, atol=1e-9)
    np.testing.assert_allclose(result.entropy[0], 0.0, atol=1e-12)


def test_heads_are_described_apart() -> None:
    weights = np.zeros((2, 1, 4))
    weights[0, 0, 1] = 1.0
    weights[1, 0] = 0.125
    result = alignment_statistics(weights)
    np.testing.assert_allclose(result.lag_ms[:, 0], [10.0, 15.0])
    np.testing.assert_allclose(result.null_mass[:, 0], [0.0, 0.5])
    np.testing.assert_allclose(result.entropy[:, 0], [0.0, 1.0])


def test_padding_in_keys_and_frames_changes_nothing_real() -> None:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(9), size=(2, 2))[..., :8]
    plain = alignment_statistics(weights)
    padded = rng.random((2, 3, 12))
    padded[:, :2, :8] = weights
    masked = alignment_statistics(padded, key_mask=np.arange(12) < 8, frame_mask=[True, True, False])
    for name in ("null_mass", "lag_ms", "width_ms", "entropy"):
        np.testing.assert_allclose(getattr(masked, name)[:, :2], getattr(plain, name), rtol=1e-12)
        assert np.isnan(getattr(masked, name)[:, 2]).all()


def test_a_head_that_hears_nothing_has_no_lag() -> None:
    weights = np.zeros((1, 3, 4))
    weights[0, 1] = 0.0002  # null mass 0.9992
    weights[0, 2] = 0.0005  # null mass 0.998
    with np.errstate(all="raise"):
        result = alignment_statistics(weights)
    np.testing.assert_allclose(result.null_mass[0], [1.0, 0.9992, 0.998])
    for values in (result.lag_ms, result.width_ms, result.entropy):
        np.testing.assert_array_equal(np.isnan(values[0]), [True, True, False])


def test_rounding_above_one_is_no_negative_null_mass() -> None:
    weights = np.full((1, 1, 3), np.float32(0.33333337))
    assert alignment_statistics(weights).null_mass[0, 0] == 0.0


def test_equal_weights_over_the_window_have_full_entropy() -> None:
    weights = np.zeros((1, 1, 200))
    weights[0, 0, :51] = 1 / 51  # the frame at 0 s reaches the keys 0..0.5 s
    assert alignment_statistics(weights, reach=KeyReach.within(0.5)).entropy[0, 0] == pytest.approx(1.0)
    assert alignment_statistics(weights).entropy[0, 0] == pytest.approx(np.log(51) / np.log(200))


@pytest.mark.parametrize(
    ("name", "value"), [("query_s", [0.0]), ("key_s", [0.0]), ("key_mask", [True]), ("query_s", [0.0, np.nan])]
)
def test_what_does_not_fit_is_named(name: str, value: list[float]) -> None:
    with pytest.raises(ValueError, match=name):
        alignment_statistics(np.ones((1, 2, 3)) / 3, **{name: value})
    with pytest.raises(ValueError, match="H, T, A"):
        alignment_statistics(np.ones((2, 3)))


@pytest.mark.parametrize("window_s", [0.0, 0.1, 0.125, 0.128, 0.206, 0.255, 0.336, 0.5])
def test_the_keys_in_reach_are_those_of_the_model(window_s: float) -> None:
    frames, keys = 30, 120
    lag_s = np.arange(keys) / 100 - np.arange(frames)[:, None] / 25
    of_model = Window(window_s, 25, 100).dense_mask(frames, keys).numpy()
    np.testing.assert_array_equal(KeyReach.within(window_s).holds(lag_s), of_model)
    weights = of_model / of_model.sum(axis=1, keepdims=True)
    entropy = alignment_statistics(weights[None], reach=KeyReach.within(window_s)).entropy[0]
    np.testing.assert_allclose(entropy, 1.0 if window_s else 0.0)


def test_lag_image_places_every_weight_at_its_lag() -> None:
    weights = np.arange(1, 25, dtype=float).reshape(3, 8)  # weights[t, a] = 8 t + a + 1
    image = lag_image(weights, half_width_s=0.02)
    nan = np.nan
    expected = [  # lags of -20, -10, 0, 10 and 20 ms
        # frame 0 at key 0, frame 1 at key 4, frame 2 at key 8, which is beyond the sound
        [nan, 11, 23],
        [nan, 12, 24],
        [1, 13, nan],
        [2, 14, nan],
        [3, 15, nan],
    ]
    np.testing.assert_array_equal(image, expected)


def test_lag_image_shows_a_constant_lag_as_a_straight_line() -> None:
    weights = np.zeros((20, 80))
    weights[np.arange(18), 4 * np.arange(18) + 6] = 1.0
    image = lag_image(weights)
    assert image.shape == (101, 20)
    np.testing.assert_array_equal(np.nanargmax(image[:, :18], axis=0), 56)  # row 50 is lag 0, 10 ms a row
    assert np.nansum(image) == 18.0


def test_lag_image_takes_one_head() -> None:
    with pytest.raises(ValueError, match="one head"):
        lag_image(np.ones((1, 2, 3)))


def test_median_leaves_out_frames_and_missing_values() -> None:
    values = [[1.0, np.nan, 3.0, 100.0], [np.nan, np.nan, np.nan, 5.0]]
    np.testing.assert_array_equal(median_over(values, [True, True, True, False]), [2.0, np.nan])
    np.testing.assert_array_equal(median_over(values, [False] * 4), [np.nan, np.nan])
