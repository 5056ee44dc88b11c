"""The window in blocks equals the dense masked computation, and its memory grows with length, not with its square."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from avfusion.models.dot_product import attend
from avfusion.models.window import Window

SIZES = [
    # Tq, Tk, query_hz, key_hz, half_width_s
    (1, 4, 25, 100, 0.5),
    (7, 28, 25, 100, 0.5),
    (77, 301, 25, 100, 0.5),
    (77, 400, 25, 100, 0.1),
    (64, 256, 25, 100, 0.02),
    (131, 131, 25, 25, 0.5),
    (233, 233, 100, 100, 0.3),
    (101, 20, 100, 25, 0.5),
    (50, 10, 25, 25, 0.0),
    (200, 190, 25, 30, 0.4),
    (40, 160, 25, 100, math.inf),
    (3, 0, 25, 100, 0.5),
    (0, 3, 25, 100, 0.5),
]


def random_case(num_queries: int, num_keys: int, dtype: torch.dtype = torch.float32) -> tuple[list[Tensor], Tensor]:
    """Query, key, value, null key and null query with gradients, and a key mask whose second row has no real key."""
    torch.manual_seed(0)
    shapes = [(2, 2, num_queries, 8), (2, 2, num_keys, 8), (2, 2, num_keys, 5), (2, 8), (2, 2, num_queries, 8)]
    mask = torch.rand(2, 1, 1, num_keys) > 0.3
    mask[1] = False
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes], mask


@pytest.mark.parametrize("null", ["no null key", "null key", "null key with its own query"])
@pytest.mark.parametrize(("num_queries", "num_keys", "query_hz", "key_hz", "half_width_s"), SIZES)
def test_blocks_equal_the_dense_mask(
    num_queries: int, num_keys: int, query_hz: float, key_hz: float, half_width_s: float, null: str
) -> None:
    window = Window(half_width_s, query_hz, key_hz)
    (query, key, value, null_key, null_query), mask = random_case(num_queries, num_keys, torch.float64)
    nulls: dict[str, Any] = {}
    if null != "no null key":
        nulls["null_key"] = null_key
    if null == "null key with its own query":
        nulls["null_query"] = null_query
    inputs = [query, key, value, *nulls.values()]
    dense_mask = mask & window.dense_mask(num_queries, num_keys)
    dense, dense_weights = attend(query, key, value, dense_mask, **nulls, need_weights=True, fused=False)
    direction = torch.randn_like(dense)
    dense_grads = torch.autograd.grad((dense * direction).sum() + (dense_weights**2).sum(), inputs)
    for fused in (True, False):
        output, weights = attend(query, key, value, mask, **nulls, window=window, need_weights=True, fused=fused)
        torch.testing.assert_close(output, dense, rtol=0, atol=1e-12)
        torch.testing.assert_close(weights, dense_weights, rtol=0, atol=1e-12)
        grads = torch.autograd.grad((output * direction).sum() + (weights**2).sum(), inputs)
        for grad, dense_grad in zip(grads, dense_grads, strict=True):
            torch.testing.assert_close(grad, dense_grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("num_queries", "num_keys", "query_hz", "key_hz", "half_width_s"), SIZES)
def test_blocks_equal_the_dense_mask_in_float32(
    num_queries: int, num_keys: int, query_hz: float, key_hz: float, half_width_s: float
) -> None:
    window = Window(half_width_s, query_hz, key_hz)
    (query, key, value, null_key, null_query), mask = random_case(num_queries, num_keys)
    nulls = {"null_key": null_key, "null_query": null_query}
    dense, dense_weights = attend(
        query, key, value, mask & window.dense_mask(num_queries, num_keys), **nulls, need_weights=True
    )
    output, weights = attend(query, key, value, mask, **nulls, window=window, need_weights=True)
    torch.testing.assert_close(output, dense, rtol=0, atol=1e-6)
    torch.testing.assert_close(weights, dense_weights, rtol=0, atol=1e-6)
    assert torch.equal(attend(query, key, value, mask, **nulls, window=window)[0], output)


def test_one_mask_for_the_whole_batch_or_none() -> None:
    window = Window(0.5, 25, 100)
    (query, key, value, *_), mask = random_case(77, 301)
    common = mask[:1]
    for given, spelled_out in ((common, common.expand(2, -1, -1, -1)), (None, torch.ones_like(mask))):
        output, _ = attend(query, key, value, given, window=window)
        expected, _ = attend(query, key, value, spelled_out & window.dense_mask(77, 301))
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)


def test_both_ends_of_the_window_belong_to_it() -> None:
    seen = Window(0.02, 25, 100).dense_mask(3, 12)
    # Query 0 stands at 0 ms, 1 at 40 ms (key 4), 2 at 80 ms (key 8); 20 ms are two keys.
    expected = [[0, 1, 2], [2, 3, 4, 5, 6], [6, 7, 8, 9, 10]]
    assert [row.nonzero().flatten().tolist() for row in seen] == expected


@pytest.mark.parametrize(("query_hz", "key_hz", "half_width_s"), [(25, 100, 0.5), (25, 30, 0.3), (100, 25, 0.11)])
def test_membership_is_the_distance_in_seconds(query_hz: float, key_hz: float, half_width_s: float) -> None:
    seen = Window(half_width_s, query_hz, key_hz).dense_mask(60, 70)
    for i in range(60):
        for j in range(70):
            assert bool(seen[i, j]) == (abs(j / key_hz - i / query_hz) <= half_width_s + 1e-6), (i, j)


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements that any operation's result had, backward operations included."""

    def __init__(self) -> None:
        super().__init__()
        self.num_elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                # A broadcast view holds only what it stores.
                stored = min(leaf.numel(), leaf.untyped_storage().nbytes() // leaf.element_size())
                self.num_elements = max(self.num_elements, stored)
        return result


def largest_tensor(num_queries: int, window: Window | None) -> int:
    (query, key, value, null_key, null_query), mask = random_case(num_queries, 4 * num_queries)
    with LargestTensor() as largest:
        if window is None:
            mask = mask & Window(0.5, 25, 100).dense_mask(num_queries, 4 * num_queries)
        output, _ = attend(query, key, value, mask, null_key=null_key, null_query=null_query, window=window)
        output.sum().backward()
    return largest.num_elements


def test_memory_grows_with_length_and_not_with_its_square() -> None:
    window = Window(0.5, 25, 100)
    short, long, longest = (largest_tensor(num_queries, window) for num_queries in (800, 1600, 3200))
    assert long <= 2.1 * short
    assert longest <= 2.1 * long
    assert longest < 3200 * 4 * 3200 / 10
    assert largest_tensor(800, None) >= 800 * 4 * 800  # the recorder does see a dense mask


def test_wrong_masks_are_named() -> None:
    (query, key, value, *_), mask = random_case(10, 40)
    window = Window(0.5, 25, 100)
    for wrong in (mask[:, 0, 0], mask.expand(2, 1, 10, 40), mask.expand(2, 2, 1, 40), mask[..., :39]):
        with pytest.raises(ValueError, match=r"takes a mask over keys of shape \(2, 1, 1, 40\)"):
            attend(query, key, value, wrong, window=window)


def test_wrong_windows_are_named() -> None:
    with pytest.raises(ValueError, match=r"29\.97/25"):
        Window(0.5, 25, 29.97)
    with pytest.raises(ValueError, match=r"half_width_s is -0\.1"):
        Window(-0.1, 25, 100)
    with pytest.raises(ValueError, match="key_hz=0"):
        Window(0.5, 25, 0)
