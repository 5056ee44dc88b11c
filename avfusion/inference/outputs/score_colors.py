"""Colours of scores: blue where a face is silent, pale grey where it is open, amber where it speaks.

People who see red and green alike tell blue from amber; who sees no colour at all reads the number, and the filled
label of a face that speaks. Colours are RGB uint8.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_STOPS = (0.0, 0.5, 1.0)
_COLORS = np.array([(62, 124, 230), (205, 208, 212), (255, 176, 0)], dtype=np.float64)
DARK = np.array((18, 20, 23), dtype=np.uint8)  # of borders and labels
LIGHT = np.array((240, 242, 244), dtype=np.uint8)  # of text on them


def score_color(score: float) -> NDArray[np.uint8]:
    """``(3,)`` the colour of a score in 0..1."""
    color: NDArray[np.uint8] = score_colors(np.array([score]))[0]
    return color


def score_colors(scores: NDArray[np.float64]) -> NDArray[np.uint8]:
    """``(N, 3)`` the colours of scores."""
    channels = [np.interp(scores, _STOPS, _COLORS[:, channel]) for channel in range(3)]
    return np.rint(np.stack(channels, axis=-1)).astype(np.uint8)
