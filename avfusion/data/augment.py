"""What training does to one clip. Every draw comes from the generator that is handed in, so an epoch can be repeated.

Shapes: ``T`` video frames of ``Y`` by ``X`` grey levels, sound of ``640 T`` samples.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.transforms.v2 import functional as F

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME
from avfusion.config import AugmentConfig
from avfusion.data.clips import Clip

LEAST_SHIFT_FRAMES = 8  # 0.32 s: clearly more than natural lag


def augment_crops(crops: Tensor, config: AugmentConfig, rng: np.random.Generator) -> Tensor:
    """Mirrors, shifts, zooms and relights a clip; the whole clip moves as one, so motion is untouched.

    Args:
        crops: ``(T, Y, X)`` float 0..1.
        config: strengths.
        rng: source of every draw.

    Returns:
        ``(T, Y, X)`` float 0..1.
    """
    height, width = crops.shape[1:]
    if rng.random() < config.flip:
        crops = F.horizontal_flip(crops)
    zoom = 1.0 + rng.uniform(-config.zoom, config.zoom)
    shift_y, shift_x = rng.uniform(-config.shift, config.shift, 2) * (height, width)
    if zoom != 1.0 or shift_x or shift_y:
        # The largest box that can be drawn: what lies outside the picture repeats its border.
        margin = math.ceil(max(height, width) * (config.zoom / 2 + config.shift)) + 1
        crops = F.pad(crops, [margin], padding_mode="edge")
        tall, wide = round(height * zoom), round(width * zoom)
        top = round(margin + (height - tall) / 2 + shift_y)
        left = round(margin + (width - wide) / 2 + shift_x)
        crops = F.resized_crop(crops, top, left, tall, wide, [height, width], antialias=True)
    gain = 1.0 + rng.uniform(-config.brightness, config.brightness)
    offset = rng.uniform(-config.brightness, config.brightness) / 2
    crops = (crops - 0.5) * gain + 0.5 + offset
    if config.noise:
        noise = torch.from_numpy(rng.standard_normal(crops.shape, dtype=np.float32))
        crops = crops + noise * (config.noise * rng.random())
    return crops.clamp(0.0, 1.0)


def pink_noise(length: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Noise whose power falls by 3 dB an octave, of unit RMS, ``(length,)`` samples."""
    spectrum = rng.standard_normal(length // 2 + 1) + 1j * rng.standard_normal(length // 2 + 1)
    spectrum /= np.sqrt(np.maximum(np.arange(length // 2 + 1), 1.0))
    noise = np.fft.irfft(spectrum, length)
    return (noise / max(float(np.sqrt(np.mean(noise**2))), 1e-12)).astype(np.float32)


def equalize(audio: NDArray[np.float32], eq_db: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Colours sound as another microphone would: a smooth random curve over log frequency within ``± eq_db``."""
    spectrum = np.fft.rfft(audio)
    octaves = np.log2(np.maximum(np.linspace(0, SAMPLE_RATE / 2, len(spectrum)), 62.5) / 62.5)
    # Octave 0 is 62.5 Hz, octave 7 is 8 kHz.
    curve_db = np.interp(octaves, np.arange(8), rng.uniform(-eq_db, eq_db, 8))
    return np.fft.irfft(spectrum * 10 ** (curve_db / 20), len(audio)).astype(np.float32)


def augment_audio(audio: NDArray[np.float32], config: AugmentConfig, rng: np.random.Generator) -> NDArray[np.float32]:
    """Changes level and colour, and adds white or pink noise at a drawn signal-to-noise ratio.

    Args:
        audio: ``(N,)`` in -1..1.
        config: strengths.
        rng: source of every draw.

    Returns:
        ``(N,)`` float32. Digital silence stays silent: without a signal there is no ratio to hold.
    """
    out = audio * np.float32(10 ** (rng.uniform(-config.gain_db, config.gain_db) / 20))
    if config.eq_db and len(out):
        out = equalize(out, config.eq_db, rng)
    power = float(np.mean(np.square(out, dtype=np.float64))) if len(out) else 0.0
    noisy, pink = rng.random() < config.audio_noise, rng.random() < 0.5
    low_db, high_db = config.audio_noise_snr_db
    snr_db = rng.uniform(low_db, high_db)
    if noisy and power > 0:
        noise = pink_noise(len(out), rng) if pink else rng.standard_normal(len(out), dtype=np.float32)
        out = out + noise * np.float32(np.sqrt(power / 10 ** (snr_db / 10)))
    return np.asarray(out, dtype=np.float32)


def out_of_sync(clip: Clip, rng: np.random.Generator) -> Clip:
    """The clip with its own sound turned by 0.3 s or more either way, end joined to start: nobody speaks in it.

    Picture and sound stay those of the speaking clip and only their timing changes, so a model cannot learn by heart
    which sound goes with which picture. A clip too short to be moved so far (under 0.64 s) is left as it is.
    """
    frames = len(clip.crops)
    if frames < 2 * LEAST_SHIFT_FRAMES:
        return clip
    shift = int(rng.integers(LEAST_SHIFT_FRAMES, frames - LEAST_SHIFT_FRAMES + 1))
    turned = np.roll(clip.audio, shift * SAMPLES_PER_VIDEO_FRAME)
    return Clip(clip.crops, turned, np.zeros_like(clip.speaking))
