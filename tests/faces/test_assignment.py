"""The pairing is the best one, found by trying all; nobody is paired at a loss."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from avfusion.faces.assignment import best_pairs


def best_by_trial(gain: NDArray[np.float64]) -> float:
    rows, columns = gain.shape
    padded = np.concatenate([np.maximum(gain, 0.0), np.zeros((rows, rows))], axis=1)
    return max(
        sum(padded[row, column] for row, column in enumerate(columns_of_rows))
        for columns_of_rows in itertools.permutations(range(columns + rows), rows)
    )


def test_it_gains_as_much_as_the_best_of_all_pairings() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        gain = rng.normal(0.3, 1, rng.integers(1, 4, 2))
        gain[rng.random(gain.shape) < 0.3] = -np.inf
        pairs = best_pairs(gain)
        assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
        assert np.isclose(sum(gain[pair] for pair in pairs), best_by_trial(gain))


def test_the_greedy_pairing_is_not_taken_where_another_gains_more() -> None:
    # 0.9 first would leave 0.1: 1.0 together; crosswise they gain 1.6.
    assert best_pairs(np.array([[0.9, 0.8], [0.8, 0.1]])) == [(0, 1), (1, 0)]


def test_what_gains_nothing_stays_alone() -> None:
    assert best_pairs(np.array([[-0.5, 0.0], [-np.inf, 0.2]])) == [(1, 1)]
    assert best_pairs(np.zeros((0, 3))) == best_pairs(np.zeros((3, 0))) == []
