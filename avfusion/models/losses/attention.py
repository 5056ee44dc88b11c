"""Losses on the alignment itself: where the heads of the fusion listen, and whether they listen at all.

``B`` scenes, ``S`` face tracks, ``L`` fusion layers, ``H`` heads, ``T`` video frames, ``A = 4 T`` audio frames. The
alignment ``(B, S, L, H, T, A)`` leaves out the null key: its mass ``n`` is what the weights on the sound lack to 1.

``null``: the null mass of every head and layer should be 1 where the face is not the audible speaker and 0 where it is.
``guided``: on speaking frames, heads should listen near the natural lag. Both are means over heads and layers, summed
over frames.

Source: Tachibana et al. 2018 (guided attention) for the second.
"""

from __future__ import annotations

import torch
from torch import Tensor

from avfusion.clock import AUDIO_HZ, VIDEO_HZ
from avfusion.config import LossConfig
from avfusion.models.losses.targets import Targets

EPSILON = 1e-6  # a null mass stays this far from 0 and 1, so that its logarithm is finite
SMALLEST_MASS = 1e-12  # on the sound; with less, a head has listened nowhere


def null_count(targets: Targets, config: LossConfig) -> Tensor:
    """``(1,)`` frames that the null mass is supervised on."""
    return _null_frames(targets, config).sum().float()[None]


def null_total(alignment: Tensor, targets: Targets, config: LossConfig) -> Tensor:
    """Binary cross-entropy of the null mass with "not speaking", the mean over heads and layers summed over frames.

    Args:
        alignment: ``(B, S, L, H, T, A)`` of an attention with a null key.
        targets: labels and masks.
        config: ``null_frames`` says whether speaking frames are supervised as well.

    Returns:
        ``(1,)``.
    """
    # Squeezed and not cut off: a head that is wrong for certain still has a gradient that leads back.
    null = EPSILON + (1 - 2 * EPSILON) * (1 - alignment.float().sum(dim=-1))
    speaking = targets.speaking[:, :, None, None]
    per_frame = -torch.where(speaking, 1 - null, null).clamp_min(EPSILON / 2).log().mean(dim=(2, 3))
    return torch.where(_null_frames(targets, config), per_frame, 0.0).sum()[None]


def guided_count(targets: Targets) -> Tensor:
    """``(1,)`` speaking frames."""
    return targets.spoken.sum().float()[None]


def guided_total(alignment: Tensor, targets: Targets, config: LossConfig) -> Tensor:
    """How far from the natural lag the heads listen, ``Σ Ã (1 - exp(-(Δt - lag)² / 2 σ²))`` over speaking frames.

    ``Ã`` are the weights on the sound brought to sum 1, so the null mass has no part in it; ``Δt`` is the time of the
    sound minus the time of the frame, ``lag`` the middle of ``lag_frames``, ``σ`` is ``guided_width_ms``. Per frame it
    lies between 0 and 1; a frame that hears no real sound adds 0.

    Args:
        alignment: ``(B, S, L, H, T, A)``.
        targets: labels and masks.
        config: ``guided_heads`` takes the first heads of every layer only, 0 all of them.

    Returns:
        ``(1,)``.
    """
    heads = alignment.float()[:, :, :, : config.guided_heads or None]
    frames, sounds = heads.shape[-2:]
    key_ms = torch.arange(sounds, device=heads.device) * (1000 / AUDIO_HZ)
    query_ms = torch.arange(frames, device=heads.device)[:, None] * (1000 / VIDEO_HZ)
    lag_ms = sum(config.lag_frames) / 2 * (1000 / VIDEO_HZ)
    away = 1 - torch.exp(-((key_ms - query_ms - lag_ms) ** 2) / (2 * config.guided_width_ms**2))
    mass = heads.sum(dim=-1).clamp_min(SMALLEST_MASS)
    per_frame = ((heads * away).sum(dim=-1) / mass).mean(dim=(2, 3))
    return torch.where(targets.spoken, per_frame, 0.0).sum()[None]


def _null_frames(targets: Targets, config: LossConfig) -> Tensor:
    """``(B, S, T)`` bool: all real frames, or the real ones in which the face is not the audible speaker."""
    return targets.frame_mask if config.null_frames == "all" else targets.frame_mask & ~targets.speaking
