"""The sound of a scene: its voices, its background and its room, mixed; and each voice by itself.

Shapes: ``640 T`` samples at 16 kHz for ``T`` video frames.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME
from avfusion.data.synthetic.draft import Scene
from avfusion.data.synthetic.sounds import music, noise, room_floor
from avfusion.data.synthetic.voice import make_utterance, random_voice, render_utterance

BABBLE_VOICES = 4
_FULL_SCALE = 32768  # sound is made in steps of 16 bits, so that a file of it holds exactly the same


def render_voices(rng: np.random.Generator, scene: Scene) -> list[NDArray[np.float32]]:
    """Each voice by itself at its level in the mixture, before the mixture is made to fit; draws from ``rng`` first."""
    samples = scene.num_frames * SAMPLES_PER_VIDEO_FRAME
    return [np.float32(voice.level) * render_utterance(rng, voice.utterance, samples) for voice in scene.voices]


def mix(rng: np.random.Generator, scene: Scene, voices: list[NDArray[np.float32]]) -> tuple[NDArray[np.float32], float]:
    """Adds background and room to the voices.

    Args:
        rng: the generator that :func:`render_voices` has drawn from.
        scene: the scene.
        voices: its voices.

    Returns:
        ``(640 T,)`` float32 in -1..1 in steps of 16 bits, and the factor that every part was scaled by (1 unless the
        mixture was too loud).
    """
    samples = scene.num_frames * SAMPLES_PER_VIDEO_FRAME
    sound = np.float32(scene.floor_level) * room_floor(rng, samples)
    if scene.background:
        make = {"noise": noise, "music": music, "babble": babble}[scene.background]
        sound = sound + np.float32(scene.background_level) * make(rng, samples)
    for voice in voices:
        sound = sound + voice
    scale = 1.0 / max(1.0, float(np.abs(sound).max()) / 0.98)
    steps = np.round(sound * np.float32(scale * _FULL_SCALE))
    return (steps / np.float32(_FULL_SCALE)).astype(np.float32), scale


def babble(rng: np.random.Generator, num_samples: int) -> NDArray[np.float32]:
    """Several strangers who talk at once, unit rms."""
    end_s = num_samples / SAMPLE_RATE
    parts = []
    for _ in range(BABBLE_VOICES):
        utterance = make_utterance(rng, random_voice(rng), -2.2, end_s + 2.2)
        parts.append(rng.uniform(0.6, 1.0) * render_utterance(rng, utterance, num_samples))
    total = np.sum(parts, axis=0)
    together: NDArray[np.float32] = (total / max(1e-9, float(np.sqrt(np.mean(total**2))))).astype(np.float32)
    return together
