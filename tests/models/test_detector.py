"""The whole detector: scores depend on the real frames of their own clip alone, in every variant."""

from __future__ import annotations

import pytest
import torch

from avfusion.config import ModelConfig
from avfusion.models import ActiveSpeakerDetector, build_model, context_frames
from avfusion.models.attention import capture_attention

MELS = 40


def small_config(**fusion: object) -> ModelConfig:
    config = ModelConfig(embed_dim=32, contrast_dim=16)
    config.visual.channels, config.audio.channels = [8, 8, 8], [4, 4]
    for key, value in fusion.items():
        setattr(config.fusion, key, value)
    return config


def model_of(config: ModelConfig) -> ActiveSpeakerDetector:
    torch.manual_seed(0)
    model = build_model(config, MELS).eval()
    # Heads start near zero; real weights make a difference visible.
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    return model


def clip(frames: int, seed: int = 1, faces: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.rand(1, faces, frames, 48, 48, generator=generator),
        torch.randn(1, 4 * frames, MELS, generator=generator),
    )


VARIANTS = {
    "default": {},
    "one head": {"heads": 1},
    "concat": {"kind": "concat"},
    "bypass": {"audio_bypass": True},
    "plain": {"positions": False, "null_key": False, "qk_norm": False, "window_s": None},
    "two layers": {"layers": 2},
}


@pytest.mark.parametrize("fusion", VARIANTS.values(), ids=VARIANTS.keys())
def test_padding_and_company_change_no_score_and_no_gradient(fusion: dict[str, object]) -> None:
    model = model_of(small_config(**fusion))
    crops, log_mel = clip(20)
    alone = model(crops, log_mel).logits[0, 0]
    (gradient_alone,) = torch.autograd.grad(alone.sum(), model.visual.project.weight)

    other_crops, other_mel = clip(31, seed=2)
    batch_crops, batch_mel = (
        torch.rand_like(other_crops).repeat(2, 1, 1, 1, 1),
        torch.randn_like(other_mel).repeat(2, 1, 1),
    )
    batch_crops[0, :, :20], batch_mel[0, :80] = crops[0], log_mel[0]
    batch_crops[1], batch_mel[1] = other_crops[0], other_mel[0]
    frame_mask = torch.arange(31)[None, None] < torch.tensor([20, 31])[:, None, None]
    audio_mask = torch.arange(124)[None] < torch.tensor([80, 124])[:, None]
    in_company = model(batch_crops, batch_mel, frame_mask, audio_mask).logits[0, 0, :20]
    torch.testing.assert_close(in_company, alone, atol=1e-5, rtol=0)
    (gradient,) = torch.autograd.grad(in_company.sum(), model.visual.project.weight)
    torch.testing.assert_close(gradient, gradient_alone, atol=1e-4, rtol=1e-4)


def test_a_sample_without_any_sound_is_finite_and_leaves_the_others_alone() -> None:
    model = model_of(small_config())
    crops, log_mel = clip(12)
    both = model(crops.repeat(2, 1, 1, 1, 1), log_mel.repeat(2, 1, 1), None, torch.tensor([[True] * 48, [False] * 48]))
    assert both.logits.isfinite().all()
    torch.testing.assert_close(both.logits[0], model(crops, log_mel).logits[0], atol=1e-5, rtol=0)
    both.logits[0].sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_faces_of_a_scene_are_scored_like_faces_alone() -> None:
    """Until faces attend to each other, two faces over one sound are two scenes of one face."""
    model = model_of(small_config())
    crops, log_mel = clip(15, faces=2)
    scene = model(crops, log_mel).logits[0]
    for face in range(2):
        torch.testing.assert_close(
            model(crops[:, face : face + 1], log_mel).logits[0, 0], scene[face], atol=1e-5, rtol=0
        )


def test_attention_carries_all_sound_unless_bypassed() -> None:
    """With all keys masked the sound cannot reach the logit; the bypass lets it through."""
    nothing_heard = torch.zeros(1, 40, dtype=torch.bool)
    closed = model_of(small_config())
    # Encoded audio is masked too, so feed the fusion layer directly with loud audio and closed keys.
    video, audio = torch.randn(1, 10, 32), torch.randn(1, 40, 32)
    layer = closed.fusion[0]
    torch.testing.assert_close(layer(video, audio, None, nothing_heard), layer(video, 5 * audio, None, nothing_heard))
    open_layer = model_of(small_config(audio_bypass=True)).fusion[0]
    difference = open_layer(video, audio, None, nothing_heard) - open_layer(video, 5 * audio, None, nothing_heard)
    assert difference.abs().max() > 0.1


@pytest.mark.parametrize(
    ("modality", "deaf", "blind"), [("video", True, False), ("audio", False, True), ("audio_visual", False, False)]
)
def test_baselines_use_one_stream_only(modality: str, deaf: bool, blind: bool) -> None:
    config = small_config()
    config.modality = modality
    model = model_of(config)
    crops, log_mel = clip(10)
    base = model(crops, log_mel).logits
    assert torch.equal(model(crops, clip(10, seed=3)[1]).logits, base) == deaf
    assert torch.equal(model(clip(10, seed=3)[0], log_mel).logits, base) == blind


def test_alignment_of_fusion_is_captured_and_stays_in_its_window() -> None:
    model = model_of(small_config(heads=4))
    crops, log_mel = clip(40)
    plain = model(crops, log_mel).logits
    with capture_attention(model) as maps:
        captured = model(crops, log_mel).logits
    assert torch.equal(plain, captured)
    weights = maps["fusion.0.video_from_audio"]
    assert weights.shape == (1, 4, 40, 160)
    lag_s = torch.arange(160)[None] / 100 - torch.arange(40)[:, None] / 25
    assert weights[..., lag_s.abs() > 0.5 + 1e-6].max() == 0
    assert weights[..., lag_s.abs() < 0.5].min() > 0


