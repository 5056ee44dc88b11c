"""Layers that take a long track in pieces give what they give for the whole, at every seam and for every reach."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from avfusion.config import ModelConfig
from avfusion.models import build_model, pieces
from avfusion.models.attention import capture_attention
from avfusion.models.audio import AudioEncoder
from avfusion.models.fusion import ConcatFusion, CrossAttentionFusion
from avfusion.models.pieces import between_faces, encode, fuse, over_time
from avfusion.models.speaker import SpeakerAttention
from avfusion.models.temporal import TemporalBlock
from avfusion.models.visual import VisualEncoder
from avfusion.models.visual_resnet import ResNetEncoder


class Counted(nn.Module):
    """Passes on to an encoder and notes how many steps it is given."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.steps = encoder, []
        self.past_frames, self.ahead_frames = encoder.past_frames, encoder.ahead_frames

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        self.steps.append(x.shape[1])
        out: Tensor = self.encoder(x, mask)
        return out


def encoder_and_input(kind: str, ahead: int | None, steps: int) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    if kind == "audio":
        return AudioEncoder(16, 20, [4, 4], 5, ahead_frames=ahead).eval(), torch.randn(2, steps, 20)
    crops = torch.rand(2, steps, 16, 16)
    if kind == "visual":
        return VisualEncoder(16, [4, 4], 1, 5, ahead_frames=ahead).eval(), crops
    return ResNetEncoder(16, 3, ahead_frames=ahead).eval(), crops


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("kind", "ahead", "steps", "piece"),
    [
        ("visual", None, 41, 10),
        ("visual", 0, 41, 10),
        ("visual", 1, 40, 10),
        ("visual", None, 23, 1),
        ("audio", None, 97, 20),
        ("audio", -1, 97, 20),
        ("audio", 2, 80, 3),
        ("resnet18", None, 14, 4),
        ("resnet18", 0, 14, 4),
    ],
)
def test_pieces_give_the_embeddings_of_the_whole(
    kind: str, ahead: int | None, steps: int, piece: int, masked: bool
) -> None:
    encoder, x = encoder_and_input(kind, ahead, steps)
    mask = torch.rand(2, steps) > 0.2 if masked else None
    counted = Counted(encoder)
    with torch.no_grad():
        whole, in_pieces = encoder(x, mask), encode(counted, x, mask, piece)
    torch.testing.assert_close(in_pieces, whole, rtol=0, atol=1e-5)
    assert whole.std() > 0.1
    assert len(counted.steps) == -(-steps // piece)
    assert max(counted.steps) <= piece + encoder.past_frames + max(encoder.ahead_frames, 0)


def test_training_and_short_clips_and_encoders_of_unknown_reach_take_all_at_once() -> None:
    encoder, x = encoder_and_input("visual", None, 21)
    counted = Counted(encoder)
    encode(counted, x, None, 5)  # with gradient
    with torch.no_grad():
        encode(counted, x[:, :20], None, 10)
        counted.past_frames = None
        encode(counted, x, None, 5)
    assert counted.steps == [21, 20, 21]


def layers_and_input(kind: str, window_s: float | None) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    x, heard = torch.randn(6, 90, 16), torch.randn(2, 360, 16)
    face_mask, sound_mask = torch.rand(6, 90) > 0.2, torch.rand(2, 360) > 0.2
    face_mask[:, 30:50] = False  # longer than the windows: frames that hear and see nobody
    if kind == "temporal":
        return TemporalBlock(16, 2, hz=25, window_s=window_s), (x, face_mask)
    if kind == "causal":
        return TemporalBlock(16, 2, hz=25, window_s=window_s, causal=True, attention_first=False), (x, face_mask)
    if kind == "speaker":
        return SpeakerAttention(16, 2), (x.reshape(2, 3, 90, 16), face_mask.reshape(2, 3, 90))
    if kind == "concat":
        return ConcatFusion(16), (x, heard, face_mask, sound_mask)
    settings = {"query_hz": 25, "key_hz": 100, "window_s": window_s}
    if kind == "ahead":
        settings["ahead_s"] = 0.07
    if kind == "pooled":
        settings["key_pool"] = 4
    return CrossAttentionFusion(16, 2, **settings), (x, heard, face_mask, sound_mask)


RUN = {"temporal": over_time, "causal": over_time, "speaker": between_faces}


@pytest.mark.parametrize("most", [7, 23, 200])  # of 90 steps: pieces, pieces, and two sequences at once
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("kind", "window_s"),
    [
        ("temporal", 0.2),
        ("temporal", 0.13),
        ("causal", 0.2),
        ("speaker", None),
        ("concat", None),
        ("fusion", 0.25),
        ("fusion", 0.1),
        ("ahead", 0.2),
        ("pooled", 0.25),
    ],
)
def test_layers_in_pieces_give_what_they_give_for_the_whole(
    kind: str, window_s: float | None, masked: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, inputs = layers_and_input(kind, window_s)
    layer.eval()
    if not masked:
        inputs = tuple(None if x.dtype == torch.bool else x for x in inputs)  # type: ignore[misc]
    run = RUN.get(kind, fuse)
    whole = run(layer, *inputs).detach()  # with gradient: at once
    monkeypatch.setattr(pieces, "CACHED_STEPS", most)
    steps: list[int] = []
    layer.register_forward_hook(lambda _, given, out: steps.append(out.shape[-2]))
    with torch.no_grad():
        in_pieces = run(layer, *inputs)
    torch.testing.assert_close(in_pieces, whole, rtol=0, atol=2e-6)
    assert whole.std() > 0.1
    assert len(steps) >= 2


@pytest.mark.parametrize("kind", ["temporal", "fusion", "speaker"])
def test_a_watched_layer_and_one_that_hears_all_get_the_whole_track(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "CACHED_STEPS", 10)
    layer, inputs = layers_and_input(kind, 0.2)
    calls: list[int] = []
    layer.register_forward_hook(lambda _, given, out: calls.append(out.shape[-2]))
    run = RUN.get(kind, fuse)
    with torch.no_grad(), capture_attention(layer) as maps:
        run(layer, *inputs)
    assert calls == [90]
    assert len(maps) == 1
    if kind != "speaker":
        endless, _ = layers_and_input(kind, None)
        endless.register_forward_hook(lambda _, given, out: calls.append(out.shape[-2]))
        with torch.no_grad():
            run(endless, *inputs)
        assert calls == [90, 90]


def test_edited_heads_get_the_whole_track() -> None:
    layer, _ = layers_and_input("fusion", 0.2)
    assert isinstance(layer, CrossAttentionFusion)
    assert layer.past_frames == layer.ahead_frames == 6  # 0.2 s are 5, and one for rounding
    layer.video_from_audio._edits.append(lambda output, weights, value, mask: (output, weights))
    assert layer.past_frames is layer.ahead_frames is None


@pytest.mark.parametrize("contrast", ["projection", "attention"])
def test_a_detector_scores_a_long_track_of_several_faces_as_with_gradient_at_once(contrast: str) -> None:
    config = ModelConfig(embed_dim=16, contrast_dim=8, contrast=contrast)
    config.visual.channels, config.audio.channels, config.speaker.layers = [4, 8], [4], 1
    torch.manual_seed(0)
    model = build_model(config, 20).eval()
    nn.init.normal_(model.head.weight)
    crops, log_mel = torch.rand(1, 2, 1100, 8, 8), torch.randn(1, 4400, 20)
    mask = torch.rand(1, 2, 1100) > 0.1
    whole = model(crops, log_mel, mask, need_audio_100hz=True)
    with torch.no_grad():
        found = model(crops, log_mel, mask, need_audio_100hz=True)
    for name in (
        "logits",
        "audio_logits",
        "video_logits",
        "video_embedding",
        "audio_embedding",
        "audio_embedding_100hz",
    ):
        torch.testing.assert_close(getattr(found, name), getattr(whole, name).detach(), rtol=0, atol=1e-5)
