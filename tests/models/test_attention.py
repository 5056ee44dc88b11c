"""The attention modules against torch.nn.MultiheadAttention and under padding, and the capture of their weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from avfusion.models.attention import (
    MultiHeadCrossAttention,
    MultiHeadSelfAttention,
    SelfAttention,
    capture_attention,
)

DEVICES = [
    "cpu",
    *(["cuda"] if torch.cuda.is_available() else []),
    *(["mps"] if torch.backends.mps.is_available() else []),
]
ALL_OPTIONS: dict[str, Any] = {"window_s": 0.2, "rotary": True, "qk_norm": True}


def full_cross(**changes: Any) -> MultiHeadCrossAttention:
    """Cross-attention 25 to 100 Hz with every option, its null key and norms away from where they start."""
    options = {"context_dim": 12, "query_hz": 25, "key_hz": 100, "null_key": True, **ALL_OPTIONS, **changes}
    module = MultiHeadCrossAttention(16, 4, **options)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in ("null_key", "norm.scale"):
                parameter.normal_(1.0, 0.5)
    return module


def frame_mask(lengths: list[int], num_frames: int) -> Tensor:
    return torch.arange(num_frames) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lengths", [None, [9, 4, 1]])
def test_self_attention_equals_torch(bias: bool, lengths: list[int] | None) -> None:
    torch.manual_seed(0)
    ours = MultiHeadSelfAttention(16, 4, bias=bias)
    theirs = nn.MultiheadAttention(16, 4, bias=bias, batch_first=True)
    names = {"qkv.weight": "in_proj_weight", "qkv.bias": "in_proj_bias", "out.weight": "out_proj.weight"}
    names["out.bias"] = "out_proj.bias"
    theirs.load_state_dict({names[name]: tensor for name, tensor in ours.state_dict().items()})
    x = torch.randn(3, 9, 16)
    mask = None if lengths is None else frame_mask(lengths, 9)
    output, weights = ours(x, mask, need_weights=True)
    padding = None if mask is None else ~mask
    expected, expected_weights = theirs(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-6)
    assert torch.equal(ours(x, mask), output)


@pytest.mark.parametrize("context_dim", [None, 10])
@pytest.mark.parametrize("lengths", [None, [21, 5, 1]])
def test_cross_attention_equals_torch(context_dim: int | None, lengths: list[int] | None) -> None:
    torch.manual_seed(0)
    ours = MultiHeadCrossAttention(16, 4, context_dim=context_dim)
    width = context_dim or 16
    theirs = nn.MultiheadAttention(16, 4, kdim=width, vdim=width, batch_first=True)
    key, value = ours.key_value.weight.chunk(2)
    weights_by_name = {"q_proj_weight": ours.query.weight, "k_proj_weight": key, "v_proj_weight": value}
    if context_dim is None:
        weights_by_name = {"in_proj_weight": torch.cat([ours.query.weight, ours.key_value.weight])}
    theirs.load_state_dict(
        {
            **weights_by_name,
            "in_proj_bias": torch.cat([ours.query.bias, ours.key_value.bias]),
            "out_proj.weight": ours.out.weight,
            "out_proj.bias": ours.out.bias,
        }
    )
    x, context = torch.randn(3, 9, 16), torch.randn(3, 21, width)
    mask = None if lengths is None else frame_mask(lengths, 21)
    output, weights = ours(x, context, mask, need_weights=True)
    padding = None if mask is None else ~mask
    expected, expected_weights = theirs(x, context, context, key_padding_mask=padding, average_attn_weights=False)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-6)


def test_single_head_equals_torch() -> None:
    torch.manual_seed(0)
    ours = SelfAttention(10, 6)
    x, mask = torch.randn(3, 9, 10), frame_mask([9, 4, 1], 9)
    theirs = nn.MultiheadAttention(6, 1, bias=False, batch_first=True)
    theirs.load_state_dict({"in_proj_weight": torch.eye(6).repeat(3, 1), "out_proj.weight": torch.eye(6)})
    expected, expected_weights = theirs(
        ours.query(x), ours.key(x), ours.value(x), key_padding_mask=~mask, average_attn_weights=False
    )
    output, weights = ours(x, mask, need_weights=True)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-6)
    assert {name for name, _ in ours.named_parameters()} == {"query.weight", "key.weight", "value.weight"}


def test_query_key_norm_takes_the_length_and_leaves_the_scale() -> None:
    torch.manual_seed(0)
    module = MultiHeadCrossAttention(64, 2, qk_norm=True, bias=False)
    x, context = torch.randn(2, 50, 64), torch.randn(2, 60, 64)
    _, weights = module(x, context, need_weights=True)
    _, longer = module(1000 * x, 10 * context, need_weights=True)
    torch.testing.assert_close(longer, weights, rtol=0, atol=1e-5)
    log_weights = weights.log()
    logits = log_weights - log_weights.mean(-1, keepdim=True)
    assert 0.8 < logits.std() < 1.2  # moderate at the initial scale of 1
    with torch.no_grad():
        assert module.norm is not None
        module.norm.scale.copy_(torch.tensor([0.0, 3.0]))
    _, scaled = module(x, context, need_weights=True)
    torch.testing.assert_close(scaled[:, 0], torch.full((2, 50, 60), 1 / 60))
    torch.testing.assert_close(scaled[:, 1], (3 * logits[:, 1]).softmax(-1), rtol=0, atol=1e-5)


def test_the_null_key_starts_as_heavy_as_the_keys_in_reach() -> None:
    torch.manual_seed(0)
    module = MultiHeadCrossAttention(16, 2, query_hz=25, key_hz=100, null_key=True, **ALL_OPTIONS)
    x, context = torch.randn(1, 30, 16), torch.randn(1, 120, 16)
    _, weights = module(x, context, need_weights=True)
    share = 1 - weights.sum(-1)
    # exp(bias) = 41 keys against 41 of logits with deviation 1, whose mean exponential is exp(1/2): 1 / (1 + 1.65)
    assert 0.3 < share.mean() < 0.5
    torch.testing.assert_close(module.null_bias, torch.full((2,), math.log(41.0)))
    with torch.no_grad():
        assert module.norm is not None
        module.norm.scale.zero_()  # every key has logit 0: 41 of weight 1 against one of weight 41
    _, weights = module(x, context, need_weights=True)
    torch.testing.assert_close(1 - weights.sum(-1)[0, :, 10], torch.full((2,), 0.5))


def test_no_sound_adds_exactly_nothing() -> None:
    torch.manual_seed(0)
    x, context, mask = torch.randn(2, 8, 16), torch.randn(2, 32, 12), frame_mask([32, 0], 32)
    output, weights = full_cross()(x, context, mask, need_weights=True)
    assert (output[1] == 0).all()
    assert (weights[1] == 0).all()
    assert (output[0] != 0).any()
    without_null = full_cross(null_key=False)
    torch.testing.assert_close(without_null(x, context, mask)[1], without_null.out.bias.expand(8, 16))


def test_a_frame_is_told_the_same_wherever_the_clip_begins() -> None:
    torch.manual_seed(0)
    module, between = full_cross(), MultiHeadSelfAttention(16, 2, hz=25, **ALL_OPTIONS)
    x, context = torch.randn(1, 400, 16), torch.randn(1, 1600, 12)
    whole, whole_weights = module(x, context, need_weights=True)
    part, part_weights = module(x[:, 203:303], context[:, 812:1212], need_weights=True)
    inside = slice(5, 95)  # frames whose window of five frames lies within the part
    torch.testing.assert_close(part[:, inside], whole[:, 203:303][:, inside], rtol=0, atol=1e-5)
    torch.testing.assert_close(
        part_weights[:, :, inside], whole_weights[:, :, 203:303, 812:1212][:, :, inside], rtol=0, atol=1e-6
    )
    moved = between(x[:, 203:303])
    torch.testing.assert_close(moved[:, inside], between(x)[:, 203:303][:, inside], rtol=0, atol=1e-5)


Run = Callable[[nn.Module, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def run_self(module: nn.Module, x: Tensor, context: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    output, weights = module(context, mask, need_weights=True)
    return output, weights


def run_cross(module: nn.Module, x: Tensor, context: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    output, weights = module(x, context, mask, need_weights=True)
    return output, weights


MODULES: dict[str, tuple[Callable[[], nn.Module], Run]] = {
    "single head": (lambda: SelfAttention(12, 8), run_self),
    "self": (lambda: MultiHeadSelfAttention(12, 2), run_self),
    "self, all options": (lambda: MultiHeadSelfAttention(12, 2, hz=100, **ALL_OPTIONS), run_self),
    "cross": (lambda: MultiHeadCrossAttention(16, 4, context_dim=12), run_cross),
    "cross, all options": (full_cross, run_cross),
    "cross, no null key": (lambda: full_cross(null_key=False), run_cross),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", MODULES)
def test_a02_a07_padding_moves_nothing(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    make, run = MODULES[name]
    module = make()
    x, context = torch.randn(2, 8, 16), torch.randn(2, 32, 12)
    lengths = [32, 19]
    alone, alone_weights = run(module, x, context, frame_mask(lengths, 32))
    # Noise instead of the padding, and five more frames than the longest clip has.
    padded = torch.cat([context, torch.zeros(2, 5, 12)], dim=1)
    mask = frame_mask(lengths, 37)
    padded[~mask] = 10 * torch.randn(int((~mask).sum()), 12)
    padded.requires_grad_()
    output, weights = run(module, x, padded, mask)
    assert output.shape[1] == (37 if run is run_self else 8)
    assert weights.shape[-1] == 37
    rows = mask if run is run_self else torch.ones(2, 8, dtype=torch.bool)
    assert (weights.transpose(1, 2)[rows].sum(-1) > 0).all()
    assert (weights.permute(0, 3, 1, 2)[~mask] == 0).all()
    for b, length in enumerate(lengths if run is run_self else [8, 8]):
        torch.testing.assert_close(output[b, :length], alone[b, :length], rtol=0, atol=1e-6)
        torch.testing.assert_close(weights[b, :, :length, :32], alone_weights[b, :, :length], rtol=0, atol=1e-6)
    (grad,) = torch.autograd.grad(output[rows].square().sum(), [padded])
    assert (grad[~mask] == 0).all()
    assert (grad[mask] != 0).any()


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_a01_a_wholly_masked_clip_changes_no_gradient(name: str, need_weights: bool) -> None:
    torch.manual_seed(0)
    make, run = MODULES[name]
    module = make()
    x, context, mask = torch.randn(2, 8, 16), torch.randn(2, 32, 12), frame_mask([32, 0], 32)
    output, weights = run(module, x, context, mask)
    assert output.isfinite().all()
    assert (weights[1] == 0).all()
    if not need_weights:
        output = module(context, mask) if run is run_self else module(x, context, mask)
    parameters = list(module.parameters())
    grads = torch.autograd.grad(output[0].square().sum(), parameters, retain_graph=True)
    alone, _ = run(module, x[:1], context[:1], mask[:1])
    expected = torch.autograd.grad(alone[0].square().sum(), parameters)
    for grad, reference in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, reference, rtol=1e-5, atol=1e-5)
    for grad in torch.autograd.grad(output.square().sum(), parameters, allow_unused=True):
        assert grad is None or grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MODULES)
def test_a06_autocast_with_a_wholly_masked_clip(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    make, run = MODULES[name]
    module = make()
    x, context, mask = torch.randn(2, 8, 16), torch.randn(2, 32, 12), frame_mask([19, 0], 32)
    exact, exact_weights = run(module, x, context, mask)
    with torch.autocast("cpu", dtype=dtype):
        output, weights = run(module, x, context, mask)
    torch.testing.assert_close(output.float(), exact, rtol=0, atol=0.05)
    torch.testing.assert_close(weights.float(), exact_weights, rtol=0, atol=0.05)
    output.float().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MODULES)
def test_a08_devices_agree(name: str, device: str) -> None:
    torch.manual_seed(0)
    make, run = MODULES[name]
    module = make()
    x, context, mask = torch.randn(2, 8, 16), torch.randn(2, 32, 12), frame_mask([19, 0], 32)
    exact, exact_weights = run(module.double(), x.double(), context.double(), mask)
    output, weights = run(module.float().to(device), x.to(device), context.to(device), mask.to(device))
    assert output.device.type == device
    torch.testing.assert_close(output.cpu().double(), exact, rtol=0, atol=1e-3)
    torch.testing.assert_close(weights.cpu().double(), exact_weights, rtol=0, atol=1e-3)


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 8, 16)
    with_dropout, without = MultiHeadSelfAttention(16, 4, dropout=0.5), MultiHeadSelfAttention(16, 4)
    with_dropout.load_state_dict(without.state_dict())
    assert (with_dropout(x) - without(x)).abs().max() > 0.01
    assert torch.equal(with_dropout.eval()(x), without(x))


class Toy(nn.Module):
    """All three kinds; ``shared`` runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.cross = full_cross(dropout=0.1)
        self.blocks = nn.ModuleList([MultiHeadSelfAttention(16, 2, dropout=0.1)])
        self.shared = SelfAttention(16, 16)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        x = self.cross(x, context)
        x = self.blocks[0](x)
        result: Tensor = self.shared(self.shared(x))
        return result


