"""Whether face boxes are fractions of the picture: one rule for labels and scores, whoever made them.

Boxes: ``(N, 4)`` x1, y1, x2, y2. Faces reach over the border; a corner more than one picture outside it is no fraction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LOWEST, HIGHEST = -1.0, 2.0
RANGE = f"x1, y1, x2, y2 as fractions of the picture ({LOWEST:g}..{HIGHEST:g}), not pixels"


def in_fractions(boxes_xyxy: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """``(N,)`` True where all four numbers can be fractions; a box that is not known (NaN) cannot."""
    inside: NDArray[np.bool_] = np.all((boxes_xyxy >= LOWEST) & (boxes_xyxy <= HIGHEST), axis=1)
    return inside
