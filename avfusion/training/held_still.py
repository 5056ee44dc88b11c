"""Encoders whose learning rate is 0: no gradient is worked out for them, and what they said of a clip is kept.

The encoders take most of a step. Held still (``train.lr_scale.visual``, ``train.lr_scale.audio`` of 0) they need no
backward pass; and where nothing changes a clip from epoch to epoch (``data.augment`` all 0, ``model.dropout`` 0) they
say the same of it every time. Then each clip is embedded once, and epochs after the first train what comes after the
encoders alone. It pays where clips are whole tracks: a random stretch hardly ever comes again.

Shapes: ``B`` scenes, ``S`` face tracks, ``T`` video frames, ``A = 4 T`` audio frames, ``D`` features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME
from avfusion.config import AugmentConfig, Config, TrainConfig
from avfusion.data.batching import Batch
from avfusion.data.examples import Request
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

    Each scene is embedded by itself, without padding: beside others the last bit would depend on them, and a run that
    goes on, which remembers nothing of the epochs before, would not end as the unbroken one.

    Args:
        model: the detector, its encoders held still.
        room_gb: memory for it.
    """

    def __init__(self, model: ActiveSpeakerDetector, room_gb: float) -> None:
        self._model, self._room_bytes = model, room_gb * 1e9
        self._kept: dict[Key, tuple[Tensor, Tensor]] = {}

    def __call__(self, part: Batch, frame_mask: Tensor | None, audio_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """``(B S, T, D)`` pictures and ``(B, A, D)`` sound, without gradient, for ``model.decide``."""
        scenes = [self._scene(part, row, request) for row, request in enumerate(part.requests)]
        if not scenes:  # a process without a share
            return self._embed(part.crops, part.log_mel, frame_mask, audio_mask)
        return _joined(scenes, part.crops.shape[1], part.crops.shape[2])

    def _scene(self, part: Batch, row: int, request: Request) -> tuple[Tensor, Tensor]:
        """``(S, T, D)`` pictures and ``(4 T, D)`` sound of one scene, kept or made."""
        key = (request.track, request.first_frame, request.num_frames, request.others)
        if key in self._kept:
            return self._kept[key]
        faces, frames = request.num_faces, request.num_frames
        one, steps = slice(row, row + 1), frames * AUDIO_FRAMES_PER_VIDEO_FRAME
        mask = None if faces == 1 else part.frame_mask[one, :faces, :frames]  # other faces may be away
        seen, heard = self._embed(part.crops[one, :faces, :frames], part.log_mel[one, :steps], mask, None)
        size = seen.nbytes + heard.nbytes
        if size <= self._room_bytes:
            self._kept[key] = seen, heard[0]
            self._room_bytes -= size
        return seen, heard[0]

    @torch.no_grad()
    def _embed(
        self, crops: Tensor, log_mel: Tensor, frame_mask: Tensor | None, audio_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        return self._model.embed(crops, log_mel, frame_mask, audio_mask)


def _joined(scenes: Sequence[tuple[Tensor, Tensor]], faces: int, frames: int) -> tuple[Tensor, Tensor]:
    """Scenes beside each other, zeros where they end before others: ``(B S, T, D)`` pictures, ``(B, 4 T, D)`` sound."""
    first_seen, first_heard = scenes[0]
    seen = first_seen.new_zeros(len(scenes) * faces, frames, first_seen.shape[-1])
    steps = frames * AUDIO_FRAMES_PER_VIDEO_FRAME
    heard = first_heard.new_zeros(len(scenes), steps, first_heard.shape[-1])
    for row, (of_scene, sound) in enumerate(scenes):
        seen[row * faces : row * faces + len(of_scene), : of_scene.shape[1]] = of_scene
        heard[row, : len(sound)] = sound
    return seen, heard
