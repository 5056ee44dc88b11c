"""What throat, nose and mouth do to a sound: time-varying formants, and bands of noise. 16 kHz mono.

The excitation is cut into overlapping frames of 10 ms; each is filtered with the formants of its own instant.

Shapes: ``F`` frames that start 5 ms apart, ``n`` samples.
Source of the resonator formula: D. Klatt, "Software for a cascade/parallel formant synthesizer", JASA 67 (1980).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE

Track = NDArray[np.float64]

HOP = 80  # samples between frames: 5 ms
FRAME = 2 * HOP
SPAN = 480  # a frame and what rings on after it: 20 ms, by then a formant 70 Hz wide has fallen by 38 dB
_BANDWIDTHS_HZ = (70.0, 100.0, 140.0)
_UPPER_FORMANTS_HZ = ((3500.0, 220.0), (4500.0, 300.0))  # the same for every phone
_MURMUR_POLE_HZ, _MURMUR_ZERO_HZ, _MURMUR_WIDTH_HZ = 270.0, 850.0, 150.0


@dataclass(frozen=True)
class TractShape:
    """The vocal tract over time, each ``(F,)`` unless noted.

    Attributes:
        formants_hz: ``(F, 3)`` as they sound, scaled to the person.
        murmur: 0..1, sound leaves through the nose or the closed mouth.
        open_glottis: 0..1, widens the first formant.
        tilt_hz: corner of the glottal spectrum.
        upper_scale: scales the two formants above the third, which do not move.
    """

    formants_hz: Track
    murmur: Track
    open_glottis: Track
    tilt_hz: float
    upper_scale: float


def _second_order(center_hz: Track, width_hz: Track) -> Track:
    """``(F, 3)`` coefficients of ``z^0..z^-2`` of a pair of zeros, scaled to unit gain at 0 Hz."""
    radius = np.exp(-np.pi * width_hz / SAMPLE_RATE)
    b = -2 * radius * np.cos(2 * np.pi * center_hz / SAMPLE_RATE)
    c = radius * radius
    polynomial: Track = np.stack([np.ones_like(b), b, c], axis=1) / (1 + b + c)[:, None]
    return polynomial


def _times(first: Track, second: Track) -> Track:
    """Products of ``(F, n)`` and ``(F, 3)`` polynomials: ``(F, n + 2)``."""
    product = np.zeros((len(first), first.shape[1] + 2))
    for power in range(3):
        product[:, power : power + first.shape[1]] += first * second[:, [power]]
    return product


def _on_circle(polynomials: Track, z1: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """``(F, bins)`` values of ``(F, n)`` polynomials where ``z^-1`` is ``z1``."""
    powers = z1 ** np.arange(polynomials.shape[1])[:, None]
    values: NDArray[np.complex128] = (polynomials @ powers.view(np.float64)).view(np.complex128)  # a real product
    return values


def _responses(shape: TractShape, frames: NDArray[np.intp]) -> NDArray[np.complex64]:
    """``(len(frames), 241)`` frequency responses from the glottis to the listener in the given frames."""
    z1 = np.exp(-2j * np.pi * np.arange(SPAN // 2 + 1) / SPAN)
    murmur = shape.murmur[frames]
    poles = np.ones((len(frames), 1))
    for column, width_hz in enumerate(_BANDWIDTHS_HZ):
        wider_hz = width_hz * (1 + murmur) + (200.0 * shape.open_glottis[frames] if column == 0 else 0.0)
        poles = _times(poles, _second_order(shape.formants_hz[frames, column], wider_hz))
    murmur_width_hz = np.full(len(frames), _MURMUR_WIDTH_HZ)
    poles = _times(poles, _second_order(np.full(len(frames), _MURMUR_POLE_HZ), murmur_width_hz))
    zero_hz = _MURMUR_POLE_HZ + (_MURMUR_ZERO_HZ - _MURMUR_POLE_HZ) * murmur  # no murmur: pole and zero cancel
    zeros = _second_order(zero_hz, murmur_width_hz)

    corner = np.exp(-2 * np.pi * shape.tilt_hz / SAMPLE_RATE)
    fixed = (1 - z1) / (1 - corner * z1) ** 2  # two-pole glottal pulse, differentiated by the lips' radiation
    for upper_hz, width_hz in _UPPER_FORMANTS_HZ:
        fixed = fixed / _on_circle(_second_order(np.array([upper_hz * shape.upper_scale]), np.array([width_hz])), z1)
    # The polynomials lose too much as 32-bit numbers, their values do not.
    responses: NDArray[np.complex64] = _on_circle(zeros, z1).astype(np.complex64) * fixed.astype(np.complex64)
    return np.divide(responses, _on_circle(poles, z1).astype(np.complex64), out=responses)


def through_tract(excitation: NDArray[np.float32], shape: TractShape) -> NDArray[np.float32]:
    """Filters an excitation with the tract of each instant.

    Args:
        excitation: ``(80 (F + 1),)`` pulses and noise at the glottis.
        shape: the tract ``5, 10 ... 5 F`` ms after the first sample.

    Returns:
        As many samples; zeros where the excitation has been zero for 30 ms.
    """
    window = (0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(FRAME) + 0.5) / FRAME)).astype(np.float32)  # adds up to one
    hops = excitation.reshape(-1, HOP)
    frames = np.concatenate([hops[:-1], hops[1:]], axis=1)  # (F, 160)
    sounding = np.flatnonzero(frames.any(axis=1))
    spectra = np.fft.rfft(frames[sounding] * window, SPAN, axis=1) * _responses(shape, sounding)
    tail = SPAN // HOP
    ringing = np.zeros((len(frames), tail, HOP), dtype=np.float32)
    ringing[sounding] = np.fft.irfft(spectra, SPAN, axis=1).reshape(-1, tail, HOP)
    sound = np.zeros((len(frames) + tail, HOP), dtype=np.float32)
    for hop in range(tail):
        sound[hop : hop + len(frames)] += ringing[:, hop]
    return sound[: len(hops)].reshape(-1)


def noise_bands(num_samples: int, center_hz: Track, width_hz: Track) -> NDArray[np.float32]:
    """Gaussian bands, for the spectra of ``num_samples`` of white noise.

    Args:
        num_samples: length of the noise.
        center_hz: ``(n,)`` centers.
        width_hz: ``(n,)`` standard deviations.

    Returns:
        ``(n, num_samples // 2 + 1)`` gains that keep the rms of the noise.
    """
    bins_hz = np.fft.rfftfreq(num_samples, 1 / SAMPLE_RATE).astype(np.float32)
    distance = (bins_hz - center_hz[:, None].astype(np.float32)) / width_hz[:, None].astype(np.float32)
    bands: NDArray[np.float32] = np.exp(-0.5 * distance**2)
    bands *= np.sqrt(len(bins_hz) / (bands**2).sum(axis=1, keepdims=True))
    return bands
