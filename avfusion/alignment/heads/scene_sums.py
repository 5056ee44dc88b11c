"""What is kept of a model's frames while clips go by: sums, histograms over lags, six numbers of each frame.

``L`` fusion layers, ``H`` heads, ``T`` video frames, ``W`` lags of 10 ms. ``figures.py`` defines the signs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from avfusion.alignment.measures.resampling import Floats, ratio

PER_FRAME = ("lag_ms", "width_ms", "entropy", "null_mass", "value_lag_ms", "value_width_ms")


@dataclass
class SceneSums:
    """What is kept of the frames of one group, role and label: sums over frames, and six numbers of each frame."""

    heard: Floats  # (L, H) frames that hear
    valued: Floats  # (L, H) frames that hear something that adds to the output
    shares: Floats  # (L, H, W) Ã
    even: Floats  # (L, H, W) 1 / N in frames that hear
    value_shares: Floats  # (L, H, W)
    on_speech: Floats  # (L, H) A on speech keys
    on_other: Floats  # (L, H)
    divergence: Floats  # (L, H, H)
    both_heard: Floats  # (L, H, H)
    frames: int = 0
    speech_keys: int = 0  # pairs of a frame and a key
    other_keys: int = 0
    per_frame: list[NDArray[np.float32]] = field(default_factory=list)  # (len(PER_FRAME), L, H, T) of each stretch

    @staticmethod
    def empty(layers: int, heads: int, lags: int) -> SceneSums:
        """Sums of nothing."""
        by_head, by_lag, by_pair = (layers, heads), (layers, heads, lags), (layers, heads, heads)
        return SceneSums(
            heard=np.zeros(by_head),
            valued=np.zeros(by_head),
            shares=np.zeros(by_lag),
            even=np.zeros(by_lag),
            value_shares=np.zeros(by_lag),
            on_speech=np.zeros(by_head),
            on_other=np.zeros(by_head),
            divergence=np.zeros(by_pair),
            both_heard=np.zeros(by_pair),
        )


@dataclass
class LagMap:
    """Sums over frames of A ``(L, H, W)``, and in how many frames there is a key at that lag ``(W,)``."""

    weights: Floats
    frames: Floats

    def mean(self) -> Floats:
        """``(L, H, W)`` mean A at each lag; NaN where no frame has a key."""
        return ratio(self.weights, np.broadcast_to(self.frames, self.weights.shape))


Scenes = Mapping[tuple[str, str, bool], SceneSums]  # by group, role, whether speaking
