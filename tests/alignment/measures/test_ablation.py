"""ΔAP of edited heads: worked by hand, equal to scoring the edited model by itself, drawn in pairs."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
import torch

from avfusion.alignment.measures.ablation import ablate, compare, score_edited
from avfusion.alignment.measures.encode_once import encode_once
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.errors import AvfusionError
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.models.head_edit import edit_heads
from avfusion.scoring import score_tracks
from tests.alignment.planted_attention import Clicks

CPU = torch.device("cpu")
HEADS, LAYERS = 2, 2


def real_model() -> tuple[ActiveSpeakerDetector, Config]:
    config = Config()
    config.data.crop_size, config.data.num_mels = 16, 16
    config.model.embed_dim, config.model.contrast_dim = 16, 8
    config.model.visual.channels, config.model.audio.channels = [4, 8], [4]
    config.model.fusion.heads, config.model.fusion.layers, config.model.fusion.window_s = HEADS, LAYERS, 0.2
    config.model.temporal.window_s = 0.2
    torch.manual_seed(0)
    model = build_model(config.model, 16)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3) if parameter.dim() > 1 else None
    return model, config


def talkers(lengths: tuple[int, ...]) -> Clicks:
    """Tracks of these lengths that speak in every other second."""
    dataset = Clicks([0.3] * len(lengths), max(lengths), hiss=0.05)
    for index, length in enumerate(lengths):
        speaking = np.arange(length) // 25 % 2 == index % 2
        boxes = np.zeros((length, 4), np.float32)
        dataset.tracks[index] = replace(dataset.tracks[index], speaking=speaking, boxes_xyxy=boxes)
    return dataset


def test_scores_equal_those_of_the_edited_model_by_itself() -> None:
    """Also of a track that is scored in chunks, and of one shorter than the others of its batch."""
    model, config = real_model()
    examples = Examples(talkers((60, 530, 41)), config.data)
    model.train()
    scores = score_edited(model, examples, config, CPU, [0, 1, 2])
    assert model.training
    conditions = {"zero": {"zero": [1]}, "uniform": {"uniform": [1]}}
    plain = score_tracks(model, examples, config, CPU)
    for kind, (name, edit) in enumerate(conditions.items()):
        with edit_heads(model, 1, **edit):
            alone = score_tracks(model, examples, config, CPU)
        for track in range(3):
            np.testing.assert_allclose(scores.edited[track][kind, 1, 1], alone[track], atol=2e-6, err_msg=name)
            assert np.abs(scores.edited[track][kind, 1, 1] - plain[track]).max() > 1e-4
    with edit_heads(model, 0, zero=[0, 1]), edit_heads(model, 1, zero=[0]):
        only = score_tracks(model, examples, config, CPU)
    with edit_heads(model, 0, zero=[0, 1]), edit_heads(model, 1, zero=[0, 1]):
        none = score_tracks(model, examples, config, CPU)
    for track in range(3):
        np.testing.assert_allclose(scores.edited[track][2, 1, 1], only[track], atol=2e-6)
        np.testing.assert_allclose(scores.none[track], none[track], atol=2e-6)
        np.testing.assert_allclose(scores.base[track], plain[track], atol=2e-6)


def test_delta_ap_worked_by_hand() -> None:
    """Four frames, positives first. Whole: AP 1. Head 1 zeroed: one of two positives falls to third place: AP 5/6."""
    speaking = np.array([True, True, False, False])
    base = np.array([0.9, 0.8, 0.2, 0.1], np.float32)
    fallen = np.array([0.9, 0.3, 0.4, 0.1], np.float32)  # precisions 1 and 2/3 at the two positives
    last = base[::-1].copy()  # precisions 1/3 and 2/4, and from the right no less than 1/2: AP 1/2
    edited = np.stack([np.stack([fallen, base]), np.stack([base, last]), np.stack([last, fallen])])[:, None]
    found = compare(speaking, np.array(["a", "a", "a", "a"]), base, edited, np.full(4, 0.5, np.float32))
    assert found.base_ap[0] == 1.0
    np.testing.assert_allclose(found.zero[0, :, 0], [5 / 6 - 1, 0], atol=1e-12)
    np.testing.assert_allclose(found.uniform[0, :, 0], [0, -1 / 2], atol=1e-12)
    np.testing.assert_allclose(found.only[0, :, 0], [-1 / 2, 5 / 6 - 1], atol=1e-12)
    assert found.none[0] == pytest.approx(0.5 - 1)  # all alike: the share of positives
    assert np.isnan(found.base_ap[1:]).all()  # one group
    assert (found.num_frames, found.num_groups) == (4, 1)


def test_whole_and_edited_are_drawn_together() -> None:
    """AP differs much from group to group, but the edit changes nothing: its interval has no width."""
    rng = np.random.default_rng(0)
    speaking = rng.random(600) < 0.4
    groups = np.repeat(np.arange(12), 50)
    base = (speaking * rng.random(12)[groups] + rng.random(600)).astype(np.float32)
    worse = base - 0.5 * speaking.astype(np.float32)
    edited = np.stack([np.stack([base, worse])] * 3)[:, None]
    found = compare(speaking, groups, base, edited, base, resamples=200)
    assert found.base_ap[2] - found.base_ap[1] > 0.03
    assert (found.zero[0, 0] == 0).all()
    value, low, high = found.zero[0, 1]
    assert low < value < high < 0
    again = compare(speaking, groups, base, edited, base, resamples=200)
    np.testing.assert_array_equal(found.zero, again.zero)


def test_ablation_of_a_dataset() -> None:
    model, config = real_model()
    dataset = talkers((60, 60, 60))
    dataset.tracks[1] = replace(dataset.tracks[1], labelled=False)
    found = ablate(model, Examples(dataset, config.data), config, CPU, resamples=20)
    assert found.num_frames == 120
    assert found.num_groups == 2
    assert found.zero.shape == found.uniform.shape == found.only.shape == (LAYERS, HEADS, 3)
    assert np.isfinite(found.zero[..., 0]).all()
    dataset.tracks[:] = [replace(track, speaking=np.zeros(60, bool)) for track in dataset.tracks]
    with pytest.raises(AvfusionError, match="none of the 2 labelled tracks speaks"):
        ablate(model, Examples(dataset, config.data), config, CPU)


def test_encoders_run_once_and_are_as_before() -> None:
    model, _ = real_model()
    model.eval()
    crops, log_mel = torch.rand(2, 1, 10, 16, 16), torch.randn(2, 40, 16)

    def passes_then_fails() -> None:
        with encode_once(model.visual, model.audio) as passes:
            for _ in range(3):
                passes.again()
                assert torch.equal(model(crops, log_mel).logits, plain)
            passes.again()
            # the memory answers: other pictures of the same shape change nothing
            assert torch.equal(model(torch.zeros_like(crops), log_mel).logits, plain)
            passes.again()
            model(crops[:, :, :5], log_mel[:, :20])

    with torch.inference_mode():
        plain = model(crops, log_mel).logits
        with pytest.raises(ValueError, match="every pass needs the same inputs"):
            passes_then_fails()
        assert "forward" not in vars(model.visual)
        assert not torch.equal(model(torch.zeros_like(crops), log_mel).logits, plain)


def test_several_inputs_of_a_pass_are_answered_in_their_order() -> None:
    layer = torch.nn.Linear(3, 2)
    first, second = torch.rand(4, 3), torch.rand(4, 3)
    with ExitStack() as stack:
        passes = stack.enter_context(encode_once(layer))
        expected = [layer(first), layer(second)]
        passes.again()
        assert [torch.equal(layer(one), two) for one, two in zip((first, second), expected, strict=True)] == [True] * 2
    assert not torch.equal(expected[0], expected[1])
