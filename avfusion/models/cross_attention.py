"""Multi-head attention from one stream to another, and what is known of its heads apart from their weights.

Shapes: ``B`` batch, ``Tq`` queries, ``Tk`` keys, ``D`` width, ``C`` width of the context, ``H`` heads, ``K`` width per
head. Masks are bool, True = real.

Source: Vaswani et al., "Attention Is All You Need", 2017; norms of the values: Kobayashi et al., "Attention is Not Only
a Weight", 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, repeat
from torch import Tensor, nn

from avfusion.models.attention_parts import AttentionModule, HeadNorm, clock, head_dim, over_keys, rotate_both
from avfusion.models.dot_product import attend

TYPICAL_KEYS = 100  # without a window: one second of sound

# What changes some heads: takes their output (B, H, Tq, K), the weights if wanted, the values and the mask over keys.
HeadEdit = Callable[[Tensor, Tensor | None, Tensor, Tensor | None], tuple[Tensor, Tensor | None]]


class MultiHeadCrossAttention(AttentionModule):
    """Multi-head attention from one stream to another: queries from ``x``, a fused key-value projection of ``context``.

    Both streams start at the same instant. With a null key the output projection has no bias, so a query that gives
    all its weight to the null key receives exactly zero. The null key has a vector, which starts at zero, and a bias,
    which starts at the logarithm of the number of keys in the window: at first it weighs about as much as all of them
    together. (One more key among a hundred would have to outgrow them before it mattered, and training never made it.)
    It is neither normed nor turned: its score does not depend on where in the track the query stands.

    Keys may be coarser than the context: with ``key_pool`` of 4 each key and value is the mean of four frames, as where
    the field's models bring sound to the rate of the picture. Weights are told for the frames all the same, each a
    quarter of its key's.

    Args:
        embed_dim: width of ``x`` and of the output, D; a multiple of ``num_heads``.
        num_heads: H.
        context_dim: width of ``context``, C; ``embed_dim`` when None.
        query_hz: frames of ``x`` per second; needed, with ``key_hz``, for a window or rotary positions.
        key_hz: frames of ``context`` per second.
        window_s: attend within ± this many seconds; None for everywhere.
        ahead_s: but not further after the query than this many; None for as far as before it.
        rotary: rotary positions in seconds on both streams.
        qk_norm: RMS norm of queries and keys with a learned scale per head.
        null_key: a learned key with a zero value for every head.
        dropout: probability of dropping a weight in training.
        bias: biases in the projections (except ``out`` beside a null key).
        key_pool: frames of ``context`` that make one key.

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
        ahead_s: float | None = None,
        rotary: bool = False,
        qk_norm: bool = False,
        null_key: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
        key_pool: int = 1,
    ) -> None:
        super().__init__()
        self.num_heads, self.key_pool = num_heads, key_pool
        self.head_dim = head_dim(embed_dim, num_heads, rotary)
        key_hz = None if key_hz is None else key_hz / key_pool
        self.rates_hz, self.window = clock(query_hz, key_hz, window_s, rotary, "query_hz and key_hz", ahead_s)
        self.rotary = rotary
        self.dropout = dropout
        self.query = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.key_value = nn.Linear(embed_dim if context_dim is None else context_dim, 2 * embed_dim, bias=bias)
        self.norm = HeadNorm(num_heads) if qk_norm else None
        self.null_key = nn.Parameter(torch.zeros(num_heads, self.head_dim)) if null_key else None
        span_s = 0.0 if window_s is None else window_s + (window_s if ahead_s is None else ahead_s)
        keys_in_reach = TYPICAL_KEYS if window_s is None else span_s * (key_hz or 0.0) + 1
        self.null_bias = nn.Parameter(torch.full((num_heads,), math.log(keys_in_reach))) if null_key else None
        self.out = nn.Linear(embed_dim, embed_dim, bias=bias and not null_key)
        self._edits: list[HeadEdit] = []  # filled by head_edit.edit_heads, and only inside its block

    @property
    def watched(self) -> bool:
        """As of every attention module, or whether heads are edited."""
        return super().watched or bool(self._edits)

    def forward(
        self, x: Tensor, context: Tensor, context_mask: Tensor | None = None, need_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attends from every frame of ``x`` to the real frames of ``context`` within its window.

        Args:
            x: ``(B, Tq, D)``.
            context: ``(B, Tk, C)``; ``Tk`` a multiple of ``key_pool``.
            context_mask: ``(B, Tk)`` bool, True = real.
            need_weights: also return the weights.

        Returns:
            ``(B, Tq, D)``, and with ``need_weights`` the weights ``(B, H, Tq, Tk)``; the mass of the null key is what
            their rows lack to 1. Where no key is real the attention adds zero, so the output is the bias of ``out``,
            or zero beside a null key.
        """
        query = rearrange(self.query(x), "b t (h k) -> b h t k", h=self.num_heads, k=self.head_dim)
        if self.key_pool > 1:
            context, context_mask = pool_real(context, context_mask, self.key_pool)
        key, value = rearrange(
            self.key_value(context), "b t (two h k) -> two b h t k", two=2, h=self.num_heads, k=self.head_dim
        ).unbind(0)
        if self.norm is not None:
            query, key = self.norm(query, key)
        null_key, null_query = self._null(query)
        if self.rotary:
            query, key = rotate_both(query, key, self.rates_hz)
        mask = over_keys(context_mask, context)
        output, weights = attend(
            query,
            key,
            value,
            mask,
            null_key=null_key,
            null_query=null_query,
            window=self.window,
            need_weights=self._wants_weights(need_weights),
            dropout=self.dropout if self.training else 0.0,
        )
        for edit in self._edits:
            output, weights = edit(output, weights, value, mask)
        if weights is not None and self.key_pool > 1:
            weights = repeat(weights / self.key_pool, "b h q k -> b h q (k r)", r=self.key_pool)
        return self._answer(self.out(rearrange(output, "b h t k -> b t (h k)")), weights, need_weights)

    def value_norms(self, context: Tensor) -> Tensor:
        """How much each head can add to the output for a weight of 1 on each key.

        A weight says how much of a value is taken; a value close to zero, or one that the output projection drops, adds
        nothing however large its weight. ``weights * value_norms`` is the length of what was really added.

        Args:
            context: ``(B, Tk, C)``.

        Returns:
            ``(B, H, Tk)`` lengths ``‖v_j W_O‖``, ``v_j`` the value of key ``j`` and ``W_O`` the ``K`` columns of the
            output projection that belong to the head; its bias, where there is one, belongs to none. Frames that share
            a key have its norm.

        Source: Kobayashi et al., "Attention is Not Only a Weight", 2020.
        """
        if self.key_pool > 1:
            context, _ = pool_real(context, None, self.key_pool)  # padded sound is zero, and nobody attends to it
        value = F.linear(context, *self._value_projection())
        value = rearrange(value, "b t (h k) -> b t h k", h=self.num_heads)
        out = rearrange(self.out.weight, "d (h k) -> h k d", h=self.num_heads)
        added = einsum(value, out.to(value.dtype), "b t h k, h k d -> b h t d")
        norms: Tensor = torch.linalg.vector_norm(added, dim=-1)
        return repeat(norms, "b h k -> b h (k r)", r=self.key_pool)

    def _value_projection(self) -> tuple[Tensor, Tensor | None]:
        """The half of the fused projection that makes values: weight and bias."""
        first, bias = self.num_heads * self.head_dim, self.key_value.bias
        return self.key_value.weight[first:], None if bias is None else bias[first:]

    def content(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys before positions turn them: what a head looks for, and what there is to be found.

        Args:
            x: ``(B, Tq, D)``.
            context: ``(B, Tk, C)``.

        Returns:
            ``(B, Tq, D)`` and ``(B, Tk, D)`` unit vectors; their product is the mean over the heads of the cosine of
            query and key.
        """
        return self.query_content(x), self.key_content(context)

    def query_content(self, x: Tensor) -> Tensor:
        """The first of :meth:`content` alone: ``(B, Tq, D)`` to unit vectors ``(B, Tq, D)``."""
        return self._unit_by_head(self.query(x))

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


def pool_real(context: Tensor, mask: Tensor | None, size: int) -> tuple[Tensor, Tensor | None]:
    """Means of every ``size`` frames, the real ones among them only.

    Args:
        context: ``(B, Tk, C)``.
        mask: ``(B, Tk)`` bool, True = real.
        size: divides ``Tk``.

    Returns:
        ``(B, Tk / size, C)``, zero where no frame is real, and ``(B, Tk / size)`` where one is.

    Raises:
        ValueError: ``size`` does not divide ``Tk``.
    """
    if context.shape[1] % size:
        raise ValueError(f"{context.shape[1]} frames of context, expected a multiple of key_pool {size}")
    grouped = rearrange(context, "b (t r) c -> b t r c", r=size)
    if mask is None:
        return grouped.mean(dim=2), None
    real = rearrange(mask, "b (t r) -> b t r 1", r=size)
    total = torch.where(real, grouped, 0.0).sum(dim=2)
    return total / real.sum(dim=2).clamp(min=1), real.any(dim=2)[..., 0]
