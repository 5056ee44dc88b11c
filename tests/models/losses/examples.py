"""Small detections and labels to compute losses from: ``B`` scenes, ``S`` faces, ``T`` frames, ``A = 4 T`` sounds."""

from __future__ import annotations

from dataclasses import fields, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from avfusion.models.detector import Detection
from avfusion.models.losses import Targets

EVERY = {"speaking", "audio", "video", "contrastive", "sync", "null", "guided"}


def unit(*shape: int, seed: int = 0) -> Tensor:
    """Random unit vectors; the last number is their width."""
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def targets_of(
    speaking: Tensor, frame_mask: Tensor | None = None, audio_id: Tensor | None = None, audio_mask: Tensor | None = None
) -> Targets:
    """Labels ``(B, S, T)``; all real, each scene with its own sound, and the sound real where the first face is."""
    mask = torch.ones_like(speaking) if frame_mask is None else frame_mask
    heard = mask[:, 0].repeat_interleave(4, dim=1) if audio_mask is None else audio_mask
    return Targets(speaking, mask, heard, torch.arange(len(speaking)) if audio_id is None else audio_id)


def detection_of(video: Tensor, audio: Tensor, **more: Tensor) -> Detection:
    """A detection with embeddings ``(B, S, T, E)`` and ``(B, T, E)``; logits are 0 unless given."""
    logits = torch.zeros(video.shape[:3])
    given: dict[str, Tensor] = {"logits": logits, "audio_logits": logits, "video_logits": logits, **more}
    return Detection(video_embedding=video, audio_embedding=audio, **given)


def random_detection(scenes: int, faces: int, frames: int, width: int = 8, heads: int = 2, seed: int = 0) -> Detection:
    """Everything a detector can return, drawn at random, as leaves that take gradients."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    weights = draw(scenes, faces, 2, heads, frames, 4 * frames + 1).softmax(dim=-1)[..., :-1]
    detection = Detection(
        logits=draw(scenes, faces, frames),
        audio_logits=draw(scenes, faces, frames),
        video_logits=draw(scenes, faces, frames),
        video_embedding=F.normalize(draw(scenes, faces, frames, width), dim=-1),
        audio_embedding=F.normalize(draw(scenes, frames, width), dim=-1),
        audio_embedding_100hz=F.normalize(draw(scenes, 4 * frames, width), dim=-1),
        alignment=weights,
    )
    for tensor in tensors_of(detection).values():
        tensor.requires_grad_(True)
    return detection


def tensors_of(thing: Detection | Targets) -> dict[str, Tensor]:
    return {f.name: tensor for f in fields(thing) if (tensor := getattr(thing, f.name)) is not None}


def rows(thing: Detection, which: slice, frames: int | None = None) -> Detection:
    """Some scenes of a detection, cut to ``frames``."""
    times = {"audio_embedding_100hz": 4}
    part = {}
    for name, tensor in tensors_of(thing).items():
        tensor = tensor[which]
        if frames is not None and name == "alignment":
            tensor = tensor[..., :frames, : 4 * frames]
        elif frames is not None:
            axis = 1 if name.startswith("audio_embedding") else 2
            tensor = tensor.narrow(axis, 0, frames * times.get(name, 1))
        part[name] = tensor
    return replace(thing, **part)


def target_rows(targets: Targets, which: slice, frames: int | None = None) -> Targets:
    """Some scenes of the labels, cut to ``frames``."""
    last = targets.speaking.shape[-1] if frames is None else frames
    return Targets(
        targets.speaking[which, :, :last],
        targets.frame_mask[which, :, :last],
        targets.audio_mask[which, : 4 * last],
        targets.audio_id[which],
    )
