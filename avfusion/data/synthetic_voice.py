"""The sound of a synthetic talker: source and filter, 16 kHz mono.

Voiced sound is a train of glottal pulses; each pulse rings through the formants of its own instant. Friction, bursts
and breath are grains of noise with the phone's spectrum. Everything is vectorized over pulses and grains.

Source of the resonator formula: D. Klatt, "Software for a cascade/parallel formant synthesizer", JASA 67 (1980).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE
from avfusion.data.synthetic_script import Script, control_tracks, smooth

_RING = 512  # samples a glottal pulse rings for: 32 ms, by then a 60 Hz wide formant has fallen by 50 dB
_GRAIN = 160  # samples of a noise grain: 10 ms, overlapping by half
_BANDWIDTHS_HZ = (70.0, 100.0, 140.0)


@dataclass(frozen=True)
class Voice:
    """One person's voice.

    Attributes:
        pitch_hz: mean fundamental frequency, 90..260.
        tract_scale: formants are multiplied by this, 0.85..1.2 (larger = shorter vocal tract).
        tilt_hz: corner of the glottal spectrum; higher sounds sharper.
        breath: level of breath noise beside the pulses.
        melody: size of the pitch movements, in octaves.
    """

    pitch_hz: float
    tract_scale: float
    tilt_hz: float
    breath: float
    melody: float


def random_voice(rng: np.random.Generator) -> Voice:
    """Draws a voice; high voices tend to have short vocal tracts."""
    height = rng.random()
    return Voice(
        pitch_hz=90.0 * (260.0 / 90.0) ** height,
        tract_scale=float(np.clip(0.87 + 0.26 * height + rng.normal(0.0, 0.04), 0.85, 1.2)),
        tilt_hz=rng.uniform(120.0, 400.0),
        breath=rng.uniform(0.01, 0.05),
        melody=rng.uniform(0.08, 0.22),
    )


def _pitch_hz(
    rng: np.random.Generator, script: Script, voice: Voice, times_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Pitch over time: falls along each phrase, rises on some syllables, wanders and jitters a little."""
    octaves = np.zeros_like(times_s)
    for start_s, end_s in script.phrases_s:
        inside = (times_s >= start_s) & (times_s < end_s)
        octaves[inside] += voice.melody * (0.5 - (times_s[inside] - start_s) / (end_s - start_s))
    accents = rng.uniform(-0.2, 1.0, len(script.syllables_s)) * voice.melody
    syllable = np.clip(np.searchsorted(script.syllables_s[:, 0], times_s, side="right") - 1, 0, None)
    octaves += accents[syllable]
    octaves = smooth(octaves[:, None], 0.08)[:, 0]
    return voice.pitch_hz * 2.0 ** (octaves + rng.normal(0.0, 0.006, len(times_s)))


def _glottal_pulses(pitch_hz: NDArray[np.float64], times_s: NDArray[np.float64], num_samples: int) -> NDArray[np.intp]:
    """Sample numbers at which the glottis closes. Whole samples: the rounding adds to the jitter every voice has."""
    first = -_RING  # pulses just before the scene still ring into it
    sample_s = np.arange(first, num_samples) / SAMPLE_RATE
    cycles = np.cumsum(np.interp(sample_s, times_s, pitch_hz)) / SAMPLE_RATE
    return np.flatnonzero(np.diff(np.floor(cycles)) > 0) + 1 + first