def test_context_frames_bounds_what_a_score_depends_on() -> None:
    config = small_config(window_s=0.2)
    config.temporal.window_s = 0.2
    model = model_of(config)
    reach = context_frames(config)
    assert reach is not None
    frames, middle = 2 * reach + 21, reach + 10
    crops, log_mel = clip(frames)
    crops.requires_grad_(True)
    log_mel.requires_grad_(True)
    seen, heard = torch.autograd.grad(model(crops, log_mel).logits[0, 0, middle], [crops, log_mel])
    frames_seen = seen.abs().sum((0, 1, 3, 4)).nonzero().flatten() - middle
    frames_heard = heard.abs().sum((0, 2)).nonzero().flatten() / 4 - middle
    assert frames_seen.abs().max() <= reach
    assert frames_heard.abs().max() <= reach
    config.temporal.window_s = None
    assert context_frames(config) is None


def test_streams_of_different_length_are_refused() -> None:
    model = model_of(small_config())
    crops, _ = clip(10)
    with pytest.raises(ValueError, match="10 video frames need 40 audio frames, found 39"):
        model(crops, torch.randn(1, 39, MELS))


def test_half_precision_stays_close() -> None:
    model = model_of(small_config())
    crops, log_mel = clip(16)
    mask = torch.arange(64)[None] < 50
    exact = model(crops, log_mel, None, mask).logits.sigmoid()
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(crops, log_mel, None, mask).logits.float().sigmoid()
    assert rough.isfinite().all()
    assert (rough - exact).abs().max() < 0.05


def test_contrast_in_the_attention_is_between_its_own_queries_and_keys_and_has_no_projections() -> None:
    config = small_config()
    config.contrast = "attention"
    model = model_of(config)
    assert not any("contrast" in name for name in model.state_dict())
    crops, log_mel = clip(12)
    detection = model(crops, log_mel)
    assert detection.video_embedding.shape == (1, 1, 12, 32)
    query, key = model.fusion[0].content(model.visual(crops[0]), model.audio(log_mel))
    torch.testing.assert_close(detection.video_embedding[0], query)
    assert key.shape == (1, 48, 32)
    loss = detection.video_embedding[0, 0, 3] @ detection.audio_embedding[0, 5]
    loss.backward()
    attention = model.fusion[0].video_from_audio
    assert attention.query.weight.grad is not None
    assert attention.query.weight.grad.abs().sum() > 0
    grad = attention.key_value.weight.grad
    assert grad[:32].abs().sum() > 0  # keys
    assert not grad[32:].any()  # values


@pytest.mark.parametrize("change", [{"fusion.kind": "concat"}, {"modality": "video"}])
def test_a_model_without_attention_contrasts_in_projections_whatever_it_is_told(change: dict[str, str]) -> None:
    config = small_config()
    config.contrast = "attention"
    for key, value in change.items():
        setattr(config.fusion if "." in key else config, key.split(".")[-1], value)
    model = model_of(config)
    assert model(*clip(8)).video_embedding.shape == (1, 1, 8, 16)


@pytest.mark.parametrize("contrast", ["projection", "attention"])
def test_alignment_and_fine_sound_come_when_asked_for_and_change_nothing_else(contrast: str) -> None:
    config = small_config(layers=2)
    config.contrast = contrast
    model = model_of(config)
    crops, log_mel = clip(20, faces=2)
    crops, log_mel = torch.cat([crops, clip(20, seed=3, faces=2)[0]]), torch.cat([log_mel, clip(20, seed=3)[1]])
    frame_mask = (torch.arange(20) < torch.tensor([20, 14])[:, None, None]).expand(2, 2, 20)
    audio_mask = torch.arange(80)[None] < torch.tensor([80, 56])[:, None]
    plain = model(crops, log_mel, frame_mask, audio_mask)
    with capture_attention(model) as maps:
        asked = model(crops, log_mel, frame_mask, audio_mask, need_alignment=True, need_audio_100hz=True)
    assert plain.alignment is None
    assert plain.audio_embedding_100hz is None
    for name in ("logits", "audio_logits", "video_logits", "video_embedding", "audio_embedding"):
        assert torch.equal(getattr(plain, name), getattr(asked, name)), name

    assert asked.alignment.shape == (2, 2, 2, 4, 20, 80)
    for layer in range(2):
        captured = maps[f"fusion.{layer}.video_from_audio"].unflatten(0, (2, 2))
        assert torch.equal(asked.alignment[:, :, layer].detach(), captured)
    assert not asked.alignment[1, ..., 56:].any()
    (gradient,) = torch.autograd.grad(
        asked.alignment[..., 0].sum(), model.fusion[1].video_from_audio.query.weight, retain_graph=True
    )
    assert gradient.abs().max() > 1e-6

    heard = model.audio(log_mel, audio_mask)
    if contrast == "attention":
        expected = model.fusion[0].content(model.visual(crops[:, 0]), heard)[1]
    else:
        expected = torch.nn.functional.normalize(model.audio_contrast(heard), dim=-1)
    torch.testing.assert_close(asked.audio_embedding_100hz, expected)


@pytest.mark.parametrize("change", [{"fusion.kind": "concat"}, {"modality": "video"}, {"modality": "audio"}])
def test_a_model_without_attention_has_no_alignment_and_says_so(change: dict[str, str]) -> None:
    config = small_config()
    for key, value in change.items():
        setattr(config.fusion if "." in key else config, key.split(".")[-1], value)
    assert model_of(config)(*clip(8), need_alignment=True).alignment is None
