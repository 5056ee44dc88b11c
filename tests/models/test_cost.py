"""Costs are counted from the real modules."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from avfusion.config import Config, load_config
from avfusion.models import build_model
from avfusion.models.audio import AudioEncoder
from avfusion.models.cost import measure_cost

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def test_small_keeps_its_budget() -> None:
    cost = measure_cost(load_config(CONFIGS / "small.yaml"))
    assert cost.parameters <= 840_000
    assert cost.multiply_adds <= 40e6


def test_parts_add_up_to_the_whole() -> None:
    config = Config()
    cost = measure_cost(config)
    assert sum(parameters for parameters, _ in cost.by_part.values()) == cost.parameters
    assert abs(sum(adds for _, adds in cost.by_part.values()) - cost.multiply_adds) < 1e-6 * cost.multiply_adds
    model = build_model(config.model, config.data.num_mels)
    assert cost.parameters == sum(p.numel() for p in model.parameters())


def test_the_counter_agrees_with_a_count_by_hand() -> None:
    """One convolution (1 -> 4 channels, 40 -> 20 bands), the projection, the depthwise one and the feed-forward."""
    frames, dim = 50, 8
    encoder = AudioEncoder(dim, 40, (4,), temporal_kernel=3)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encoder(torch.zeros(1, frames, 40))
    by_hand = frames * (20 * 4 * 9 + 80 * dim + dim * 3 + 2 * dim * 2 * dim)
    assert counter.get_total_flops() / 2 == by_hand


def test_attention_is_counted() -> None:
    narrow, wide = Config(), Config()
    narrow.model.fusion.window_s, wide.model.fusion.window_s = 0.2, 1.0
    assert measure_cost(wide).by_part["fusion"][1] > measure_cost(narrow).by_part["fusion"][1]
