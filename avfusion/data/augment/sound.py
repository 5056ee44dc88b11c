"""Sound: level, colour, and everything that is heard beside the clip's own sound.

Own sound and what is mixed in from elsewhere pass the same random microphone (level and colour), then they are mixed at
their ratios; white or pink noise is the microphone's own and not coloured.

Shapes: ``N`` samples of 16 kHz mono sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE
from avfusion.config import AugmentConfig
from avfusion.data.augment.draws import Draws
from avfusion.data.augment.mixing import Added, mix
from avfusion.data.augment.pitch import shift_pitch


def augment_audio(
    audio: NDArray[np.float32], config: AugmentConfig, draws: Draws, added: Sequence[Added] = ()
) -> NDArray[np.float32]:
    """Changes pitch, level and colour, mixes in other sounds, and adds white or pink noise.

    Args:
        audio: ``(N,)`` in -1..1.
        config: strengths.
        draws: source of every draw.
        added: other sounds, ``(N,)`` each, with their ratios.

    Returns:
        ``(N,)`` float32, perhaps beyond -1..1. Digital silence stays silent: without a signal there is no ratio to
        hold.
    """
    rng = draws.main
    if config.pitch_semitones:
        audio = shift_pitch(audio, draws.of("pitch").uniform(-config.pitch_semitones, config.pitch_semitones))
    out = audio * np.float32(10 ** (rng.uniform(-config.gain_db, config.gain_db) / 20))
    if config.eq_db and len(out):
        octaves_db = rng.uniform(-config.eq_db, config.eq_db, 8)
        out = coloured(out, octaves_db)
        added = [replace(other, audio=coloured(other.audio, octaves_db)) for other in added]
    noisy, pink = rng.random() < config.audio_noise, rng.random() < 0.5
    low_db, high_db = config.audio_noise_snr_db
    snr_db = rng.uniform(low_db, high_db)
    if noisy and out.any():
        noise = pink_noise(len(out), rng) if pink else rng.standard_normal(len(out), dtype=np.float32)
        added = [*added, Added(noise, snr_db)]
    return np.asarray(mix(out, added), dtype=np.float32)


def coloured(audio: NDArray[np.float32], octaves_db: NDArray[np.float64]) -> NDArray[np.float32]:
    """Colours sound as another microphone would, without moving it in time.

    Args:
        audio: ``(N,)``.
        octaves_db: ``(8,)`` dB at 62.5, 125 .. 8000 Hz; straight lines over log frequency between them.

    Returns:
        ``(N,)`` float32.
    """
    spectrum = np.fft.rfft(audio)
    # Octave 0 is 62.5 Hz, octave 7 is 8 kHz.
    octaves = np.log2(np.maximum(np.linspace(0, SAMPLE_RATE / 2, len(spectrum)), 62.5) / 62.5)
    curve_db = np.interp(octaves, np.arange(8), octaves_db)
    return np.fft.irfft(spectrum * 10 ** (curve_db / 20), len(audio)).astype(np.float32)


def pink_noise(length: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Noise whose power falls by 3 dB an octave, of unit RMS, ``(length,)`` samples."""
    spectrum = rng.standard_normal(length // 2 + 1) + 1j * rng.standard_normal(length // 2 + 1)
    spectrum /= np.sqrt(np.maximum(np.arange(length // 2 + 1), 1.0))
    noise = np.fft.irfft(spectrum, length)
    return (noise / max(float(np.sqrt(np.mean(noise**2))), 1e-12)).astype(np.float32)
