"""The one place with ``softmax(Q Kᵀ / √K) V``: masks, windows, a null key, and the weights when they are asked for.

Shapes: ``B`` batch, ``H`` heads, ``Tq`` queries, ``Tk`` keys, ``K`` width per head, ``V`` width of the values. Weights
are ``(B, H, Tq, Tk)``. Masks are bool, True = real. A row without a real key gives zeros and finite gradients, never
NaN.

A null key is a learned key whose value is fixed to zero: the weight it takes, ``1 - weights.sum(-1)``, says that
nothing heard belongs to this query, and adds nothing to the output.

Source: Vaswani et al., "Attention Is All You Need", 2017; the null key is ``add_zero_attn`` of
``torch.nn.MultiheadAttention`` with a learned key.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import repeat
from torch import Tensor

from avfusion.models.window import Blocks, Window
from avfusion.models.window_export import length_free_blocks

NULL_SCORE_CHANNELS = 8  # one is used; CUDA kernels want widths in multiples of 8


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    null_key: Tensor | None = None,
    null_query: Tensor | None = None,
    window: Window | None = None,
    need_weights: bool = False,
    dropout: float = 0.0,
    fused: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Scaled dot-product attention.

    Args:
        query: ``(B, H, Tq, K)``.
        key: ``(B, H, Tk, K)``.
        value: ``(B, H, Tk, V)``.
        mask: bool, True = real key, broadcastable to ``(B, H, Tq, Tk)``; commonly ``(B, 1, 1, Tk)``, and with a window
            only that or ``(1, 1, 1, Tk)``.
        null_key: ``(H, K)``, a key that is always real and whose value is zero.
        null_query: ``(B, H, Tq, N)``, what the null key, then ``(H, N)``, is compared with; ``query`` when None. The
            null key stands at no time, so queries with rotary positions hand in their unturned selves.
        window: keys that a query may attend to, by time; None for all. Time and memory are then linear in length.
        need_weights: also return the weights. The output is the same, bit for bit, with and without.
        dropout: probability of dropping a weight. The weights returned are those before dropout.
        fused: compute the output with ``F.scaled_dot_product_attention``; False writes the softmax out.

    Returns:
        The output ``(B, H, Tq, V)``, and the weights ``(B, H, Tq, Tk)`` in at least float32 or None. Rows of weights
        sum to 1, or to 1 minus the weight of the null key; with no real key and no null key they are 0.

    Raises:
        TypeError: the mask is not bool.
        ValueError: the mask has no shape that the window can use, or ``null_query`` comes without ``null_key``.
    """
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(
            f"mask has dtype {mask.dtype}, expected torch.bool with True = real key;"
            " pass mask.bool() for 0/1 numbers, mask == 0 for additive 0/-inf masks"
        )
    scale, value_dim = query.shape[-1] ** -0.5, value.shape[-1]
    if null_query is not None:
        if null_key is None:
            raise ValueError("null_query is given without null_key: pass both or neither")
        query, key, value, null_key = _carry_null_score(query, key, value, null_key, null_query)
    if window is None:
        output, weights = _attend_dense(query, key, value, mask, null_key, scale, need_weights, dropout, fused)
    else:
        blocks = _plan(window)(window, query.shape[-2], key.shape[-2])
        block_mask = blocks.mask(mask, query.shape[0], query.device)
        query, key, value = blocks.split_queries(query), blocks.gather_keys(key), blocks.gather_keys(value)
        output, weights = _attend_dense(query, key, value, block_mask, null_key, scale, need_weights, dropout, fused)
        output = blocks.join_queries(output)
        weights = None if weights is None else blocks.scatter_weights(weights)
    return output[..., :value_dim], weights


def _plan(window: Window) -> Callable[[Window, int, int], Blocks]:
    """How blocks are planned: fitted to the lengths, or for a graph that is compiled once for every length."""
    graph = torch.compiler.is_exporting() or (torch.compiler.is_compiling() and window.half_width_s < math.inf)
    return length_free_blocks if graph else Window.blocks


def _attend_dense(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    null_key: Tensor | None,
    scale: float,
    need_weights: bool,
    dropout: float,
    fused: bool,
) -> tuple[Tensor, Tensor | None]:
    """Attention of every query over every key that the mask leaves, shapes as in :func:`attend`."""
    num_keys = key.shape[-2]
    any_real: Tensor | None = None
    if null_key is not None:
        key, value, mask = _append_null(key, value, mask, null_key)
    elif mask is not None:
        # A softmax over nothing is NaN, forward or backward, depending on kernel and device. So rows without a real key
        # look at all keys, and what they saw is cleared afterwards, which stops their gradient too.
        any_real = mask.any(dim=-1, keepdim=True)
        mask = mask | ~any_real

    weights = _softmax_weights(query, key, mask, scale) if need_weights or not fused else None
    if fused:
        output = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, scale=scale)
    else:
        assert weights is not None
        output = F.dropout(weights, dropout).to(value.dtype) @ value

    if any_real is not None:
        output = output.masked_fill(~any_real, 0.0)
        weights = None if weights is None else weights.masked_fill(~any_real, 0.0)
    return output, weights[..., :num_keys] if need_weights and weights is not None else None


def _softmax_weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """``(B, H, Tq, Tk)`` softmax over the keys, in float32 or wider whatever the inputs are."""
    dtype = torch.promote_types(query.dtype, torch.float32)
    # Scaled before the product: half precision overflows at 65504.
    logits = ((query * scale) @ key.transpose(-2, -1)).to(dtype)
    if mask is not None:
        logits = logits.masked_fill(~mask, float("-inf"))
    return logits.softmax(dim=-1)


def _append_null(
    key: Tensor, value: Tensor, mask: Tensor | None, null_key: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Adds the null key as one more key with a zero value, always real."""
    num_keys = key.shape[-2]
    key = torch.cat([key, repeat(null_key.to(key.dtype), "h k -> b h 1 k", b=key.shape[0])], dim=-2)
    value = F.pad(value, (0, 0, 0, 1))
    if mask is not None:
        mask = F.pad(mask.expand(*mask.shape[:-1], num_keys), (0, 1), value=True)
    return key, value, mask


def _carry_null_score(
    query: Tensor, key: Tensor, value: Tensor, null_key: Tensor, null_query: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Widens queries by a channel that holds their score against the null key, which keeps nothing but that channel.

    ``[q, s] · [k, 0] = q · k`` and ``[q, s] · [0, 1] = s``: any attention kernel then gives the null key a score that
    another query made. Values are widened as well, since fused kernels want one width for all.
    """
    score = (null_query * null_key.to(null_query.dtype)[:, None]).sum(dim=-1, keepdim=True).to(query.dtype)
    query = torch.cat([query, F.pad(score, (0, NULL_SCORE_CHANNELS - 1))], dim=-1)
    unit = F.pad(key.new_zeros(key.shape[1], key.shape[-1]), (0, 1), value=1.0)
    null_key = F.pad(unit, (0, NULL_SCORE_CHANNELS - 1))
    return query, F.pad(key, (0, NULL_SCORE_CHANNELS)), F.pad(value, (0, NULL_SCORE_CHANNELS)), null_key
