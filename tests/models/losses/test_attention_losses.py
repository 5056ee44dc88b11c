"""Losses on the alignment against hand-worked numbers, and that they move queries, keys and null key."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from avfusion.config import LossConfig, ModelConfig
from avfusion.models import build_model
from avfusion.models.losses import loss_counts, loss_terms, loss_totals, needs_alignment
from tests.models.losses.examples import detection_of, random_detection, targets_of, unit


def value_of(name: str, alignment: Tensor, speaking: Tensor, mask: Tensor | None = None, **options: object) -> float:
    frames = speaking.shape[-1]
    detection = detection_of(unit(*speaking.shape, 4), unit(len(speaking), frames, 4), alignment=alignment)
    config = LossConfig(**options)  # type: ignore[arg-type]
    return loss_terms(detection, targets_of(speaking, mask), config, [name])[name].item()


def null_alignment(null_mass: Tensor) -> Tensor:
    """Weights ``(1, 1, L, H, T, 4 T)`` that leave ``(L, H, T)`` to the null key, the rest spread evenly."""
    sounds = 4 * null_mass.shape[-1]
    return ((1 - null_mass)[..., None] / sounds).expand(*null_mass.shape, sounds)[None, None]


def test_null_is_the_cross_entropy_of_its_mass_with_not_speaking() -> None:
    """Two layers, two heads, three real frames and one of padding."""
    null_mass = torch.tensor(
        [[[0.9, 0.2, 0.5, 0.7], [0.4, 0.3, 0.1, 0.7]], [[0.5, 0.5, 0.5, 0.7], [0.8, 0.6, 0.99, 0.7]]]
    )
    speaking = torch.tensor([[[False, True, False, False]]])
    mask = torch.tensor([[[True, True, True, False]]])
    frame_losses = []
    for t, spoken in enumerate([False, True, False]):
        masses = [float(null_mass[layer, head, t]) for layer in range(2) for head in range(2)]
        frame_losses.append(sum(-math.log(1 - n if spoken else n) for n in masses) / 4)
    both = value_of("null", null_alignment(null_mass), speaking, mask)
    assert both == pytest.approx(sum(frame_losses) / 3, rel=1e-4)
    silent = value_of("null", null_alignment(null_mass), speaking, mask, null_frames="not_speaking")
    assert silent == pytest.approx((frame_losses[0] + frame_losses[2]) / 2, rel=1e-4)


@pytest.mark.parametrize("null_mass", [0.0, 1.0])
@pytest.mark.parametrize("spoken", [True, False])
def test_a_null_mass_that_is_all_or_nothing_stays_finite(null_mass: float, spoken: bool) -> None:
    loss = value_of("null", null_alignment(torch.full((1, 1, 2), null_mass)), torch.full((1, 1, 2), spoken))
    right = (null_mass == 0.0) == spoken
    assert loss == pytest.approx(0.0 if right else -math.log(1e-6), abs=0.1)


def test_a_head_that_is_wrong_for_certain_is_led_back() -> None:
    """Scores of 15 against the null key in silence: its mass is 1e-7 a key, and still the loss falls by a step."""
    null_score = torch.tensor(-15.0, requires_grad=True)
    scores = torch.cat([torch.zeros(8), null_score[None]])
    weights = scores.softmax(dim=0)[:-1].expand(1, 1, 1, 1, 2, 8)
    detection = detection_of(unit(1, 1, 2, 4), unit(1, 2, 4), alignment=weights)
    targets = targets_of(torch.zeros(1, 1, 2, dtype=torch.bool))
    loss_terms(detection, targets, LossConfig(), ["null"])["null"].backward()
    assert null_score.grad is not None
    assert null_score.grad < -0.01


def test_guided_is_the_weight_far_from_the_natural_lag() -> None:
    """Written out for two heads, whose null mass must not matter; frames 0 and 2 are speaking."""
    frames, sigma_ms, lag_ms = 3, 30.0, 1.5 * 40
    weights = torch.rand(1, 1, 1, 2, frames, 4 * frames, generator=torch.Generator().manual_seed(0))
    weights = weights / weights.sum(dim=-1, keepdim=True) * torch.tensor([0.9, 0.3])[:, None, None]
    by_head = []
    for head in range(2):
        losses = []
        for t in (0, 2):
            row = weights[0, 0, 0, head, t].tolist()
            away = [1 - math.exp(-((10 * a - 40 * t - lag_ms) ** 2) / (2 * sigma_ms**2)) for a in range(4 * frames)]
            losses.append(sum(w * d for w, d in zip(row, away, strict=True)) / sum(row))
        by_head.append(sum(losses) / 2)
    speaking = torch.tensor([[[True, False, True]]])
    options = {"guided_width_ms": sigma_ms, "lag_frames": [1, 2]}
    assert value_of("guided", weights, speaking, **options) == pytest.approx(sum(by_head) / 2, rel=1e-5)
    assert value_of("guided", weights, speaking, guided_heads=1, **options) == pytest.approx(by_head[0], rel=1e-5)


def test_guided_is_least_at_the_natural_lag() -> None:
    speaking = torch.zeros(1, 1, 20, dtype=torch.bool)
    speaking[0, 0, 10] = True

    def at_lag(lag_ms: int) -> float:
        weights = torch.zeros(1, 1, 1, 1, 20, 80)
        weights[..., 10, 40 + lag_ms // 10] = 0.5
        return value_of("guided", weights, speaking, lag_frames=[0, 4])

    assert at_lag(80) == pytest.approx(0, abs=1e-6)
    assert at_lag(180) == pytest.approx(1 - math.exp(-0.5), rel=1e-5)
    assert at_lag(-20) == pytest.approx(at_lag(180), rel=1e-5)


def test_a_frame_that_hears_nothing_adds_nothing() -> None:
    speaking = torch.ones(1, 1, 2, dtype=torch.bool)
    detection = detection_of(unit(1, 1, 2, 4), unit(1, 2, 4), alignment=torch.zeros(1, 1, 1, 1, 2, 8).requires_grad_())
    loss = loss_totals(detection, targets_of(speaking), LossConfig(), ["guided"])["guided"]
    loss.backward()
    assert loss.item() == 0
    assert detection.alignment is not None
    assert detection.alignment.grad is not None
    assert detection.alignment.grad.isfinite().all()


def test_counts_are_the_frames_that_are_supervised() -> None:
    speaking = torch.tensor([[[True, False, False, True]]])
    targets = targets_of(speaking, torch.tensor([[[True, True, True, False]]]))
    counts = loss_counts(targets, LossConfig(), ["null", "guided"])
    assert {key: count.tolist() for key, count in counts.items()} == {"null": [3], "guided": [1]}
    assert loss_counts(targets, LossConfig(null_frames="not_speaking"), ["null"])["null"].tolist() == [2]


def test_the_alignment_is_asked_for_where_it_is_needed() -> None:
    assert needs_alignment({"speaking", "null"})
    assert needs_alignment(["guided"])
    assert not needs_alignment({"speaking", "audio", "video", "contrastive", "sync"})
    bare = detection_of(unit(1, 1, 2, 4), unit(1, 2, 4))
    targets = targets_of(torch.ones(1, 1, 2, dtype=torch.bool))
    for name in ("null", "guided"):
        with pytest.raises(ValueError, match=f"the loss {name} is on the alignment.*need_alignment=True"):
            loss_terms(bare, targets, LossConfig(), [name])


@pytest.mark.parametrize(("name", "null_moves"), [("null", True), ("guided", False)])
def test_gradients_reach_queries_and_keys(name: str, null_moves: bool) -> None:
    """The null loss moves the null key as well; the guided one, on renormalized weights, does not."""
    torch.manual_seed(0)
    config = ModelConfig(embed_dim=32, dropout=0.0)
    config.visual.channels, config.audio.channels = [4, 8], [4]
    model = build_model(config, 20)
    speaking = (torch.arange(12) < 6)[None, None]
    detection = model(torch.rand(1, 1, 12, 24, 24), torch.randn(1, 48, 20), need_alignment=True)
    loss_terms(detection, targets_of(speaking), LossConfig(), [name])[name].backward()
    attention = model.fusion[0].video_from_audio
    keys, values = attention.key_value.weight.grad.chunk(2)
    assert attention.query.weight.grad.abs().max() > 1e-6
    assert keys.abs().max() > 1e-6
    assert not values.any()
    assert (attention.null_bias.grad.abs().max() > 1e-4) == null_moves


def test_random_weights_have_a_null_mass_to_learn_from() -> None:
    """Guards the examples of the other tests: their alignment leaves something to the null key."""
    alignment = random_detection(1, 1, 5).alignment
    assert alignment is not None
    assert 0 < 1 - alignment.sum(dim=-1).max() < 1
