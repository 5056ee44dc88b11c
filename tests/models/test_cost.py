"""Costs are counted from the real modules."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from avfusion.config import Config, load_config
from avfusion.models import build_model
from avfusion.models.audio import AudioEncoder
from avfusion.models.baselines.light_style import TrackGRU
from avfusion.models.cost import measure_cost

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize("name", ["small", "ava_small"])
def test_small_keeps_its_budget(name: str) -> None:
    cost = measure_cost(load_config(CONFIGS / f"{name}.yaml"))
    assert cost.parameters <= 840_000
    assert cost.multiply_adds <= 40e6


def test_base_is_of_the_size_it_says() -> None:
    cost = measure_cost(load_config(CONFIGS / "ava_base.yaml"))
    assert 15e6 <= cost.parameters <= 25e6
    assert cost.parameters == measure_cost(load_config(CONFIGS / "unitalk.yaml")).parameters
    by_hand, dim = 5 * 49 * 64 * 56**2, 384
    for before, width, side in ((64, 64, 28), (64, 128, 14), (128, 256, 7), (256, 512, 4)):
        by_hand += side**2 * (9 * (before * width + 3 * width**2) + before * width * (before != width))
    by_hand += 9 * 4**2 * 512 + 9 * 512 * dim + 3 * dim + 4 * dim**2  # pooled, projected, and over time
    assert cost.by_part["visual"][1] == by_hand


def test_a_gru_is_counted() -> None:
    """Two directions, three gates, each from the frame and from the frame before: 12 D² a frame."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
        TrackGRU(8)(torch.empty(1, 10, 8))
    assert counter.get_total_flops() / 2 == 10 * 12 * 8**2


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
