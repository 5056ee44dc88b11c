"""Mixing at a ratio: what counts as active, and what ratio comes out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.data.augment.mixing import ACTIVE_MARGIN_DB, Added, active_power, looped, mix

Sound = NDArray[np.float32]


def noise(seed: int, seconds: float = 2.0, level: float = 0.1) -> Sound:
    return (level * np.random.default_rng(seed).standard_normal(round(16_000 * seconds))).astype(np.float32)


def steps(powers: list[float], frames: int = 10) -> Sound:
    """Constant sound of the given powers, so many frames of 20 ms each."""
    return np.repeat(np.sqrt(powers), 320 * frames).astype(np.float32)


def decibels(ratio: float) -> float:
    return float(10 * np.log10(ratio))


def test_pauses_do_not_count() -> None:
    assert active_power(steps([0.25])) == pytest.approx(0.25)
    assert active_power(steps([0.25, 0, 0, 0])) == pytest.approx(0.25)
    assert active_power(steps([0.25, 1e-4, 1e-4, 1e-6])) == pytest.approx(0.25)
    assert active_power(steps([0.25, 0.15])) == pytest.approx(0.2)


def test_the_margin_is_15_9_db_below_the_level_itself() -> None:
    # Two halves of power 1 and p count both while p >= (1 + p) / 2 * 10 ** -1.59, that is p >= 0.01302.
    assert ACTIVE_MARGIN_DB == 15.9
    assert active_power(steps([1.0, 0.0132])) == pytest.approx(0.5066)
    assert active_power(steps([1.0, 0.0128])) == pytest.approx(1.0)
    # Without its quietest part the level rises, and then the next part is too quiet as well.
    assert active_power(steps([1.0, 0.02, 0.0001])) == pytest.approx(0.51)
    assert active_power(steps([1.0, 0.02, 0.008] + [1e-9] * 9)) == pytest.approx(0.51)


def test_a_clip_that_is_silent_for_the_most_part_measures_like_a_full_one() -> None:
    full = noise(0)
    sparse = full.copy()
    sparse[: round(0.7 * len(full)) // 320 * 320] *= np.float32(1e-3)
    assert decibels(active_power(sparse) / active_power(full)) == pytest.approx(0.0, abs=0.1)
    assert decibels(np.mean(sparse**2) / np.mean(full**2)) < -5  # the mean of all of it does not


@pytest.mark.parametrize("length", [0, 1, 319, 320, 1000])
def test_silence_and_short_sounds_have_a_power(length: int) -> None:
    assert active_power(np.zeros(length, np.float32)) == 0.0
    assert active_power(np.full(length, 0.5, np.float32)) == (pytest.approx(0.25) if length else 0.0)


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 10.0])
@pytest.mark.parametrize("pause", [0.0, 0.7])
def test_a_mix_has_the_asked_ratio_in_its_speech(snr_db: float, pause: float) -> None:
    own, other = noise(0), noise(1, level=0.01)
    own[: round(pause * len(own)) // 320 * 320] = 0
    added = mix(own, [Added(other, snr_db)]) - own
    speaks = own != 0
    assert decibels(np.mean(own[speaks] ** 2) / np.mean(added**2)) == pytest.approx(snr_db, abs=0.1)


def test_an_added_voice_with_pauses_is_as_loud_as_one_without() -> None:
    own, other = noise(0), noise(1)
    other[: round(0.7 * len(other)) // 320 * 320] = 0
    added = mix(own, [Added(other, 0.0)]) - own
    assert decibels(np.mean(own**2) / np.mean(added[other != 0] ** 2)) == pytest.approx(0.0, abs=0.2)


def test_each_addition_is_measured_against_the_clip_alone() -> None:
    own, first, second = noise(0), noise(1), noise(2)
    both = mix(own, [Added(first, 0.0), Added(second, 6.0)])
    expected = mix(own, [Added(first, 0.0)]) + mix(own, [Added(second, 6.0)]) - own
    np.testing.assert_allclose(both, expected, atol=1e-6)


def test_nothing_is_clipped_or_scaled_down() -> None:
    own = np.clip(noise(0, level=0.5), -1, 1)
    mixed = mix(own, [Added(noise(1), -10.0)])
    assert np.abs(mixed).max() > 2.0
    assert decibels(np.mean(own**2) / np.mean((mixed - own) ** 2)) == pytest.approx(-10.0, abs=0.1)


def test_silence_gets_nothing_and_adds_nothing() -> None:
    silent = np.zeros(3200, np.float32)
    assert np.array_equal(mix(silent, [Added(noise(0, 0.2), 0.0)]), silent)
    assert np.array_equal(mix(noise(0, 0.2), [Added(silent, 0.0)]), noise(0, 0.2))


def test_a_short_sound_is_repeated_without_a_jump() -> None:
    ramp = np.linspace(0.5, 1.0, 1600, dtype=np.float32)
    long = looped(ramp, 4000)
    assert len(long) == 4000
    assert np.array_equal(long[100:1500], ramp[100:1500])
    assert np.array_equal(long[1700:3100], ramp[100:1500])
    assert np.abs(np.diff(long)).max() < 0.02  # 0.5 without the fade
    assert np.array_equal(looped(ramp, 4000, start=1650), looped(ramp, 8000)[1650:5650])
    assert np.array_equal(looped(ramp, 1000, start=300), ramp[300:1300])
