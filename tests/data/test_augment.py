"""Augmentation, by its measured effect."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from avfusion.config import AugmentConfig
from avfusion.data.augment import augment_audio, augment_crops, out_of_sync, pink_noise
from avfusion.data.clips import Clip

OFF = {"flip": 0, "shift": 0, "zoom": 0, "brightness": 0, "noise": 0, "gain_db": 0, "eq_db": 0, "audio_noise": 0}


def only(**strengths: object) -> AugmentConfig:
    return AugmentConfig(**(OFF | strengths))  # type: ignore[arg-type]


def picture() -> torch.Tensor:
    return torch.rand(3, 24, 24, generator=torch.Generator().manual_seed(0))


def test_all_off_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    assert torch.equal(augment_crops(picture(), only(), rng), picture())
    sound = rng.standard_normal(1000).astype(np.float32)
    assert np.array_equal(augment_audio(sound, only(), rng), sound)


def test_flip_mirrors_every_frame() -> None:
    mirrored = augment_crops(picture(), only(flip=1.0), np.random.default_rng(0))
    torch.testing.assert_close(mirrored, picture().flip(2), atol=1e-5, rtol=0)


def test_shift_moves_by_at_most_its_share_and_all_frames_alike() -> None:
    spot = torch.zeros(2, 41, 41)
    spot[:, 20, 20] = 1.0
    largest = 0.0
    for seed in range(50):
        moved = augment_crops(spot, only(shift=0.1), np.random.default_rng(seed))
        assert torch.equal(moved[0], moved[1])
        weights = moved[0] / moved[0].sum()
        y, x = torch.meshgrid(torch.arange(41.0), torch.arange(41.0), indexing="ij")
        distance = max(abs(float((weights * y).sum()) - 20), abs(float((weights * x).sum()) - 20))
        largest = max(largest, distance)
        assert distance <= 0.1 * 41 + 0.5
    assert largest > 0.05 * 41


def test_brightness_and_noise_stay_in_range() -> None:
    for seed in range(20):
        out = augment_crops(picture(), only(brightness=0.5, noise=0.2), np.random.default_rng(seed))
        assert out.min() >= 0
        assert out.max() <= 1


def test_gain_stays_within_its_range_and_reaches_for_it() -> None:
    sound = np.sin(np.arange(16000) / 20).astype(np.float32)
    gains = [
        20 * np.log10(np.std(augment_audio(sound, only(gain_db=6.0), np.random.default_rng(seed))) / np.std(sound))
        for seed in range(100)
    ]
    assert -6.001 <= min(gains) < -4
    assert 4 < max(gains) <= 6.001


def test_equalizer_stays_within_its_range_and_keeps_time() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(16000).astype(np.float32)
    for seed in range(10):
        coloured = augment_audio(noise, only(eq_db=6.0), np.random.default_rng(seed))
        change_db = 20 * np.log10(np.abs(np.fft.rfft(coloured)) / np.abs(np.fft.rfft(noise)))
        assert np.abs(change_db).max() < 6.01
        assert np.ptp(change_db) > 2
    # The curve is real and even in phase: a click stays where it is.
    click = np.zeros(16000, np.float32)
    click[8000] = 1.0
    assert np.argmax(np.abs(augment_audio(click, only(eq_db=6.0), rng))) == 8000


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 10.0])
def test_noise_comes_at_the_asked_ratio(snr_db: float) -> None:
    sound = np.sin(np.arange(16000) / 20).astype(np.float32)
    for seed in range(6):  # white and pink
        config = only(audio_noise=1.0, audio_noise_snr_db=[snr_db, snr_db])
        noise = augment_audio(sound, config, np.random.default_rng(seed)) - sound
        assert 10 * np.log10(np.mean(sound**2) / np.mean(noise**2)) == pytest.approx(snr_db, abs=0.5)


def test_silence_stays_finite() -> None:
    silent = np.zeros(640, np.float32)
    assert np.array_equal(augment_audio(silent, only(audio_noise=1.0, gain_db=6.0), np.random.default_rng(0)), silent)
    assert len(augment_audio(silent[:0], only(audio_noise=1.0), np.random.default_rng(0))) == 0


def test_pink_noise_falls_by_three_db_an_octave() -> None:
    power = np.abs(np.fft.rfft(pink_noise(2**16, np.random.default_rng(0)))) ** 2
    low, high = power[500:1000].mean(), power[4000:8000].mean()
    assert 10 * np.log10(low / high) == pytest.approx(9.0, abs=1.0)


def test_out_of_sync_turns_the_sound_by_whole_frames_and_far_enough() -> None:
    frames = 20
    sound = np.repeat(np.arange(frames, dtype=np.float32), 640)
    clip = Clip(np.zeros((frames, 16, 16), np.uint8), sound, np.ones(frames, bool))
    shifts = set()
    for seed in range(200):
        moved = out_of_sync(clip, np.random.default_rng(seed))
        heard = moved.audio[::640].astype(int)
        shift = (0 - heard[0]) % frames
        assert heard.tolist() == [(i - shift) % frames for i in range(frames)]
        assert not moved.speaking.any()
        shifts.add(shift)
    assert shifts == set(range(8, 13))  # at least 0.32 s later, and as much earlier
    assert clip.speaking.all()


def test_a_clip_too_short_to_be_moved_stays() -> None:
    clip = Clip(np.zeros((15, 16, 16), np.uint8), np.zeros(15 * 640, np.float32), np.ones(15, bool))
    assert out_of_sync(clip, np.random.default_rng(0)) is clip
