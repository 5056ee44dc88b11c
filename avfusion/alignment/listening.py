"""Listens to the heads of a detector's fusion layers from outside, with hooks that are there only while it listens.

``N`` face tracks, ``H`` heads, ``T`` video frames, ``A`` audio frames (keys), ``K`` width per head.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from einops import rearrange
from torch import Tensor, nn

from avfusion.models import ActiveSpeakerDetector
from avfusion.models.attention import MultiHeadCrossAttention, capture_attention
from avfusion.models.fusion import CrossAttentionFusion


@dataclass
class HeardLayer:
    """What one fusion layer did in its last run. ``N`` face tracks; tensors are float32 on the CPU.

    Attributes:
        weights: ``(N, H, T, A)``.
        value_norms: ``(N, H, A)``.
        head_outputs: ``(N, H, T, K)``; empty unless asked for.
    """

    weights: Tensor = field(default_factory=lambda: torch.empty(0))
    value_norms: Tensor = field(default_factory=lambda: torch.empty(0))
    head_outputs: Tensor = field(default_factory=lambda: torch.empty(0))


@contextmanager
def listen_to_heads(model: ActiveSpeakerDetector, head_outputs: bool = False) -> Iterator[list[HeardLayer]]:
    """Listens to every fusion layer while the model runs, without changing what it computes.

    Yields:
        One record a layer, filled by each forward pass. The model is as before when the block ends, whatever happens.
    """
    attentions = {
        f"{number}.video_from_audio": layer.video_from_audio
        for number, layer in enumerate(model.fusion)
        if isinstance(layer, CrossAttentionFusion)
    }
    heard = [HeardLayer() for _ in attentions]
    with ExitStack() as stack:
        maps = stack.enter_context(capture_attention(model.fusion))
        for (name, attention), record in zip(attentions.items(), heard, strict=True):
            hooks = _Hooks(attention, record, maps, name)
            stack.callback(attention.register_forward_hook(hooks.after).remove)
            if head_outputs:
                stack.callback(attention.out.register_forward_pre_hook(hooks.before_out).remove)
        yield heard


@dataclass
class _Hooks:
    """Writes what one attention module does into its record."""

    attention: MultiHeadCrossAttention
    record: HeardLayer
    maps: dict[str, Tensor]
    name: str

    def after(self, module: nn.Module, inputs: tuple[Tensor, ...], output: object) -> None:
        """When the attention has run: its weights, and the norms of what it attended to."""
        self.record.weights = self.maps[self.name]
        self.record.value_norms = _kept(self.attention.value_norms(inputs[1]))

    def before_out(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """When the heads' outputs, side by side, reach the output projection."""
        self.record.head_outputs = _kept(rearrange(inputs[0], "n t (h k) -> n h t k", h=self.attention.num_heads))


def _kept(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float32)
