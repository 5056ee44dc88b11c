"""Augmentation of the picture, by its measured effect."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from avfusion.config import AugmentConfig
from avfusion.data.augment.degrade import at_low_resolution, blurred, occluded
from avfusion.data.augment.draws import Draws
from avfusion.data.augment.picture import augment_crops

Only = Callable[..., AugmentConfig]
SIDE = 32


def picture(frames: int = 3, side: int = 24) -> torch.Tensor:
    return torch.rand(frames, side, side, generator=torch.Generator().manual_seed(0))


def wave(cycles: int) -> torch.Tensor:
    """Upright stripes, so many over the picture's width, between 0.1 and 0.9."""
    across = torch.arange(64) / 64
    return (0.5 + 0.4 * torch.cos(2 * math.pi * cycles * across)).expand(2, 64, 64)


def amplitude(crops: torch.Tensor, cycles: int) -> float:
    """How strong such stripes are in the middle of the picture, away from what the borders do; 0.4 in :func:`wave`."""
    middle = crops[0, 32, 16:48].numpy().astype(np.float64)
    return float(np.abs(np.fft.rfft(middle - middle.mean()))[cycles // 2] / 16)


def test_all_off_changes_nothing(only: Only) -> None:
    assert torch.equal(augment_crops(picture(), only(), Draws(0)), picture())


def test_flip_mirrors_every_frame(only: Only) -> None:
    mirrored = augment_crops(picture(), only(flip=1.0), Draws(0))
    torch.testing.assert_close(mirrored, picture().flip(2), atol=1e-5, rtol=0)


def test_shift_moves_by_at_most_its_share_and_all_frames_alike(only: Only) -> None:
    spot = torch.zeros(2, 41, 41)
    spot[:, 20, 20] = 1.0
    largest = 0.0
    for seed in range(50):
        moved = augment_crops(spot, only(shift=0.1), Draws(seed))
        assert torch.equal(moved[0], moved[1])
        weights = moved[0] / moved[0].sum()
        y, x = torch.meshgrid(torch.arange(41.0), torch.arange(41.0), indexing="ij")
        distance = max(abs(float((weights * y).sum()) - 20), abs(float((weights * x).sum()) - 20))
        largest = max(largest, distance)
        assert distance <= 0.1 * 41 + 0.5
    assert largest > 0.05 * 41


def test_brightness_and_noise_stay_in_range(only: Only) -> None:
    for seed in range(20):
        out = augment_crops(picture(), only(brightness=0.5, noise=0.2), Draws(seed))
        assert out.min() >= 0
        assert out.max() <= 1


def covered(crops: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return crops != out


@pytest.mark.parametrize("area", [0.1, 0.25, 0.5])
def test_occlusion_covers_the_asked_share(area: float) -> None:
    crops = 2.0 + picture(4, SIDE)  # no fill is ever equal to it
    kinds = set()
    for seed in range(60):
        hidden = covered(crops, occluded(crops, [area, area], np.random.default_rng(seed)))
        frame = hidden[hidden.flatten(1).any(1)][0]
        rows, columns = int(frame.any(1).sum()), int(frame.any(0).sum())
        assert frame.sum() == rows * columns  # one box
        # To half a row or column: what lies along it is at most as long as the picture.
        assert abs(float(frame.float().mean()) - area) <= 0.5 / SIDE + 1e-6
        kinds.add("across" if columns == SIDE else "down" if rows == SIDE else "box")
    assert kinds == {"across", "down", "box"}


def test_occlusion_areas_spread_over_the_asked_range(only: Only) -> None:
    crops = torch.full((2, 64, 64), 0.6180339)
    settings = only(occlusion=1.0, occlusion_area=[0.2, 0.4])
    hidden = [covered(crops, augment_crops(crops, settings, Draws(seed))).any(0) for seed in range(100)]
    shares = [float(place.float().mean()) for place in hidden]
    assert 0.19 <= min(shares) < 0.23
    assert 0.37 < max(shares) <= 0.41
    assert np.mean(shares) == pytest.approx(0.3, abs=0.02)


def test_what_stands_before_the_face_keeps_still_and_the_rest_is_untouched() -> None:
    crops = picture(20, SIDE)
    lengths = []
    for seed in range(60):
        out = occluded(crops, [0.2, 0.3], np.random.default_rng(seed))
        frames = torch.nonzero(covered(crops, out).flatten(1).any(1)).flatten()
        lengths.append(len(frames))
        assert frames.tolist() == list(range(int(frames[0]), int(frames[-1]) + 1))  # one stretch
        place = covered(crops, out).any(0)
        assert torch.equal(out[frames][:, place], out[frames[:1]][:, place].expand(len(frames), -1))
        assert torch.equal(out[:, ~place], crops[:, ~place])
    assert 20 < sum(length == 20 for length in lengths) < 45  # half of them for the whole clip
    assert min(lengths) >= 5


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_blur_is_a_gaussian_of_its_sigma(sigma: float) -> None:
    for cycles in (4, 8):
        expected = 0.4 * math.exp(-2 * (math.pi * sigma * cycles / 64) ** 2)
        assert amplitude(blurred(wave(cycles), sigma), cycles) == pytest.approx(expected, rel=0.02)


def test_low_resolution_loses_what_its_pixels_cannot_hold_and_keeps_the_rest() -> None:
    assert amplitude(at_low_resolution(wave(24), 16), 24) < 0.04  # 16 pixels hold 8 cycles
    assert amplitude(wave(24), 24) == pytest.approx(0.4)
    assert amplitude(at_low_resolution(wave(2), 16), 2) > 0.35
    assert torch.equal(at_low_resolution(picture(2, 24), 24), picture(2, 24))


@pytest.mark.parametrize("option", ["blur", "low_resolution"])
def test_a_worse_view_is_as_often_as_asked_and_moves_nothing(option: str, only: Only) -> None:
    still = picture(1, SIDE).expand(4, -1, -1)
    settings = only(**{option: 0.3})
    changed = 0
    for seed in range(300):
        out = augment_crops(still, settings, Draws(seed))
        assert torch.equal(out, out[:1].expand(4, -1, -1))
        changed += not torch.equal(out, still)
    assert changed / 300 == pytest.approx(0.3, abs=0.08)


def test_low_resolution_draws_every_side_of_its_range(only: Only) -> None:
    crops, settings = picture(1, SIDE), only(low_resolution=1.0, low_resolution_side=[8, 10])
    possible = [at_low_resolution(crops, side) for side in (8, 9, 10)]
    drawn = [augment_crops(crops, settings, Draws(seed)) for seed in range(30)]
    found = {side for out in drawn for side, one in zip((8, 9, 10), possible, strict=True) if torch.equal(out, one)}
    assert found == {8, 9, 10}
    assert all(any(torch.equal(out, one) for one in possible) for out in drawn)


def test_a_new_option_leaves_the_other_draws_as_they_were() -> None:
    crops = picture(3, SIDE)
    plain = augment_crops(crops, AugmentConfig(), Draws(1, 2, 3))
    barred = AugmentConfig(occlusion=1.0, occlusion_area=[0.1, 0.1])
    out = augment_crops(crops, barred, Draws(1, 2, 3))
    same = (out == plain).float().mean()
    assert 0.85 < float(same) < 0.99  # the very same noise, light and place beside the box
