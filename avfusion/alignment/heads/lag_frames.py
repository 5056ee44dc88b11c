"""The frames of a clip in lag coordinates: each frame's weights beside the lags at which they lie, and what they say.

``L`` fusion layers, ``H`` heads, ``T`` video frames, ``A`` audio frames (keys), ``W`` lags in steps of 10 ms, an odd
number around 0. A window holds 101 of them where a clip of 20 s has 2000 keys, so nothing here grows with the square of
a clip's length. Frames come in blocks, so that memory does not grow with it at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.alignment.capture import AlignedClip
from avfusion.alignment.reach import KeyReach
from avfusion.alignment.statistics import AlignmentStatistics, Floats, describe, entropy_nats, lag_and_width
from avfusion.clock import AUDIO_HZ

BLOCK_WEIGHTS = 2_000_000  # weights worked on at a time: 16 MB, and a few arrays of that size


@dataclass(frozen=True)
class LagFrames:
    """Some frames of one clip. Lag ``w`` of ``W`` is ``(w - W // 2) / AUDIO_HZ`` seconds.

    Attributes:
        speaking: ``(T,)`` labels.
        weights: ``(L, H, T, W)`` attention A; 0 where no key is.
        present: ``(T, W)`` whether there is a key in reach.
        speech: ``(T, W)`` whether that key's time is labelled as speaking.
        one: null mass, lag, width and entropy of the weights, ``(L, H, T)`` each.
        shares: ``(L, H, T, W)`` Ã, weights over their sum; NaN in frames that heard nothing.
        value_lag_ms, value_width_ms: ``(L, H, T)`` the same of the weights times the norms of the values.
        value_shares: ``(L, H, T, W)`` weights times norms over their sum; NaN where that is 0.
    """

    speaking: NDArray[np.bool_]
    weights: Floats
    present: NDArray[np.bool_]
    speech: NDArray[np.bool_]
    one: AlignmentStatistics
    shares: Floats
    value_lag_ms: Floats
    value_width_ms: Floats
    value_shares: Floats

    def divergence(self) -> Floats:
        """``(L, H, H, T)`` Jensen-Shannon divergence of the Ã of every two heads of a layer, in nats.

        ``JS = H(M) - (H(P) + H(Q)) / 2`` with ``M = (P + Q) / 2`` and H the entropy: 0 for equal heads, ln 2 for heads
        that never attend to the same sound; NaN where one of them heard nothing.
        """
        layers, heads, frames, _ = self.shares.shape
        entropy = entropy_nats(self.shares)
        found = np.zeros((layers, heads, heads, frames))
        for one in range(heads):
            for other in range(one + 1):
                both = entropy_nats((self.shares[:, one] + self.shares[:, other]) / 2)
                between = np.maximum(both - (entropy[:, one] + entropy[:, other]) / 2, 0.0)
                found[:, one, other] = found[:, other, one] = between
        return found


def lag_frames(clip: AlignedClip, reach: KeyReach) -> Iterator[LagFrames]:
    """The frames of a clip in order, block by block.

    Args:
        clip: its keys are 10 ms apart.
        reach: of the model.

    Raises:
        ValueError: keys that are not 10 ms apart, or attention beyond the reach.
    """
    if len(clip.key_s) > 1 and np.abs(np.diff(clip.key_s) * AUDIO_HZ - 1).max() > 1e-3:
        raise ValueError(f"key_s: expected times {1000 // AUDIO_HZ} ms apart, found steps other than that")
    nearest = np.rint((clip.query_s - clip.key_s[0]) * AUDIO_HZ).astype(np.int64)
    farthest = max(int(np.abs(nearest).max()), int(np.abs(nearest - len(clip.key_s) + 1).max()))
    half = farthest if reach.farthest is None else min(farthest, reach.farthest)
    layers, heads, frames, _ = clip.weights.shape
    count = max(1, BLOCK_WEIGHTS // (layers * heads * (2 * half + 1)))
    for first in range(0, frames, count):
        some = slice(first, first + count)
        yield _block(clip, some, nearest[some, None] + np.arange(-half, half + 1), reach)


def _block(clip: AlignedClip, frames: slice, keys: NDArray[np.int64], reach: KeyReach) -> LagFrames:
    """The frames of one block, whose lags are the keys ``(T, W)``, perhaps beyond the sound."""
    there = (keys >= 0) & (keys < len(clip.key_s))
    keys = keys.clip(0, len(clip.key_s) - 1)
    lag_s = np.where(there, clip.key_s[keys] - clip.query_s[frames, None], 0.0)
    present = there & reach.holds(lag_s)
    rows = clip.weights[:, :, frames]
    along = np.broadcast_to(keys, (*rows.shape[:2], *keys.shape))
    weights = np.take_along_axis(rows, along, axis=-1).astype(np.float64) * present
    missed = float(np.abs(rows.sum(axis=-1, dtype=np.float64) - weights.sum(axis=-1)).max(initial=0.0))
    if missed > 1e-3:
        raise ValueError(f"up to {missed:.3f} of a frame's attention lies beyond {reach}: not the model's window")
    one, shares = describe(weights, lag_s, present, np.ones(len(keys), dtype=bool))
    added = shares * clip.value_norms[:, :, keys]
    total = added.sum(axis=-1, keepdims=True)
    value_shares = added / np.where(total > 0, total, np.nan)
    value_lag_ms, value_width_ms = lag_and_width(value_shares, lag_s)
    return LagFrames(
        speaking=clip.speaking[frames],
        weights=weights,
        present=present,
        speech=clip.key_speaking[keys] & present,
        one=one,
        shares=shares,
        value_lag_ms=value_lag_ms,
        value_width_ms=value_width_ms,
        value_shares=value_shares,
    )
