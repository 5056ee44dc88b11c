"""The one attention function against hand-worked numbers, its own two paths, and the known faults A01, A02, A05-A08."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from avfusion.models.dot_product import attend
from avfusion.models.window import Window

DEVICES = [
    "cpu",
    *(["cuda"] if torch.cuda.is_available() else []),
    *(["mps"] if torch.backends.mps.is_available() else []),
]


def random_inputs(num_queries: int = 7, num_keys: int = 11, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    return {
        "query": torch.randn(3, 2, num_queries, 8, dtype=dtype, requires_grad=True),
        "key": torch.randn(3, 2, num_keys, 8, dtype=dtype, requires_grad=True),
        "value": torch.randn(3, 2, num_keys, 5, dtype=dtype, requires_grad=True),
    }


def key_mask(num_keys: int = 11) -> Tensor:
    """Three rows: all keys real, the last four padded, none real."""
    mask = torch.ones(3, 1, 1, num_keys, dtype=torch.bool)
    mask[1, ..., -4:] = False
    mask[2] = False
    return mask


def masks() -> dict[str, Tensor | None]:
    torch.manual_seed(3)
    any_shape = torch.rand(3, 2, 7, 11) > 0.5
    any_shape[0, 1, 4] = False
    return {"none": None, "keys": key_mask(), "full": any_shape, "query by key": any_shape[0, 1]}


@pytest.mark.parametrize("fused", [True, False])
def test_hand_worked_weights(fused: bool) -> None:
    query = torch.ones(1, 1, 1, 4)
    logits = torch.tensor([0.0, math.log(3.0)])
    key = (logits / 2)[None, None, :, None].expand(1, 1, 2, 4)  # four times l/2, over sqrt(4): l
    value = torch.tensor([4.0, 8.0]).reshape(1, 1, 2, 1)
    output, weights = attend(query, key, value, need_weights=True, fused=fused)
    torch.testing.assert_close(weights.flatten(), torch.tensor([0.25, 0.75]))
    torch.testing.assert_close(output.flatten(), torch.tensor([7.0]))

    null_key = torch.full((1, 4), math.log(4.0) / 2)  # as heavy as both keys together
    output, weights = attend(query, key, value, null_key=null_key, need_weights=True, fused=fused)
    torch.testing.assert_close(weights.flatten(), torch.tensor([0.125, 0.375]))
    torch.testing.assert_close(output.flatten(), torch.tensor([3.5]))

    # Another query compares itself with the null key: logit ln 4 doubled is ln 16.
    output, weights = attend(query, key, value, null_key=null_key, null_query=2 * query, need_weights=True, fused=fused)
    torch.testing.assert_close(weights.flatten(), torch.tensor([0.05, 0.15]))
    torch.testing.assert_close(output.flatten(), torch.tensor([1.4]))


@pytest.mark.parametrize("with_null", [False, True])
@pytest.mark.parametrize("name", ["none", "keys", "full", "query by key"])
def test_the_two_paths_agree(name: str, with_null: bool) -> None:
    torch.manual_seed(0)
    mask, inputs = masks()[name], random_inputs()
    null_key = torch.randn(2, 8) if with_null else None
    fused, no_weights = attend(**inputs, mask=mask, null_key=null_key)
    explicit, _ = attend(**inputs, mask=mask, null_key=null_key, fused=False)
    with_weights, weights = attend(**inputs, mask=mask, null_key=null_key, need_weights=True)
    assert no_weights is None
    assert torch.equal(fused, with_weights)
    torch.testing.assert_close(fused, explicit, rtol=0, atol=1e-5)
    torch.testing.assert_close(weights @ inputs["value"], explicit, rtol=0, atol=1e-5)
    direction = torch.randn_like(fused)
    fused_grads = torch.autograd.grad((fused * direction).sum(), list(inputs.values()))
    explicit_grads = torch.autograd.grad((explicit * direction).sum(), list(inputs.values()))
    for ours, theirs in zip(fused_grads, explicit_grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["none", "keys", "full"])
def test_rows_sum_to_one_and_padded_keys_weigh_nothing(name: str) -> None:
    torch.manual_seed(0)
    mask = masks()[name]
    _, weights = attend(**random_inputs(), mask=mask, need_weights=True)
    real = torch.ones(3, 2, 7, 11, dtype=torch.bool) if mask is None else mask.expand(3, 2, 7, 11)
    assert (weights[~real] == 0).all()
    torch.testing.assert_close(weights.sum(-1), real.any(-1).float())


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("window", [None, Window(0.04, 25, 25)])
def test_a01_rows_without_a_real_key(fused: bool, window: Window | None) -> None:
    torch.manual_seed(0)
    inputs = random_inputs()
    output, weights = attend(**inputs, mask=key_mask(), window=window, need_weights=True, fused=fused)
    assert (output[2] == 0).all()
    assert (weights[2] == 0).all()
    grads = torch.autograd.grad(output.sum() + (weights**2).sum(), list(inputs.values()))
    for grad in grads:
        assert grad.isfinite().all()
        assert (grad[2] == 0).all()
        assert (grad[0] != 0).any()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("window", [None, Window(0.12, 25, 25)])
def test_a02_padded_keys_move_nothing(seed: int, fused: bool, window: Window | None) -> None:
    torch.manual_seed(seed)
    inputs = random_inputs()
    mask = key_mask()
    padded = ~mask.squeeze(1).squeeze(1)
    before, weights = attend(**inputs, mask=mask, window=window, need_weights=True, fused=fused)
    noisy = {name: x.detach().clone() for name, x in inputs.items()}
    for name in ("key", "value"):
        noisy[name].transpose(1, 2)[padded] = 100 * torch.randn(int(padded.sum()), 2, noisy[name].shape[-1])
    after, noisy_weights = attend(**noisy, mask=mask, window=window, need_weights=True, fused=fused)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)
    torch.testing.assert_close(noisy_weights, weights, rtol=0, atol=1e-6)
    key_grad, value_grad = torch.autograd.grad(before.square().sum(), [inputs["key"], inputs["value"]])
    for grad in (key_grad, value_grad):
        assert (grad.transpose(1, 2)[padded] == 0).all()
        assert (grad.transpose(1, 2)[~padded] != 0).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8])
def test_a05_a_mask_that_is_not_bool_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=rf"{dtype}, expected torch.bool with True = real key"):
        attend(**random_inputs(), mask=key_mask().to(dtype))


def test_a05_an_additive_mask_is_refused() -> None:
    additive = torch.zeros(3, 1, 1, 11).masked_fill(~key_mask(), float("-inf"))
    with pytest.raises(TypeError, match="mask == 0 for additive"):
        attend(**random_inputs(), mask=additive)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("window", [None, Window(0.12, 25, 25)])
def test_a06_half_precision_with_padding(dtype: torch.dtype, fused: bool, window: Window | None) -> None:
    torch.manual_seed(0)
    inputs = random_inputs()
    null_key = torch.randn(2, 8)
    for null in (None, null_key):
        exact, exact_weights = attend(**inputs, mask=key_mask(), null_key=null, window=window, need_weights=True)
        half = {name: x.detach().to(dtype).requires_grad_() for name, x in inputs.items()}
        output, weights = attend(**half, mask=key_mask(), null_key=null, window=window, need_weights=True, fused=fused)
        assert output.dtype == dtype
        assert weights.dtype == torch.float32
        torch.testing.assert_close(output.float(), exact, rtol=0, atol=0.05)
        torch.testing.assert_close(weights, exact_weights, rtol=0, atol=0.01)
        for grad in torch.autograd.grad(output.float().sum(), list(half.values())):
            assert grad.isfinite().all()


def test_a06_large_half_precision_logits_do_not_overflow() -> None:
    query = torch.full((1, 1, 1, 64), 60.0, dtype=torch.float16)
    key = torch.stack([query, -query], dim=-2).reshape(1, 1, 2, 64)  # products of 230400, over 65504
    value = torch.tensor([1.0, 2.0], dtype=torch.float16).reshape(1, 1, 2, 1)
    output, weights = attend(query, key, value, need_weights=True, fused=False)
    assert weights.flatten().tolist() == [1.0, 0.0]
    assert output.item() == 1.0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("window", [None, Window(0.12, 25, 25)])
def test_a08_devices_agree_on_masked_rows(device: str, window: Window | None) -> None:
    torch.manual_seed(0)
    inputs = random_inputs()
    null_key = torch.randn(2, 8)
    for null in (None, null_key):
        exact, exact_weights = attend(
            **inputs, mask=key_mask(), null_key=null, window=window, need_weights=True, fused=False
        )
        moved = {name: x.detach().to(device).requires_grad_() for name, x in inputs.items()}
        output, weights = attend(
            **moved,
            mask=key_mask().to(device),
            null_key=None if null is None else null.to(device),
            window=window,
            need_weights=True,
        )
        torch.testing.assert_close(output.cpu(), exact, rtol=0, atol=1e-3)
        torch.testing.assert_close(weights.cpu(), exact_weights, rtol=0, atol=1e-3)
        ours = torch.autograd.grad(output.square().sum(), list(moved.values()))
        theirs = torch.autograd.grad(exact.square().sum(), list(inputs.values()))
        for grad, reference in zip(ours, theirs, strict=True):
            torch.testing.assert_close(grad.cpu(), reference, rtol=0, atol=1e-3)


@pytest.mark.parametrize("fused", [True, False])
def test_the_null_key_takes_what_no_key_gets(fused: bool) -> None:
    torch.manual_seed(0)
    inputs = random_inputs()
    null_key = torch.randn(2, 8, requires_grad=True)
    output, weights = attend(**inputs, mask=key_mask(), null_key=null_key, need_weights=True, fused=fused)
    # The reference: one more key in the ordinary softmax, with a value of zero.
    key = torch.cat([inputs["key"], null_key[None, :, None].expand(3, 2, 1, 8)], dim=2)
    mask = torch.cat([key_mask(), torch.ones(3, 1, 1, 1, dtype=torch.bool)], dim=-1)
    logits = (inputs["query"] @ key.mT / math.sqrt(8)).masked_fill(~mask, float("-inf"))
    reference = logits.softmax(-1)
    torch.testing.assert_close(1 - weights.sum(-1), reference[..., -1], rtol=0, atol=1e-6)
    torch.testing.assert_close(weights, reference[..., :-1], rtol=0, atol=1e-6)
    torch.testing.assert_close(output, reference[..., :-1] @ inputs["value"], rtol=0, atol=1e-6)
    # Without a real key it takes all.
    assert (weights[2] == 0).all()
    assert (output[2] == 0).all()
    (grad,) = torch.autograd.grad(output.square().sum(), [null_key])
    assert grad.isfinite().all()
    assert (grad != 0).all()


def test_null_query_needs_a_null_key() -> None:
    inputs = random_inputs()
    with pytest.raises(ValueError, match="null_query is given without null_key"):
        attend(**inputs, null_query=inputs["query"])


def test_float64_stays_float64() -> None:
    torch.manual_seed(0)
    inputs = random_inputs(dtype=torch.float64)
    output, weights = attend(**inputs, mask=key_mask(), need_weights=True)
    single, single_weights = attend(**{k: x.float() for k, x in inputs.items()}, mask=key_mask(), need_weights=True)
    assert output.dtype == weights.dtype == torch.float64
    torch.testing.assert_close(output.float(), single, rtol=0, atol=1e-6)
    torch.testing.assert_close(weights.float(), single_weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("window", [None, Window(0.04, 25, 50)])
@pytest.mark.parametrize("null", [False, True])
def test_gradients_equal_finite_differences(fused: bool, window: Window | None, null: bool) -> None:
    torch.manual_seed(0)
    shapes = [(2, 1, 3, 2), (2, 1, 6, 2), (2, 1, 6, 2)] + ([(1, 2), (2, 1, 3, 2)] if null else [])
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    mask = torch.tensor([[1, 1, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0]]).bool()[:, None, None]

    def run(query: Tensor, key: Tensor, value: Tensor, *nulls: Tensor) -> tuple[Tensor, Tensor | None]:
        options: dict[str, Any] = dict(zip(("null_key", "null_query"), nulls, strict=False))
        return attend(query, key, value, mask, **options, window=window, need_weights=True, fused=fused)

    assert torch.autograd.gradcheck(run, inputs)


def test_dropout_leaves_the_returned_weights_whole() -> None:
    torch.manual_seed(0)
    inputs = random_inputs()
    kept, whole = attend(**inputs, need_weights=True, fused=False)
    for fused in (True, False):
        torch.manual_seed(1)
        output, weights = attend(**inputs, dropout=0.5, need_weights=True, fused=fused)
        torch.manual_seed(1)
        unasked, _ = attend(**inputs, dropout=0.5, fused=fused)
        torch.testing.assert_close(weights, whole, rtol=0, atol=1e-6)
        assert torch.equal(output, unasked)
        assert (output - kept).abs().max() > 0.1
