"""Sounds around a talker: of unit strength, and told apart by spectrum and rhythm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from avfusion.clock import SAMPLE_RATE
from avfusion.data.synthetic.sounds import music, noise, room_floor


def spectrogram(sound: np.ndarray, span: int = 2048, hop: int = 512) -> np.ndarray:
    """``(frames, bins)`` powers."""
    starts = np.arange(0, len(sound) - span, hop)
    return np.abs(np.fft.rfft(sound[starts[:, None] + np.arange(span)] * np.hanning(span), axis=1)) ** 2


def tonality(sound: np.ndarray) -> float:
    """How far single frequencies stand out: log of mean over geometric mean of the power below 2 kHz."""
    low = spectrogram(sound)[:, 4:256] + 1e-9
    return float(np.mean(np.log(low.mean(axis=1)) - np.log(low).mean(axis=1)))


@pytest.mark.parametrize("make", [room_floor, noise, music])
@pytest.mark.parametrize("num_samples", [640, 7001, 48_000])
def test_all_have_unit_rms_and_depend_on_nothing_but_the_generator(
    make: Callable[[np.random.Generator, int], np.ndarray], num_samples: int
):
    for seed in range(10):
        sound, again = (make(np.random.default_rng(seed), num_samples) for _ in range(2))
        assert sound.dtype == np.float32
        assert sound.shape == (num_samples,)
        assert np.sqrt(np.mean(sound.astype(float) ** 2)) == pytest.approx(1.0, abs=1e-4)
        np.testing.assert_array_equal(sound, again)
        assert not np.array_equal(sound, make(np.random.default_rng(seed + 100), num_samples))


def test_the_room_is_steady_and_falls_by_at_most_6_db_per_octave():
    hz = np.fft.rfftfreq(48_000, 1 / SAMPLE_RATE)
    slopes_db = []
    for seed in range(40):
        sound = room_floor(np.random.default_rng(seed), 48_000)
        tenths = np.sqrt(np.mean(sound.reshape(10, -1).astype(float) ** 2, axis=1))
        assert tenths.max() / tenths.min() < 1.6
        power = np.abs(np.fft.rfft(sound)) ** 2
        low, high = (power[(hz >= edge) & (hz < 2 * edge)].mean() for edge in (250, 4000))
        slopes_db.append(10 * np.log10(low / high) / 4)
    assert -0.5 < min(slopes_db) < 1.0
    assert 5.0 < max(slopes_db) < 6.5


def test_noise_changes_its_level_slowly_and_its_color_from_case_to_case():
    spreads_db, centers_hz = [], []
    hz = np.fft.rfftfreq(48_000, 1 / SAMPLE_RATE)
    for seed in range(60):
        sound = noise(np.random.default_rng(seed), 48_000)
        levels_db = 10 * np.log10(np.mean(sound.reshape(15, -1).astype(float) ** 2, axis=1))
        spreads_db.append(np.ptp(levels_db))
        power = np.abs(np.fft.rfft(sound)) ** 2
        centers_hz.append((power * hz).sum() / power.sum())
    assert np.median(spreads_db) > 3.0
    assert min(centers_hz) < 800
    assert max(centers_hz) > 3000


def test_music_is_tonal_and_keeps_a_beat():
    tones = [tonality(music(np.random.default_rng(seed), 48_000)) for seed in range(20)]
    noises = [tonality(room_floor(np.random.default_rng(seed), 48_000)) for seed in range(20)]
    assert np.median(tones) > 2 * np.median(noises)
    regular = 0
    for seed in range(20):
        sound = music(np.random.default_rng(seed), 20 * SAMPLE_RATE)
        onsets = np.maximum(np.diff(np.log(spectrogram(sound, 1024, 160) + 1e-6), axis=0), 0).sum(axis=1)
        onsets = onsets - onsets.mean()
        beats = [np.dot(onsets[:-lag], onsets[lag:]) / np.dot(onsets, onsets) for lag in range(20, 172)]
        regular += max(beats) > 0.3  # 100 Hz: half beats of 0.21 s to beats of 0.86 s and double half beats
    assert regular >= 12
