"""Examples: the stretch that was asked for, and augmentation that depends on (seed, epoch, track) alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from avfusion.config import DataConfig
from avfusion.data.augment.draws import Draws
from avfusion.data.augment.mixing import active_power
from avfusion.data.augment.timing import draw_timing
from avfusion.data.batching import ClipLoader
from avfusion.data.examples import Examples, Request, fit_crops
from avfusion.errors import UsageError
from tests.data.ramp import Ramp


class Voices(Ramp):
    """The same pictures with a noise of its own as the sound of every track, silent where nobody speaks."""

    def sound(self, index: int) -> NDArray[np.float32]:
        track = self.tracks[index]
        level = 0.01 * (index + 1) * np.repeat(track.speaking, 640)
        return (level * np.random.default_rng(index).standard_normal(len(level))).astype(np.float32)


def data_config(**changes: object) -> DataConfig:
    config = DataConfig(crop_size=16, num_mels=20)
    for key, value in changes.items():
        setattr(config, key, value)
    return config


def only(data: DataConfig | None = None, **strengths: object) -> DataConfig:
    """Settings with no augmentation but what is given."""
    config = data or data_config()
    for key in ("flip", "shift", "zoom", "brightness", "noise", "gain_db", "eq_db", "audio_noise"):
        setattr(config.augment, key, 0.0)
    for key, value in strengths.items():
        setattr(config.augment, key, value)
    return config


class Heard(Examples):
    """Examples whose ``log_mel`` is the sound itself, for measuring."""

    def __init__(self, dataset: Ramp, config: DataConfig, *, seed: int = 0) -> None:
        super().__init__(dataset, config, augment=True, seed=seed)
        self._log_mel = torch.nn.Identity()  # type: ignore[assignment]

    def sound(self, request: Request) -> NDArray[np.float32]:
        return self[request].log_mel.numpy()


@pytest.mark.parametrize("cache_gb", [0.0, 1.0])
def test_a_request_gives_exactly_its_frames(cache_gb: float) -> None:
    examples = Examples(Ramp([9, 12]), data_config(cache_gb=cache_gb))
    for _ in range(2):  # the second time from the cache
        example = examples[Request(1, 3, 5)]
        assert (example.crops[:, 0, 0] * 255).round().tolist() == [13, 14, 15, 16, 17]
        assert example.speaking.tolist() == [False, True, False, True, False]
        assert example.log_mel.shape == (20, 20)


def test_the_cache_reads_each_track_once() -> None:
    dataset = Ramp([9, 12])
    examples = Examples(dataset, data_config())
    for first in range(4):
        examples[Request(0, first, 3)]
        examples[Request(1, first, 3)]
    assert dataset.reads == 2


def test_tracks_given_beforehand_are_not_read_until_memory_is_full() -> None:
    ramp = Ramp([9, 12, 9])
    expected = [Examples(ramp, data_config(cache_gb=0.0))[Request(track, 1, 4)] for track in range(3)]
    one_track = ramp.read(0).audio.nbytes / 1e9  # the second track is kept too: room is asked for before, not after
    examples = Examples(ramp, data_config(cache_gb=one_track * 1.5))
    examples.preload(ramp.read(track) for track in range(3))
    ramp.reads = 0

    for track in range(3):
        found = examples[Request(track, 1, 4)]
        assert torch.equal(found.crops, expected[track].crops)
        assert torch.equal(found.log_mel, expected[track].log_mel)
    assert ramp.reads == 1  # the third track alone


@pytest.mark.parametrize("cache_gb", [0.0, 1.0])
def test_resync_moves_the_sound_under_the_picture(cache_gb: float) -> None:
    config = data_config(cache_gb=cache_gb)
    config.augment.resync = 1.0
    plain, moved = Examples(Ramp([40]), config), Examples(Ramp([40]), config, augment=True)
    request = Request(0, 5, 20)
    assert plain[request].speaking.any()
    assert not moved[request].speaking.any()
    assert moved._clip(request, Draws(0))[0].audio[0] != plain._clip(request, None)[0].audio[0]


def test_only_what_speaks_is_moved_and_not_when_it_must_stay() -> None:
    config = data_config()
    config.augment.resync = 1.0
    dataset = Ramp([40, 40])
    dataset.tracks[1] = replace(dataset.tracks[1], speaking=np.zeros(40, bool))
    examples = Examples(dataset, config, augment=True)
    plain = Examples(dataset, config)
    draws = Draws(0)
    silent, kept = Request(1, 5, 20), Request(0, 5, 20, in_sync=True)
    assert np.array_equal(examples._clip(silent, draws)[0].audio, plain._clip(silent, None)[0].audio)
    assert np.array_equal(examples._clip(kept, draws)[0].audio, plain._clip(kept, None)[0].audio)


def test_region_cuts_before_resizing() -> None:
    crops = torch.zeros(1, 20, 20, dtype=torch.uint8)
    crops[:, 10:, 5:15] = 200
    assert fit_crops(crops, [0.25, 0.5, 0.75, 1.0], 16).eq(200).all()
    assert fit_crops(crops, [0.0, 0.0, 1.0, 0.5], 16).eq(0).all()
    assert torch.equal(fit_crops(crops, [0.0, 0.0, 1.0, 1.0], 20), crops)


EVERYTHING = {
    "resync": 0.3,
    "interferer": 0.5,
    "folder_noise": 0.5,
    "speed": 0.1,
    "pitch_semitones": 2.0,
    "audio_shift_ms": 100.0,
    "occlusion": 0.5,
    "blur": 0.5,
    "low_resolution": 0.5,
    "low_resolution_side": [6, 12],
    "drop_audio": 0.2,
    "drop_video": 0.2,
}


def noise_folder(folder: Path) -> str:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number, rate in enumerate((16_000, 22_050, 48_000)):
        soundfile.write(folder / f"{number}.wav", 0.1 * rng.standard_normal(3 * rate), rate)
    return str(folder)


def test_augmentation_depends_on_seed_epoch_and_track_alone(tmp_path: Path) -> None:
    """Whatever is in memory, in whatever order and process it is read."""
    lengths = [40, 25, 30, 18, 40, 33]
    folder = noise_folder(tmp_path / "noise")

    def examples(cache_gb: float, seed: int = 1) -> Examples:
        config = data_config(cache_gb=cache_gb)
        for key, value in (EVERYTHING | {"noise_folder": folder, "babble_folder": folder}).items():
            setattr(config.augment, key, value)
        return Examples(Voices(lengths), config, augment=True, seed=seed)

    requests = [
        Request(track, min(3, n - 16), 16, epoch, in_sync=epoch == 1)
        for epoch in range(6)
        for track, n in enumerate(lengths)
    ]
    plain = examples(0.0)
    expected = {request: plain[request] for request in requests}

    def agrees(found: Examples, order: list[Request]) -> bool:
        same = [
            torch.equal(example.crops, expected[request].crops)
            and torch.equal(example.log_mel, expected[request].log_mel)
            and torch.equal(example.speaking, expected[request].speaking)
            for request in order
            for example in [found[request]]
        ]
        return all(same)

    assert agrees(examples(1.0), requests)
    assert agrees(examples(1.0), requests[::-1])
    assert agrees(examples(2e-4), requests)  # room for the first tracks alone
    preloaded = examples(1.0)
    preloaded.preload(preloaded.dataset.read(track) for track in range(len(lengths)))
    assert agrees(preloaded, requests)
    for batch in ClipLoader(examples(1.0), [[request] for request in requests], workers=2):
        assert torch.equal(batch.crops[0, 0], expected[batch.requests[0]].crops)
        assert torch.equal(batch.log_mel[0], expected[batch.requests[0]].log_mel)
    assert not agrees(examples(0.0, seed=2), requests)
    assert all(len(expected[request].speaking) == 16 for request in requests)


def test_what_is_off_draws_nothing_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(self: Draws, option: str) -> np.random.Generator:
        raise AssertionError(f"{option} is off and was drawn")

    strange = {  # ranges of what is off have no part in it either
        "interferer_snr_db": [-20.0, -10.0],
        "folder_snr_db": [-20.0, -10.0],
        "occlusion_area": [0.8, 0.9],
        "blur_sigma": [3.0, 4.0],
        "low_resolution_side": [4, 5],
    }
    config = data_config()
    for key, value in strange.items():
        setattr(config.augment, key, value)
    requests = [Request(track, 2, 12, epoch) for track in range(3) for epoch in range(8)]
    expected = [Examples(Voices([20, 25, 30]), data_config(), augment=True)[request] for request in requests]
    monkeypatch.setattr(Draws, "of", drawn)
    found = [Examples(Voices([20, 25, 30]), config, augment=True)[request] for request in requests]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.crops, other.crops)
        assert torch.equal(one.log_mel, other.log_mel)


def test_with_nothing_on_an_augmented_example_is_the_plain_one() -> None:
    dataset = Voices([20, 25])
    plain, augmented = Examples(dataset, data_config()), Examples(dataset, only(), augment=True)
    for request in (Request(0, 3, 15), Request(1, 0, 25, epoch=3)):
        torch.testing.assert_close(augmented[request].crops, plain[request].crops, atol=1e-6, rtol=0)
        assert torch.equal(augmented[request].log_mel, plain[request].log_mel)


@pytest.mark.parametrize("snr_db", [0.0, 10.0])
@pytest.mark.parametrize("cache_gb", [0.0, 1.0])
def test_another_clips_voice_comes_at_the_asked_ratio(snr_db: float, cache_gb: float) -> None:
    dataset = Voices([40, 30, 60])
    config = only(data_config(cache_gb=cache_gb), interferer=1.0, interferer_snr_db=[snr_db, snr_db])
    heard, plain = Heard(dataset, config), Examples(dataset, data_config())
    others = set()
    for epoch in range(12):
        request = Request(0, 2, 36, epoch)
        own = dataset.read(0, 2, 36).audio
        voice = heard.sound(request) - own
        speaking = np.repeat(dataset.tracks[0].speaking[2:38], 640)
        ratio = np.mean(own[speaking].astype(np.float64) ** 2) / active_power(voice)
        assert 10 * np.log10(ratio) == pytest.approx(snr_db, abs=0.5)
        assert heard[request].speaking.tolist() == plain[request].speaking.tolist()
        assert heard[request].audio_id == plain[request].audio_id
        # It is the sound of one of the other tracks, and of no other.
        alike = [_likeness(voice, dataset.sound(track)) for track in range(3)]
        assert alike[0] < 0.1
        assert max(alike) > 0.6
        others.add(int(np.argmax(alike)))
    assert others == {1, 2}


def _likeness(sound: NDArray[np.float32], whole: NDArray[np.float32]) -> float:
    """The largest normalised correlation of a sound with any stretch of another."""
    size = len(sound) + len(whole)
    found = np.fft.irfft(np.fft.rfft(whole, size) * np.conj(np.fft.rfft(sound, size)), size)
    return float(np.abs(found).max() / np.sqrt(np.sum(sound**2) * np.sum(whole**2)))


def test_voices_are_mixed_in_as_often_as_asked() -> None:
    dataset = Voices([40, 30, 60])
    heard = Heard(dataset, only(interferer=0.3))
    own = dataset.read(0, 2, 20).audio
    mixed = sum(not np.array_equal(heard.sound(Request(0, 2, 20, epoch)), own) for epoch in range(400))
    assert mixed / 400 == pytest.approx(0.3, abs=0.07)


def test_that_nobody_can_be_mixed_in_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    dataset = Voices([20, 20, 20])
    dataset.tracks = [replace(track, group="one talker") for track in dataset.tracks]
    heard = Heard(dataset, only(interferer=1.0))
    for epoch in range(3):
        assert np.array_equal(heard.sound(Request(1, 0, 20, epoch)), dataset.read(1).audio)
    assert capsys.readouterr().err == (
        "note: data.augment.interferer: for 3 of 3 tracks nobody speaks in another video, sound and group: no voice is"
        " mixed into those\n"
    )
    Heard(Voices([20, 20]), only(interferer=1.0))
    Examples(dataset, only(interferer=1.0))  # without augmentation
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", ["noise", "music", "babble"])
def test_folders_come_at_the_asked_ratio_to_the_speech(tmp_path: Path, kind: str) -> None:
    dataset = Voices([60])
    folder = noise_folder(tmp_path / kind)
    settings = {"folder_noise": 1.0, "folder_snr_db": [0.0, 0.0], f"{kind}_folder": folder}
    heard, own = Heard(dataset, only(**settings)), dataset.read(0).audio
    speaking = np.repeat(dataset.tracks[0].speaking, 640)
    for epoch in range(6):
        added = (heard.sound(Request(0, 0, 60, epoch)) - own).astype(np.float64)
        ratio = np.mean(own[speaking].astype(np.float64) ** 2) / np.mean(added[speaking] ** 2)
        assert 10 * np.log10(ratio) == pytest.approx(0.0, abs=0.5)


def test_folders_are_looked_at_before_the_first_epoch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = only(folder_noise=0.5, noise_folder=str(tmp_path / "absent"))
    with pytest.raises(UsageError, match=r"data\.augment\.noise_folder: .*absent does not exist"):
        Examples(Voices([20]), config, augment=True)
    Examples(Voices([20]), config)  # validation needs no noise
    config.augment.folder_noise = 0.0
    Examples(Voices([20]), config, augment=True)
    told = "note: data.augment.noise_folder given and data.augment.folder_noise is 0: not used\n"
    assert capsys.readouterr().err == told


def test_streams_are_dropped_as_often_as_asked_and_never_both() -> None:
    dataset = Voices([20, 20])
    heard = Heard(dataset, only(drop_audio=0.2, drop_video=0.3, audio_noise=1.0, noise=0.1))
    counts = {"audio": 0, "video": 0}
    for epoch in range(400):
        example = heard[Request(0, 0, 20, epoch)]
        silent, grey = not example.log_mel.any(), bool((example.crops == 0.5).all())
        assert not (silent and grey)
        counts["audio"] += silent
        counts["video"] += grey
        assert example.speaking.tolist() == dataset.tracks[0].speaking.tolist()
    assert counts["audio"] / 400 == pytest.approx(0.2, abs=0.06)
    assert counts["video"] / 400 == pytest.approx(0.3, abs=0.07)
    assert not Heard(dataset, only(drop_audio=1.0)).sound(Request(1, 0, 20)).any()


def test_a_clip_without_one_of_its_streams_says_so() -> None:
    heard = Heard(Voices([20, 20]), only(drop_audio=0.3, drop_video=0.3))
    found = [heard[Request(0, 0, 20, epoch)] for epoch in range(20)]
    silent = [not example.log_mel.any() or bool((example.crops == 0.5).all()) for example in found]
    assert [not example.matched for example in found] == silent
    assert 0 < sum(silent) < 20


def test_the_shift_that_is_drawn_is_heard() -> None:
    dataset = Voices([60])
    dataset.tracks[0] = replace(dataset.tracks[0], speaking=np.ones(60, bool))
    heard, sound = Heard(dataset, only(audio_shift_ms=150.0)), dataset.sound(0)
    for epoch in range(10):
        shift = draw_timing(20, 20, 60, heard.config.augment, Draws(0, epoch, 0), may_shift=True).shift_samples
        assert abs(shift) > 0
        assert np.array_equal(heard.sound(Request(0, 20, 20, epoch)), sound[640 * 20 - shift : 640 * 40 - shift])


def test_contrastive_stretches_keep_both_streams_at_their_own_time() -> None:
    dataset = Voices([60])
    heard = Heard(dataset, only(audio_shift_ms=150.0, drop_audio=0.5, drop_video=0.5, resync=0.3))
    plain = Examples(dataset, data_config())
    for epoch in range(10):
        request = Request(0, 20, 20, epoch, in_sync=True)
        assert np.array_equal(heard.sound(request), dataset.sound(0)[640 * 20 : 640 * 40])
        torch.testing.assert_close(heard[request].crops, plain[request].crops, atol=1e-6, rtol=0)


@pytest.mark.parametrize("cache_gb", [0.0, 1.0])
def test_sound_out_of_sync_is_not_shifted_back(cache_gb: float) -> None:
    dataset = Voices([60])
    config = only(data_config(cache_gb=cache_gb), resync=1.0, audio_shift_ms=300.0)
    for epoch in range(20):
        example = Heard(dataset, config)[Request(0, 0, 60, epoch)]
        assert not example.speaking.any()
        turned = [np.array_equal(np.roll(dataset.sound(0), 640 * k), example.log_mel.numpy()) for k in range(60)]
        assert np.flatnonzero(turned).tolist() in [[k] for k in range(8, 53)]


def test_speed_moves_pictures_labels_and_sound_of_an_example_alike() -> None:
    dataset = Ramp([100])
    heard = Heard(dataset, only(speed=0.2))
    percents = set()
    for epoch in range(20):
        timing = draw_timing(10, 50, 100, heard.config.augment, Draws(0, epoch, 0), may_shift=True)
        percents.add(timing.percent)
        example = heard[Request(0, 10, 50, epoch)]
        frames = 10 + np.arange(50) * timing.percent / 100
        assert example.crops[:, 0, 0].numpy() * 255 == pytest.approx(frames, abs=0.51)
        assert example.speaking.tolist() == [int(frame + 0.5) % 2 == 0 for frame in frames]
        # The sound of frame i is i / 1000 over its 40 ms, and rings where it steps.
        middle = example.log_mel.numpy().reshape(50, 640)[:, 0]
        assert middle[1:] == pytest.approx(frames[1:] / 1000, abs=0.0012)
    assert len(percents) > 10
