"""Groups of parameters, learning rates by part and depth, and averaged weights, against hand-worked numbers."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from avfusion.config import TrainConfig
from avfusion.models import build_model
from avfusion.training.optim import (
    AveragedWeights,
    build_optimizer,
    depths,
    learning_rate_factor,
    parameter_norm,
    set_learning_rate,
)
from tests.training.tiny import tiny_run


def model(*overrides: str) -> nn.Module:
    return build_model(tiny_run(*overrides).model, 20)


def groups(net: nn.Module, settings: TrainConfig) -> dict[str, dict[str, float]]:
    """Learning rate and weight decay of every parameter by name."""
    optimizer = build_optimizer(net, settings)
    set_learning_rate(optimizer, 1.0)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    found = {
        names[id(parameter)]: {"lr": group["lr"], "decay": group["weight_decay"]}
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert found.keys() == set(names.values())
    return found


def test_learning_rate_warms_up_and_falls() -> None:
    factors = [learning_rate_factor(step, 100, 0.1) for step in range(100)]
    assert factors[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert factors[9] == max(factors)
    assert all(a > b for a, b in pairwise(factors[10:]))
    assert factors[-1] == pytest.approx(0.01, abs=0.002)
    assert factors[55] == pytest.approx(0.01 + 0.99 * 0.5, abs=1e-9)


def test_only_matrices_decay_and_all_learn_alike_by_default() -> None:
    found = groups(model(), TrainConfig(weight_decay=0.1))
    assert {row["lr"] for row in found.values()} == {1.0}
    for name in ("fusion.0.video_from_audio.null_key", "fusion.0.video_from_audio.norm.scale", "head.bias"):
        assert found[name]["decay"] == 0, name
    for name in ("head.weight", "visual.stem.0.weight", "temporal.0.attention.qkv.weight"):
        assert found[name]["decay"] == 0.1, name
    assert len(build_optimizer(model(), TrainConfig()).param_groups) == 2


def test_parts_have_their_own_rate_and_decay() -> None:
    settings = TrainConfig(weight_decay=0.1)
    settings.lr_scale.visual, settings.lr_scale.heads, settings.decay_of.audio = 0.25, 4.0, 0.5
    found = groups(model(), settings)
    assert found["visual.stem.0.weight"] == {"lr": 0.25, "decay": 0.1}
    assert found["visual.norm.bias"] == {"lr": 0.25, "decay": 0.0}
    assert found["head.weight"] == {"lr": 4.0, "decay": 0.1}
    assert found["audio_contrast.weight"] == {"lr": 4.0, "decay": 0.1}
    assert found["audio.project.weight"] == {"lr": 1.0, "decay": 0.5}
    assert found["audio.project.bias"] == {"lr": 1.0, "decay": 0.0}
    assert found["fusion.0.video_from_audio.query.weight"] == {"lr": 1.0, "decay": 0.1}


def test_lower_layers_learn_more_slowly() -> None:
    net = model("--model.temporal.layers=2", "--model.fusion.layers=2")
    found = depths(net)
    by_hand = {
        "head.weight": 0, "video_contrast.weight": 0, "temporal.1.attention.qkv.weight": 1,
        "temporal.0.attention.qkv.weight": 2, "fusion.1.norm.weight": 3, "fusion.0.norm.weight": 4,
        "visual.project.weight": 5, "visual.temporal.depthwise.weight": 5, "visual.stages.0.convolve1.weight": 6,
        "visual.stem.0.weight": 7, "audio.norm.weight": 5, "audio.convolutions.0.weight": 6,
    }  # fmt: skip
    assert {name: found[name] for name in by_hand} == by_hand
    rates = groups(net, TrainConfig(layer_decay=0.5))
    assert {rates[name]["lr"] / 0.5**depth for name, depth in by_hand.items()} == {1.0}


def test_a_part_held_still_does_not_move() -> None:
    net = model()
    settings = TrainConfig()
    settings.lr_scale.visual = 0.0
    optimizer = build_optimizer(net, settings)
    set_learning_rate(optimizer, 0.1)
    before = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    moved = {name for name, parameter in net.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == {name for name in before if not name.startswith("visual.")}


def test_averaged_weights_by_hand() -> None:
    """decay 0.5, warmed up by (1 + n) / (10 + n): after steps 0, 1 and 8 it is 0.1, 2/11, then 0.5."""
    net = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(net.weight)
    average = AveragedWeights(net, 0.5)
    expected = 0.0
    for steps, weight, decay in ((0, 1.0, 0.1), (1, 2.0, 2 / 11), (8, 4.0, 0.5)):
        nn.init.constant_(net.weight, weight)
        average.update(net, steps)
        expected = decay * expected + (1 - decay) * weight
        assert average.model.weight.item() == pytest.approx(expected, rel=1e-6)
    assert net.weight.item() == 4.0
    assert not average.model.weight.requires_grad


def test_parameter_norm_by_hand() -> None:
    net = nn.Linear(2, 1)
    nn.init.constant_(net.weight, 2.0)
    nn.init.constant_(net.bias, 1.0)
    assert parameter_norm(net).item() == pytest.approx(3.0)