@pytest.mark.parametrize("training", [True, False])
def test_capture_changes_no_score(training: bool) -> None:
    torch.manual_seed(0)
    model = Toy().train(training)
    x, context = torch.randn(2, 8, 16), torch.randn(2, 32, 12)
    torch.manual_seed(1)
    before = model(x, context)
    before_grads = torch.autograd.grad(before.sum(), list(model.parameters()))
    state = copy.deepcopy(model.state_dict())
    torch.manual_seed(1)
    with capture_attention(model) as maps:
        during = model(x, context)
    during_grads = torch.autograd.grad(during.sum(), list(model.parameters()))
    torch.manual_seed(1)
    after = model(x, context)
    assert torch.equal(before, during)
    assert torch.equal(before, after)
    assert all(torch.equal(a, b) for a, b in zip(before_grads, during_grads, strict=True))
    assert state.keys() == model.state_dict().keys()
    assert {name: tuple(weights.shape) for name, weights in maps.items()} == {
        "cross": (2, 4, 8, 32),
        "blocks.0": (2, 2, 8, 8),
        "shared": (2, 1, 8, 8),
    }
    assert not any(weights.requires_grad for weights in maps.values())


def test_capture_holds_the_weights_that_the_module_returns_and_the_last_of_several_runs() -> None:
    torch.manual_seed(0)
    model = Toy().eval()
    x, context = torch.randn(2, 8, 16), torch.randn(2, 32, 12)
    with capture_attention(model) as maps:
        model(torch.randn(2, 8, 16), context)
        model(x, context)
    fused, cross = model.cross(x, context, need_weights=True)
    mixed, within = model.blocks[0](fused, need_weights=True)
    _, last = model.shared(model.shared(mixed), need_weights=True)
    assert torch.equal(maps["cross"], cross)
    assert torch.equal(maps["blocks.0"], within)
    assert torch.equal(maps["shared"], last)


