"""Fundamental frequency of a voice whose sound is all that is known of it.

Shapes: ``n`` samples at 16 kHz, ``G`` control steps of 2 ms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE
from avfusion.data.synthetic.script import CONTROL_HZ

Track = NDArray[np.float64]


def estimated_pitch_hz(sound: NDArray[np.float32], voiced: NDArray[np.bool_], around_hz: float) -> Track:
    """Fundamental frequency of a voice, by autocorrelation every 10 ms.

    Args:
        sound: ``(n,)`` at 16 kHz.
        voiced: ``(G,)`` control steps that belong to voiced phones, the first at the first sample.
        around_hz: the voice's usual pitch; 0.9 octaves to both sides are searched.

    Returns:
        ``(G,)`` in Hz; straight lines bridge what is not voiced or not periodic.
    """
    shortest, longest = (round(SAMPLE_RATE / around_hz * 2.0**octaves) for octaves in (-0.9, 0.9))
    window, hop = 2 * round(SAMPLE_RATE / around_hz), SAMPLE_RATE // 100
    span = window + longest + 2
    padded = np.pad(sound.astype(np.float64), (span // 2, span))
    frames = np.lib.stride_tricks.sliding_window_view(padded, span)[: len(sound) : hop]
    steps = np.arange(len(frames)) * CONTROL_HZ // 100
    asked = np.flatnonzero(voiced[np.minimum(steps, len(voiced) - 1)])
    frames = frames[asked] - frames[asked].mean(axis=1, keepdims=True)

    size = 1 << (2 * span).bit_length()
    spectra = np.fft.rfft(frames, size, axis=1) * np.fft.rfft(frames[:, :window], size, axis=1).conj()
    lags = np.arange(shortest - 1, longest + 2)
    energy = np.pad(np.cumsum(frames**2, axis=1), ((0, 0), (1, 0)))
    compared = (energy[:, lags + window] - energy[:, lags]) * energy[:, [window]]
    alike = np.fft.irfft(spectra, size, axis=1)[:, lags] / np.sqrt(np.maximum(compared, 1e-12))
    middle = alike[:, 1:-1]
    peaks = (middle >= alike[:, :-2]) & (middle > alike[:, 2:])
    best = np.where(peaks, middle, 0.0).max(axis=1)
    lag = (peaks & (middle >= 0.95 * best[:, None])).argmax(axis=1)  # the shortest good one: its multiples are good too
    left, top, right = (alike[np.arange(len(lag)), lag + step] for step in range(3))
    bend = left - 2 * top + right
    exact = shortest + lag + np.where(bend < 0, (left - right) / (2 * np.minimum(bend, -1e-9)), 0.0)

    periodic = best > 0.7
    if not periodic.any():
        return np.full(len(voiced), around_hz)
    octaves = np.log2(SAMPLE_RATE / exact[periodic])
    steady = np.median(np.lib.stride_tricks.sliding_window_view(np.pad(octaves, 2, mode="edge"), 5), axis=1)
    contour: Track = 2.0 ** np.interp(np.arange(len(voiced)), steps[asked[periodic]], steady)
    return contour
