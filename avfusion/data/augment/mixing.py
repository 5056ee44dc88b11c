"""Mixing at a signal-to-noise ratio that means something: both sounds are measured where they are active, in float64.

**Active power** is the mean power of the frames of 20 ms that are not more than 15.9 dB below that mean, the margin of
ITU-T P.56 (method B) for the active level of speech. Pauses do not count, however long (P.56 counts the first 200 ms of
each as speech; here none of it), so a clip that is silent for the most part gets the same ratio in its speech as one
that is full of it. The sound that is added is measured by the same rule over its own stretch: voice against voice, bark
against voice. Its power at the moments when the clip speaks is not what counts, since a pause there would be blown up.

Nothing is clipped and nothing scaled down: a mix may go beyond -1..1, which float sound and log-mel both hold.

Shapes: ``N`` samples of 16 kHz mono sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE

FRAME_SAMPLES = SAMPLE_RATE // 50  # 20 ms
ACTIVE_MARGIN_DB = 15.9
FADE_SAMPLES = SAMPLE_RATE // 200  # 5 ms


@dataclass(frozen=True)
class Added:
    """A sound to be mixed in.

    Attributes:
        audio: ``(N,)`` sound at any level.
        snr_db: active power of the clip's own sound over that of this one, in dB.
    """

    audio: NDArray[np.float32]
    snr_db: float


def active_power(audio: NDArray[np.float32]) -> float:
    """Mean power of the active frames of a sound; 0 where all of it is digital silence.

    Args:
        audio: ``(N,)``; what remains after the last whole frame of 20 ms does not count, unless there is none.

    Returns:
        Power in float64, 1 for a sound of RMS 1.

    Source: ITU-T P.56 (12/2011), method B: the level is the one that exceeds its own threshold by the margin.
    """
    whole = len(audio) // FRAME_SAMPLES * FRAME_SAMPLES
    frames = audio[:whole].reshape(-1, FRAME_SAMPLES) if whole else audio.reshape(1, -1)
    if not frames.size:
        return 0.0
    power = np.mean(np.square(frames, dtype=np.float64), axis=1)
    power = power[power > 0]
    while power.size:
        level = float(power.mean())
        active = power[power >= level * 10 ** (-ACTIVE_MARGIN_DB / 10)]
        if len(active) == len(power):
            return level
        power = active  # without its quietest frames the level is higher, and so is the threshold
    return 0.0


def mix(audio: NDArray[np.float32], added: Sequence[Added]) -> NDArray[np.float32]:
    """Adds sounds, each at its ratio to the sound as it came (not to the mix so far).

    Args:
        audio: ``(N,)``.
        added: what to add, ``(N,)`` each.

    Returns:
        ``(N,)`` float32, perhaps beyond -1..1. Where the sound or an addition is digital silence there is no ratio to
        hold: that addition is left out.
    """
    power = active_power(audio) if added else 0.0
    out = audio
    for other in added:
        other_power = active_power(other.audio) if power > 0 else 0.0
        if other_power > 0:
            gain = np.sqrt(power / other_power) * 10 ** (-other.snr_db / 20)
            out = out + other.audio * np.float32(gain)
    return out


def looped(audio: NDArray[np.float32], num_samples: int, start: int = 0) -> NDArray[np.float32]:
    """A stretch of a sound, from ``start`` on; a shorter one is repeated, faded over 5 ms where end meets beginning.

    Args:
        audio: ``(N,)``, one sample at least.
        num_samples: length of the result.
        start: first sample; from there to the end must suffice, or the sound is repeated.

    Returns:
        ``(num_samples,)``.
    """
    if start + num_samples <= len(audio):
        return audio[start : start + num_samples]
    fade = min(FADE_SAMPLES, len(audio) // 2)
    envelope = np.ones(len(audio), np.float32)
    envelope[:fade] = (np.arange(fade) + 0.5) / max(fade, 1)
    envelope[len(audio) - fade :] = envelope[:fade][::-1]
    return np.resize(audio * envelope, start + num_samples)[start:]
