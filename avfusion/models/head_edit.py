"""Takes single heads of a trained model's cross-attention out, or makes them deaf to content, for as long as a block.

Shapes: ``B`` batch, ``H`` heads, ``Tq`` video frames, ``Tk`` audio frames, ``K`` width per head. Masks are bool, True =
real. A head is edited between the attention and the output projection W_O, the same way whether the weights are asked
for or not, so what is captured is what the model used.

Source: Michel et al., "Are Sixteen Heads Really Better than One?", 2019 (heads masked one at a time).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from avfusion.errors import UsageError
from avfusion.models.attention import HeadEdit, MultiHeadCrossAttention, Window, attend
from avfusion.models.detector import ActiveSpeakerDetector
from avfusion.models.fusion import CrossAttentionFusion


def cross_attentions(model: ActiveSpeakerDetector) -> list[MultiHeadCrossAttention]:
    """The cross-attention of every fusion layer, first layer first; empty for a model without."""
    return [layer.video_from_audio for layer in model.fusion if isinstance(layer, CrossAttentionFusion)]


def grid_of_heads(model: ActiveSpeakerDetector) -> tuple[int, int]:
    """Layers of cross-attention and heads in each, ``(L, H)``.

    Raises:
        UsageError: the model has no cross-attention.
    """
    layers = cross_attentions(model)
    if not layers:
        raise UsageError(
            "this model has no cross-attention, so it has no heads to look into; train one with "
            "--model.kind=avfusion --model.modality=audio_visual --model.fusion.kind=cross_attention"
        )
    return len(layers), layers[0].num_heads


@contextmanager
def edit_heads(
    model: ActiveSpeakerDetector, layer: int, *, zero: Collection[int] = (), uniform: Collection[int] = ()
) -> Iterator[None]:
    """Edits heads of one fusion layer inside the block. Outside of it the model pays one look at an empty list.

    Blocks may be nested, for other layers or the same one; the inner edit comes last.

    Args:
        model: with cross-attention.
        layer: fusion layer, from 0.
        zero: heads, from 0, that add nothing before W_O, as if all their attention lay on the null key: their weights
            are 0.
        uniform: heads that attend equally to the real keys of their window; no null mass. Without a real key they add
            nothing.

    Raises:
        ValueError: no such layer or head, or a head that is to be both.
    """
    layers = cross_attentions(model)
    if not 0 <= layer < len(layers):
        raise ValueError(f"fusion layer {layer} of a model with {len(layers)} layers of cross-attention")
    attention = layers[layer]
    unknown = sorted({head for head in (*zero, *uniform) if not 0 <= head < attention.num_heads})
    both = sorted(set(zero) & set(uniform))
    if unknown or both:
        wrong = f"heads {unknown} do not exist" if unknown else f"heads {both} cannot be zero and uniform at once"
        raise ValueError(f"{wrong}: layer {layer} has heads 0..{attention.num_heads - 1}")
    edit = _edit(sorted(set(zero)), sorted(set(uniform)), attention.window)
    attention._edits.append(edit)
    try:
        yield
    finally:
        attention._edits.remove(edit)


def _edit(zero: list[int], uniform: list[int], window: Window | None) -> HeadEdit:
    def edit(
        output: Tensor, weights: Tensor | None, value: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        output = output.clone()
        weights = None if weights is None else weights.clone()
        output[:, zero] = 0.0
        if weights is not None:
            weights[:, zero] = 0.0
        if uniform:
            values = value[:, uniform]
            # Queries and keys that are all zero score every key alike; masks and blocks are those of any attention.
            query, key = torch.zeros_like(output[:, uniform]), torch.zeros_like(values)
            equal, equal_weights = attend(query, key, values, mask, window=window, need_weights=weights is not None)
            output[:, uniform] = equal
            if weights is not None and equal_weights is not None:
                weights[:, uniform] = equal_weights.to(weights.dtype)
        return output, weights

    return edit
