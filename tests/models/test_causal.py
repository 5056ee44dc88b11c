"""Causal models: a score, and its gradient, know nothing later than the look-ahead, and use all of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from avfusion.config import ConfigError, ModelConfig, load_config
from avfusion.media.audio import LogMel
from avfusion.models import ActiveSpeakerDetector, build_model, context_frames
from avfusion.models.reach import decision_reach, look_ahead
from avfusion.models.visual import _with_motion
from avfusion.models.window import Window

MELS = 20
LOOKAHEADS = [0, 1, 2, 3, 8]
VARIANTS = {
    "default": {},
    "two layers": {"fusion.layers": 2, "temporal.layers": 2},
    "keys at 25 Hz": {"fusion.key_hz": 25},
    "no windows": {"fusion.window_s": None, "temporal.window_s": None},
    "bypass": {"fusion.audio_bypass": True},
    "no attention": {"fusion.kind": "concat"},
    "convolution first": {"temporal.order": "convolution_first"},
    "between faces": {"speaker.layers": 1},
    "sound only": {"modality": "audio"},
    "picture only": {"modality": "video"},
    "widest encoders": {"audio.channels": [8] * 5, "audio.temporal_kernel": 11},
    "narrow encoders": {"audio.temporal_kernel": 1, "visual.temporal_kernel": 1},
    "a ResNet": {"visual.kind": "resnet18", "visual.temporal_kernel": 3},
}


def causal_config(lookahead: int | None, changes: dict[str, object]) -> ModelConfig:
    """A small model; without a look-ahead it is not causal."""
    config = ModelConfig(embed_dim=16, contrast_dim=8)
    config.visual.channels, config.audio.channels = [4, 8], [8, 8]
    config.causal, config.lookahead_frames = lookahead is not None, lookahead or 0
    for key, value in changes.items():
        *path, name = key.split(".")
        setattr(getattr(config, path[0]) if path else config, name, value)
    return config


def model_of(config: ModelConfig) -> ActiveSpeakerDetector:
    torch.manual_seed(0)
    model = build_model(config, MELS).eval()
    for linear in (model.head, model.audio_head, model.video_head):
        torch.nn.init.normal_(linear.weight)  # heads start near zero
    return model


def inputs(frames: int, faces: int = 1) -> tuple[Tensor, Tensor]:
    """Crops and the waveform, with gradient."""
    generator = torch.Generator().manual_seed(1)
    crops = torch.rand(1, faces, frames, 16, 16, generator=generator, requires_grad=True)
    return crops, torch.randn(1, 640 * frames, generator=generator, requires_grad=True)


def last_of(gradient: Tensor | None) -> int:
    """The last place along the last axis of ``gradient`` that counts at all; -1 where none does."""
    if gradient is None or not gradient.any():
        return -1
    return int(gradient.flatten(0, -2).any(0).nonzero().max())


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("lookahead", LOOKAHEADS)
def test_a_score_depends_on_nothing_after_its_look_ahead(lookahead: int, changes: dict[str, object]) -> None:
    """Measured on pictures and on the waveform, so that the window of the spectrum counts."""
    config = causal_config(lookahead, changes)
    model, to_log_mel = model_of(config), LogMel(MELS)
    faces, frames, middle = 1 + config.speaker.layers, 36, 18
    crops, sound = inputs(frames, faces)
    out = model(crops, to_log_mel(sound))
    logit = out.logits[0, 0, middle] + out.audio_logits[0, 0, middle] + out.video_logits[0, 0, middle]
    seen, heard = torch.autograd.grad(logit, [crops, sound], allow_unused=True)
    last_picture = last_of(None if seen is None else seen.movedim(2, -1))
    last_sample = last_of(heard)
    assert last_picture <= middle + lookahead
    assert last_sample < 640 * (middle + lookahead + 1)
    if config.modality != "audio":
        assert last_picture == middle + min(lookahead, model.visual.reach_frames)
    if config.modality == "audio_visual" and config.fusion.kind == "cross_attention" and config.fusion.key_hz == 100:
        # The window of the last spectrum that fits fades out 120 samples before the end of the frame.
        assert last_sample >= 640 * (middle + lookahead + 1) - 150


@pytest.mark.parametrize("lookahead", [*LOOKAHEADS, None])
def test_reaches_bound_what_a_score_depends_on(lookahead: int | None) -> None:
    config = causal_config(lookahead, {"fusion.window_s": 0.16, "temporal.window_s": 0.2, "temporal.layers": 2})
    model, middle = model_of(config), 60
    crops, sound = inputs(80)
    log_mel = LogMel(MELS)(sound).detach().requires_grad_()
    seen, heard = torch.autograd.grad(model(crops, log_mel).logits[0, 0, middle], [crops, log_mel])
    frames_seen = seen.abs().sum((0, 1, 3, 4)).nonzero().flatten() - middle
    heard_frames = torch.div(heard.abs().sum((0, 2)).nonzero().flatten(), 4, rounding_mode="floor") - middle
    reach = context_frames(config)
    assert reach is not None
    assert max(frames_seen.abs().max(), heard_frames.abs().max()) <= reach

    embedded, sounds = torch.randn(1, 80, 16, requires_grad=True), torch.randn(1, 320, 16, requires_grad=True)
    logit = model.decide(embedded, sounds).logits[0, 0, middle]
    used, listened = torch.autograd.grad(logit, [embedded, sounds])
    places = [used.abs().sum((0, 2)).nonzero().flatten(), listened.abs().sum((0, 2)).nonzero().flatten() // 4]
    reaches = decision_reach(config)
    assert reaches is not None
    past, ahead = reaches
    assert middle - min(int(place.min()) for place in places) == past
    assert max(int(place.max()) for place in places) - middle == ahead


def test_without_windows_there_is_no_reach_but_the_future_stays_closed() -> None:
    config = causal_config(2, {"fusion.window_s": None})
    assert decision_reach(config) is None
    assert context_frames(config) is None
    assert decision_reach(causal_config(2, {"fusion.window_s": None, "fusion.kind": "concat"})) is not None


def test_the_look_ahead_goes_to_the_encoders_and_the_rest_to_the_fusion() -> None:
    """The default encoder of sound sees 8 spectra ahead: two whole frames less one spectrum."""
    expected = {0: (-1, 0.03), 1: (3, 0.03), 2: (7, 0.03), 3: (7, 0.07), 8: (7, 0.27), 25: (7, 0.5)}
    for lookahead, (audio_frames, fusion_s) in expected.items():
        config = ModelConfig(causal=True, lookahead_frames=lookahead)
        ahead = look_ahead(config)
        assert ahead.audio_frames == audio_frames
        assert ahead.fusion_s == pytest.approx(fusion_s)
    assert look_ahead(ModelConfig()).fusion_s is None


def test_a_look_ahead_is_for_causal_models() -> None:
    with pytest.raises(ConfigError, match=r"model\.lookahead_frames: 3 is for a causal model, but"):
        load_config(None, ["--model.lookahead_frames=3"])
    with pytest.raises(ConfigError, match=r"model\.lookahead_frames: expected a number from 0 to 25, found 26"):
        load_config(None, ["--model.causal=true", "--model.lookahead_frames=26"])


def test_causal_and_other_models_have_the_same_weights() -> None:
    """An encoder trained with sight of the future can be where a causal one starts."""
    causal, other = model_of(causal_config(2, {})), model_of(causal_config(None, {}))
    shapes = {name: weight.shape for name, weight in other.state_dict().items()}
    assert {name: weight.shape for name, weight in causal.state_dict().items()} == shapes


@pytest.mark.parametrize("lookahead", LOOKAHEADS)
def test_padding_changes_no_score_of_a_causal_model(lookahead: int) -> None:
    model = model_of(causal_config(lookahead, {}))
    crops, sound = inputs(30)
    log_mel = LogMel(MELS)(sound)
    alone = model(crops[:, :, :20], log_mel[:, :80]).logits
    mask = torch.arange(30)[None, None] < 20
    padded = model(crops, log_mel, mask, mask[0].repeat_interleave(4, dim=1)).logits[:, :, :20]
    torch.testing.assert_close(padded, alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("ahead", [0, 1, 2, None])
@pytest.mark.parametrize("kind", ["small", "resnet18"])
def test_the_picture_encoder_in_two_steps_is_the_encoder(kind: str, ahead: int | None) -> None:
    """Frames of a part, embedded beside those that the stem sees, are those of the whole."""
    config = causal_config(ahead, {"visual.kind": kind, "visual.temporal_kernel": 3})
    visual = model_of(config).visual
    crops = torch.rand(2, 14, 16, 16, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        before = visual.before_time(crops, 0, 14)
        torch.testing.assert_close(visual.over_time(before), visual(crops), rtol=0, atol=1e-5)
        begin, end = 6 - visual.stem_past, 9 + visual.stem_ahead
        part = visual.before_time(crops[:, begin:end], 6 - begin, 9 - begin)
        torch.testing.assert_close(part, before[:, 6:9], rtol=0, atol=1e-5)
    assert visual.past_frames + visual.ahead_frames == 2 * visual.reach_frames


def test_a_window_with_less_ahead_is_the_half_it_says() -> None:
    seen = Window(0.04, 25, 100, ahead_s=0.01).dense_mask(3, 12)
    assert [row.nonzero().flatten().tolist() for row in seen] == [[0, 1], [0, 1, 2, 3, 4, 5], [4, 5, 6, 7, 8, 9]]
    assert torch.equal(Window(0.3, 25, 100, ahead_s=0.3).dense_mask(40, 160), Window(0.3, 25, 100).dense_mask(40, 160))
    with pytest.raises(ValueError, match=r"ahead_s is 0.2, expected 0 to half_width_s 0.1 seconds"):
        Window(0.1, 25, 100, ahead_s=0.2)


def test_without_sight_of_the_next_frame_the_stem_gets_the_change_before() -> None:
    pictures = torch.tensor([1.0, 2.0, 4.0, 8.0]).view(1, 4, 1, 1)
    changes = _with_motion(pictures, None, 0)[0, :, 1:, 0, 0] / 4
    assert changes.tolist() == [[0, 0], [1, 0], [2, 1], [4, 2]]
    mask = torch.tensor([[False, True, True, True]])
    assert (_with_motion(pictures, mask, 0)[0, :, 1:, 0, 0] / 4).tolist() == [[0, 0], [0, 0], [2, 0], [4, 2]]
    assert _with_motion(pictures[:, :1], None, 0).shape == (1, 1, 3, 1, 1)
