"""Numbers for groups of rows: which video or which face each of ``N`` rows belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def group_index(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], list[tuple[Any, ...]]]:
    """Numbers the distinct combinations of the columns in order of first appearance.

    Args:
        columns: one or more ``(N,)`` columns, such as ``video_id`` and ``entity_id``.

    Returns:
        ``(N,)`` group numbers from 0, and the combination that each number stands for.
    """
    numbers: dict[tuple[Any, ...], int] = {}
    rows = zip(*columns, strict=True)
    # A dict keeps text of any length cheap, where np.unique would sort a million Python strings.
    index = np.fromiter((numbers.setdefault(key, len(numbers)) for key in rows), np.int64, count=len(columns[0]))
    return index, list(numbers)
