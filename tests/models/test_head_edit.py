"""Edited heads: what they add, what is captured of them, and that the model is as before when the block ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from avfusion.config import Config
from avfusion.errors import UsageError
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.models.attention import capture_attention
from avfusion.models.head_edit import cross_attentions, edit_heads, grid_of_heads

HEADS, FRAMES = 4, 30


def small(window_s: float | None = 0.2, layers: int = 2, **fusion: object) -> ActiveSpeakerDetector:
    config = Config()
    config.model.embed_dim, config.model.contrast_dim = 16, 8
    config.model.visual.channels, config.model.audio.channels = [4, 8], [4]
    config.model.fusion.layers, config.model.fusion.heads, config.model.fusion.window_s = layers, HEADS, window_s
    for name, value in fusion.items():
        setattr(config.model.fusion, name, value)
    torch.manual_seed(0)
    model = build_model(config.model, 20).eval()
    for parameter in model.parameters():  # away from where they start: heads then differ
        torch.nn.init.normal_(parameter, std=0.3) if parameter.dim() > 1 else None
    return model


def batch(lengths: tuple[int, ...] = (FRAMES, 11)) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    crops = torch.rand(len(lengths), 1, FRAMES, 16, 16, generator=generator)
    log_mel = torch.randn(len(lengths), 4 * FRAMES, 20, generator=generator)
    mask = torch.arange(FRAMES) < torch.tensor(lengths)[:, None]
    return crops, log_mel, mask[:, None], mask.repeat_interleave(4, dim=1)


def before_out(model: ActiveSpeakerDetector, layer: int) -> tuple[Tensor, Tensor]:
    """What the heads of a layer add before W_O, ``(B, H, T, K)``, and the values ``(B, H, A, K)``."""
    kept: list[Tensor] = []
    attention = cross_attentions(model)[layer]

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    hooks = [
        attention.out.register_forward_pre_hook(lambda _, inputs: kept.append(split(inputs[0]))),
        attention.key_value.register_forward_hook(lambda _, __, out: kept.append(split(out.chunk(2, dim=-1)[1]))),
    ]
    with torch.inference_mode():
        model(*batch())
    for hook in hooks:
        hook.remove()
    return kept[1], kept[0]


@pytest.mark.parametrize("window_s", [0.2, None])
@pytest.mark.parametrize("null_key", [True, False])
def test_a_head_made_zero_adds_nothing_and_the_others_what_they_added(window_s: float | None, null_key: bool) -> None:
    model = small(window_s, null_key=null_key)
    whole, _ = before_out(model, 1)
    with edit_heads(model, 1, zero=[2]):
        edited, _ = before_out(model, 1)
    assert (edited[:, 2] == 0).all()
    assert whole[:, 2].abs().max() > 0.1
    others = [0, 1, 3]
    assert torch.equal(edited[:, others], whole[:, others])


@pytest.mark.parametrize("window_s", [0.2, None])
def test_a_uniform_head_adds_the_mean_of_the_real_values_in_its_window(window_s: float | None) -> None:
    model = small(window_s)
    whole, _ = before_out(model, 0)
    with edit_heads(model, 0, uniform=[1]):
        edited, values = before_out(model, 0)
    key_s, reach_s = np.arange(4 * FRAMES) / 100, 99.0 if window_s is None else window_s
    for row, length in enumerate((FRAMES, 11)):
        for frame in (0, 5, length - 1):
            inside = (np.abs(key_s - frame / 25) <= reach_s + 1e-6) & (key_s < length / 25 - 1e-6)
            expected = values[row, 1, torch.from_numpy(inside)].mean(dim=0)
            torch.testing.assert_close(edited[row, 1, frame], expected, rtol=0, atol=1e-5)
    assert torch.equal(edited[:, [0, 2, 3]], whole[:, [0, 2, 3]])


def test_captured_weights_show_the_edit() -> None:
    model, inputs = small(), batch()
    with torch.inference_mode():
        with capture_attention(model.fusion) as whole:
            model(*inputs)
        with edit_heads(model, 0, zero=[0], uniform=[3]), capture_attention(model.fusion) as edited:
            model(*inputs)
    name, later = "0.video_from_audio", "1.video_from_audio"
    assert (edited[name][:, 0] == 0).all()
    assert torch.equal(edited[name][:, 1:3], whole[name][:, 1:3])
    # Frame 10 stands at 0.4 s: the keys from 0.2 to 0.6 s are 41; in the second clip sound ends at 0.44 s: 24 keys.
    np.testing.assert_allclose(edited[name][0, 3, 10, 20:61], 1 / 41, atol=1e-6)
    np.testing.assert_allclose(edited[name][1, 3, 10, 20:44], 1 / 24, atol=1e-6)
    np.testing.assert_allclose(edited[name][:, 3, :11].sum(-1), 1.0, atol=1e-5)  # nothing on the null key
    assert (whole[name][:, 3].sum(-1) < 0.99).any()
    assert not torch.equal(edited[later], whole[later])  # the next layer hears of it


def test_scores_are_the_same_whether_weights_are_wanted_or_not() -> None:
    model, inputs = small(), batch()
    with torch.inference_mode(), edit_heads(model, 0, zero=[1], uniform=[0, 2]):
        plain = model(*inputs).logits
        with_weights = model(*inputs, need_alignment=True)
    assert torch.equal(plain, with_weights.logits)
    assert (with_weights.alignment[:, :, 0, 1] == 0).all()


@pytest.mark.parametrize("edit", [{"zero": [0]}, {"uniform": [0]}, {"uniform": [0, 1, 2, 3]}])
def test_neither_padding_nor_company_changes_edited_scores(edit: dict[str, list[int]]) -> None:
    model, (crops, log_mel, frame_mask, audio_mask) = small(), batch()
    with torch.inference_mode(), edit_heads(model, 0, **edit):
        together = model(crops, log_mel, frame_mask, audio_mask).logits[1, :, :11]
        alone = model(crops[1:, :, :11], log_mel[1:, :44]).logits[0]
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


def test_all_heads_zero_is_a_layer_that_adds_nothing() -> None:
    model, inputs = small(layers=1), batch()
    with torch.inference_mode(), edit_heads(model, 0, zero=range(HEADS)):
        deaf = model(*inputs).logits
        other_sound = model(inputs[0], torch.randn_like(inputs[1]), *inputs[2:]).logits
    assert torch.equal(deaf, other_sound)


def test_without_any_real_sound_a_uniform_head_adds_nothing() -> None:
    model = small(layers=1)
    crops, log_mel, frame_mask, audio_mask = batch()
    with torch.inference_mode(), edit_heads(model, 0, uniform=range(HEADS)), capture_attention(model.fusion) as maps:
        model(crops, log_mel, frame_mask, torch.zeros_like(audio_mask))
    assert (maps["0.video_from_audio"] == 0).all()


def test_blocks_nest_and_the_model_is_as_before_whatever_happens() -> None:
    model, inputs = small(), batch()
    with torch.inference_mode():
        whole = model(*inputs).logits
        with edit_heads(model, 0, zero=[0, 1]), edit_heads(model, 1, uniform=[2]):
            both = model(*inputs).logits
        with edit_heads(model, 0, zero=[0]), edit_heads(model, 0, zero=[1]), edit_heads(model, 1, uniform=[2]):
            assert torch.equal(model(*inputs).logits, both)
        assert not torch.equal(whole, both)
        with pytest.raises(RuntimeError, match="planted"), edit_heads(model, 0, zero=[0]):
            raise RuntimeError("planted")
        assert torch.equal(model(*inputs).logits, whole)
    assert all(not attention._edits for attention in cross_attentions(model))


def test_gradients_reach_the_heads_that_are_left() -> None:
    model = small(layers=1)
    with edit_heads(model, 0, zero=[0]):
        model(*batch()).logits.sum().backward()
    gradient = cross_attentions(model)[0].out.weight.grad
    assert gradient is not None
    assert (gradient[:, :4] == 0).all()  # W_O of the silenced head
    assert (gradient[:, 4:] != 0).any()


def test_heads_and_layers_that_are_not_there_are_named() -> None:
    model = small()
    for arguments, message in (
        ((2, {}), "fusion layer 2 of a model with 2 layers"),
        ((0, {"zero": [4]}), r"heads \[4\] do not exist: layer 0 has heads 0..3"),
        ((0, {"zero": [1], "uniform": [1]}), r"heads \[1\] cannot be zero and uniform at once"),
    ):
        with pytest.raises(ValueError, match=message), edit_heads(model, arguments[0], **arguments[1]):
            pass
    assert grid_of_heads(model) == (2, 4)
    with pytest.raises(UsageError, match="this model has no cross-attention"):
        grid_of_heads(small(kind="concat"))
