"""The window as it is exported equals the dense masked computation at every length, and stays linear in length."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from avfusion.models.dot_product import attend
from avfusion.models.window import Window
from avfusion.models.window_export import MAX_BLOCK_QUERIES, length_free_blocks

WINDOWS = [
    # query_hz, key_hz, half_width_s, ahead_s
    (25, 100, 0.5, None),
    (25, 100, 0.5, 0.15),
    (25, 100, 0.02, None),
    (25, 25, 1.0, None),
    (25, 25, 1.0, 0.0),
    (25, 25, 0.0, None),
    (25, 25, 30.0, None),
    (100, 25, 0.5, None),
    (25, 30, 0.4, None),
    (25, 30, 0.4, 0.1),
    (100, 100, 0.3, None),
]


@pytest.fixture
def exporting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain tensors take the way that is exported."""
    monkeypatch.setattr("torch.compiler.is_exporting", lambda: True)


def case(num_queries: int, num_keys: int) -> tuple[list[Tensor], Tensor]:
    """Query, key, value, null key, null query, and a key mask whose second row has no real key."""
    draws = torch.Generator().manual_seed(num_queries)
    shapes = [(2, 2, num_queries, 8), (2, 2, num_keys, 8), (2, 2, num_keys, 5), (2, 8), (2, 2, num_queries, 8)]
    mask = torch.rand(2, 1, 1, num_keys, generator=draws) > 0.3
    mask[1] = False
    return [torch.randn(shape, dtype=torch.float64, generator=draws) for shape in shapes], mask


@pytest.mark.usefixtures("exporting")
@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize(("query_hz", "key_hz", "half_width_s", "ahead_s"), WINDOWS)
def test_exported_blocks_equal_the_dense_mask(
    query_hz: float, key_hz: float, half_width_s: float, ahead_s: float | None, null: bool
) -> None:
    window = Window(half_width_s, query_hz, key_hz, ahead_s)
    for num_queries in (1, 32, 33, 77, 300):
        for more_keys in (-2, 0, 3):
            num_keys = max(1, math.ceil(num_queries * key_hz / query_hz) + more_keys)
            (query, key, value, null_key, null_query), mask = case(num_queries, num_keys)
            nulls = {"null_key": null_key, "null_query": null_query} if null else {}
            seen = mask & window.dense_mask(num_queries, num_keys)
            dense, dense_weights = attend(query, key, value, seen, **nulls, need_weights=True, fused=False)
            output, weights = attend(query, key, value, mask, **nulls, window=window, need_weights=True)
            torch.testing.assert_close(output, dense, rtol=0, atol=1e-12)
            torch.testing.assert_close(weights, dense_weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("query_hz", "key_hz", "half_width_s", "ahead_s"), WINDOWS)
def test_no_length_changes_the_size_of_a_block_and_only_as_many_blocks_are_made_as_it_needs(
    query_hz: float, key_hz: float, half_width_s: float, ahead_s: float | None
) -> None:
    window = Window(half_width_s, query_hz, key_hz, ahead_s)
    plans = {length: length_free_blocks(window, length, math.ceil(length * key_hz / query_hz)) for length in (1, 999)}
    sizes = {(plan.block_queries, plan.stride_keys, plan.lead_keys, plan.chunks) for plan in plans.values()}
    assert len(sizes) == 1
    plan = plans[999]
    assert 0 <= plan.num_blocks * plan.block_queries - 999 < plan.block_queries
    assert plan.block_queries <= MAX_BLOCK_QUERIES
    # Keys of a block: from its first query to its last, the window on either side, and less than a chunk of filling.
    around_s = half_width_s + (half_width_s if ahead_s is None else ahead_s)
    span = (plan.block_queries - 1) * key_hz / query_hz + around_s * key_hz
    assert span - 1 < plan.chunks * plan.stride_keys < span + 2 + plan.stride_keys


def test_keys_are_held_once_for_each_block_that_reaches_them() -> None:
    window = Window(0.5, 25, 100)
    held = [
        length_free_blocks(window, length, 4 * length).gather_keys(torch.zeros(1, 1, 4 * length, 1)).numel()
        for length in (800, 1600, 3200)
    ]
    assert held == [
        25 * 256,
        50 * 256,
        100 * 256,
    ]  # blocks of 32 queries: 128 keys, 50 before, 50 after, in chunks of 128


def test_a_window_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="pass window=None"):
        length_free_blocks(Window(math.inf, 25, 100), 10, 40)
