"""Overlap of boxes. Shapes: boxes ``(N, 4)`` as x1, y1, x2, y2 in any unit; columns beyond the fourth are not read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def overlaps(boxes: NDArray[np.floating[Any]], others: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Intersection over union of every box with every other.

    Args:
        boxes: ``(N, 4)``.
        others: ``(M, 4)``.

    Returns:
        ``(N, M)`` in 0..1.
    """
    one, two = boxes[:, None, :4].astype(np.float64), others[None, :, :4].astype(np.float64)
    sides = np.minimum(one[..., 2:], two[..., 2:]) - np.maximum(one[..., :2], two[..., :2])
    shared = np.prod(np.maximum(sides, 0.0), axis=-1)
    union = _areas(one) + _areas(two) - shared
    result: NDArray[np.float64] = shared / np.maximum(union, 1e-12)
    return result


def without_repeats(boxes: NDArray[np.float32], most_overlap: float = 0.5) -> NDArray[np.int64]:
    """Which boxes to keep where several lie on one face: the first of each such group.

    Args:
        boxes: ``(N, 4)`` or more columns, most confident first.
        most_overlap: boxes that overlap a kept one by more are dropped.

    Returns:
        Indices of the kept ones, in order.
    """
    kept: list[int] = []
    overlap = overlaps(boxes, boxes)
    for index in range(len(boxes)):
        if not kept or overlap[index, kept].max() <= most_overlap:
            kept.append(index)
    return np.array(kept, dtype=np.int64)


def _areas(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    areas: NDArray[np.float64] = np.prod(boxes[..., 2:] - boxes[..., :2], axis=-1)
    return areas
