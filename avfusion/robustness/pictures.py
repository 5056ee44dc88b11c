"""Changes of a clip's pictures: something in front of the mouth, fewer pixels, out of focus, pictures lost.

They are made to the face crop as it is stored, before the model's region is cut out, in shares of its side: the same
damage for every model. Shapes: crops ``(T, Y, X)`` uint8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from avfusion.data.augment.degrade import BLUR_REACH, at_low_resolution
from avfusion.data.augment.modality import NO_PICTURE_LEVEL
from avfusion.data.clips import Clip
from avfusion.robustness.clips import draws_of
from avfusion.tracks import FaceTrack

Crops = NDArray[np.uint8]
MOUTH_XYXY = (0.30, 0.55, 0.70, 0.90)  # fractions of a face crop: the lips of any head pose that detectors crop


@dataclass(frozen=True)
class Occluded:
    """A box of one grey level, drawn for each track, over the middle of the mouth area.

    Attributes:
        share: of the mouth area that is covered, 0..1.
        tracks: of the split.
    """

    share: float
    tracks: Sequence[FaceTrack]

    def __call__(self, clip: Clip, track: int) -> Clip:
        """Covers the mouth in every frame."""
        height, width = clip.crops.shape[1:]
        x1, y1, x2, y2 = MOUTH_XYXY
        half_x, half_y = (x2 - x1) / 2 * self.share**0.5, (y2 - y1) / 2 * self.share**0.5
        left, right = round(((x1 + x2) / 2 - half_x) * width), round(((x1 + x2) / 2 + half_x) * width)
        top, bottom = round(((y1 + y2) / 2 - half_y) * height), round(((y1 + y2) / 2 + half_y) * height)
        crops = clip.crops.copy()
        crops[:, top:bottom, left:right] = draws_of(self.tracks[track]).of("occlusion").integers(256)
        return replace(clip, crops=crops)


@dataclass(frozen=True)
class Pixelated:
    """The face as ``blocks`` by ``blocks`` blocks of one level each, the mean of their pixels."""

    blocks: int

    def __call__(self, clip: Clip, track: int) -> Clip:
        """Pixelates every frame; a crop of no more pixels than that stays as it is."""
        height, width = clip.crops.shape[1:]
        rows, columns = _edges(height, self.blocks), _edges(width, self.blocks)
        sums = np.add.reduceat(clip.crops.astype(np.float32), rows[:-1], axis=1)
        sums = np.add.reduceat(sums, columns[:-1], axis=2)
        tall, wide = np.diff(rows), np.diff(columns)
        means = np.round(sums / (tall[:, None] * wide)).astype(np.uint8)
        return replace(clip, crops=means.repeat(tall, axis=1).repeat(wide, axis=2))


@dataclass(frozen=True)
class Blurred:
    """Out of focus: a Gaussian whose standard deviation is this share of the crop's side."""

    sigma: float

    def __call__(self, clip: Clip, track: int) -> Clip:
        """Blurs every frame."""
        sigma = self.sigma * clip.crops.shape[2]
        size = 2 * min(math.ceil(BLUR_REACH * sigma), min(clip.crops.shape[1:]) - 1) + 1
        # One axis after the other: the picture of augmentation's blur, many times faster at these widths.
        across: Tensor = F.gaussian_blur(_floats(clip.crops), [size, 1], [sigma, sigma])
        return replace(clip, crops=_levels(F.gaussian_blur(across, [1, size], [sigma, sigma])))


@dataclass(frozen=True)
class LowResolution:
    """A face that was filmed ``side`` pixels wide and enlarged smoothly."""

    side: int

    def __call__(self, clip: Clip, track: int) -> Clip:
        """Shrinks and enlarges every frame; a crop of no more pixels than that stays as it is."""
        return replace(clip, crops=_levels(at_low_resolution(_floats(clip.crops), self.side)))


@dataclass(frozen=True)
class Dropped:
    """A share of the pictures is lost, and the last one before is shown again; the first is never lost.

    Attributes:
        share: 0..1; which ones is drawn for each track.
        tracks: of the split.
    """

    share: float
    tracks: Sequence[FaceTrack]

    def __call__(self, clip: Clip, track: int) -> Clip:
        """Repeats pictures; sound and labels stay."""
        frames = len(clip.crops)
        rng = draws_of(self.tracks[track]).of("frame_drops")
        shown = np.arange(frames)
        shown[1 + rng.permutation(frames - 1)[: min(round(self.share * frames), frames - 1)]] = 0
        return replace(clip, crops=clip.crops[np.maximum.accumulate(shown)])


def no_picture(clip: Clip, track: int) -> Clip:
    """A grey picture throughout."""
    return replace(clip, crops=np.full_like(clip.crops, round(NO_PICTURE_LEVEL * 255)))


def _edges(side: int, blocks: int) -> NDArray[np.intp]:
    """Where blocks begin along a side, and its end; no block without a pixel."""
    return np.unique(np.round(np.linspace(0, side, blocks + 1)).astype(np.intp))


def _floats(crops: Crops) -> Tensor:
    return torch.from_numpy(crops).float() / 255


def _levels(crops: Tensor) -> Crops:
    levels: Crops = (crops * 255).round().clamp(0, 255).byte().numpy()
    return levels
