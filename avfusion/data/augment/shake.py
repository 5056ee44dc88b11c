"""A crop that does not hold still: it drifts, breathes and trembles as the box of a face tracker does.

Prepared crops of a studio sit still, so that whatever moves in them is a mouth. The box of a detector in a film moves
by some hundredths of its side from frame to frame, and a head does too. By option, off by default.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

KNOT_FRAMES = (5, 25)  # shortest and longest time between the turns of a drift: 0.2 to 1 s
TREMBLE = 0.2  # standard deviation from frame to frame, of the largest drift


def shaken(frames: int, strength: float, rng: np.random.Generator) -> Tensor:
    """Draws how the crop moves over a clip.

    The drift passes smoothly through places drawn every so often, and each frame trembles about it. How strong both are
    is drawn for the clip, from nothing to ``strength``.

    Args:
        frames: of the clip, ``T``.
        strength: largest drift; of places as a share of the side, of size as a share, of tilt in radians.
        rng: source of every draw.

    Returns:
        ``(T, 4)`` float: shift to the right and down as a share of the side, growth (natural logarithm), tilt clockwise
        in radians.
    """
    strength *= rng.random()
    every = rng.uniform(*KNOT_FRAMES)
    knots = torch.from_numpy(rng.uniform(-1, 1, (1, 4, 1, round(frames / every) + 2))).float()
    drift = F.interpolate(knots, (1, frames), mode="bicubic", align_corners=True)[0, :, 0].T
    tremble = torch.from_numpy(rng.standard_normal((frames, 4), dtype=np.float32)) * TREMBLE
    return (drift + tremble) * strength
