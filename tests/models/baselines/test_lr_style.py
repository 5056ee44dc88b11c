"""The LR-ASD-style parts: published sizes, kernels in turn against 3D convolutions, channels weighed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from avfusion.config import load_config
from avfusion.models import build_model
from avfusion.models.baselines.lr_style import AudioTurns, VisualTurns, WeighedFusion, WeighedGRU, WeighedStreams
from avfusion.models.cost import measure_cost

CONFIG = Path(__file__).resolve().parents[3] / "configs" / "lr_style.yaml"


def test_of_the_published_widths_it_has_the_published_size() -> None:
    """0.84 M parameters and 166 M multiply-adds, without what is ours: projections, the contrast, the sound's head."""
    config = load_config(CONFIG)
    with torch.device("meta"):
        model = build_model(config.model, config.data.num_mels)
    ours = ("project", "contrast", "audio_head", "visual.norm.", "audio.norm.", "head_norm")
    published = sum(p.numel() for name, p in model.named_parameters() if not any(part in name for part in ours))
    assert 0.835e6 < published < 0.845e6
    cost = measure_cost(config)
    assert cost.multiply_adds == pytest.approx(166e6, rel=0.002)
    by_hand = 0
    for before, width, side in ((1, 32, 56), (32, 64, 28), (64, 128, 14)):
        by_hand += side**2 * (before * width // 2 * 25 + width // 2 * width * 9 + width * width * (5 + 3))
    assert cost.by_part["visual"][1] == by_hand + 128 * 128  # and the projection


def test_a_visual_block_is_its_four_convolutions_in_turn() -> None:
    torch.manual_seed(0)
    block = VisualTurns(2, 4, 2)
    block.space_norms = block.time_norms = torch.nn.ModuleList([torch.nn.Identity(), torch.nn.Identity()])
    maps = torch.randn(5, 2, 6, 6)
    x = maps.movedim(0, 1)[None]
    for layer, padding, stride in (
        (block.space[0].weight[:, :, None], (0, 2, 2), (1, 2, 2)),
        (block.space[1].weight[:, :, None], (0, 1, 1), (1, 1, 1)),
        (block.time[0].weight[..., None], (2, 0, 0), (1, 1, 1)),
        (block.time[1].weight[..., None], (1, 0, 0), (1, 1, 1)),
    ):
        x = torch.nn.functional.conv3d(x, layer, padding=padding, stride=stride).relu()
    torch.testing.assert_close(block(maps, 5, None), x[0].movedim(1, 0), atol=1e-5, rtol=1e-5)


def test_sizes_of_its_kernels() -> None:
    visual, audio = VisualTurns(3, 8, 1), AudioTurns(3, 8)
    assert [tuple(c.weight.shape) for c in (*visual.space, *visual.time)] == [
        (4, 3, 5, 5), (8, 4, 3, 3), (8, 8, 5, 1), (8, 8, 3, 1),
    ]  # fmt: skip
    assert [tuple(c.weight.shape) for c in (*audio.bands, *audio.time)] == [
        (4, 3, 1, 5), (8, 4, 1, 3), (8, 8, 5, 1), (8, 8, 3, 1),
    ]  # fmt: skip


def test_channels_are_weighed_between_0_and_1() -> None:
    torch.manual_seed(0)
    streams, both = WeighedStreams(4), torch.randn(1, 3, 4)
    mixed = both @ streams.weigh.weight.T
    normed = (mixed - mixed.mean(-1, keepdim=True)) / (mixed.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(streams(both), both / (1 + (-normed).exp()), atol=1e-6, rtol=1e-5)
    fusion, video, audio = WeighedFusion(2), torch.randn(1, 2, 2), torch.randn(1, 8, 2)
    beside = torch.cat([video, torch.stack([audio[:, :4].mean(1), audio[:, 4:].mean(1)], dim=1)], dim=-1)
    torch.testing.assert_close(fusion(video, audio), fusion.streams(beside))
    mask = torch.tensor([[True, False]])
    assert not fusion(video, audio, mask)[0, 1].any()


def test_the_gru_halves_the_width() -> None:
    gru = WeighedGRU(16)
    assert gru(torch.randn(2, 5, 16)).shape == (2, 5, 8)
    assert gru.track.gru.hidden_size == 4
