"""Augmentation of the sound, by its measured effect."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.config import AugmentConfig
from avfusion.data.augment.draws import Draws
from avfusion.data.augment.mixing import Added
from avfusion.data.augment.pitch import shift_pitch
from avfusion.data.augment.sound import augment_audio, pink_noise

Only = Callable[..., AugmentConfig]
Sound = NDArray[np.float32]


def tone(hz: float, seconds: float = 1.0) -> Sound:
    return np.sin(2 * np.pi * hz * np.arange(round(16_000 * seconds)) / 16_000).astype(np.float32)


def peak_hz(sound: Sound) -> float:
    return float(np.argmax(np.abs(np.fft.rfft(sound * np.hanning(len(sound))))) * 16_000 / len(sound))


def test_all_off_changes_nothing(only: Only) -> None:
    sound = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    assert np.array_equal(augment_audio(sound, only(), Draws(0)), sound)


def test_gain_stays_within_its_range_and_reaches_for_it(only: Only) -> None:
    sound = tone(127)
    gains = [
        20 * np.log10(np.std(augment_audio(sound, only(gain_db=6.0), Draws(seed))) / np.std(sound))
        for seed in range(100)
    ]
    assert -6.001 <= min(gains) < -4
    assert 4 < max(gains) <= 6.001


def test_equalizer_stays_within_its_range_and_keeps_time(only: Only) -> None:
    noise = np.random.default_rng(0).standard_normal(16000).astype(np.float32)
    for seed in range(10):
        coloured = augment_audio(noise, only(eq_db=6.0), Draws(seed))
        change_db = 20 * np.log10(np.abs(np.fft.rfft(coloured)) / np.abs(np.fft.rfft(noise)))
        assert np.abs(change_db).max() < 6.01
        assert np.ptp(change_db) > 2
    # The curve is real and even in phase: a click stays where it is.
    click = np.zeros(16000, np.float32)
    click[8000] = 1.0
    assert np.argmax(np.abs(augment_audio(click, only(eq_db=6.0), Draws(0)))) == 8000


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 10.0])
@pytest.mark.parametrize("pause", [0.0, 0.7])
def test_noise_comes_at_the_asked_ratio_to_what_is_heard(snr_db: float, pause: float, only: Only) -> None:
    sound = tone(127)
    first = round(pause * len(sound)) // 320 * 320
    sound[:first] *= 1e-4  # a pause is not quite silent
    for seed in range(6):  # white and pink
        config = only(audio_noise=1.0, audio_noise_snr_db=[snr_db, snr_db])
        noise = augment_audio(sound, config, Draws(seed)) - sound
        speech, heard = np.mean(sound[first:] ** 2), np.mean(noise**2)
        assert 10 * np.log10(speech / heard) == pytest.approx(snr_db, abs=0.5)


def test_silence_stays_finite(only: Only) -> None:
    silent = np.zeros(640, np.float32)
    config = only(audio_noise=1.0, gain_db=6.0, eq_db=6.0, pitch_semitones=2.0)
    assert np.array_equal(augment_audio(silent, config, Draws(0), [Added(tone(100, 0.04), 0.0)]), silent)
    assert len(augment_audio(silent[:0], only(audio_noise=1.0), Draws(0))) == 0


def test_pink_noise_falls_by_three_db_an_octave() -> None:
    power = np.abs(np.fft.rfft(pink_noise(2**16, np.random.default_rng(0)))) ** 2
    low, high = power[500:1000].mean(), power[4000:8000].mean()
    assert 10 * np.log10(low / high) == pytest.approx(9.0, abs=1.0)


def test_a_sound_mixed_in_passes_the_same_microphone_and_then_has_its_ratio(only: Only) -> None:
    """Own sound and addition are tones, told apart by their frequencies in what comes out."""
    own, other = tone(400), 0.05 * (tone(1000) + tone(3000))
    config, tilts_db = only(eq_db=12.0, gain_db=6.0), []
    for seed in range(12):
        power = np.abs(np.fft.rfft(augment_audio(own, config, Draws(seed), [Added(other, 3.0)]))) ** 2
        assert 10 * np.log10(power[400] / (power[1000] + power[3000])) == pytest.approx(3.0, abs=0.1)
        alone = np.abs(np.fft.rfft(augment_audio(other, config, Draws(seed)))) ** 2
        tilts_db.append(10 * np.log10(power[3000] / power[1000]))
        assert tilts_db[-1] == pytest.approx(10 * np.log10(alone[3000] / alone[1000]), abs=0.01)
    assert np.ptp(tilts_db) > 6


@pytest.mark.parametrize(("semitones", "expected_hz"), [(12.0, 880.0), (-12.0, 220.0), (5.0, 587.3), (-0.5, 427.5)])
def test_pitch_moves_a_tone_and_keeps_its_length(semitones: float, expected_hz: float) -> None:
    sound = tone(440, 2.0)
    higher = shift_pitch(sound, semitones)
    assert len(higher) == len(sound)
    assert peak_hz(higher) == pytest.approx(expected_hz, rel=0.006)  # to the nearest percent
    middle = slice(4000, 28_000)
    assert np.std(higher[middle]) == pytest.approx(np.std(sound[middle]), rel=0.05)


@pytest.mark.parametrize("semitones", [-6.0, 3.0, 12.0])
def test_pitch_leaves_every_sound_at_its_time(semitones: float) -> None:
    sound = np.zeros(32_000, np.float32)
    starts = (3200, 14_400, 25_600)
    for start in starts:
        sound[start : start + 1600] = tone(500, 0.1) * np.hanning(1600)
    power = np.convolve(shift_pitch(sound, semitones) ** 2, np.ones(160), "same")
    for start in starts:
        near = power[start - 1600 : start + 3200]
        centre = np.sum(near * np.arange(len(near))) / near.sum() - 1600
        assert centre == pytest.approx(800, abs=80)  # 5 ms


def test_pitch_is_drawn_within_its_range_and_touches_nothing_when_off(only: Only) -> None:
    sound = tone(440)
    found = [peak_hz(augment_audio(sound, only(pitch_semitones=2.0), Draws(seed))) for seed in range(40)]
    assert 440 * 2 ** (-2 / 12) * 0.994 <= min(found) < 420
    assert 460 < max(found) <= 440 * 2 ** (2 / 12) * 1.006
    assert np.array_equal(shift_pitch(sound, 0.0), sound)
