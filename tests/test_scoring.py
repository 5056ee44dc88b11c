"""Scoring: chunks change nothing, every frame gets its score, and planted offsets are cut as they are told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from avfusion.config import Config
from avfusion.data.batching import collate
from avfusion.data.clips import Clip
from avfusion.data.examples import Examples, Request
from avfusion.errors import UsageError
from avfusion.models import build_model, context_frames
from avfusion.scoring import _window_of_most_speech, offset_trials, pick_device, plan_chunks, score_tracks
from avfusion.tracks import FaceTrack


class RandomTalkers:
    """Tracks of random pixels and sound."""

    name = "random"

    def __init__(self, lengths: list[int]) -> None:
        self.tracks = [
            FaceTrack(f"v{k}", f"v{k}:0", 0.0, np.zeros(n, bool), np.zeros((n, 4), np.float32), f"v{k}", "own_sound")
            for k, n in enumerate(lengths)
        ]

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        total = self.tracks[index].num_frames
        rng = np.random.default_rng(index)
        crops = rng.integers(0, 256, (total, 32, 32), dtype=np.uint8)
        sound = rng.standard_normal(640 * total).astype(np.float32) * 0.1
        last = total if num_frames is None else first_frame + num_frames
        speaking = self.tracks[index].speaking
        return Clip(crops[first_frame:last], sound[640 * first_frame : 640 * last], speaking[first_frame:last])


def small() -> Config:
    config = Config()
    config.data.crop_size, config.data.num_mels, config.data.cache_gb = 32, 20, 0.0
    config.model.embed_dim, config.model.contrast_dim = 16, 8
    config.model.visual.channels, config.model.audio.channels = [4, 8], [4]
    config.model.fusion.window_s = config.model.temporal.window_s = 0.2
    return config


def test_chunks_cover_each_frame_once_with_context() -> None:
    chunks = plan_chunks(0, 1050, reach=40, chunk_frames=500)
    kept = [frame for c in chunks for frame in range(c.keep_first, c.keep_last)]
    assert kept == list(range(1050))
    assert [(c.request.first_frame, c.request.num_frames) for c in chunks] == [(0, 540), (460, 580), (960, 90)]
    assert len(plan_chunks(0, 1050, reach=None)) == 1


@pytest.mark.parametrize("window_s", [1.0, 3.0, 20.0])
def test_every_frame_is_scored_however_far_the_model_sees(window_s: float) -> None:
    """With a long reach several chunks run over the same whole track; none of them may be lost."""
    config = small()
    config.model.temporal.window_s = window_s
    model = build_model(config.model, config.data.num_mels)
    examples, device = Examples(RandomTalkers([160, 47]), config.data), torch.device("cpu")
    whole = score_tracks(model, examples, config, device, chunk_frames=1000)
    chunked = score_tracks(model, examples, config, device, chunk_frames=40)
    for a, b in zip(whole, chunked, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-5)


def test_chunked_scores_equal_whole_scores() -> None:
    torch.manual_seed(0)
    config = small()
    model = build_model(config.model, config.data.num_mels)
    torch.nn.init.normal_(model.head.weight)
    model.train()
    dataset = RandomTalkers([130, 31, 70])
    examples, device = Examples(dataset, config.data), torch.device("cpu")
    whole = score_tracks(model, examples, config, device, chunk_frames=1000)
    assert context_frames(config.model) == 18  # 2 x 0.2 s of windows, twice 3 frames of encoders, 2 of the convolution
    chunked = score_tracks(model, examples, config, device, chunk_frames=32)
    for a, b, track in zip(whole, chunked, dataset.tracks, strict=True):
        assert a.shape == (track.num_frames,)
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert np.ptp(whole[0]) > 0.01
    assert model.training  # left as it was found


@pytest.mark.parametrize("frames", [75, 50])
def test_planted_offsets_are_found_by_a_model_that_knows(frames: int) -> None:
    """A stand-in whose embeddings name the true frame: picture and sound say which frame they come from."""

    class Numbered(RandomTalkers):
        def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
            total = self.tracks[index].num_frames
            numbers = np.arange(total)
            crops = np.broadcast_to(numbers[:, None, None], (total, 32, 32)).astype(np.uint8)
            return Clip(crops, np.repeat(numbers / 100, 640).astype(np.float32), self.tracks[index].speaking)

    class Knows(torch.nn.Module):
        def forward(self, crops: torch.Tensor, log_mel: torch.Tensor, *masks: torch.Tensor) -> object:
            seen = (crops[0, 0, :, 0, 0] * 255).round().long()
            # The level of a constant signal tells its number: undo log and affine up to order by ranking.
            level = log_mel[0, :, 0].reshape(-1, 4)[:, 1:3].mean(1)
            first = int(Knows.first_sound)
            heard = first + level.argsort().argsort()
            one_hot = torch.nn.functional.one_hot
            return type(
                "Out",
                (),
                {
                    "video_embedding": one_hot(seen, 200).float()[None, None],
                    "audio_embedding": one_hot(heard, 200).float()[None],
                },
            )

    from avfusion.evaluation.desync import offset_from_similarity

    config = small()
    dataset = Numbered([frames] * 6)
    length = min(50, frames - 16)
    trials = []
    for track in range(6):
        rng = np.random.default_rng(track)
        planted = int(rng.integers(-8, 9))
        allowed = frames - length - 16 + 1  # nobody speaks: the middle of the windows that may be
        Knows.first_sound = 8 + allowed // 2 - planted  # type: ignore[attr-defined]
        trials += offset_trials(Knows(), dataset, [track], config, torch.device("cpu"), seed=track)  # type: ignore[arg-type]
        assert trials[-1].planted == planted
    assert [offset_from_similarity(t.similarity) for t in trials] == [t.planted for t in trials]
    assert len({t.planted for t in trials}) > 2


def test_the_window_lies_where_most_of_the_speech_is() -> None:
    speaking = np.zeros(100, bool)
    speaking[60:80] = True
    assert _window_of_most_speech(speaking, 30, 8) in range(50, 61)
    assert _window_of_most_speech(np.zeros(50, bool), 34, 8) == 8
    speaking[:] = False
    speaking[:5] = True  # only where the sound could not be moved any more
    assert _window_of_most_speech(speaking, 30, 8) in range(8, 63)


def test_clips_too_short_for_an_inner_window_are_left_out() -> None:
    config = small()
    model = build_model(config.model, config.data.num_mels)
    assert offset_trials(model, RandomTalkers([30, 47]), [0, 1], config, torch.device("cpu")) == []


def test_an_absent_device_is_named() -> None:
    absent = "mps" if not torch.backends.mps.is_available() else "cuda"
    with pytest.raises(UsageError, match=f"run.device={absent}: torch finds no such device here"):
        pick_device(absent)
    assert pick_device("cpu").type == "cpu"


class ComingAndGoing(RandomTalkers):
    """Faces of one video: two all the time, one in the middle, one that comes late; and somebody in another video."""

    def __init__(self) -> None:
        super().__init__([90, 90, 40, 60, 50])
        starts = [0, 0, 30, 60, 0]
        for n, (track, start) in enumerate(zip(self.tracks, starts, strict=True)):
            video = "w" if n == 4 else "v"
            self.tracks[n] = replace(track, video_id=video, audio_id=video, start_s=start / 25)


@pytest.mark.parametrize("chunk_frames", [1000, 25])
def test_faces_are_scored_in_the_company_that_they_are_seen_in(chunk_frames: int) -> None:
    config = small()
    config.model.speaker.layers = 1
    torch.manual_seed(0)
    model = build_model(config.model, 20).eval()
    for parameter in model.speaker.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    data = ComingAndGoing()
    examples = Examples(data, config.data)
    found = score_tracks(model, examples, config, torch.device("cpu"), chunk_frames=chunk_frames)
    assert all(np.isfinite(scores).all() for scores in found)
    for index, others in ((0, (1, 2, 3)), (1, (0, 2, 3)), (2, (0, 1, 3)), (3, (0, 1, 2)), (4, ())):
        whole = collate([examples[Request(index, 0, data.tracks[index].num_frames, others=others)]])
        with torch.inference_mode():
            expected = model(whole.crops, whole.log_mel, whole.frame_mask, whole.audio_mask).logits[0, 0].sigmoid()
        # Tracks 0 and 1 are scored in one go, with the sound of the first.
        if index != 1:
            np.testing.assert_allclose(found[index], expected, atol=1e-5)
    alone = score_tracks(model, Examples(RandomTalkers([90, 90, 40, 60, 50]), config.data), config, torch.device("cpu"))
    np.testing.assert_allclose(alone[4], found[4], atol=1e-6)
    assert np.abs(alone[0] - found[0]).max() > 1e-3
