"""What training minimises: speaking losses on three logits, and a contrast between sound and picture.

``B`` scenes, ``S`` face tracks, ``T`` video frames, ``E`` width of the contrastive space. Means are over real frames
only.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from einops import rearrange, repeat
from torch import Tensor
from torch.nn import functional as F

from avfusion.config import LossConfig
from avfusion.models.detector import Detection

NEVER = -1e4  # a similarity of no weight at all; not infinite, which would make gradients of padded rows NaN


def speaking_loss(logits: Tensor, speaking: Tensor, frame_mask: Tensor) -> Tensor:
    """Binary cross-entropy over real frames.

    Args:
        logits: ``(B, S, T)``.
        speaking: ``(B, S, T)`` bool.
        frame_mask: ``(B, S, T)`` bool, True = real.

    Returns:
        A scalar; 0 when no frame is real.
    """
    per_frame = F.binary_cross_entropy_with_logits(logits.float(), speaking.float(), reduction="none")
    return torch.where(frame_mask, per_frame, 0.0).sum() / frame_mask.sum().clamp_min(1)


def contrastive_loss(
    video: Tensor,
    audio: Tensor,
    speaking: Tensor,
    frame_mask: Tensor,
    audio_id: Tensor,
    temperature: float = 0.07,
    within_clip: bool = False,
    lag_frames: tuple[int, int] = (0, 0),
) -> Tensor:
    """Symmetric contrast between the picture and the sound of a frame (InfoNCE in both directions).

    Positive: the same frame of the same track, where the label says that face and voice belong together; with
    ``lag_frames`` the sounds of all natural lags together, of which one fits. Negatives: every other real frame of the
    clip and of the batch. Left out of the negatives: the direct neighbours in time, whose sound is nearly the same, and
    other tracks that hear the same sound.

    Args:
        video: ``(B, S, T, E)`` unit vectors.
        audio: ``(B, T, E)`` unit vectors.
        speaking: ``(B, S, T)`` bool.
        frame_mask: ``(B, S, T)`` bool.
        audio_id: ``(B,)`` integers; equal where two scenes hear the same sound.
        temperature: divides the cosine similarities.
        within_clip: negatives come from the clip itself only. Between clips, who looks and who sounds like whom is
            enough to tell pairs apart; within one, only timing is.
        lag_frames: the sound of a frame may come this many video frames after it, from and to, both included.

    Returns:
        A scalar; 0 when no frame is speaking.

    Source: van den Oord et al. 2018 (InfoNCE); Jung et al. 2024 (TalkNCE) for the speaking frames as anchors; Miech et
    al. 2020 (MIL-NCE) for several positives of which one fits.
    """
    _, faces, frames = speaking.shape
    seen = rearrange(video.float(), "b s t e -> (b s t) e")
    heard = repeat(audio.float(), "b t e -> (b s t) e", s=faces)
    real = rearrange(frame_mask, "b s t -> (b s t)")
    anchors = rearrange(speaking & frame_mask, "b s t -> (b s t)")
    if not bool(anchors.any()):
        return (seen.sum() + heard.sum()) * 0.0

    step = torch.arange(frames, device=seen.device).repeat(len(real) // frames)
    track = torch.arange(len(real) // frames, device=seen.device).repeat_interleave(frames)
    sound = audio_id.repeat_interleave(faces * frames)
    first, last = lag_frames

    def one_way(from_: Tensor, to: Tensor, first: int, last: int) -> Tensor:
        """Mean over the anchors of -ln of what falls to the ``to`` that come ``first .. last`` frames after them."""
        similarity = from_[anchors] @ to.T / temperature
        same_track = track[anchors, None] == track[None, :]
        lag = step[None, :] - step[anchors, None]
        positive = same_track & (lag >= first) & (lag <= last) & real
        neighbours = same_track & ((lag == first - 1) | (lag == last + 1))
        left_out = neighbours | ((sound[anchors, None] == sound[None, :]) & ~same_track) | ~real
        if within_clip:
            left_out |= ~same_track
        similarity = similarity.masked_fill(left_out, NEVER)
        share = similarity.masked_fill(~positive, NEVER).logsumexp(dim=1) - similarity.logsumexp(dim=1)
        has_positive = positive.any(dim=1)
        return -torch.where(has_positive, share, 0.0).sum() / has_positive.sum().clamp_min(1)

    return (one_way(seen, heard, first, last) + one_way(heard, seen, -last, -first)) / 2


def loss_terms(
    detection: Detection,
    speaking: Tensor,
    frame_mask: Tensor,
    audio_id: Tensor,
    config: LossConfig,
    wanted: Collection[str],
) -> dict[str, Tensor]:
    """The wanted terms, unweighted, of ``speaking``, ``audio``, ``video`` and ``contrastive``."""
    logits = {"speaking": detection.logits, "audio": detection.audio_logits, "video": detection.video_logits}
    terms = {key: speaking_loss(of, speaking, frame_mask) for key, of in logits.items() if key in wanted}
    if "contrastive" in wanted:
        terms["contrastive"] = contrastive_loss(
            detection.video_embedding,
            detection.audio_embedding,
            speaking,
            frame_mask,
            audio_id,
            config.temperature,
            within_clip=config.negatives == "clip",
            lag_frames=(config.lag_frames[0], config.lag_frames[1]),
        )
    return terms
