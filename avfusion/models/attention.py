"""Attention modules: single-head self, multi-head self and multi-head cross, and the capture of their weights.

Shapes: ``B`` batch, ``T`` frames (``Tq`` of queries, ``Tk`` of keys), ``D`` width, ``H`` heads, ``K`` width per head.
Weights are ``(B, H, Tq, Tk)``. Masks are bool, True = real. The computation itself is :func:`attend`.

Source: Vaswani et al., "Attention Is All You Need", 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from avfusion.models.dot_product import attend
from avfusion.models.positions import check_rotary_dim, frame_times_s, rotate
from avfusion.models.window import Window

__all__ = [
    "MultiHeadCrossAttention",
    "MultiHeadSelfAttention",
    "SelfAttention",
    "Window",
    "attend",
    "capture_attention",
    "rotate",
]

TYPICAL_KEYS = 100  # without a window: one second of sound


class _AttentionModule(nn.Module):
    """An attention module whose weights :func:`capture_attention` can listen to."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[Callable[[Tensor], None]] = []

    def _wants_weights(self, need_weights: bool) -> bool:
        return need_weights or bool(self._listeners)

    def _answer(self, output: Tensor, weights: Tensor | None, need_weights: bool) -> Tensor | tuple[Tensor, Tensor]:
        if weights is None:
            return output
        for listen in self._listeners:
            listen(weights)
        return (output, weights) if need_weights else output


class _HeadNorm(nn.Module):
    """RMS norm of queries and keys over the width of each head, with one learned scale per head.

    Both come out with RMS 1, so at the initial scale of 1 the logits of unrelated queries and keys have a standard
    deviation of 1 and stay within ``±√K``; the scale is the inverse temperature that each head learns.

    Source: Henry et al., "Query-Key Normalization for Transformers", 2020; Dehghani et al., "Scaling Vision
    Transformers to 22 Billion Parameters", 2023.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(num_heads))

    def forward(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """``(B, H, Tq, K)`` queries and ``(B, H, Tk, K)`` keys, both normed."""
        width = (query.shape[-1],)
        scale = self.scale.to(query.dtype)[:, None, None]
        query, key = (F.rms_norm(x, width, eps=1e-6).to(x.dtype) for x in (query, key))
        return query * scale, key


class SelfAttention(_AttentionModule):
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
        output, weights = attend(query, key, value, _over_keys(mask, x), need_weights=self._wants_weights(need_weights))
        return self._answer(rearrange(output, "b 1 t v -> b t v"), weights, need_weights)


class MultiHeadSelfAttention(_AttentionModule):
    """Multi-head self-attention: one fused QKV projection, split over the heads, and an output projection.

    Args:
        embed_dim: width of input and output, D; a multiple of ``num_heads``.
        num_heads: H.
        hz: frames per second; needed for a window or rotary positions.
        window_s: attend within ± this many seconds; None for everywhere.
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
        rotary: bool = False,
        qk_norm: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = _head_dim(embed_dim, num_heads, rotary)
        self.rates_hz, self.window = _clock(hz, hz, window_s, rotary, needed="hz")
        self.rotary = rotary
        self.dropout = dropout
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.norm = _HeadNorm(num_heads) if qk_norm else None
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
            query, key = _rotate_both(query, key, self.rates_hz)
        output, weights = attend(
            query,
            key,
            value,
            _over_keys(mask, x),
            window=self.window,
            need_weights=self._wants_weights(need_weights),
            dropout=self.dropout if self.training else 0.0,
        )
        return self._answer(self.out(rearrange(output, "b h t k -> b t (h k)")), weights, need_weights)


