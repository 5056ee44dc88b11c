"""The synchronisation loss: the sound in time with a clip's picture wins against the same sound shifted.

``B`` scenes, ``S`` face tracks, ``T`` video frames, ``E`` width of the contrastive space, ``K`` shifts. A clip is
one face track of one scene.

For every shift ``k`` the score of a clip is the mean, over its speaking frames ``t``, of the cosine between the picture
of ``t`` and the sound of ``t + k``. A softmax over the shifts says which sound fits; the loss is -ln of what falls to
the natural lags (``lag_frames``) together. False shifts lie more than 8 frames (0.32 s) before the first or after the
last natural lag, and at most ``sync_shifts``; those in between are neither right nor wrong.

Left out: sound beyond the clip, and the outermost 3 frames of the clip, where both encoders see that the clip ends and
would match by that alone. A shift with fewer than 8 frames left does not compete, and a clip counts when a natural lag
and a false shift compete.

Source: Chung & Zisserman 2016 (SyncNet) for shifted sound as the negative; Chung, Chung & Kang 2019 (Perfect Match) for
the choice among many shifts by cross-entropy; Miech et al. 2020 (MIL-NCE) for several lags of which one fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

from avfusion.config import LossConfig
from avfusion.models.detector import Detection
from avfusion.models.losses.contrast import NEVER
from avfusion.models.losses.targets import Targets, any_within

NEAR_FRAMES = 8  # shifts up to here beyond a natural lag are neither right nor wrong
EDGE_FRAMES = 3  # reach of either encoder
MIN_FRAMES = 8  # of which the mean of a shift is made


def sync_count(targets: Targets, config: LossConfig) -> Tensor:
    """``(1,)`` clips in which a natural lag and a false shift compete."""
    return _shifts(targets, config).clip.sum().float()[None]


def sync_total(detection: Detection, targets: Targets, config: LossConfig) -> Tensor:
    """-ln of what falls to the natural lags, summed over the clips that count.

    Args:
        detection: its embeddings at 25 Hz.
        targets: labels and masks.
        config: of the losses.

    Returns:
        ``(1,)``; 0 when no clip counts.
    """
    shifts = _shifts(targets, config)
    cosine = detection.video_embedding.float() @ detection.audio_embedding.float()[:, None].mT
    partner = shifts.partner.expand(*cosine.shape[:2], -1, -1)
    shifted = torch.where(shifts.frames, cosine.gather(-1, partner), 0.0)
    score = shifted.sum(dim=-2) / shifts.frames.sum(dim=-2).clamp_min(1) / config.sync_temperature
    score = torch.where(shifts.competes, score, NEVER)
    share = score.masked_fill(~shifts.natural, NEVER).logsumexp(dim=-1) - score.logsumexp(dim=-1)
    return -torch.where(shifts.clip, share, 0.0).sum()[None]


@dataclass(frozen=True)
class _Shifts:
    """The shifts of every clip.

    Attributes:
        natural: ``(K,)`` bool, whether the shift is a natural lag.
        partner: ``(T, K)`` the sound frame that each shift brings to each video frame, moved into the clip.
        frames: ``(B, S, T, K)`` bool, video frames that a shift is judged by.
        competes: ``(B, S, K)`` bool, whether there are enough of them.
        clip: ``(B, S)`` bool, whether the clip counts.
    """

    natural: Tensor
    partner: Tensor
    frames: Tensor
    competes: Tensor
    clip: Tensor


def _shifts(targets: Targets, config: LossConfig) -> _Shifts:
    first, last = config.lag_frames
    device, frames = targets.speaking.device, targets.speaking.shape[-1]
    before = torch.arange(first - config.sync_shifts, first - NEAR_FRAMES, device=device)
    after = torch.arange(last + NEAR_FRAMES + 1, last + config.sync_shifts + 1, device=device)
    shift = torch.cat([before, torch.arange(first, last + 1, device=device), after])
    natural = (shift >= first) & (shift <= last)

    sound = torch.arange(frames, device=device)[:, None] + shift
    partner = sound.clamp(0, frames - 1)  # beyond the clip it becomes its edge, which has no part
    # Frames beyond the clip count as padding, so the first and the last of it are edges too.
    padding = torch.nn.functional.pad(~targets.frame_mask, (EDGE_FRAMES, EDGE_FRAMES), value=True)
    inner = ~any_within(padding, -EDGE_FRAMES, EDGE_FRAMES)[..., EDGE_FRAMES:-EDGE_FRAMES]
    judged = rearrange(targets.spoken & inner, "b s t -> b s t 1") & inner[..., partner]
    competes = judged.sum(dim=-2) >= MIN_FRAMES
    clip = (competes & natural).any(dim=-1) & (competes & ~natural).any(dim=-1)
    return _Shifts(natural, partner, judged, competes, clip)
