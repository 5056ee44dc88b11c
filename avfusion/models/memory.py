"""How much memory a training step will need, told before the first one is taken.

Held all the time: weights, their gradients, AdamW's two moments, the averaged weights where there are any. Held from
the forward pass to the backward one: what every operation keeps for its gradient, which is most of it and grows with
the pictures of a batch. That is counted by what torch saves when the real modules run on tensors without content, for
one clip more, and multiplied. An encoder that is held still (``train.lr_scale`` 0) keeps nothing but its weights. Not
counted: what an operation needs while it runs, losses, embeddings that are remembered, and what CUDA needs itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME
from avfusion.config import Config
from avfusion.models.detector import ActiveSpeakerDetector, build_model

AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class StepMemory:
    """Bytes of one process.

    Attributes:
        state_bytes: weights, gradients, moments, averaged weights, and what else no batch makes larger (in half
            precision the weights in that).
        picture_bytes: kept until the backward pass for each picture of a batch.
        pictures: of a batch.
    """

    state_bytes: int
    picture_bytes: float
    pictures: int

    @property
    def whole_bytes(self) -> float:
        """All of it."""
        return self.state_bytes + self.picture_bytes * self.pictures

    def __str__(self) -> str:
        size = self.whole_bytes / 1e9
        told = f"{size:.0f} GB" if size >= 10 else f"{size:.1f} GB" if size >= 0.1 else f"{1000 * size:.0f} MB"
        return f"about {told} for batches of {self.pictures:,} pictures"


def step_memory(config: Config) -> StepMemory:
    """Counts the memory of a step of the configured training, as far as it can be told beforehand."""
    frames, side = min(config.data.clip_frames, config.data.batch_frames), config.data.crop_size
    with _without_content(config.train.precision):
        model = build_model(config.model, config.data.num_mels)
        for name in ("visual", "audio"):
            if getattr(config.train.lr_scale, name) == 0:
                getattr(model, name).requires_grad_(False)
        one, two = (
            saved_bytes(
                model,
                torch.empty(clips, 1, frames, side, side),
                torch.empty(clips, frames * AUDIO_FRAMES_PER_VIDEO_FRAME, config.data.num_mels),
                config.train.precision,
            )
            for clips in (1, 2)
        )
    size = {p: p.numel() * p.element_size() for p in model.parameters()}
    weights, learnt = sum(size.values()), sum(size[p] for p in size if p.requires_grad)
    state = (1 + bool(config.train.ema)) * weights + 3 * learnt + max(0, 2 * one - two)
    return StepMemory(state, (two - one) / frames, config.data.batch_frames)


def saved_bytes(model: ActiveSpeakerDetector, crops: Tensor, log_mel: Tensor, precision: str = "float32") -> int:
    """Bytes that a forward pass keeps for the backward one, its input and the model's weights not counted.

    Args:
        model: in training mode.
        crops: ``(B, S, T, Y, X)``.
        log_mel: ``(B, 4 T, M)``.
        precision: as ``train.precision``.
    """
    known = {_storage(tensor) for tensor in (*model.parameters(), *model.buffers(), crops, log_mel)}
    saved: dict[int, int] = {}
    alive: list[Tensor] = []  # an address says which storage it is only as long as that lives

    def pack(tensor: Tensor) -> Tensor:
        if _storage(tensor) not in known:
            saved[_storage(tensor)] = tensor.untyped_storage().nbytes()
            alive.append(tensor.detach())
        return tensor

    half = precision in AUTOCAST
    autocast = torch.autocast(crops.device.type, AUTOCAST[precision]) if half else nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast:
        output = model(crops, log_mel)
    del output
    return sum(saved.values())


def _without_content(precision: str) -> AbstractContextManager[Any]:
    """Tensors made inside have shapes and no memory."""
    if precision not in AUTOCAST:
        return torch.device("meta")
    from torch._subclasses.fake_tensor import FakeTensorMode  # slower, and knows of autocast

    return FakeTensorMode()


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
