"""A window in seconds around each query, computed in blocks so that time and memory grow linearly with length.

Shapes: ``B`` batch, ``H`` heads, ``Tq`` queries, ``Tk`` keys, ``K`` width per head; ``N`` blocks of ``Q`` queries, each
with the ``L`` keys its queries may reach. Blocks join the batch axis: ``(B, H, Tq, K)`` becomes ``(B N, H, Q, K)``.
Masks are bool, True = real.

Consecutive blocks start a whole number of keys apart. Keys are cut into chunks of that size, and the keys of a block
are a few neighboring chunks put end to end: plain slices and one concatenation, forward and backward.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from fractions import Fraction

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor

TOLERANCE_S = 1e-6
MIN_BLOCK_QUERIES = 32
MAX_RATIO_DENOMINATOR = 128  # blocks are whole multiples of it, so it bounds the smallest block


@dataclass(frozen=True)
class Window:
    """Keys within ``±half_width_s`` of the query. Both streams start at the same instant and have uniform rates.

    Attributes:
        half_width_s: largest distance between a query and a key it may attend to, in seconds; both ends belong.
        query_hz: queries per second.
        key_hz: keys per second.
        ahead_s: the same for keys after the query, where that is less; None is ``half_width_s``.
        units: the same in whole numbers, which are constants to a compiler where seconds are not: so many keys stand
            beside so many queries, and the widths before and after a query, in ``1 / (key_hz * queries)`` seconds.

    Raises:
        ValueError: a negative width, a rate that is not positive, or rates whose ratio is no simple fraction, so that
            no block of queries could start on a key.
    """

    half_width_s: float
    query_hz: float
    key_hz: float
    ahead_s: float | None = None
    units: tuple[int, int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.half_width_s >= 0:
            raise ValueError(f"half_width_s is {self.half_width_s}, expected 0 or more seconds")
        if self.ahead_s is not None and not 0 <= self.ahead_s <= self.half_width_s:
            raise ValueError(f"ahead_s is {self.ahead_s}, expected 0 to half_width_s {self.half_width_s} seconds")
        if not (0 < self.query_hz < math.inf and 0 < self.key_hz < math.inf):
            raise ValueError(f"rates are query_hz={self.query_hz} and key_hz={self.key_hz}, expected positive numbers")
        if abs(float(self.keys_per_query) * self.query_hz - self.key_hz) > 1e-9 * self.key_hz:
            raise ValueError(
                f"key_hz/query_hz = {self.key_hz}/{self.query_hz} is no fraction with a denominator up to"
                f" {MAX_RATIO_DENOMINATOR}: blocks of queries would not start on whole keys; resample one stream"
            )
        ratio, (before, after) = self.keys_per_query, (self._whole(self.half_width_s), self._whole(self.ahead_s))
        object.__setattr__(self, "units", (ratio.numerator, ratio.denominator, before, min(before, after)))

    @property
    def keys_per_query(self) -> Fraction:
        """The ratio of the rates: query ``i`` stands at key ``i * keys_per_query``."""
        return (Fraction(self.key_hz) / Fraction(self.query_hz)).limit_denominator(MAX_RATIO_DENOMINATOR)

    def reach_queries(self) -> tuple[int, int] | None:
        """Queries' steps before and after a query that hold all the keys of its window; None where it has no end."""
        if math.isinf(self.half_width_s):
            return None
        ahead_s = self.half_width_s if self.ahead_s is None else self.ahead_s
        past, ahead = (math.ceil((side_s + TOLERANCE_S) * self.query_hz) for side_s in (self.half_width_s, ahead_s))
        return past, ahead

    def dense_mask(self, num_queries: int, num_keys: int, device: torch.device | None = None) -> Tensor:
        """``(Tq, Tk)`` bool, True where ``|j / key_hz - i / query_hz| <= half_width_s`` (to a microsecond).

        With ``ahead_s`` that is the limit where the key is the later one.
        """
        queries = torch.arange(num_queries, device=device)
        keys = torch.arange(num_keys, device=device)
        return self._within(queries, keys, self._reach(num_queries, num_keys))

    def blocks(self, num_queries: int, num_keys: int) -> Blocks:
        """Plans the blocks for ``Tq`` queries and ``Tk`` keys."""
        ratio = self.keys_per_query
        reach = self._reach(num_queries, num_keys)
        ahead = self._ahead(reach)
        # A block as long as the window is wide wastes least; a longer one than there are queries wastes again.
        wide = max(MIN_BLOCK_QUERIES, (reach + ahead) // ratio.numerator)
        block_queries = _round_up(max(1, min(wide, num_queries)), ratio.denominator)
        num_blocks = max(1, -(-num_queries // block_queries))
        stride_keys = block_queries * ratio.numerator // ratio.denominator
        lead_keys = min(reach // ratio.denominator, (num_blocks - 1) * stride_keys)
        last_key = min(((block_queries - 1) * ratio.numerator + ahead) // ratio.denominator, num_keys - 1)
        chunks = max(1, -(-(lead_keys + last_key + 1) // stride_keys))
        return Blocks(self, num_queries, num_keys, reach, num_blocks, block_queries, stride_keys, lead_keys, chunks)

    def _reach(self, num_queries: int, num_keys: int) -> int:
        """The half width in units of ``1 / (key_hz * denominator)`` seconds, in which every distance is whole."""
        ratio = self.keys_per_query
        farthest = num_queries * ratio.numerator + num_keys * ratio.denominator
        return math.floor(min((self.half_width_s + TOLERANCE_S) * self.key_hz * ratio.denominator, farthest))

    def _ahead(self, reach: int) -> int:
        """The same for keys after the query."""
        return reach if self.ahead_s is None else min(reach, self.units[3])

    def _whole(self, seconds: float | None) -> int:
        """Seconds in these units, rounded down; of what has no end the largest number."""
        if seconds is None or math.isinf(seconds):
            return sys.maxsize
        return math.floor((seconds + TOLERANCE_S) * self.key_hz * self.keys_per_query.denominator)

    def _within(self, queries: Tensor, keys: Tensor, reach: int) -> Tensor:
        """``(len(queries), len(keys))`` bool from indices; whole numbers, so blocks and dense mask agree everywhere."""
        keys_of, queries_of = self.units[:2]
        later = keys * queries_of - queries[:, None] * keys_of
        return later.abs() <= reach if self.ahead_s is None else (-reach <= later) & (later <= self._ahead(reach))


@dataclass(frozen=True)
class Blocks:
    """How ``Tq`` queries and ``Tk`` keys fall into ``N`` blocks. Made by :meth:`Window.blocks`.

    Attributes:
        window: the window that the blocks compute.
        num_queries: Tq.
        num_keys: Tk.
        reach: the half width in whole units of :class:`Window`.
        num_blocks: N.
        block_queries: Q; the last block may be padded.
        stride_keys: keys between the starts of consecutive blocks, and the size of a chunk.
        lead_keys: keys of a block that lie before its first query.
        chunks: chunks that make up one block's keys, so ``L = chunks * stride_keys``.
    """

    window: Window
    num_queries: int
    num_keys: int
    reach: int
    num_blocks: int
    block_queries: int
    stride_keys: int
    lead_keys: int
    chunks: int

    def split_queries(self, query: Tensor) -> Tensor:
        """``(B, H, Tq, K)`` to ``(B N, H, Q, K)``; the last block is filled up with zeros."""
        padded = F.pad(query, (0, 0, 0, self.num_blocks * self.block_queries - self.num_queries))
        return rearrange(padded, "b h (n q) k -> (b n) h q k", n=self.num_blocks, q=self.block_queries)

    def gather_keys(self, key: Tensor) -> Tensor:
        """``(B, H, Tk, K)`` keys, values or a mask to ``(B N, H, L, K)``; zeros (False) where no key is."""
        num_chunks = self.num_blocks + self.chunks - 1
        # The last pad is negative where there are more keys than any query reaches: it crops them.
        padded = F.pad(key, (0, 0, self.lead_keys, num_chunks * self.stride_keys - self.lead_keys - self.num_keys))
        chunks = rearrange(padded, "b h (c s) k -> b c h s k", c=num_chunks, s=self.stride_keys)
        blocks = torch.cat([chunks[:, i : i + self.num_blocks] for i in range(self.chunks)], dim=3)
        return rearrange(blocks, "b n h l k -> (b n) h l k")

    def mask(self, key_mask: Tensor | None, batch: int, device: torch.device) -> Tensor:
        """``(B N, 1, Q, L)`` bool: keys that are real and within the window of the query.

        Args:
            key_mask: ``(B, 1, 1, Tk)`` or ``(1, 1, 1, Tk)`` bool, or None when every key is real.
            batch: B.
            device: where the mask is wanted.

        Raises:
            ValueError: the mask has another shape; a mask per query does not fit into blocks.
        """
        if key_mask is None:
            key_mask = torch.ones(1, 1, 1, self.num_keys, dtype=torch.bool, device=device)
        if key_mask.shape not in ((batch, 1, 1, self.num_keys), (1, 1, 1, self.num_keys)):
            raise ValueError(
                f"a window takes a mask over keys of shape ({batch}, 1, 1, {self.num_keys}) or"
                f" (1, 1, 1, {self.num_keys}), found {tuple(key_mask.shape)}"
            )
        columns = rearrange(key_mask.expand(batch, 1, 1, self.num_keys), "b 1 1 t -> b 1 t 1")
        real = rearrange(self.gather_keys(columns), "bn 1 l 1 -> bn 1 1 l")
        queries = torch.arange(self.block_queries, device=device)
        keys = torch.arange(self.chunks * self.stride_keys, device=device) - self.lead_keys
        return real & self.window._within(queries, keys, self.reach)

    def join_queries(self, output: Tensor) -> Tensor:
        """``(B N, H, Q, V)`` back to ``(B, H, Tq, V)``, the filling of the last block dropped."""
        joined = rearrange(output, "(b n) h q v -> b h (n q) v", n=self.num_blocks)
        return joined[:, :, : self.num_queries]

    def scatter_weights(self, weights: Tensor) -> Tensor:
        """``(B N, H, Q, L)`` weights to ``(B, H, Tq, Tk)``, zero outside the window."""
        rows = self.join_queries(weights)
        starts = torch.arange(self.num_queries, device=weights.device) // self.block_queries * self.stride_keys
        columns = starts[:, None] + torch.arange(weights.shape[-1], device=weights.device)
        width = max((self.num_blocks + self.chunks - 1) * self.stride_keys, self.lead_keys + self.num_keys)
        dense = rows.new_zeros(*rows.shape[:-1], width)
        index = repeat(columns, "q l -> b h q l", b=rows.shape[0], h=rows.shape[1])
        return dense.scatter(-1, index, rows)[..., self.lead_keys : self.lead_keys + self.num_keys]


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
