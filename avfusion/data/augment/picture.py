"""Picture: a clip is mirrored, moved, zoomed, reshaped, worsened and relit, all frames alike unless it is shaken.

Shapes: ``T`` video frames of ``Y`` by ``X`` grey levels, float 0..1.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from avfusion.config import AugmentConfig
from avfusion.data.augment.degrade import degrade
from avfusion.data.augment.draws import Draws
from avfusion.data.augment.shape import reshape_face


def augment_crops(crops: Tensor, config: AugmentConfig, draws: Draws) -> Tensor:
    """Mirrors, shifts, zooms, reshapes, worsens and relights a clip; all its frames alike, unless it is shaken.

    Args:
        crops: ``(T, Y, X)`` float 0..1.
        config: strengths.
        draws: source of every draw.

    Returns:
        ``(T, Y, X)`` float 0..1.
    """
    rng = draws.main
    crops = reshape_face(_moved(crops, config, rng), config, draws)
    crops = degrade(crops, config, draws)  # before the light and grain of the camera, which it would blur
    if config.gamma:
        crops = crops.clamp(0.0, 1.0) ** (2.0 ** draws.of("gamma").uniform(-config.gamma, config.gamma))
    gain = 1.0 + rng.uniform(-config.brightness, config.brightness)
    offset = rng.uniform(-config.brightness, config.brightness) / 2
    crops = (crops - 0.5) * gain + 0.5 + offset
    if config.noise:
        noise = torch.from_numpy(rng.standard_normal(crops.shape, dtype=np.float32))
        crops = crops + noise * (config.noise * rng.random())
    return crops.clamp(0.0, 1.0)


def _moved(crops: Tensor, config: AugmentConfig, rng: np.random.Generator) -> Tensor:
    """Mirrors, shifts and zooms."""
    height, width = crops.shape[1:]
    if rng.random() < config.flip:
        crops = F.horizontal_flip(crops)
    zoom = 1.0 + rng.uniform(-config.zoom, config.zoom)
    shift_y, shift_x = rng.uniform(-config.shift, config.shift, 2) * (height, width)
    if zoom != 1.0 or shift_x or shift_y:
        # The largest box that can be drawn: what lies outside the picture repeats its border.
        margin = math.ceil(max(height, width) * (config.zoom / 2 + config.shift)) + 1
        crops = F.pad(crops, [margin], padding_mode="edge")
        tall, wide = round(height * zoom), round(width * zoom)
        top = round(margin + (height - tall) / 2 + shift_y)
        left = round(margin + (width - wide) / 2 + shift_x)
        crops = F.resized_crop(crops, top, left, tall, wide, [height, width], antialias=True)
    return crops
