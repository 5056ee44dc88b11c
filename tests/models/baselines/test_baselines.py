"""Both baselines as detectors: what a score depends on, and what the configuration lets them be."""

from __future__ import annotations

import pytest
import torch

from avfusion.config import ConfigError, load_config
from avfusion.models import context_frames
from tests.models.baselines.planted import KINDS, clip, tiny_config, tiny_model

BASELINES = ("talknet_style", "light_style", "lr_style")
OUTPUTS = ("logits", "audio_logits", "video_logits", "video_embedding", "audio_embedding")


@pytest.mark.parametrize("kind", BASELINES)
def test_padding_and_company_change_no_score_and_no_gradient(kind: str) -> None:
    """Of the whole model, in training: norms, pools, the weighing of channels and the GRU all know of padding."""
    model = tiny_model(kind).train()
    crops, log_mel = clip(11)
    alone = model(crops, log_mel)
    parameters = dict(model.named_parameters())
    other_crops, other_mel = clip(18, seed=2)
    batch_crops, batch_mel = torch.rand(2, 1, 18, 24, 24), torch.randn(2, 72, log_mel.shape[-1])
    batch_crops[0, :, :11], batch_mel[0, :44] = crops[0], log_mel[0]
    batch_crops[1], batch_mel[1] = other_crops[0], other_mel[0]
    frame_mask = (torch.arange(18) < torch.tensor([11, 18])[:, None])[:, None]
    audio_mask = torch.arange(72) < torch.tensor([44, 72])[:, None]
    together = model(batch_crops, batch_mel, frame_mask, audio_mask, need_audio_100hz=True)
    for name in OUTPUTS:
        found, expected = getattr(together, name)[0], getattr(alone, name)[0]
        real = found[:, :11] if name != "audio_embedding" else found[:11]
        torch.testing.assert_close(real, expected, atol=1e-5, rtol=0, msg=lambda text, name=name: f"{name}: {text}")

    def gradients(logits: torch.Tensor) -> dict[str, torch.Tensor]:
        found = torch.autograd.grad((logits**3).sum(), list(parameters.values()), allow_unused=True)
        return {name: value for name, value in zip(parameters, found, strict=True) if value is not None}

    expected_gradients = gradients(alone.logits[0, 0])
    for name, gradient in gradients(together.logits[0, 0, :11]).items():
        expected = expected_gradients[name]
        size = max(1e-3, float(expected.abs().max()))
        torch.testing.assert_close(
            gradient, expected, rtol=0, atol=1e-4 * size, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("kind", BASELINES)
def test_a_score_depends_on_the_whole_track_so_tracks_are_scored_whole(kind: str) -> None:
    config = tiny_config(kind)
    assert context_frames(config.model) is None
    model = tiny_model(kind)
    crops, log_mel = clip(60)
    crops.requires_grad_()
    log_mel.requires_grad_()
    seen, heard = torch.autograd.grad(model(crops, log_mel).logits[0, 0, 30], [crops, log_mel])
    assert seen[0, 0, [0, 59]].abs().amax(dim=(1, 2)).min() > 0
    assert heard[0, [1, 238]].abs().amax(dim=1).min() > 0


@pytest.mark.parametrize("kind", BASELINES)
@pytest.mark.parametrize(("modality", "deaf", "blind"), [("video", True, False), ("audio", False, True)])
def test_of_one_stream_they_use_that_stream_only(kind: str, modality: str, deaf: bool, blind: bool) -> None:
    model = tiny_model(kind, f"--model.modality={modality}")
    crops, log_mel = clip(10)
    base = model(crops, log_mel).logits
    assert torch.equal(model(crops, clip(10, seed=3)[1]).logits, base) == deaf
    assert torch.equal(model(clip(10, seed=3)[0], log_mel).logits, base) == blind


@pytest.mark.parametrize("kind", BASELINES)
def test_without_any_sound_all_is_finite_and_the_other_scene_is_as_alone(kind: str) -> None:
    model = tiny_model(kind).train()
    crops, log_mel = clip(8)
    heard = torch.tensor([[True] * 32, [False] * 32])
    both = model(crops.repeat(2, 1, 1, 1, 1), log_mel.repeat(2, 1, 1), None, heard)
    torch.testing.assert_close(both.logits[0], model(crops, log_mel).logits[0], atol=1e-5, rtol=0)
    both.logits.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("kind", BASELINES)
def test_sound_at_100_hz_is_that_at_25_hz_said_four_times(kind: str) -> None:
    model = tiny_model(kind)
    crops, log_mel = clip(9)
    found = model(crops, log_mel, need_audio_100hz=True)
    expected = found.audio_embedding.repeat_interleave(4, dim=1)
    torch.testing.assert_close(found.audio_embedding_100hz, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", BASELINES)
def test_half_precision_stays_close(kind: str) -> None:
    model = tiny_model(kind)
    crops, log_mel = clip(12)
    mask = (torch.arange(12) < 9)[None, None]
    exact = model(crops, log_mel, mask).logits.sigmoid()
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(crops, log_mel, mask).logits.float().sigmoid()
    assert (rough - exact)[..., :9].abs().max() < 0.05


def error_of(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(None, overrides)
    return str(caught.value)


@pytest.mark.parametrize("kind", BASELINES)
def test_what_it_is_built_of_is_told_as_overrides_that_make_it(kind: str) -> None:
    message = error_of(f"--model.kind={kind}")
    assert message.startswith(
        f"config error: model.kind: {kind} is built otherwise; begin with configs/{kind}.yaml, or add --model."
    )
    named = message.split("or add ")[1].split()
    assert set(named) == set(KINDS[kind][1:])
    assert load_config(None, [f"--model.kind={kind}", *named]).model.kind == kind


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--model.causal=true"], "model.causal: {kind} looks over whole tracks and cannot be causal; set it to false"),
        (["--model.temporal.layers=0"], "model.temporal.layers: {kind} needs at least 1, found 0"),
        (
            ["--model.audio.channels=[8]"],
            "model.audio.channels: {kind} halves time in its first two stages, found [8]",
        ),
    ],
)
@pytest.mark.parametrize("kind", BASELINES)
def test_what_it_cannot_be_is_told_in_one_line(kind: str, overrides: list[str], message: str) -> None:
    assert error_of(*KINDS[kind], *overrides) == f"config error: {message.format(kind=kind)}"


def test_a_misspelt_kind_and_weights_without_their_network_are_told() -> None:
    assert error_of("--model.kind=talknet").endswith("Did you mean 'talknet_style'?")
    assert error_of("--model.visual.weights=imagenet") == (
        "config error: model.visual.weights: imagenet has weights for resnet18, but model.visual.kind is small; set it"
        " to null, or add --model.visual.kind=resnet18"
    )
    assert error_of("--model.visual.weights=yes").startswith(
        "config error: model.visual.weights: expected one of null, imagenet, found 'yes'"
    )
    assert error_of("--model.visual.kind=resnet18") == (
        "config error: model.visual.temporal_kernel: the stem of resnet18 sees 2 frames on either side and a kernel of"
        " 5 sees 2, together 4; expected at most 3 (120 ms): --model.visual.temporal_kernel=3"
    )
