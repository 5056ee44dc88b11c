"""Sounds around a talker: room floor, noise of streets and machines, music.

All of them are 16 kHz mono, ``(n,)`` float32 of unit rms, drawn afresh from the given generator.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE

Sound = NDArray[np.float32]

_TABLE = 2048  # samples of one period of an instrument


def _unit_rms(sound: NDArray[np.float64]) -> Sound:
    scaled: Sound = (sound / max(1e-12, float(np.sqrt(np.mean(sound**2))))).astype(np.float32)
    return scaled


def _colored(rng: np.random.Generator, num_samples: int, slope: float, above_hz: float) -> NDArray[np.float64]:
    """Steady noise whose amplitude falls with ``frequency ** -slope`` above a corner and is cut below it."""
    spectrum = np.fft.rfft(rng.standard_normal(num_samples))
    bins_hz = np.fft.rfftfreq(num_samples, 1 / SAMPLE_RATE)
    spectrum *= np.maximum(bins_hz, above_hz) ** -slope * np.minimum(bins_hz / above_hz, 1.0)
    return np.fft.irfft(spectrum, num_samples)


def room_floor(rng: np.random.Generator, num_samples: int) -> Sound:
    """Steady room noise whose power falls by 0..6 dB per octave."""
    spectrum = np.fft.rfft(rng.standard_normal(num_samples))
    bins_hz = np.fft.rfftfreq(num_samples, 1 / SAMPLE_RATE)
    return _unit_rms(np.fft.irfft(spectrum * np.maximum(bins_hz, 60.0) ** -rng.uniform(0.0, 1.0), num_samples))


def _slow_level(rng: np.random.Generator, num_samples: int, depth_db: float) -> NDArray[np.float64]:
    """``(n,)`` gain that drifts by about ``depth_db`` between values drawn every 0.4..1.5 s."""
    step = rng.uniform(0.4, 1.5) * SAMPLE_RATE
    knots_db = rng.normal(0.0, depth_db, int(num_samples / step) + 2)
    gain: NDArray[np.float64] = 10 ** (
        np.interp(np.arange(num_samples) / step, np.arange(len(knots_db)), knots_db) / 20
    )
    return gain


def noise(rng: np.random.Generator, num_samples: int) -> Sound:
    """Noise of a street, a fan or an appliance: colored, of slowly changing level, some with hum, some with clicks."""
    sound = _colored(rng, num_samples, rng.uniform(0.0, 1.2), rng.uniform(40.0, 200.0))
    sound *= _slow_level(rng, num_samples, rng.uniform(0.5, 4.0)) / np.sqrt(np.mean(sound**2))
    if rng.random() < 0.35:  # hum of a motor or of the mains
        cycles = rng.uniform(48.0, 180.0) * np.arange(num_samples) / SAMPLE_RATE + rng.random()
        harmonics = [rng.uniform(0.2, 1.0) / n * np.sin(2 * np.pi * n * cycles) for n in range(1, 6)]
        sound += rng.uniform(0.2, 1.0) * np.sum(harmonics, axis=0)
    if rng.random() < 0.3:  # clatter
        decay = np.exp(-np.arange(800) / rng.uniform(30.0, 200.0))
        for start in rng.integers(0, num_samples, max(1, int(rng.uniform(0.5, 4.0) * num_samples / SAMPLE_RATE))):
            click = rng.uniform(1.0, 5.0) * decay * rng.standard_normal(len(decay))
            sound[start : start + len(click)] += click[: num_samples - start]
    return _unit_rms(sound)


def _instrument(rng: np.random.Generator) -> NDArray[np.float64]:
    """One period of a sound with 3..9 harmonics."""
    numbers = np.arange(1, rng.integers(3, 10) + 1)
    strengths = rng.uniform(0.3, 1.0, len(numbers)) / numbers ** rng.uniform(0.8, 1.8)
    turns = np.arange(_TABLE) / _TABLE
    period: NDArray[np.float64] = strengths @ np.sin(2 * np.pi * numbers[:, None] * turns)
    period /= np.sqrt(np.mean(period**2))
    return period


def _play(
    sound: NDArray[np.float64],
    period: NDArray[np.float64],
    pitch_hz: float,
    start_s: float,
    length_s: float,
    decay_s: float,
    level: float,
) -> None:
    """Adds one note to ``sound`` in place: a fast attack, a decay, a short release."""
    start, length = int(start_s * SAMPLE_RATE), int(length_s * SAMPLE_RATE)
    length = min(length, len(sound) - start)
    if length <= 0:
        return
    steps = np.arange(length)
    wave = period[(steps * (pitch_hz * _TABLE / SAMPLE_RATE)).astype(np.intp) % _TABLE]
    envelope = np.exp(steps * (-1.0 / (decay_s * SAMPLE_RATE)))
    edge = min(length, SAMPLE_RATE // 100)
    envelope[:edge] *= np.arange(edge) / edge
    envelope[length - edge :] *= np.arange(edge, 0, -1) / edge
    sound[start : start + length] += level * wave * envelope


_SCALES = ((0, 2, 4, 5, 7, 9, 11), (0, 2, 3, 5, 7, 8, 10), (0, 2, 4, 7, 9))
_CHORD_ROOTS = (0, 3, 4, 5, 1)  # steps of the scale


def _add_drums(rng: np.random.Generator, sound: NDArray[np.float64], beat_s: float, lead_s: float) -> None:
    """A low drum on the beats one and three, a snare on two and four, hats on the halves."""
    low_time_s = np.arange(2400) / SAMPLE_RATE
    kick = (
        2.5 * np.sin(2 * np.pi * (50 * low_time_s + 3 * (1 - np.exp(-low_time_s / 0.03)))) * np.exp(-low_time_s / 0.05)
    )
    hat = np.diff(rng.standard_normal(801)) * np.exp(-np.arange(800) / 150)
    snare = rng.standard_normal(2400) * np.exp(-low_time_s / 0.04)
    for half_beat in range(int((len(sound) / SAMPLE_RATE + lead_s) / beat_s * 2) + 1):
        start = int((half_beat * beat_s / 2 - lead_s) * SAMPLE_RATE)
        hits = [hat * 0.4] + ([kick] if half_beat % 4 == 0 else [snare] if half_beat % 4 == 2 else [])
        for hit in hits:
            low, high = max(0, -start), min(len(hit), len(sound) - start)
            if low < high:
                sound[start + low : start + high] += hit[low:high]


def music(rng: np.random.Generator, num_samples: int) -> Sound:
    """Chords, bass and a melody of one scale at 70..140 beats per minute; two of three pieces have drums."""
    beat_s, key_hz = 60.0 / rng.uniform(70.0, 140.0), 110.0 * 2.0 ** (rng.integers(12) / 12)
    scale = _SCALES[rng.integers(len(_SCALES))]
    lead_s, end_s = rng.uniform(0.0, 4 * beat_s), num_samples / SAMPLE_RATE  # the piece has begun before the scene
    sound = np.zeros(num_samples + int((4 * beat_s + 1) * SAMPLE_RATE))
    chords, lead, bass = _instrument(rng), _instrument(rng), _instrument(rng)

    def step_hz(step: int) -> float:
        return float(key_hz * 2.0 ** (step // len(scale) + scale[step % len(scale)] / 12))

    step = int(rng.integers(len(scale), 2 * len(scale)))
    for beat in range(int((end_s + lead_s) / beat_s) + 1):
        if beat % 2 == 0:
            root, plucked_s = _CHORD_ROOTS[rng.integers(len(_CHORD_ROOTS))], rng.uniform(0.3, 1.5)
            for part in (0, 2, 4):
                _play(sound, chords, step_hz(root + part), beat * beat_s, 2 * beat_s, plucked_s, 0.5)
            _play(sound, bass, step_hz(root) / 2, beat * beat_s, beat_s, 0.4, 0.8)
        start_s = beat * beat_s
        for length in ((1.0,), (0.5, 0.5), (0.5, 0.25, 0.25), (0.75, 0.25))[rng.integers(4)]:
            step = int(np.clip(step + rng.integers(-2, 3), 0, 3 * len(scale)))
            if rng.random() < 0.85:
                _play(sound, lead, step_hz(step), start_s, length * beat_s, 0.5, 0.9)
            start_s += length * beat_s
    first = int(lead_s * SAMPLE_RATE)
    sound = sound[first : first + num_samples]
    if rng.random() < 2 / 3:
        _add_drums(rng, sound, beat_s, lead_s)
    return _unit_rms(sound)
