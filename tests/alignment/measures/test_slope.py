"""A positional head has slope 0, a head that finds the sound slope 1, and only frames with real sound count."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from avfusion.alignment.measures.slope import SHIFTS_MS, _blocks, fit_slope, shift_slope
from avfusion.data.examples import Examples
from avfusion.errors import UsageError
from avfusion.models import build_model
from tests.alignment.planted_attention import Clicks, content, nothing, planted_model, positional, undecided

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def planted():
    # 61 frames: with a window of 0.5 s and shifts of 0.2 s, those from 0.7 to 1.74 s count: 18 to 43.
    model, config = planted_model(positional(80), content, undecided, nothing)
    clicks = [1.2, 1.25, 1.31, 1.15]
    return shift_slope(model, Examples(Clicks(clicks, 61), config.data), config, CPU, resamples=200), clicks


def test_slopes_of_planted_heads(planted) -> None:
    fit, _ = planted
    np.testing.assert_allclose(fit.slope[0, :3, 0], [0.0, 1.0, 0.25], atol=1e-6)
    np.testing.assert_allclose(fit.r2[0, :3, 0], [0.0, 1.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(fit.slope[0, :3, 1:], [[0, 0], [1, 1], [0.25, 0.25]], atol=1e-6)
    assert np.isnan([fit.slope[0, 3], fit.r2[0, 3], fit.intercept_ms[0, 3]]).all()


def test_intercepts_are_the_lags_where_the_sound_is_not_moved(planted) -> None:
    fit, clicks = planted
    assert (fit.num_frames, fit.num_tracks, fit.num_groups) == (4 * 26, 4, 4)
    frames_s = np.arange(18, 44) / 25
    of_tracks = [1000 * (click - frames_s).mean() for click in clicks]
    expected = np.mean(of_tracks)
    np.testing.assert_allclose(fit.intercept_ms[0, :3, 0], [80.0, expected, expected / 4], atol=1e-3)
    np.testing.assert_allclose(fit.lag_ms[5, 0, :3, 0], [80.0, expected, expected / 4], atol=1e-3)
    np.testing.assert_allclose(fit.lag_ms[:, 0, 1, 0], expected + np.array(SHIFTS_MS), atol=1e-3)
    low, high = fit.intercept_ms[0, 1, 1:]
    assert min(of_tracks) - 1e-3 <= low < expected < high <= max(of_tracks) + 1e-3


def test_a_picture_is_encoded_once_for_all_shifts() -> None:
    model, config = planted_model(positional(0))
    counted: list[int] = []
    model.visual.register_forward_hook(lambda *_: counted.append(1))
    whole = model.visual.forward
    frames: list[int] = []

    def forward(crops: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        frames.append(crops.shape[0] * crops.shape[1])
        return whole(crops, mask)

    vars(model.visual)["forward"] = forward
    shift_slope(model, Examples(Clicks([1.2, 1.3]), config.data), config, CPU, resamples=0)
    assert sum(frames) == 2 * 60
    assert len(counted) == 11
    assert vars(model.visual)["forward"] is forward


def test_frames_near_the_ends_and_silent_ones_are_left_out() -> None:
    model, config = planted_model(positional(80))
    dataset = Clicks([1.2, 0.5], 61)
    dataset.tracks[0].speaking[:30] = False
    dataset.tracks[1].speaking[:] = False
    fit = shift_slope(model, Examples(dataset, config.data), config, CPU)
    assert (fit.num_frames, fit.num_tracks) == (44 - 30, 1)
    assert np.isnan(fit.slope[..., 1:]).all()  # one group gives no interval
    short = shift_slope(model, Examples(Clicks([0.5], 30), config.data), config, CPU)
    assert short.num_frames == 0
    assert np.isnan(short.slope).all()


def test_a_frame_counts_where_it_hears_at_every_shift() -> None:
    """A head that hears in the frames near its click only: with the click moved, other frames hear."""

    def near(query_s: torch.Tensor, key_s: torch.Tensor, sound: torch.Tensor) -> torch.Tensor:
        click_s = key_s[sound.sum(dim=-1).argmax(dim=1)]
        return content(query_s, key_s, sound) * ((click_s[:, None] - query_s).abs() < 0.3)[..., None]

    model, config = planted_model(near)
    fit = shift_slope(model, Examples(Clicks([1.2], 61), config.data), config, CPU, shifts_ms=[-80, 0, 80])
    # Of clicks at 1.12, 1.2 and 1.28 s, frames 25 to 35 (1.0 .. 1.4 s) hear all.
    frames_s = np.arange(25, 36) / 25
    expected = 1000 * (1.2 - frames_s).mean()
    np.testing.assert_allclose(fit.slope[0, 0, 0], 1.0, atol=1e-4)
    np.testing.assert_allclose(fit.intercept_ms[0, 0, 0], expected, atol=6.0)


def test_the_line_is_that_of_least_squares() -> None:
    """Two groups; lags 0, 10, 50 and 20, 10, 30 ms at -10, 0 and 20 ms: pooled 10, 10, 40."""
    lags = np.array([[0.0, 10.0, 50.0], [20.0, 10.0, 30.0]])[:, :, None, None]
    fit = fit_slope([-10, 0, 20], 6 * lags, np.full(lags.shape, 6.0), 12, 2, resamples=400)
    slope, intercept = np.polyfit([-10, 0, 20], [10, 10, 40], 1)
    assert fit.slope[0, 0, 0] == pytest.approx(slope)
    assert fit.intercept_ms[0, 0, 0] == pytest.approx(intercept)
    assert fit.r2[0, 0, 0] == pytest.approx(np.corrcoef([-10, 0, 20], [10, 10, 40])[0, 1] ** 2)
    alone = sorted(np.polyfit([-10, 0, 20], one, 1)[0] for one in lags[..., 0, 0])
    np.testing.assert_allclose(fit.slope[0, 0, 1:], alone)  # a draw of two groups is often one of them twice


def test_a_slope_needs_two_shifts_and_a_model_with_heads() -> None:
    model, config = planted_model(positional(0))
    examples = Examples(Clicks([1.2]), config.data)
    with pytest.raises(ValueError, match="a slope needs two shifts or more"):
        shift_slope(model, examples, config, CPU, shifts_ms=[40, 40])
    config.model.fusion.kind = "concat"
    with pytest.raises(UsageError, match="no cross-attention"):
        shift_slope(build_model(config.model, 16), examples, config, CPU)


def test_blocks_hold_what_they_may() -> None:
    assert _blocks([3, 5, 7, 8], [12_000, 9_000, 11_000, 30_000]) == [[3], [5, 7], [8]]
    assert _blocks([], []) == []
