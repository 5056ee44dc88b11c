"""The blocks of a window for graphs that are exported or compiled once and run at every length.

:meth:`Window.blocks` fits its blocks to the lengths it is given, in Python. In such a graph lengths are symbols:
here blocks have the size that the window alone asks for, only their number depends on the length, and keys are picked
by computed places instead of being cut and put together. What comes out is the same; time and memory stay linear.

Shapes as in :mod:`avfusion.models.window`; a length may be a ``torch.SymInt`` wherever an int stands.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from einops import rearrange
from torch import Tensor

from avfusion.models.window import MIN_BLOCK_QUERIES, Blocks, Window

MAX_BLOCK_QUERIES = 256  # a short clip is filled up to a whole block: a very wide window shall not make that dear


class LengthFreeBlocks(Blocks):
    """Blocks whose size no length changes. Made by :func:`length_free_blocks`."""

    def split_queries(self, query: Tensor) -> Tensor:
        """``(B, H, Tq, K)`` to ``(B N, H, Q, K)``; the last query fills up the last block."""
        places = torch.arange(self.num_blocks * self.block_queries, device=query.device)
        filled = query.index_select(2, places.clamp(max=self.num_queries - 1))
        return rearrange(filled, "b h (n q) k -> (b n) h q k", n=self.num_blocks, q=self.block_queries)

    def gather_keys(self, key: Tensor) -> Tensor:
        """``(B, H, Tk, K)`` to ``(B N, H, L, K)``; where no key is a mask is False, and keys and values are others'."""
        places = self._places(key.device)
        picked = key.index_select(2, places.clamp(0, self.num_keys - 1).flatten())
        blocks = rearrange(picked, "b h (n l) k -> b n h l k", n=self.num_blocks)
        if key.dtype == torch.bool:
            blocks = blocks & ((places >= 0) & (places < self.num_keys))[:, None, :, None]
        return rearrange(blocks, "b n h l k -> (b n) h l k")

    def join_queries(self, output: Tensor) -> Tensor:
        """``(B N, H, Q, V)`` back to ``(B, H, Tq, V)``, the filling of the last block dropped."""
        joined = rearrange(output, "(b n) h q v -> b h (n q) v", n=self.num_blocks)
        return joined.index_select(2, torch.arange(self.num_queries, device=output.device))

    def scatter_weights(self, weights: Tensor) -> Tensor:
        """``(B N, H, Q, L)`` weights to ``(B, H, Tq, Tk)``, zero outside the window."""
        rows = self.join_queries(weights)
        starts = torch.arange(self.num_queries, device=weights.device) // self.block_queries * self.stride_keys
        columns = torch.arange(self.num_keys, device=weights.device) + self.lead_keys - starts[:, None]
        inside = (columns >= 0) & (columns < weights.shape[-1])
        index = columns.clamp(0, weights.shape[-1] - 1).expand(*rows.shape[:2], -1, -1)
        return rows.gather(-1, index).masked_fill(~inside, 0.0)

    def _places(self, device: torch.device) -> Tensor:
        """``(N, L)``: which key stands where in each block; below 0 or beyond the last where there is none."""
        firsts = torch.arange(self.num_blocks, device=device) * self.stride_keys - self.lead_keys
        return firsts[:, None] + torch.arange(self.chunks * self.stride_keys, device=device)


def length_free_blocks(window: Window, num_queries: int, num_keys: int) -> LengthFreeBlocks:
    """Plans blocks for ``Tq`` queries and ``Tk`` keys, one of each at least, that no length changes the size of.

    Raises:
        ValueError: the window has no end, so that no block could hold it; attend without a window instead.
    """
    if window.half_width_s == math.inf:
        raise ValueError("an infinite window has no blocks of a fixed size: pass window=None, which is the same")
    keys_of, queries_of, reach, ahead = window.units
    wide = min(max(MIN_BLOCK_QUERIES, (reach + ahead) // keys_of), MAX_BLOCK_QUERIES)
    block_queries = -(-wide // queries_of) * queries_of
    stride_keys = block_queries // queries_of * keys_of
    lead_keys = reach // queries_of
    last_key = ((block_queries - 1) * keys_of + ahead) // queries_of
    return LengthFreeBlocks(
        window=window,
        num_queries=num_queries,
        num_keys=num_keys,
        reach=reach,
        num_blocks=_opaque((num_queries + block_queries - 1) // block_queries),
        block_queries=block_queries,
        stride_keys=stride_keys,
        lead_keys=lead_keys,
        chunks=-(-(lead_keys + last_key + 1) // stride_keys),
    )


def _opaque(count: int) -> int:
    """The same number by way of a tensor.

    As an expression of the length the exporter would want to know, once for all lengths, whether there is one block or
    more; a number that comes out of a tensor it takes as it comes. torch.compile may ask: it makes a graph for either.
    """
    if not torch.compiler.is_exporting():
        return count
    opaque = cast(int, torch.full((), count, dtype=torch.int64).item())  # int() would ask which number it is
    torch._check(opaque >= 1)
    return opaque
