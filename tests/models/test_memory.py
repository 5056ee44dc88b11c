"""The memory told before training against torch's own count of what it holds on the CPU."""

from __future__ import annotations

import pytest
import torch

from avfusion.config import Config, load_config
from avfusion.models import build_model
from avfusion.models.memory import StepMemory, step_memory
from tests.models.baselines.planted import KINDS, TINY

RESNET = ["--model.visual.kind=resnet18", "--model.visual.temporal_kernel=3"]
VARIANTS = {**KINDS, "resnet18": RESNET, "two faces": ["--data.faces=2"]}


def tiny(*overrides: str) -> Config:
    settings = ["--data.clip_frames=20", "--data.batch_frames=60", "--data.crop_size=48"]
    return load_config(None, [*TINY, *settings, *overrides])


def held_bytes(config: Config, clips: int) -> int:
    """What is allocated by a forward pass and not given back after it, counted by torch's profiler."""
    model = build_model(config.model, config.data.num_mels)
    frames, side = config.data.clip_frames, config.data.crop_size
    crops = torch.rand(clips, 1, frames, side, side)
    log_mel = torch.randn(clips, 4 * frames, config.data.num_mels)
    model(crops, log_mel)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        output = model(crops, log_mel)
    assert output.logits.requires_grad
    return sum(event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]")


@pytest.mark.parametrize("overrides", VARIANTS.values(), ids=VARIANTS.keys())
def test_what_a_batch_keeps_is_what_torch_holds(overrides: list[str]) -> None:
    config = tiny(*overrides)
    estimate = step_memory(config)
    held = held_bytes(config, clips=3)
    assert estimate.pictures == 60
    assert estimate.picture_bytes * 60 == pytest.approx(held, rel=0.06)


def test_weights_are_held_with_gradients_moments_and_average() -> None:
    config = tiny()
    count = sum(p.numel() for p in build_model(config.model, config.data.num_mels).parameters())
    plain, averaged = step_memory(config).state_bytes, step_memory(tiny("--train.ema=0.99")).state_bytes
    assert averaged - plain == 4 * count
    assert 4 * 4 * count <= plain < 1.1 * 4 * 4 * count  # and a few tables that no batch makes larger


def test_half_precision_keeps_less_for_each_picture_and_a_copy_of_the_weights() -> None:
    whole, half = step_memory(tiny()), step_memory(tiny("--train.precision=bfloat16"))
    assert 0.4 * whole.picture_bytes < half.picture_bytes < 0.9 * whole.picture_bytes
    assert whole.state_bytes < half.state_bytes <= 1.125 * whole.state_bytes


def test_it_grows_with_the_batch_and_only_by_its_pictures() -> None:
    small, large = step_memory(tiny()), step_memory(tiny("--data.batch_frames=600"))
    assert large.whole_bytes - small.whole_bytes == pytest.approx(540 * small.picture_bytes)


def test_nothing_is_drawn_from_the_run_s_random_numbers() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    for precision in ("float32", "bfloat16"):
        torch.manual_seed(5)
        step_memory(tiny(f"--train.precision={precision}"))
        assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        (StepMemory(2_000_000_000, 6e6, 1200), "about 9.2 GB for batches of 1,200 pictures"),
        (StepMemory(0, 20e6, 1200), "about 24 GB for batches of 1,200 pictures"),
        (StepMemory(1_000_000, 1e5, 150), "about 16 MB for batches of 150 pictures"),
    ],
)
def test_it_is_told_in_the_unit_that_fits(memory: StepMemory, text: str) -> None:
    assert str(memory) == text


def test_encoders_held_still_keep_their_weights_alone() -> None:
    plain = step_memory(tiny())
    held = step_memory(tiny("--train.lr_scale.visual=0", "--train.lr_scale.audio=0"))
    model = build_model(tiny().model, tiny().data.num_mels)
    count = sum(p.numel() for part in (model.visual, model.audio) for p in part.parameters())
    assert plain.state_bytes - held.state_bytes == pytest.approx(3 * 4 * count, rel=0.1)
    assert held.picture_bytes < 0.3 * plain.picture_bytes
