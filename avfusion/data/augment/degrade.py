"""A worse view of a face: something in front of it, out of focus, or few pixels. All by option, off by default.

What is drawn holds for every frame of the clip, so that motion is untouched; only something in front of the face may
be there for a part of the clip.

Shapes: ``T`` video frames of ``Y`` by ``X`` grey levels, float 0..1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from avfusion.config import AugmentConfig
from avfusion.data.augment.draws import Draws, between

LEAST_OCCLUDED = 0.25  # of the clip, where something stands in front of the face for a while only
BLUR_REACH = 3  # standard deviations of the Gaussian that are computed


def degrade(crops: Tensor, config: AugmentConfig, draws: Draws) -> Tensor:
    """Occludes, then blurs, then lowers the resolution: in the order in which light passes them.

    Args:
        crops: ``(T, Y, X)`` float 0..1.
        config: probabilities and ranges.
        draws: source of every draw.

    Returns:
        ``(T, Y, X)`` float 0..1; the very same tensor where nothing is applied.
    """
    if (rng := draws.chance("occlusion", config.occlusion)) is not None:
        crops = occluded(crops, config.occlusion_area, rng)
    if (rng := draws.chance("blur", config.blur)) is not None:
        crops = blurred(crops, between(rng, config.blur_sigma))
    if (rng := draws.chance("low_resolution", config.low_resolution)) is not None:
        low, high = config.low_resolution_side
        crops = at_low_resolution(crops, int(rng.integers(low, high + 1)))
    return crops


def occluded(crops: Tensor, area: Sequence[float], rng: np.random.Generator) -> Tensor:
    """Puts a box, or a bar from edge to edge, in front of the face, filled with one grey level or with still noise.

    Half of the time it is there for the whole clip, else for one stretch of it. It may cover any part of the picture.

    Args:
        crops: ``(T, Y, X)`` float 0..1.
        area: smallest and largest share of the picture, above 0; met to within half a row or column of pixels.
        rng: source of every draw.

    Returns:
        ``(T, Y, X)``, a new tensor.
    """
    frames, height, width = crops.shape
    tall, wide = _sides(between(rng, area) * height * width, height, width, rng)
    top, left = int(rng.integers(0, height - tall + 1)), int(rng.integers(0, width - wide + 1))
    fill = rng.random((tall, wide)) if rng.random() < 0.5 else np.full((tall, wide), rng.random())
    first, count = 0, frames
    if rng.random() < 0.5:
        count = max(1, round(frames * rng.uniform(LEAST_OCCLUDED, 1.0)))
        first = int(rng.integers(0, frames - count + 1))
    crops = crops.clone()
    crops[first : first + count, top : top + tall, left : left + wide] = torch.from_numpy(fill).to(crops)
    return crops


def _sides(pixels: float, height: int, width: int, rng: np.random.Generator) -> tuple[int, int]:
    """Height and width of a bar across, a bar down, or a box up to twice as long as wide, of so many pixels."""
    shape = rng.integers(3)
    if shape == 0:
        return min(height, max(1, round(pixels / width))), width
    if shape == 1:
        return height, min(width, max(1, round(pixels / height)))
    tall = round(math.sqrt(pixels * 2.0 ** rng.uniform(-1.0, 1.0)))
    tall = min(height, max(1, math.ceil(pixels / width), tall))
    return tall, min(width, max(1, round(pixels / tall)))


def blurred(crops: Tensor, sigma: float) -> Tensor:
    """Blurs ``(T, Y, X)`` with a Gaussian of ``sigma`` pixels; beyond the border the picture is mirrored."""
    radius = min(math.ceil(BLUR_REACH * sigma), min(crops.shape[1:]) - 1)
    out: Tensor = F.gaussian_blur(crops, [2 * radius + 1] * 2, [sigma] * 2)
    return out


def at_low_resolution(crops: Tensor, side: int) -> Tensor:
    """Shrinks ``(T, Y, X)`` to ``side`` by ``side`` pixels and enlarges it again; not smaller pictures than that."""
    height, width = crops.shape[1:]
    if side >= min(height, width):
        return crops
    small = F.resize(crops, [side, side], antialias=True)
    out: Tensor = F.resize(small, [height, width], antialias=True)
    return out
