"""Another shape of the face: tilted, stretched, bent, and shaken. All by option, off by default.

Few talkers give few shapes of a mouth; these make more of them. The shape that is drawn holds for every frame of the
clip: one map of the picture plane, so that motion is bent as the face is and nothing moves that did not move before.
Shaking alone changes from frame to frame.

Shapes: ``T`` video frames of ``Y`` by ``X`` grey levels, float 0..1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from avfusion.config import AugmentConfig
from avfusion.data.augment.draws import Draws
from avfusion.data.augment.shake import shaken

BENDS = 4  # points a side whose moves are drawn; between them the picture bends smoothly


def reshape_face(crops: Tensor, config: AugmentConfig, draws: Draws) -> Tensor:
    """Tilts, stretches, bends and shakes a clip, in one resampling; what lies outside the picture repeats its border.

    Args:
        crops: ``(T, Y, X)`` float 0..1.
        config: strengths.
        draws: source of every draw.

    Returns:
        ``(T, Y, X)`` float 0..1; the very same tensor where all are off.
    """
    if not (config.rotate_degrees or config.stretch or config.warp or config.shake):
        return crops
    height, width = crops.shape[1:]
    source = _pixel_centres(height, width)
    if config.warp:
        source = source + _bend(height, width, config.warp, draws)
    if config.stretch:
        stretch = math.exp(draws.of("stretch").uniform(-1, 1) * math.log1p(config.stretch))
        source = source * torch.tensor([stretch**-0.5, stretch**0.5])
    if config.rotate_degrees:
        angle = math.radians(draws.of("rotate_degrees").uniform(-1, 1) * config.rotate_degrees)
        turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        source = source @ turn
    sides = torch.tensor([width, height]).float()
    if not config.shake:
        seen = _sampled(crops[None], source[None], sides)
        return seen[0]
    moves = shaken(len(crops), config.shake, draws.of("shake"))
    return _sampled(crops[:, None], _moved(source, moves, sides), sides)[:, 0]


def _sampled(crops: Tensor, source: Tensor, sides: Tensor) -> Tensor:
    """``(N, C, Y, X)`` pictures read at ``source`` ``(N, Y, X, 2)``, pixels from the middle."""
    where = source / (sides / 2)
    seen: Tensor = F.grid_sample(crops, where, mode="bilinear", padding_mode="border", align_corners=False)
    return seen


def _moved(source: Tensor, moves: Tensor, sides: Tensor) -> Tensor:
    """``(Y, X, 2)`` places as each frame's own ``(T, Y, X, 2)``, moved as told by ``(T, 4)`` of a shaken crop."""
    cos, sin = torch.cos(moves[:, 3]), torch.sin(moves[:, 3])
    turns = torch.stack([torch.stack([cos, -sin], dim=-1), torch.stack([sin, cos], dim=-1)], dim=-2)
    turned = torch.einsum("yxi,tij->tyxj", source, turns * torch.exp(-moves[:, 2])[:, None, None])
    shifted: Tensor = turned - (moves[:, :2] * sides)[:, None, None]
    return shifted


def _pixel_centres(height: int, width: int) -> Tensor:
    """``(Y, X, 2)`` places x, y in pixels from the middle of the picture."""
    y, x = torch.arange(height) + 0.5 - height / 2, torch.arange(width) + 0.5 - width / 2
    return torch.stack([x.expand(height, width), y[:, None].expand(height, width)], dim=-1)


def _bend(height: int, width: int, strength: float, draws: Draws) -> Tensor:
    """``(Y, X, 2)`` pixels by which each place is moved: at the drawn points by up to ``strength`` of the side."""
    points = torch.from_numpy(draws.of("warp").uniform(-1, 1, (1, 2, BENDS, BENDS))).float()
    moves = F.interpolate(points, (height, width), mode="bicubic", align_corners=True)[0]
    return moves.permute(1, 2, 0) * torch.tensor([strength * width, strength * height])
