"""The one rule of which face boxes are taken, for extraction and for the checks of a finished dataset.

Faces reach over the border, so a corner may lie up to one picture's width or height beyond it; farther out it is no
fraction of the picture (pixels, most often). A box without area shows no face: the boxes around it take its place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BEYOND = 1.0  # pictures
EXPECTED = f"fractions of the picture ({-BEYOND:g}..{1 + BEYOND:g}), not pixels"


def far_outside(boxes_xyxy: NDArray[np.float32]) -> NDArray[np.bool_]:
    """``(N,)``: whether a corner of each of ``(N, 4)`` boxes lies so far outside that it is no fraction."""
    return np.asarray(((boxes_xyxy < -BEYOND) | (boxes_xyxy > 1 + BEYOND)).any(axis=1))


def without_area(boxes_xyxy: NDArray[np.float32]) -> NDArray[np.bool_]:
    """``(N,)``: whether each of ``(N, 4)`` boxes has no area."""
    return np.asarray((boxes_xyxy[:, 2:] <= boxes_xyxy[:, :2]).any(axis=1))
