"""The lag of a film's sound: found where stretches agree, 0 where they do not, and taken out to the sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from avfusion.config import Config, DataConfig
from avfusion.data.clips import Clip, Skipped
from avfusion.inference.film_lag import FARTHEST, STRETCH_FRAMES, MovedSound, find_lag, weigh
from avfusion.media.audio import write_audio
from avfusion.models import ActiveSpeakerDetector
from avfusion.tracks import FaceTrack

CPU = torch.device("cpu")


@dataclass
class Flashing:
    """A film of one face that is light or dark, and loud or quiet, as was drawn for each frame."""

    codes: NDArray[np.int64]
    heard: NDArray[np.int64]

    def __post_init__(self) -> None:
        frames = len(self.codes)
        boxes = np.tile(np.array([0, 0, 1, 1], np.float32), (frames, 1))
        self.name, self.skipped = "flashing", Skipped()
        self.tracks = [FaceTrack("film", "face", 0.0, np.zeros(frames, bool), boxes, "film")]

    def sound(self) -> NDArray[np.float32]:
        tone = np.sin(2 * np.pi * 1000 / 16_000 * np.arange(640 * len(self.heard)))
        return (np.repeat(np.where(self.heard, 0.5, 0.005), 640) * tone).astype(np.float32)

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        count = len(self.codes) - first_frame if num_frames is None else num_frames
        kept = slice(first_frame, first_frame + count)
        crops = np.broadcast_to((200 * self.codes[kept]).astype(np.uint8)[:, None, None], (count, 32, 32))
        return Clip(crops.copy(), self.sound()[640 * first_frame : 640 * (first_frame + count)], np.zeros(count, bool))


class Reader(nn.Module):
    """Tells light from dark and loud from quiet: embeddings are 1 or -1."""

    def forward(self, crops: Tensor, log_mel: Tensor, *_: object) -> Any:
        loud = log_mel.unflatten(1, (-1, 4)).amax(dim=3)[:, :, 1:3].mean(dim=2)
        middle = (loud.amax(dim=1) + loud.amin(dim=1))[:, None] / 2
        return SimpleNamespace(
            video_embedding=(crops.mean(dim=(-1, -2)) - 0.4).sign()[..., None],
            audio_embedding=(loud - middle).sign()[..., None],
        )


def film(lag: int, frames: int = 10 * STRETCH_FRAMES) -> Flashing:
    codes = np.random.default_rng(0).integers(0, 2, frames)
    return Flashing(codes, np.roll(codes, lag))


def found(dataset: Flashing) -> Any:
    config = Config(data=DataConfig(crop_size=32))
    return find_lag(cast(ActiveSpeakerDetector, Reader().train()), dataset, config, CPU)


@pytest.mark.parametrize("lag", [-5, -1, 0, 2, 5])
def test_the_lag_that_a_film_was_made_with_is_found(lag: int) -> None:
    """Positive: the sound comes later than the picture."""
    lag_found = found(film(lag))
    assert (lag_found.frames, lag_found.found, lag_found.stretches) == (lag, True, 10)
    assert lag_found.facts()["ms"] == 40 * lag
    assert int(np.argmax(lag_found.similarity)) == FARTHEST + lag


def test_further_off_than_200_ms_is_a_film_out_of_step_and_stays_so() -> None:
    lag = found(film(7))
    assert (lag.frames, lag.found) == (0, False)


@pytest.mark.parametrize("frames", [35, 60, 110])
def test_a_film_in_which_every_frame_tells_needs_to_be_no_longer_than_that(frames: int) -> None:
    lag = found(film(2, frames))
    assert (lag.frames, lag.found) == (2, True)


def test_a_film_too_short_and_one_of_another_s_voice_stay_as_they_are() -> None:
    short = found(film(2, 20))
    assert (short.frames, short.found, short.stretches, short.evidence) == (0, False, 0, 0.0)
    rng = np.random.default_rng(1)
    strange = found(Flashing(rng.integers(0, 2, 750), rng.integers(0, 2, 750)))
    assert (strange.frames, strange.found) == (0, False)
    assert strange.evidence < -5


def test_stretches_in_which_nobody_speaks_do_not_outvote_the_others() -> None:
    """Two of twelve tell that the sound comes five frames late; the others are alike at every move."""
    curves = np.zeros((12, 2 * FARTHEST + 1))
    curves[[4, 9], FARTHEST + 5] = 0.5
    lag = weigh(curves, [STRETCH_FRAMES] * 12)
    assert (lag.frames, lag.found, lag.stretches) == (5, True, 12)
    assert weigh(curves[[4, 9]], [STRETCH_FRAMES] * 2).evidence == pytest.approx(lag.evidence)
    assert not weigh(curves[:6], [STRETCH_FRAMES] * 6).found  # one alone is too little for an unusual lag


def test_stretches_that_do_not_agree_tell_that_nothing_belongs_together() -> None:
    curves = 0.5 * np.eye(2 * FARTHEST + 1)[[3, 8, 12, 13, 17, 20]]
    lag = weigh(curves, [STRETCH_FRAMES] * 6)
    assert (lag.frames, lag.found) == (0, False)
    assert lag.evidence < 0


def test_a_longer_stretch_counts_for_more() -> None:
    curves = np.zeros((2, 2 * FARTHEST + 1))
    curves[0, FARTHEST - 1] = curves[1, FARTHEST + 1] = 0.4
    assert int(np.argmax(weigh(curves, [60, 30]).similarity)) == FARTHEST - 1
    assert int(np.argmax(weigh(curves, [30, 60]).similarity)) == FARTHEST + 1
    assert weigh(curves[:1], [60]).evidence > weigh(curves[:1], [30]).evidence


def test_what_a_stretch_tells_worked_by_hand() -> None:
    """Similarity 0.4 at one move of 25, in 50 frames of 0.4 nats each: a choice among 25, a lag of 0 being usual."""
    curves = np.zeros((1, 2 * FARTHEST + 1))
    curves[0, FARTHEST] = 0.4
    chosen = np.exp(0.4 * 50 * 0.4) / (np.exp(0.4 * 50 * 0.4) + 24)
    others = (1 - chosen) / 24
    lags = np.arange(-5, 6)
    likely = np.exp(-(((lags - 0.7) / 2) ** 2) / 2)
    at_0 = likely[5] / likely.sum()
    expected = np.log(25 * (at_0 * chosen + (1 - at_0) * others))
    assert weigh(curves, [50]).evidence == pytest.approx(expected)


def test_curves_that_agree_everywhere_alike_tell_nothing() -> None:
    lag = weigh(np.ones((20, 2 * FARTHEST + 1)), [STRETCH_FRAMES] * 20)
    assert (lag.frames, lag.found, lag.evidence) == (0, False, pytest.approx(0.0))


def test_the_model_comes_back_in_the_mode_it_was_in(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Reader().train()
    modes: list[bool] = []
    forward: Callable[..., Any] = model.forward
    monkeypatch.setattr(model, "forward", lambda *given: modes.append(model.training) or forward(*given))
    find_lag(cast(ActiveSpeakerDetector, model), film(0), Config(data=DataConfig(crop_size=32)), CPU)
    assert modes == [False] * 3  # windows of 8 s, or what is left
    assert model.training


@pytest.mark.parametrize("lag", [-2, 3])
def test_moved_sound_is_what_belongs_to_the_frames_and_silence_beyond_the_film(lag: int, tmp_path: Path) -> None:
    dataset = film(lag, 60)
    write_audio(tmp_path / "film.flac", dataset.sound())
    moved = MovedSound(dataset, tmp_path / "film.flac", lag)
    whole = np.concatenate([np.zeros(640 * 3, np.float32), dataset.sound(), np.zeros(640 * 3, np.float32)])
    for first, count in ((0, 60), (0, 7), (20, 30), (50, 10)):
        clip, plain = moved.read(0, first, count), dataset.read(0, first, count)
        wanted = whole[640 * (3 + first + lag) : 640 * (3 + first + lag + count)]
        np.testing.assert_allclose(clip.audio, wanted, atol=2 / 2**15)
        np.testing.assert_array_equal(clip.crops, plain.crops)
    still = MovedSound(dataset, tmp_path / "absent.flac", 0)
    np.testing.assert_array_equal(still.read(0).audio, dataset.sound())