def _ringing(formants_hz: NDArray[np.float64], voice: Voice) -> NDArray[np.float32]:
    """Sound of single pulses.

    Args:
        formants_hz: ``(P, 3)`` formants at each pulse.
        voice: gives the glottal spectrum and the two fixed upper formants.

    Returns:
        ``(P, 512)`` samples from the pulse on.
    """
    z1 = np.exp(-2j * np.pi * np.arange(_RING // 2 + 1) / _RING).astype(np.complex64)
    z2 = z1 * z1

    def resonance(center_hz: NDArray[np.float64], bandwidth_hz: float) -> NDArray[np.complex64]:
        radius = np.exp(-np.pi * bandwidth_hz / SAMPLE_RATE)
        b = (2 * radius * np.cos(2 * np.pi * center_hz / SAMPLE_RATE)).astype(np.float32)[:, None]
        c = np.float32(radius * radius)
        response: NDArray[np.complex64] = (1 - b + c) / (1 - b * z1 + c * z2)  # unit gain at 0 Hz
        return response

    corner = np.float32(np.exp(-2 * np.pi * voice.tilt_hz / SAMPLE_RATE))
    spectrum = (1 - z1) / (1 - corner * z1) ** 2  # two-pole glottal pulse, differentiated by the lips' radiation
    for upper_hz, bandwidth_hz in ((3500.0, 220.0), (4500.0, 300.0)):
        spectrum = spectrum * resonance(np.array([upper_hz * voice.tract_scale]), bandwidth_hz)
    for column, bandwidth_hz in enumerate(_BANDWIDTHS_HZ):
        spectrum = spectrum * resonance(formants_hz[:, column] * voice.tract_scale, bandwidth_hz)
    ringing: NDArray[np.float32] = np.fft.irfft(spectrum, _RING, axis=1).astype(np.float32)
    return ringing


def _noise_grains(
    rng: np.random.Generator,
    strength: NDArray[np.float64],
    center_hz: NDArray[np.float64],
    width_hz: NDArray[np.float64],
) -> NDArray[np.float32]:
    """Noise from ``(G,)`` grains that start 5 ms apart: ``80 (G - 1)`` samples, of unit rms where strength is 1."""
    bins_hz = np.fft.rfftfreq(_GRAIN, 1 / SAMPLE_RATE).astype(np.float32)
    distance = (bins_hz - center_hz[:, None].astype(np.float32)) / width_hz[:, None].astype(np.float32)
    envelope = np.exp(-0.5 * distance**2)
    envelope *= (strength / np.sqrt((envelope**2).sum(axis=1)))[:, None]
    white = rng.standard_normal((2, *envelope.shape), dtype=np.float32)
    grains = np.fft.irfft((white[0] + 1j * white[1]) * envelope, _GRAIN, axis=1)
    grains *= _GRAIN / 2 * np.sin(np.pi * (np.arange(_GRAIN) + 0.5) / _GRAIN)  # squared windows add up to one
    half = _GRAIN // 2
    noise: NDArray[np.float32] = (grains[1:, :half] + grains[:-1, half:]).astype(np.float32)
    return noise.reshape(-1)


def render_voice(rng: np.random.Generator, script: Script, voice: Voice, num_samples: int) -> NDArray[np.float32]:
    """Speaks a script.

    Args:
        rng: source of breath, friction and jitter.
        script: what is said; its time 0 is sample 0.
        voice: who says it.
        num_samples: length wanted.

    Returns:
        ``(num_samples,)`` float32, scaled to unit rms over the voiced pulses; zeros in the pauses.
    """
    times_s, targets = control_tracks(script, num_samples / SAMPLE_RATE)
    formants_hz = smooth(targets[:, 0:3], 0.05)
    voicing = smooth(targets[:, [3]] * targets[:, [-1]], 0.016)[:, 0]
    noise_level = smooth(targets[:, [4]], 0.008)[:, 0]

    pulses = _glottal_pulses(_pitch_hz(rng, script, voice, times_s), times_s, num_samples)
    loudness = np.interp(pulses / SAMPLE_RATE, times_s, voicing) * rng.normal(1.0, 0.03, len(pulses))  # shimmer
    pulses, loudness = pulses[loudness > 1e-3], loudness[loudness > 1e-3]
    at_pulse_hz = np.stack([np.interp(pulses / SAMPLE_RATE, times_s, track) for track in formants_hz.T], axis=1)
    ringing = _ringing(at_pulse_hz, voice) * loudness[:, None].astype(np.float32)
    sound = np.zeros(num_samples + 2 * _RING, dtype=np.float32)
    for pulse, ring in zip(pulses, ringing, strict=True):
        sound[pulse + _RING : pulse + 2 * _RING] += ring
    sound = sound[_RING : _RING + num_samples]
    voiced = np.interp(np.arange(num_samples) / SAMPLE_RATE, times_s, voicing) > 0.3
    if voiced.any():
        sound /= max(1e-9, float(np.sqrt(np.mean(sound[voiced] ** 2))))

    grain_s = np.arange(-1, num_samples // (_GRAIN // 2) + 1) * (_GRAIN // 2) / SAMPLE_RATE
    center_s = grain_s + _GRAIN / 2 / SAMPLE_RATE
    friction = np.interp(center_s, times_s, noise_level)
    center_hz, width_hz = (np.interp(center_s, times_s, targets[:, column]) for column in (5, 6))
    breath = voice.breath * np.interp(center_s, times_s, voicing)
    noise = _noise_grains(rng, friction, center_hz, width_hz)
    noise += _noise_grains(rng, breath, np.full_like(center_s, 2500.0), np.full_like(center_s, 2000.0))
    return sound + noise[:num_samples]


def render_noise_floor(rng: np.random.Generator, num_samples: int) -> NDArray[np.float32]:
    """Steady room noise of unit rms whose power falls by 0..6 dB per octave."""
    spectrum = np.fft.rfft(rng.standard_normal(num_samples))
    bins_hz = np.fft.rfftfreq(num_samples, 1 / SAMPLE_RATE)
    noise = np.fft.irfft(spectrum * np.maximum(bins_hz, 60.0) ** -rng.uniform(0.0, 1.0), num_samples)
    floor: NDArray[np.float32] = (noise / np.sqrt(np.mean(noise**2))).astype(np.float32)
    return floor
