"""Facts about capture: it sees what the model does, changes nothing, and never holds more than a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from avfusion.alignment.capture import BATCH_FRAMES, AlignedClip, align_tracks
from avfusion.alignment.listening import listen_to_heads
from avfusion.config import Config
from avfusion.data.batching import collate
from avfusion.data.clips import Clip
from avfusion.data.examples import Example, Examples, Request
from avfusion.errors import UsageError
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.scoring import score_tracks
from avfusion.tracks import FaceTrack

CPU = torch.device("cpu")


class Talkers:
    """Tracks of random pixels and sound; every third frame speaks. Counts what is read."""

    name = "talkers"

    def __init__(self, lengths: list[int]) -> None:
        self.reads = 0
        boxes = [np.zeros((n, 4), np.float32) for n in lengths]
        self.tracks = [
            FaceTrack(f"v{k}", f"v{k}:0", 0.0, np.arange(n) % 3 == 0, boxes[k], f"v{k}", "own_sound")
            for k, n in enumerate(lengths)
        ]

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        self.reads += 1
        track, rng = self.tracks[index], np.random.default_rng(index)
        crops = rng.integers(0, 256, (track.num_frames, 16, 16), dtype=np.uint8)
        sound = rng.standard_normal(640 * track.num_frames).astype(np.float32) * 0.1
        last = track.num_frames if num_frames is None else first_frame + num_frames
        return Clip(crops[first_frame:last], sound[640 * first_frame : 640 * last], track.speaking[first_frame:last])


def small(kind: str = "cross_attention") -> Config:
    config = Config()
    config.data.crop_size, config.data.num_mels, config.data.cache_gb = 16, 20, 0.0
    config.model.embed_dim, config.model.contrast_dim = 16, 8
    config.model.visual.channels, config.model.audio.channels = [4, 8], [4]
    config.model.fusion.window_s = config.model.temporal.window_s = 0.2
    config.model.fusion.layers, config.model.fusion.heads, config.model.fusion.kind = 2, 2, kind
    return config


def setup(lengths: list[int], config: Config | None = None) -> tuple[ActiveSpeakerDetector, Examples, Config]:
    torch.manual_seed(0)
    config = config or small()
    model = build_model(config.model, config.data.num_mels)
    return model, Examples(Talkers(lengths), config.data), config


def by_track(clips: list[AlignedClip]) -> dict[int, AlignedClip]:
    assert len({clip.track for clip in clips}) == len(clips)
    return {clip.track: clip for clip in clips}


def test_a_clip_holds_what_the_model_gives_for_that_track_alone() -> None:
    model, examples, config = setup([20, 33, 20, 7])  # of several lengths, so padded and in company
    found = by_track(list(align_tracks(model, examples, config, CPU, head_outputs=True)))
    scores = score_tracks(model, examples, config, CPU)
    assert model.training
    model.eval()
    assert sorted(found) == [0, 1, 2, 3]
    for track, frames in enumerate([20, 33, 20, 7]):
        clip, batch = found[track], collate([examples[Request(track, 0, frames)]])
        with torch.no_grad():
            alone = model(batch.crops, batch.log_mel, need_alignment=True)
            heard = model.audio(batch.log_mel)
        assert clip.weights.shape == (2, 2, frames, 4 * frames)
        np.testing.assert_allclose(clip.weights, alone.alignment[0, 0], atol=1e-5)
        np.testing.assert_allclose(clip.scores, alone.logits[0, 0].sigmoid(), atol=1e-5)
        np.testing.assert_allclose(clip.scores, scores[track], atol=1e-5)
        np.testing.assert_array_equal(clip.speaking, np.arange(frames) % 3 == 0)
        np.testing.assert_array_equal(clip.key_speaking, np.repeat(clip.speaking, 4))
        np.testing.assert_allclose(clip.query_s, np.arange(frames) / 25)
        np.testing.assert_allclose(clip.key_s, np.arange(4 * frames) / 100)
        for layer, fusion in enumerate(model.fusion):
            attention = fusion.video_from_audio
            with torch.no_grad():
                norms = attention.value_norms(heard)[0]
                value = attention.key_value(heard)[0, :, 16:].unflatten(-1, (2, 8)).transpose(0, 1)  # (H, A, K)
            np.testing.assert_allclose(clip.value_norms[layer], norms, atol=1e-5)
            np.testing.assert_allclose(clip.head_outputs[layer], clip.weights[layer] @ value.numpy(), atol=1e-5)


def test_stretches_of_a_long_track_are_parts_of_the_whole() -> None:
    model, examples, config = setup([100, 30])
    (whole,) = align_tracks(model, examples, config, CPU, [0], head_outputs=True)
    parts = list(align_tracks(model, examples, config, CPU, [0], head_outputs=True, chunk_frames=32))
    assert sorted(part.first_frame for part in parts) == [0, 32, 64, 96]
    for part in parts:
        frames = slice(part.first_frame, part.first_frame + len(part.query_s))
        first_key = round(part.key_s[0] * 100)
        keys = slice(first_key, first_key + len(part.key_s))
        np.testing.assert_allclose(part.query_s, whole.query_s[frames])
        np.testing.assert_allclose(part.key_s, whole.key_s[keys])
        np.testing.assert_allclose(part.weights, whole.weights[:, :, frames, keys], atol=1e-5)
        np.testing.assert_allclose(part.weights.sum(-1), whole.weights[:, :, frames].sum(-1), atol=1e-5)  # all of it
        np.testing.assert_allclose(part.value_norms, whole.value_norms[:, :, keys], atol=1e-4)
        np.testing.assert_allclose(part.head_outputs, whole.head_outputs[:, :, frames], atol=1e-4)
        np.testing.assert_allclose(part.scores, whole.scores[frames], atol=1e-5)
        np.testing.assert_array_equal(part.key_speaking, whole.key_speaking[keys])
        assert part.weights.shape[-1] <= 4 * 32 + 2 * 20  # the window of 0.2 s on both sides, no more


def hooks(model: torch.nn.Module) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(getattr(module, "_listeners", ()))
        for module in model.modules()
    )


@pytest.mark.parametrize("training", [True, False])
def test_nobody_listens_between_two_clips_and_after_an_exception(training: bool) -> None:
    model, examples, config = setup([20, 20])
    model.train(training)
    clips = align_tracks(model, examples, config, CPU, head_outputs=True)
    next(clips)
    assert (model.training, hooks(model)) == (training, 0)
    clips.close()

    def broken(*args: object, **kwargs: object) -> None:
        assert hooks(model) > 0
        raise KeyError("inside")

    model.temporal[0].forward = broken
    with pytest.raises(KeyError, match="inside"):
        next(align_tracks(model, examples, config, CPU, head_outputs=True))
    assert (model.training, hooks(model)) == (training, 0)


def test_listening_changes_neither_scores_nor_gradients() -> None:
    model, examples, _ = setup([20])
    model.eval()
    batch = collate([examples[Request(0, 0, 20)]])
    before = model(batch.crops, batch.log_mel).logits
    gradients = torch.autograd.grad(before.sum(), list(model.fusion.parameters()))
    with listen_to_heads(model, head_outputs=True) as heard:
        during = model(batch.crops, batch.log_mel).logits
    assert torch.equal(before, during)
    listened = torch.autograd.grad(during.sum(), list(model.fusion.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(gradients, listened, strict=True))
    assert [tuple(layer.head_outputs.shape) for layer in heard] == [(1, 2, 20, 8)] * 2
    assert not any(layer.weights.requires_grad or layer.value_norms.requires_grad for layer in heard)


def test_no_more_than_a_batch_is_read_ahead() -> None:
    frames = 50
    model, examples, config = setup([frames] * 60)
    clips = align_tracks(model, examples, config, CPU)
    assert examples.dataset.reads == 0
    at_once = BATCH_FRAMES // frames
    for number, clip in enumerate(clips, start=1):
        assert examples.dataset.reads == at_once * -(-number // at_once)
        assert clip.weights.base is None or clip.weights.base.nbytes == clip.weights.nbytes  # keeps no batch alive
        assert clip.scores.base is None
    assert number == 60


def test_a_change_reaches_the_model_with_the_number_of_its_track() -> None:
    model, examples, config = setup([20, 12, 16])
    seen: list[tuple[int, int]] = []

    def louder(example: Example, track: int) -> Example:
        seen.append((track, len(example.speaking)))
        return replace(example, log_mel=example.log_mel + 3.0 * track)

    plain = by_track(list(align_tracks(model, examples, config, CPU)))
    changed = by_track(list(align_tracks(model, examples, config, CPU, [2, 0], change=louder)))
    assert sorted(seen) == [(0, 20), (2, 16)]
    np.testing.assert_array_equal(changed[0].weights, plain[0].weights)
    assert np.abs(changed[2].weights - plain[2].weights).max() > 1e-3
    model.eval()
    batch = collate([louder(examples[Request(2, 0, 16)], 2)])
    with torch.no_grad():
        alone = model(batch.crops, batch.log_mel, need_alignment=True)
    np.testing.assert_allclose(changed[2].weights, alone.alignment[0, 0], atol=1e-5)


def test_without_a_window_all_keys_stay() -> None:
    config = small()
    config.model.fusion.window_s = None
    model, examples, config = setup([40], config)
    (clip,) = align_tracks(model, examples, config, CPU, chunk_frames=16)  # the whole track is within reach
    assert clip.weights.shape == (2, 2, 40, 160)
    assert (clip.weights[:, :, 0, -1] > 0).all()


def test_a_model_without_heads_is_named() -> None:
    model, examples, config = setup([20], small("concat"))
    with pytest.raises(UsageError, match=r"model\.fusion\.kind=concat has no heads to listen to"):
        align_tracks(model, examples, config, CPU)


def test_what_does_not_fit_together_is_named() -> None:
    fits = AlignedClip(
        0, 0, np.ones((1, 1, 2, 8), np.float32), np.ones((1, 1, 8), np.float32), None,
        np.zeros(2, np.float32), np.array([True, False]), np.arange(2) / 25, np.arange(8) / 100,
    )  # fmt: skip
    np.testing.assert_array_equal(fits.key_speaking, [True] * 4 + [False] * 4)
    with pytest.raises(ValueError, match="expected query_s"):
        replace(fits, query_s=np.arange(3) / 25)
    with pytest.raises(ValueError, match=r"value_norms \(L, H, A\)"):
        replace(fits, value_norms=np.ones((1, 8), np.float32))
