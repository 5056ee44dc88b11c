"""Where each head listened in each frame, of one clip: the mean lag and the lag of the heaviest key.

``L`` fusion layers, ``H`` heads, ``T`` video frames, ``A`` audio frames. Lag is the time of the sound minus the time of
the frame; NaN where the null mass is above 0.999, because then the head heard nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from avfusion.alignment.statistics import MAX_NULL_MASS

Floats = NDArray[np.float64]


def mean_lags_ms(weights: NDArray[np.float32], query_s: Floats, key_s: Floats) -> Floats:
    """``(L, H, T)`` L = Σ Ã Δt of weights ``(L, H, T, A)``, in milliseconds.

    Source: DESIGN section 8, "Per head".
    """
    mass = weights.sum(axis=-1, dtype=np.float64)  # as the product below: hours into a film, float32 loses milliseconds
    attended = np.matmul(weights, key_s, dtype=np.float64)
    heard = mass >= 1 - MAX_NULL_MASS
    lag_s = np.divide(attended, mass, out=np.full(mass.shape, np.nan), where=heard) - query_s
    return np.asarray(1000 * lag_s)


def peak_lags_ms(weights: NDArray[np.float32], query_s: Floats, key_s: Floats) -> Floats:
    """``(L, H, T)`` lag of the key with the largest weight, in milliseconds; of equal ones the earliest."""
    heard = weights.sum(axis=-1, dtype=np.float64) >= 1 - MAX_NULL_MASS
    lag_s = key_s[weights.argmax(axis=-1)] - query_s
    return np.asarray(np.where(heard, 1000 * lag_s, np.nan))
