"""The speaking loss: binary cross-entropy of one logit per face and frame, over real frames only.

``B`` scenes, ``S`` face tracks, ``T`` video frames. It serves the audio-visual logits and, as auxiliary terms, those
from the sound alone and from the picture alone.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from avfusion.models.losses.targets import Targets


def speaking_count(targets: Targets) -> Tensor:
    """``(1,)`` real frames."""
    return targets.frame_mask.sum().float()[None]


def speaking_total(logits: Tensor, targets: Targets) -> Tensor:
    """Binary cross-entropy summed over real frames.

    Args:
        logits: ``(B, S, T)``.
        targets: labels and masks.

    Returns:
        ``(1,)``; 0 when no frame is real.
    """
    per_frame = F.binary_cross_entropy_with_logits(logits.float(), targets.speaking.float(), reduction="none")
    return torch.where(targets.frame_mask, per_frame, 0.0).sum()[None]
