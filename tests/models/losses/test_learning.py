"""With every loss on, a step along the gradient lowers their sum, in each kind of model that can have them all."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from avfusion.config import LossConfig, ModelConfig
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.models.losses import loss_terms, needs_alignment, needs_audio_100hz
from tests.models.losses.examples import EVERY, targets_of


@pytest.mark.parametrize("contrast", ["attention", "projection"])
@pytest.mark.parametrize("contrast_hz", [25, 100])
def test_steps_on_one_batch_lower_every_loss(contrast: str, contrast_hz: int) -> None:
    torch.manual_seed(0)
    config = ModelConfig(embed_dim=32, contrast_dim=16, dropout=0.0, contrast=contrast)
    config.visual.channels, config.audio.channels, config.fusion.layers = [4, 8], [4], 2
    model = build_model(config, 20)
    loss = LossConfig(contrast_hz=contrast_hz, lag_frames=[-1, 2])
    crops, log_mel = torch.rand(2, 1, 40, 16, 16), torch.randn(2, 160, 20)
    speaking = torch.stack([torch.arange(40) < 30, torch.arange(40) >= 15])[:, None]
    targets = targets_of(speaking)

    def terms(model: ActiveSpeakerDetector) -> dict[str, torch.Tensor]:
        detection = model(
            crops,
            log_mel,
            targets.frame_mask,
            targets.audio_mask,
            need_alignment=needs_alignment(EVERY),
            need_audio_100hz=needs_audio_100hz(EVERY, loss),
        )
        return loss_terms(detection, targets, loss, EVERY)

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    sums = []
    first = terms(model)
    for _ in range(5):
        total = torch.stack(list(terms(model).values())).sum()
        optimizer.zero_grad()
        total.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        sums.append(total.item())
    assert all(later < earlier for earlier, later in pairwise(sums)), sums

    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(25):
        adam.zero_grad()
        torch.stack(list(terms(model).values())).sum().backward()
        adam.step()
    last = terms(model)
    assert set(last) == EVERY
    assert all(last[name] < first[name] for name in EVERY), (first, last)