class MultiHeadCrossAttention(_AttentionModule):
    """Multi-head attention from one stream to another: queries from ``x``, a fused key-value projection of ``context``.

    Both streams start at the same instant. With a null key the output projection has no bias, so a query that gives
    all its weight to the null key receives exactly zero. The null key has a vector, which starts at zero, and a bias,
    which starts at the logarithm of the number of keys in the window: at first it weighs about as much as all of them
    together. (One more key among a hundred would have to outgrow them before it mattered, and training never made it.)
    It is neither normed nor turned: its score does not depend on where in the track the query stands.

    Args:
        embed_dim: width of ``x`` and of the output, D; a multiple of ``num_heads``.
        num_heads: H.
        context_dim: width of ``context``, C; ``embed_dim`` when None.
        query_hz: frames of ``x`` per second; needed, with ``key_hz``, for a window or rotary positions.
        key_hz: frames of ``context`` per second.
        window_s: attend within ± this many seconds; None for everywhere.
        rotary: rotary positions in seconds on both streams.
        qk_norm: RMS norm of queries and keys with a learned scale per head.
        null_key: a learned key with a zero value for every head.
        dropout: probability of dropping a weight in training.
        bias: biases in the projections (except ``out`` beside a null key).

    Raises:
        ValueError: ``embed_dim`` is not a multiple of ``num_heads``, or a window or positions lack the rates.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        context_dim: int | None = None,
        query_hz: float | None = None,
        key_hz: float | None = None,
        window_s: float | None = None,
        rotary: bool = False,
        qk_norm: bool = False,
        null_key: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = _head_dim(embed_dim, num_heads, rotary)
        self.rates_hz, self.window = _clock(query_hz, key_hz, window_s, rotary, needed="query_hz and key_hz")
        self.rotary = rotary
        self.dropout = dropout
        self.query = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.key_value = nn.Linear(embed_dim if context_dim is None else context_dim, 2 * embed_dim, bias=bias)
        self.norm = _HeadNorm(num_heads) if qk_norm else None
        self.null_key = nn.Parameter(torch.zeros(num_heads, self.head_dim)) if null_key else None
        keys_in_reach = TYPICAL_KEYS if window_s is None else 2 * window_s * (key_hz or 0.0) + 1
        self.null_bias = nn.Parameter(torch.full((num_heads,), math.log(keys_in_reach))) if null_key else None
        self.out = nn.Linear(embed_dim, embed_dim, bias=bias and not null_key)

    def forward(
        self, x: Tensor, context: Tensor, context_mask: Tensor | None = None, need_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attends from every frame of ``x`` to the real frames of ``context`` within its window.

        Args:
            x: ``(B, Tq, D)``.
            context: ``(B, Tk, C)``.
            context_mask: ``(B, Tk)`` bool, True = real.
            need_weights: also return the weights.

        Returns:
            ``(B, Tq, D)``, and with ``need_weights`` the weights ``(B, H, Tq, Tk)``; the mass of the null key is what
            their rows lack to 1. Where no key is real the attention adds zero, so the output is the bias of ``out``,
            or zero beside a null key.
        """
        query = rearrange(self.query(x), "b t (h k) -> b h t k", h=self.num_heads, k=self.head_dim)
        key, value = rearrange(
            self.key_value(context), "b t (two h k) -> two b h t k", two=2, h=self.num_heads, k=self.head_dim
        ).unbind(0)
        if self.norm is not None:
            query, key = self.norm(query, key)
        null_key, null_query = self._null(query)
        if self.rotary:
            query, key = _rotate_both(query, key, self.rates_hz)
        output, weights = attend(
            query,
            key,
            value,
            _over_keys(context_mask, context),
            null_key=null_key,
            null_query=null_query,
            window=self.window,
            need_weights=self._wants_weights(need_weights),
            dropout=self.dropout if self.training else 0.0,
        )
        return self._answer(self.out(rearrange(output, "b h t k -> b t (h k)")), weights, need_weights)

    def content(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys before positions turn them: what a head looks for, and what there is to be found.

        Args:
            x: ``(B, Tq, D)``.
            context: ``(B, Tk, C)``.

        Returns:
            ``(B, Tq, D)`` and ``(B, Tk, D)`` unit vectors; their product is the mean over the heads of the cosine of
            query and key.
        """
        return self._unit_by_head(self.query(x)), self.key_content(context)

    def key_content(self, context: Tensor) -> Tensor:
        """The second of :meth:`content` alone: ``(B, Tk, C)`` to unit vectors ``(B, Tk, D)``."""
        return self._unit_by_head(self.key_value(context)[..., : self.num_heads * self.head_dim])

    def _unit_by_head(self, vectors: Tensor) -> Tensor:
        by_head = F.normalize(rearrange(vectors, "b t (h k) -> b t h k", h=self.num_heads), dim=-1)
        together: Tensor = rearrange(by_head, "b t h k -> b t (h k)") / self.num_heads**0.5
        return together

    def _null(self, query: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The null key ``(H, K + 1)`` and what it meets, ``(B, H, Tq, K + 1)``; the last channel is its bias."""
        if self.null_key is None or self.null_bias is None:
            return None, None
        one = self.head_dim**0.5  # attend divides every score by √K
        return torch.cat([self.null_key, self.null_bias[:, None]], dim=-1), F.pad(query, (0, 1), value=one)


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
    listening: list[tuple[_AttentionModule, Callable[[Tensor], None]]] = []
    try:
        for name, module in model.named_modules():
            if isinstance(module, _AttentionModule):
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


def _over_keys(mask: Tensor | None, keys: Tensor) -> Tensor | None:
    """``(B, T)`` mask of ``(B, T, C)`` keys to ``(B, 1, 1, T)``."""
    if mask is None:
        return None
    if mask.shape != keys.shape[:2]:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}, expected {tuple(keys.shape[:2])}: one flag per key frame"
        )
    return rearrange(mask, "b t -> b 1 1 t")


def _rotate_both(query: Tensor, key: Tensor, rates_hz: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    assert rates_hz is not None
    query_hz, key_hz = rates_hz
    query = rotate(query, frame_times_s(query.shape[-2], query_hz, query.device))
    return query, rotate(key, frame_times_s(key.shape[-2], key_hz, key.device))


def _head_dim(embed_dim: int, num_heads: int, rotary: bool) -> int:
    if num_heads < 1 or embed_dim % num_heads:
        raise ValueError(f"embed_dim {embed_dim} does not split into num_heads {num_heads}: expected a multiple of it")
    if rotary:
        check_rotary_dim(embed_dim // num_heads)
    return embed_dim // num_heads


def _clock(
    query_hz: float | None, key_hz: float | None, window_s: float | None, rotary: bool, needed: str
) -> tuple[tuple[float, float] | None, Window | None]:
    """The two rates where both are known, and the window where one is wanted."""
    if query_hz is None or key_hz is None:
        if rotary or window_s is not None:
            raise ValueError(f"a window or rotary positions are in seconds: give {needed}")
        return None, None
    return (query_hz, key_hz), None if window_s is None else Window(window_s, query_hz, key_hz)
