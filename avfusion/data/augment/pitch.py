"""Pitch: a voice higher or lower at the same speed, so that it stays in step with its mouth.

The sound is made longer (or shorter) at the same pitch by overlapping pieces of 32 ms, each taken from where it goes on
best from the piece before, at most 6 ms off its own time; playing that at another rate brings it back to its length
with all frequencies moved, formants included. A phase vocoder was tried before: bursts of 100 ms after a pause lost up
to 97 % of their energy to it.

Shapes: ``N`` samples of 16 kHz mono sound, pieces of ``W = 512`` samples.
Source: Verhelst and Roelands 1993, "An overlap-add technique based on waveform similarity (WSOLA)".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE
from avfusion.media.audio import resample

PIECE_SAMPLES = 512  # 32 ms
HOP_SAMPLES = 256
REACH_SAMPLES = 100  # 6.25 ms: with either side a period of a voice of 80 Hz
NEARNESS = 0.2  # how much likeness a piece at the end of the reach must gain over one from its own time
_PREFERENCE = 1 - NEARNESS * (np.arange(-REACH_SAMPLES, REACH_SAMPLES + 1) / REACH_SAMPLES) ** 2


def shift_pitch(audio: NDArray[np.float32], semitones: float) -> NDArray[np.float32]:
    """Multiplies every frequency by ``2 ** (semitones / 12)``, to the nearest whole percent; times stay.

    Args:
        audio: ``(N,)``.
        semitones: from -12 to 12.

    Returns:
        ``(N,)`` float32; what would lie above 8 kHz is gone.
    """
    percent = round(100 * 2.0 ** (semitones / 12))  # whole percents keep the resampling filter short
    if percent == 100 or not audio.any():
        return audio
    out = resample(stretched(audio, percent / 100), SAMPLE_RATE * percent // 100)[: len(audio)]
    return np.pad(out, (0, len(audio) - len(out)))


def stretched(audio: NDArray[np.float32], ratio: float) -> NDArray[np.float32]:
    """Makes a sound ``ratio`` times as long at the same pitch.

    Args:
        audio: ``(N,)``.
        ratio: above 0.

    Returns:
        ``(ceil(ratio * N),)`` float32.
    """
    length = math.ceil(ratio * len(audio))
    count = math.ceil(length / HOP_SAMPLES) + 1
    # Piece j has its middle at sample j * hop of the result; before and behind the sound there is silence.
    room = PIECE_SAMPLES // 2 + REACH_SAMPLES
    padded = np.pad(audio, (room, room + 2 * PIECE_SAMPLES))
    energy = np.concatenate([[0.0], np.cumsum(np.square(padded, dtype=np.float64))])
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(PIECE_SAMPLES) / PIECE_SAMPLES)
    out = np.zeros((count - 1) * HOP_SAMPLES + PIECE_SAMPLES)
    weight = np.zeros_like(out)
    start = REACH_SAMPLES
    for piece in range(count):
        earliest = min(round(piece * HOP_SAMPLES / ratio), len(audio))
        if piece:
            start = earliest + _best_fit(padded, energy, earliest, start + HOP_SAMPLES)
        place = slice(piece * HOP_SAMPLES, piece * HOP_SAMPLES + PIECE_SAMPLES)
        out[place] += window * padded[start : start + PIECE_SAMPLES]
        weight[place] += window
    middle = slice(PIECE_SAMPLES // 2, PIECE_SAMPLES // 2 + length)
    return (out[middle] / np.maximum(weight[middle], 1e-3)).astype(np.float32)


def _best_fit(padded: NDArray[np.float32], energy: NDArray[np.float64], earliest: int, following: int) -> int:
    """Which piece from ``earliest`` on begins most like the one that would have followed, ``0 .. 2 * reach``."""
    overlap, lags = PIECE_SAMPLES - HOP_SAMPLES, 2 * REACH_SAMPLES + 1
    wanted = padded[following : following + overlap]
    alike = np.correlate(padded[earliest : earliest + overlap + lags - 1], wanted, "valid")
    power = energy[earliest + overlap : earliest + overlap + lags] - energy[earliest : earliest + lags]
    # A voice fits after any number of periods: without the preference the pieces would all lie as far off as allowed.
    likeness = _PREFERENCE * alike / np.sqrt(np.maximum(power, 1e-12))
    best = int(np.argmax(likeness))
    # In silence nothing is alike: the piece then comes from its own time.
    return best if likeness[best] > 0 else REACH_SAMPLES