def test_capture_ends_with_an_exception_and_listens_no_longer() -> None:
    torch.manual_seed(0)
    model = Toy()
    x, context = torch.randn(2, 8, 16), torch.randn(2, 32, 12)
    with pytest.raises(KeyError, match="inside"), capture_attention(model) as maps:
        raise KeyError("inside")
    model(x, context)
    assert maps == {}
    assert isinstance(model.cross(x, context), Tensor)


def test_captures_nest() -> None:
    torch.manual_seed(0)
    model = Toy().eval()
    x, context = torch.randn(2, 8, 16), torch.randn(2, 32, 12)
    with capture_attention(model) as outer:
        with capture_attention(model.cross) as inner:
            model(x, context)
        assert torch.equal(inner[""], outer["cross"])
        first = inner[""].clone()
        model(-x, context)
    assert torch.equal(inner[""], first)  # closed, so the second run is the outer one's alone
    assert (outer["cross"] - first).abs().max() > 1e-3


def test_captured_maps_are_float32_on_the_cpu() -> None:
    torch.manual_seed(0)
    module = MultiHeadSelfAttention(16, 2).double()
    with capture_attention(module) as maps:
        output = module(torch.randn(1, 5, 16, dtype=torch.float64))
    assert output.dtype == torch.float64
    assert maps[""].dtype == torch.float32
    torch.testing.assert_close(maps[""].sum(-1), torch.ones(1, 2, 5))


