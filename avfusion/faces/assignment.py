"""The best one-to-one pairing of rows with columns, by shortest augmenting paths.

For tens of rows; avfusion does not depend on scipy, which has the same. Source: Kuhn 1955, Jonker and Volgenant 1987.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def best_pairs(gain: NDArray[np.float64]) -> list[tuple[int, int]]:
    """The pairing whose gains add up to most. A row or column may stay alone, which gains nothing.

    Args:
        gain: ``(N, M)``; pairs with a gain of 0 or less are never made, nor those of -inf.

    Returns:
        ``(row, column)`` pairs by row.
    """
    rows, columns = gain.shape
    if not rows or not columns:
        return []
    # A column of its own for every row, gaining nothing: staying alone. Costs are what is missed of the highest gain.
    worth = np.concatenate([np.maximum(gain, 0.0), np.zeros((rows, rows))], axis=1)
    columns_of_rows = _cheapest(worth.max() - worth)
    return [(row, int(c)) for row, c in enumerate(columns_of_rows) if c < columns and gain[row, c] > 0]


def _cheapest(cost: NDArray[np.float64]) -> NDArray[np.int64]:
    """The column of each row in the cheapest pairing; ``(N, M)`` with N <= M."""
    rows, columns = cost.shape
    row_price, column_price = np.zeros(rows), np.zeros(columns)
    row_of = np.full(columns, -1)
    for start in range(rows):
        best = np.full(columns, np.inf)
        came_from = np.full(columns, -1)  # the column before on the path; -1: the path starts at `start`
        done = np.zeros(columns, dtype=bool)
        row, last = start, -1
        visited_rows: list[int] = [start]
        visited_columns: list[int] = []
        while True:
            reduced = cost[row] - row_price[row] - column_price
            shorter = ~done & (reduced < best)
            best[shorter], came_from[shorter] = reduced[shorter], last
            last = int(np.where(done, np.inf, best).argmin())
            step = best[last]
            row_price[visited_rows] += step
            column_price[visited_columns] -= step
            best[~done] -= step
            done[last] = True
            visited_columns.append(last)
            if row_of[last] < 0:
                break
            row = int(row_of[last])
            visited_rows.append(row)
        while last >= 0:
            before = int(came_from[last])
            row_of[last] = start if before < 0 else row_of[before]
            last = before
    column_of = np.empty(rows, dtype=np.int64)
    taken = np.flatnonzero(row_of >= 0)
    column_of[row_of[taken]] = taken
    return column_of
