"""Faces of another shape: how far they are tilted, stretched and bent, measured on spots, and alike in all frames."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from avfusion.config import AugmentConfig
from avfusion.data.augment.draws import Draws
from avfusion.data.augment.picture import augment_crops
from avfusion.data.augment.shake import shaken
from avfusion.data.augment.shape import reshape_face

Only = Callable[..., AugmentConfig]
SIDE, ARM = 61, 15  # pixels; spots lie so far from the middle
MIDDLE = (SIDE - 1) / 2


def spots() -> torch.Tensor:
    """Frames of one spot each: in the middle, to the right of it, below it."""
    frames = torch.zeros(3, SIDE, SIDE)
    for frame, (y, x) in enumerate([(0, 0), (0, ARM), (ARM, 0)]):
        frames[frame, int(MIDDLE) + y, int(MIDDLE) + x] = 1.0
    return torch.nn.functional.avg_pool2d(frames[None], 5, stride=1, padding=2)[0]  # wide enough for a resampling


def places(crops: torch.Tensor) -> np.ndarray:
    """``(T, 2)`` x, y of each frame's spot from the middle, pixels."""
    y, x = torch.meshgrid(torch.arange(SIDE) - MIDDLE, torch.arange(SIDE) - MIDDLE, indexing="ij")
    mass = crops.sum(dim=(1, 2))
    return torch.stack([(crops * x).sum(dim=(1, 2)) / mass, (crops * y).sum(dim=(1, 2)) / mass], dim=1).numpy()


def test_all_off_is_the_same_tensor(only: Only) -> None:
    crops = spots()
    assert reshape_face(crops, only(), Draws(0)) is crops


def test_a_tilt_turns_the_picture_by_at_most_the_given_angle(only: Only) -> None:
    found = []
    for seed in range(40):
        middle, right, below = places(reshape_face(spots(), only(rotate_degrees=20.0), Draws(seed)))
        np.testing.assert_allclose(middle, 0, atol=0.05)
        assert abs(math.hypot(*right) - ARM) < 0.1
        angle = math.degrees(math.atan2(right[1], right[0]))
        other = math.degrees(math.atan2(-below[0], below[1]))
        assert abs(other - angle) < 0.5  # both arms turn alike: nothing is mirrored
        found.append(angle)
    assert -20.2 < min(found) < -10
    assert 10 < max(found) < 20.2


def test_a_stretch_changes_width_against_height_and_keeps_the_area(only: Only) -> None:
    found = []
    for seed in range(40):
        _, right, below = places(reshape_face(spots(), only(stretch=0.5), Draws(seed)))
        np.testing.assert_allclose([right[1], below[0]], 0, atol=0.1)
        assert abs(right[0] * below[1] / ARM**2 - 1) < 0.02
        found.append(right[0] / below[1])
    assert 1 / 1.52 < min(found) < 0.8
    assert 1.25 < max(found) < 1.52


def test_bending_moves_by_about_its_share_of_the_side_and_not_everywhere_alike(only: Only) -> None:
    moves = []
    for seed in range(40):
        found = places(reshape_face(spots(), only(warp=0.05), Draws(seed)))
        moves.append(found - [(0, 0), (ARM, 0), (0, ARM)])
    lengths = np.abs(np.stack(moves))
    assert lengths.max() < 1.6 * 0.05 * SIDE  # a smooth curve may run beyond the points it goes through
    assert 0.2 * 0.05 * SIDE < lengths.mean() < 0.05 * SIDE
    apart = np.stack(moves)[:, 1] - np.stack(moves)[:, 2]
    assert np.abs(apart).mean() > 0.2 * 0.05 * SIDE


def test_all_frames_are_reshaped_alike_and_a_still_face_stays_still(only: Only) -> None:
    still = torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(0)).expand(4, 32, 32)
    reshaped = reshape_face(still, only(rotate_degrees=15.0, stretch=0.2, warp=0.05), Draws(1))
    assert torch.equal(reshaped, reshaped[:1].expand(4, 32, 32))
    assert (reshaped - still).abs().mean() > 0.05
    assert 0 <= reshaped.min() <= reshaped.max() <= 1


def test_each_has_chance_of_its_own(only: Only) -> None:
    """Turning one on leaves the others' draws, and those of light and place, as they were."""
    tilted = places(reshape_face(spots(), only(rotate_degrees=20.0), Draws(7)))[1]
    both = places(reshape_face(spots(), only(rotate_degrees=20.0, stretch=0.001), Draws(7)))[1]
    np.testing.assert_allclose(both, tilted, atol=0.02)


def test_gamma_bends_the_light_between_black_and_white(only: Only) -> None:
    ramp = torch.linspace(0, 1, 24).expand(2, 24, 24)
    found = []
    for seed in range(40):
        lit = augment_crops(ramp, only(gamma=1.0), Draws(seed))
        assert torch.equal(lit[..., 0], ramp[..., 0])
        assert torch.equal(lit[..., -1], ramp[..., -1])
        exponent = math.log(float(lit[0, 0, 12])) / math.log(float(ramp[0, 0, 12]))
        torch.testing.assert_close(lit, ramp**exponent, atol=1e-4, rtol=0)
        found.append(math.log2(exponent))
    assert -1.001 < min(found) < -0.5
    assert 0.5 < max(found) < 1.001


def test_a_shaken_crop_wanders_about_its_place_within_its_bounds(only: Only) -> None:
    """Read off the three spots of every frame: place and size as a share, tilt in radians, by at most the strength."""
    strength = 0.05
    wandered = []
    for seed in range(20):
        clips = [spot.expand(50, SIDE, SIDE) for spot in spots()[:2]]
        centre, right = (places(reshape_face(clip, only(shake=strength), Draws(seed))) for clip in clips)
        middle, arm = centre / SIDE, right - centre
        size = np.log(np.hypot(*arm.T) / ARM)
        tilt = np.arctan2(arm[:, 1], arm[:, 0])
        told = np.column_stack([middle, size, tilt])
        moves = shaken(50, strength, Draws(seed).of("shake")).numpy()
        np.testing.assert_allclose(told, moves, atol=0.02)
        wandered.append(told)
    every = np.stack(wandered)
    assert np.abs(every).max() < 2.5 * strength  # a smooth curve and a tremble run beyond the places drawn
    assert np.all(np.abs(every).mean(axis=(0, 1)) > 0.1 * strength)
    steps, spread = np.abs(np.diff(every, axis=1)).mean(), every.std(axis=1).mean()
    assert steps < spread  # a drift, not noise from frame to frame


def test_shaking_leaves_the_shape_that_is_drawn_beside_it(only: Only) -> None:
    tilted = places(reshape_face(spots(), only(rotate_degrees=20.0), Draws(7)))[1]
    both = places(reshape_face(spots(), only(rotate_degrees=20.0, shake=0.001), Draws(7)))[1]
    np.testing.assert_allclose(both, tilted, atol=0.05)