def test_wrong_constructions_are_named() -> None:
    with pytest.raises(ValueError, match="embed_dim 10 does not split into num_heads 4"):
        MultiHeadSelfAttention(10, 4)
    with pytest.raises(ValueError, match="embed_dim 10 does not split into num_heads 4"):
        MultiHeadCrossAttention(10, 4)
    with pytest.raises(ValueError, match="give hz"):
        MultiHeadSelfAttention(16, 4, window_s=0.5)
    with pytest.raises(ValueError, match="give query_hz and key_hz"):
        MultiHeadCrossAttention(16, 4, query_hz=25, rotary=True)
    with pytest.raises(ValueError, match="width per head is 3, expected even"):
        MultiHeadSelfAttention(12, 4, hz=25, rotary=True)


def test_wrong_masks_are_named() -> None:
    x, context = torch.zeros(2, 8, 16), torch.zeros(2, 32, 16)
    module = MultiHeadCrossAttention(16, 4)
    with pytest.raises(ValueError, match=r"mask has shape \(2, 8\), expected \(2, 32\)"):
        module(x, context, torch.ones(2, 8, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"expected torch\.bool"):
        module(x, context, torch.ones(2, 32))


def test_hand_worked_cross_attention() -> None:
    # One head, one query, two keys; every projection is the identity.
    module = MultiHeadCrossAttention(2, 1, bias=False)
    with torch.no_grad():
        module.query.weight.copy_(torch.eye(2))
        module.key_value.weight.copy_(torch.eye(2).repeat(2, 1))
        module.out.weight.copy_(torch.eye(2))
    x = torch.tensor([[[math.sqrt(2.0), 0.0]]])
    context = torch.tensor([[[math.log(9.0), 1.0], [0.0, 11.0]]])  # logits ln 9 and 0: weights 0.9 and 0.1
    output, weights = module(x, context, need_weights=True)
    torch.testing.assert_close(weights.flatten(), torch.tensor([0.9, 0.1]))
    torch.testing.assert_close(output.flatten(), torch.tensor([0.9 * math.log(9.0), 2.0]))


def test_content_is_the_cosine_of_queries_and_keys_before_positions_turn_them():
    torch.manual_seed(0)
    module = MultiHeadCrossAttention(16, 2, query_hz=25, key_hz=100, rotary=True, qk_norm=True, null_key=True)
    x, context = torch.randn(1, 3, 16), torch.randn(1, 12, 16)
    query, key = module.content(x, context)
    expected = torch.zeros(3, 12)
    for head in range(2):
        part = slice(8 * head, 8 * head + 8)
        q, k = module.query(x)[0, :, part], module.key_value(context)[0, :, part]
        expected += torch.nn.functional.cosine_similarity(q[:, None], k[None], dim=-1) / 2
    torch.testing.assert_close(query[0] @ key[0].T, expected)
    torch.testing.assert_close(query.norm(dim=-1), torch.ones(1, 3))
    # Without positions and null key it is what the softmax sees: the logits are the cosines times sqrt(8).
    plain = MultiHeadCrossAttention(8, 1, qk_norm=True)
    x, context = torch.randn(1, 3, 8), torch.randn(1, 12, 8)
    query, key = plain.content(x, context)
    _, weights = plain(x, context, need_weights=True)
    torch.testing.assert_close(weights[0, 0], (query[0] @ key[0].T * 8**0.5).softmax(-1), atol=1e-5, rtol=1e-4)


def test_pooled_keys_are_keys_of_pooled_sound() -> None:
    torch.manual_seed(0)
    pooled, plain = full_cross(key_pool=4), full_cross(key_hz=25)
    plain.load_state_dict({**pooled.state_dict(), "null_bias": pooled.null_bias})
    x, context = torch.randn(2, 10, 16), torch.randn(2, 40, 12)
    mask = frame_mask([40, 18], 40)  # the last real key of the second is the mean of two frames
    coarse = torch.stack([context[:, 4 * t : 4 * t + 4].mean(dim=1) for t in range(10)], dim=1)
    coarse[1, 4] = context[1, 16:18].mean(dim=0)
    expected, expected_weights = plain(x, coarse, frame_mask([10, 5], 10), need_weights=True)
    output, weights = pooled(x, context, mask, need_weights=True)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)
    assert weights.shape == (2, 4, 10, 40)
    torch.testing.assert_close(weights.unflatten(-1, (10, 4)).sum(dim=-1), expected_weights, rtol=0, atol=1e-6)
    assert torch.equal(weights[..., 0::4], weights[..., 3::4])
    with capture_attention(pooled) as maps:
        pooled(x, context, mask)
    torch.testing.assert_close(maps[""], weights, rtol=0, atol=1e-6)
    torch.testing.assert_close(
        pooled.value_norms(context)[0, :, ::4], plain.value_norms(coarse)[0], rtol=1e-5, atol=1e-6
    )
    with pytest.raises(ValueError, match="38 frames of context, expected a multiple of key_pool 4"):
        pooled(x, context[:, :38])
