"""Attention modules: single-head self, multi-head self and multi-head cross, and the capture of their weights.

Shapes: ``B`` batch, ``T`` frames (``Tq`` of queries, ``Tk`` of keys), ``D`` width, ``H`` heads, ``K`` width per head.
Weights are ``(B, H, Tq, Tk)``. Masks are bool, True = real. The computation itself is :func:`attend`; cross-attention
has a file of its own.

Source: Vaswani et al., "Attention Is All You Need", 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from einops import rearrange
from torch import Tensor, nn

from avfusion.models.attention_parts import AttentionModule, HeadNorm, clock, head_dim, over_keys, rotate_both
from avfusion.models.cross_attention import HeadEdit, MultiHeadCrossAttention
from avfusion.models.dot_product import attend
from avfusion.models.positions import rotate
from avfusion.models.window import Window

__all__ = [
    "HeadEdit",
    "MultiHeadCrossAttention",
    "MultiHeadSelfAttention",
    "SelfAttention",
    "Window",
    "attend",
    "capture_attention",
    "rotate",
]


class SelfAttention(AttentionModule):
    """Single-head self-attention with separate unbiased query, key and value projections.

    Args:
        input_dim: width of the input, D.
        attn_dim: width of queries, keys, values and output.
    """

    def __init__(self, input_dim: int, attn_dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(input_dim, attn_dim, bias=False)
        self.key = nn.Linear(input_dim, attn_dim, bias=False)
        self.value = nn.Linear(input_dim, attn_dim, bias=False)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attends from every frame to every real frame.

        Args:
            x: ``(B, T, D)``.
            mask: ``(B, T)`` bool, True = real.
            need_weights: also return the weights.

        Returns:
            ``(B, T, attn_dim)``, and with ``need_weights`` the weights ``(B, 1, T, T)``.
        """
        query, key, value = (
            rearrange(project(x), "b t k -> b 1 t k") for project in (self.query, self.key, self.value)
        )
        output, weights = attend(query, key, value, over_keys(mask, x), need_weights=self._wants_weights(need_weights))
        return self._answer(rearrange(output, "b 1 t v -> b t v"), weights, need_weights)


class MultiHeadSelfAttention(AttentionModule):
    """Multi-head self-attention: one fused QKV projection, split over the heads, and an output projection.

    Args:
        embed_dim: width of input and output, D; a multiple of ``num_heads``.
        num_heads: H.
        hz: frames per second; needed for a window or rotary positions.
        window_s: attend within ± this many seconds; None for everywhere.
        ahead_s: but not further after the frame than this many; None for as far as before it.
        rotary: rotary positions in seconds.
        qk_norm: RMS norm of queries and keys with a learned scale per head.
        dropout: probability of dropping a weight in training.
        bias: biases in both projections.

    Raises:
        ValueError: ``embed_dim`` is not a multiple of ``num_heads``, or a window or positions lack ``hz``.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        hz: float | None = None,
        window_s: float | None = None,
        ahead_s: float | None = None,
        rotary: bool = False,
        qk_norm: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim(embed_dim, num_heads, rotary)
        self.rates_hz, self.window = clock(hz, hz, window_s, rotary, needed="hz", ahead_s=ahead_s)
        self.rotary = rotary
        self.dropout = dropout
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.norm = HeadNorm(num_heads) if qk_norm else None
        self.out = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attends from every frame to the real frames of its window.

        Args:
            x: ``(B, T, D)``.
            mask: ``(B, T)`` bool, True = real.
            need_weights: also return the weights.

        Returns:
            ``(B, T, D)``, and with ``need_weights`` the weights ``(B, H, T, T)``. Where no key is real the attention
            adds zero, so the output is the bias of ``out``.
        """
        query, key, value = rearrange(
            self.qkv(x), "b t (three h k) -> three b h t k", three=3, h=self.num_heads, k=self.head_dim
        ).unbind(0)
        if self.norm is not None:
            query, key = self.norm(query, key)
        if self.rotary:
            query, key = rotate_both(query, key, self.rates_hz)
        output, weights = attend(
            query,
            key,
            value,
            over_keys(mask, x),
            window=self.window,
            need_weights=self._wants_weights(need_weights),
            dropout=self.dropout if self.training else 0.0,
        )
        return self._answer(self.out(rearrange(output, "b h t k -> b t (h k)")), weights, need_weights)


@contextmanager
def capture_attention(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Collects the weights of every attention module while the model runs, without changing what it computes.

    Args:
        model: a model that holds attention modules of this file, or is one.

    Yields:
        Module name (as in ``named_modules``) to its weights ``(B, H, Tq, Tk)``, float32 on the CPU, filled by each
        forward pass; a module that runs several times keeps its last map. The model is as before when the block ends,
        by an exception too.
    """
    maps: dict[str, Tensor] = {}
    listening: list[tuple[AttentionModule, Callable[[Tensor], None]]] = []
    try:
        for name, module in model.named_modules():
            if isinstance(module, AttentionModule):
                listen = _listener(maps, name)
                module._listeners.append(listen)
                listening.append((module, listen))
        yield maps
    finally:
        for module, listen in listening:
            module._listeners.remove(listen)


def _listener(maps: dict[str, Tensor], name: str) -> Callable[[Tensor], None]:
    def listen(weights: Tensor) -> None:
        maps[name] = weights.detach().to("cpu", torch.float32)

    return listen
