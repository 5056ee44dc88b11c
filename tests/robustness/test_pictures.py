"""Each damage of the picture does what its name and number say, and nothing beside it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from avfusion.data.augment.degrade import at_low_resolution, blurred
from avfusion.data.clips import Clip
from avfusion.robustness.pictures import (
    MOUTH_XYXY,
    Blurred,
    Dropped,
    LowResolution,
    Occluded,
    Pixelated,
    no_picture,
)
from tests.robustness.planted import a_track

TRACKS = [a_track(f"v{index}", np.ones(40, bool)) for index in range(6)]


def a_clip(side: int = 100, frames: int = 40) -> Clip:
    crops = np.random.default_rng(0).integers(0, 256, (frames, side, side)).astype(np.uint8)
    return Clip(crops, np.zeros(640 * frames, np.float32), np.ones(frames, bool))


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_occlusion_covers_its_share_of_the_mouth_and_nothing_else(share: float) -> None:
    clip = a_clip()
    crops = Occluded(share, TRACKS)(clip, 0).crops
    x1, y1, x2, y2 = (round(100 * edge) for edge in MOUTH_XYXY)
    mouth = np.zeros((100, 100), bool)
    mouth[y1:y2, x1:x2] = True
    level = crops[0, (y1 + y2) // 2, (x1 + x2) // 2]
    covered = (crops == level).all(axis=0)
    assert not (covered & ~mouth).any()
    assert covered.sum() / mouth.sum() == pytest.approx(share, abs=0.03)
    assert np.array_equal(crops[:, ~covered], clip.crops[:, ~covered])
    assert len({int(Occluded(1.0, TRACKS)(clip, track).crops[0, 72, 50]) for track in range(6)}) > 3


@pytest.mark.parametrize(("side", "blocks"), [(96, 24), (112, 24), (53, 12), (53, 6)])
def test_blocks_are_of_one_level_which_is_the_mean_of_their_pixels(side: int, blocks: int) -> None:
    clip = a_clip(side, frames=3)
    crops = Pixelated(blocks)(clip, 0).crops
    edges = np.round(np.linspace(0, side, blocks + 1)).astype(int)
    for frame in range(3):
        for top, bottom in pairwise(edges):
            for left, right in pairwise(edges):
                block = crops[frame, top:bottom, left:right]
                assert (block == block[0, 0]).all()
                assert abs(block[0, 0] - clip.crops[frame, top:bottom, left:right].mean()) <= 0.501


def test_a_crop_of_no_more_pixels_than_that_stays() -> None:
    clip = a_clip(24)
    assert np.array_equal(Pixelated(24)(clip, 0).crops, clip.crops)
    assert np.array_equal(LowResolution(24)(clip, 0).crops, clip.crops)
    assert not np.array_equal(Pixelated(12)(clip, 0).crops, clip.crops)


def test_blur_and_low_resolution_are_those_of_augmentation() -> None:
    clip = a_clip(100, frames=4)
    floats = torch.from_numpy(clip.crops).float() / 255
    for sigma in (0.02, 0.04, 0.08):
        expected = (blurred(floats, 100 * sigma) * 255).numpy()
        assert np.abs(Blurred(sigma)(clip, 0).crops - expected).max() <= 0.51
    for side in (24, 12, 6):
        expected = (at_low_resolution(floats, side) * 255).numpy()
        assert np.abs(LowResolution(side)(clip, 0).crops - expected).max() <= 0.51


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 1.0])
def test_dropped_pictures_are_the_last_one_again(share: float) -> None:
    clip = a_clip(frames=40)
    crops = Dropped(share, TRACKS)(clip, 1).crops
    fresh = [np.array_equal(crops[i], clip.crops[i]) for i in range(40)]
    assert fresh[0]
    assert fresh.count(False) == min(round(40 * share), 39)
    for frame in np.flatnonzero(~np.array(fresh)):
        assert np.array_equal(crops[frame], crops[frame - 1])


def test_more_drops_lose_the_same_pictures_and_others_and_tracks_lose_different_ones() -> None:
    clip = a_clip(frames=40)

    def lost(share: float, track: int) -> set[int]:
        crops = Dropped(share, TRACKS)(clip, track).crops
        return {i for i in range(40) if not np.array_equal(crops[i], clip.crops[i])}

    assert lost(0.1, 0) < lost(0.25, 0) < lost(0.5, 0)
    assert lost(0.5, 0) != lost(0.5, 1)


def test_a_track_of_one_frame_bears_everything() -> None:
    clip = a_clip(frames=1)
    assert np.array_equal(Dropped(0.5, TRACKS)(clip, 0).crops, clip.crops)
    for change in (Occluded(1.0, TRACKS), Pixelated(6), Blurred(0.08), LowResolution(6), no_picture):
        assert change(clip, 0).crops.shape == clip.crops.shape


def test_no_picture_is_grey() -> None:
    assert np.unique(no_picture(a_clip(), 0).crops).tolist() == [128]
