"""What the attention modules share: listeners to their weights, norm of queries and keys, masks, rates and positions.

Shapes: ``B`` batch, ``T`` frames (``Tq`` of queries, ``Tk`` of keys), ``H`` heads, ``K`` width per head. Weights are
``(B, H, Tq, Tk)``. Masks are bool, True = real.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from avfusion.models.positions import check_rotary_dim, frame_times_s, rotate
from avfusion.models.window import Window


class AttentionModule(nn.Module):
    """An attention module whose weights :func:`capture_attention` can listen to."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[Callable[[Tensor], None]] = []

    @property
    def watched(self) -> bool:
        """Whether somebody listens: to the weights of a whole track, so it has to come at once."""
        return bool(self._listeners)

    def past_and_ahead(self, window: Window | None) -> tuple[int | None, int | None]:
        """Query frames before and after a frame that its window holds; None where the whole track is wanted."""
        reach = None if window is None or self.watched else window.reach_queries()
        return (None, None) if reach is None else reach

    def _wants_weights(self, need_weights: bool) -> bool:
        return need_weights or bool(self._listeners)

    def _answer(self, output: Tensor, weights: Tensor | None, need_weights: bool) -> Tensor | tuple[Tensor, Tensor]:
        if weights is None:
            return output
        for listen in self._listeners:
            listen(weights)
        return (output, weights) if need_weights else output


class HeadNorm(nn.Module):
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


def over_keys(mask: Tensor | None, keys: Tensor) -> Tensor | None:
    """``(B, T)`` mask of ``(B, T, C)`` keys to ``(B, 1, 1, T)``."""
    if mask is None:
        return None
    if mask.shape != keys.shape[:2]:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}, expected {tuple(keys.shape[:2])}: one flag per key frame"
        )
    return rearrange(mask, "b t -> b 1 1 t")


def rotate_both(query: Tensor, key: Tensor, rates_hz: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    """Turns ``(B, H, Tq, K)`` queries and ``(B, H, Tk, K)`` keys by their times at the two rates."""
    assert rates_hz is not None
    query_hz, key_hz = rates_hz
    query = rotate(query, frame_times_s(query.shape[-2], query_hz, query.device))
    return query, rotate(key, frame_times_s(key.shape[-2], key_hz, key.device))


def head_dim(embed_dim: int, num_heads: int, rotary: bool) -> int:
    """``K``; a ValueError where the width does not split, or rotary positions need pairs of channels."""
    if num_heads < 1 or embed_dim % num_heads:
        raise ValueError(f"embed_dim {embed_dim} does not split into num_heads {num_heads}: expected a multiple of it")
    if rotary:
        check_rotary_dim(embed_dim // num_heads)
    return embed_dim // num_heads


def clock(
    query_hz: float | None,
    key_hz: float | None,
    window_s: float | None,
    rotary: bool,
    needed: str,
    ahead_s: float | None = None,
) -> tuple[tuple[float, float] | None, Window | None]:
    """The two rates where both are known, and the window where one is wanted."""
    if query_hz is None or key_hz is None:
        if rotary or window_s is not None or ahead_s is not None:
            raise ValueError(f"a window or rotary positions are in seconds: give {needed}")
        return None, None
    if window_s is None and ahead_s is None:
        return (query_hz, key_hz), None
    return (query_hz, key_hz), Window(math.inf if window_s is None else window_s, query_hz, key_hz, ahead_s)
