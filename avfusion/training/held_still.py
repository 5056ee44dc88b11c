"""Encoders whose learning rate is 0: no gradient is worked out for them, and what they said of a clip is kept.

The encoders take most of a step. Held still (``train.lr_scale.visual``, ``train.lr_scale.audio`` of 0) they need no
backward pass; and where nothing changes a clip from epoch to epoch (``data.augment`` all 0, ``model.dropout`` 0) they
say the same of it every time. Then each clip is embedded once, and epochs after the first train what comes after the
encoders alone. It pays where clips are whole tracks: a random stretch hardly ever comes again.

Shapes: ``B`` scenes, ``S`` face tracks, ``T`` video frames, ``A = 4 T`` audio frames, ``D`` features.
"""

from __future__ import annotations

from dataclasses import asdict

import torch
from torch import Tensor

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME
from avfusion.config import AugmentConfig, Config, TrainConfig
from avfusion.data.batching import Batch
from avfusion.models import ActiveSpeakerDetector

ENCODERS = ("visual", "audio")
Key = tuple[int, int, int, tuple[int, ...]]


def hold_still(model: ActiveSpeakerDetector, config: TrainConfig) -> None:
    """Asks for no gradient of an encoder whose learning rate is 0."""
    for name in ENCODERS:
        if getattr(config.lr_scale, name) == 0:
            getattr(model, name).requires_grad_(False)


def changes_clips(config: AugmentConfig) -> bool:
    """Whether any augmentation is on: every strength is a number, and 0 turns it off."""
    return any(value for value in asdict(config).values() if isinstance(value, int | float))


def can_remember(config: Config) -> bool:
    """Whether both encoders are held still and say the same of a clip every time."""
    held = all(getattr(config.train.lr_scale, name) == 0 for name in ENCODERS)
    same = not changes_clips(config.data.augment) and config.model.dropout == 0
    both = config.model.kind == "avfusion" and config.model.modality == "audio_visual"
    return held and same and both and not config.train.compile


class RememberedEmbeddings:
    """What the encoders said of each clip, as far as there is room.

    Args:
        model: the detector, its encoders held still.
        room_gb: memory for it.
    """

    def __init__(self, model: ActiveSpeakerDetector, room_gb: float) -> None:
        self._model, self._room_bytes = model, room_gb * 1e9
        self._kept: dict[Key, tuple[Tensor, Tensor]] = {}

    def __call__(self, part: Batch, frame_mask: Tensor | None, audio_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """``(B S, T, D)`` pictures and ``(B, A, D)`` sound, without gradient, for ``model.decide``."""
        keys = [(r.track, r.first_frame, r.num_frames, r.others) for r in part.requests]
        if keys and all(key in self._kept for key in keys):
            return self._joined(keys, part.crops.shape[1], part.crops.shape[2])
        faces = part.crops.shape[1]
        with torch.no_grad():
            seen, heard = self._model.embed(part.crops, part.log_mel, frame_mask, audio_mask)
        for row, (key, request) in enumerate(zip(keys, part.requests, strict=True)):
            frames = request.num_frames
            of_scene = seen[row * faces : row * faces + request.num_faces, :frames]
            self._keep(key, of_scene, heard[row, : frames * AUDIO_FRAMES_PER_VIDEO_FRAME])
        return seen, heard

    def _keep(self, key: Key, seen: Tensor, heard: Tensor) -> None:
        size = seen.nbytes + heard.nbytes
        if key not in self._kept and size <= self._room_bytes:
            self._kept[key] = seen.clone(), heard.clone()
            self._room_bytes -= size

    def _joined(self, keys: list[Key], faces: int, frames: int) -> tuple[Tensor, Tensor]:
        """Clips beside each other, zeros where they end before others."""
        first_seen, first_heard = self._kept[keys[0]]
        seen = first_seen.new_zeros(len(keys) * faces, frames, first_seen.shape[-1])
        steps = frames * AUDIO_FRAMES_PER_VIDEO_FRAME
        heard = first_heard.new_zeros(len(keys), steps, first_heard.shape[-1])
        for row, key in enumerate(keys):
            of_scene, sound = self._kept[key]
            seen[row * faces : row * faces + len(of_scene), : of_scene.shape[1]] = of_scene
            heard[row, : len(sound)] = sound
        return seen, heard
