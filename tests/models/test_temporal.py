"""The temporal block: what its positions do to what is far away."""

from __future__ import annotations

import torch

from avfusion.config import load_config
from avfusion.models import build_model
from avfusion.models.temporal import TemporalBlock


def test_without_positions_order_tells_nothing_beyond_the_convolution() -> None:
    """Frames far from the one looked at change places: its answer stays, unless positions tell where they were."""
    torch.manual_seed(0)
    x = torch.randn(1, 200, 16)
    moved = x.clone()
    moved[0, 40:60], moved[0, 140:160] = x[0, 140:160], x[0, 40:60]
    for positions in (False, True):
        torch.manual_seed(1)
        block = TemporalBlock(16, 2, hz=25, window_s=None, positions=positions).eval()
        with torch.no_grad():
            apart = (block(x) - block(moved))[0, 100].abs().max()
        assert (apart > 1e-3) == positions


def test_arms_of_a_window_an_order_or_positions_have_the_same_parameters() -> None:
    def size(*overrides: str) -> int:
        return sum(p.numel() for p in build_model(load_config(None, list(overrides)).model, 64).parameters())

    usual = size()
    assert size("--model.temporal.positions=false") == usual
    assert size("--model.temporal.window_s=null", "--model.temporal.order=convolution_first") == usual


def test_odd_widths_are_fine_without_positions() -> None:
    config = load_config(None, ["--model.embed_dim=20", "--model.fusion.heads=2", "--model.temporal.positions=false"])
    assert build_model(config.model, 64).head.in_features == 20
