"""Talking clips made in memory whose pictures show how loud their own sound is, and models that are rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.config import Config
from benchmarks.real_clips import Asked, TalkingClip
from data_prep.clips_in_memory import Scenes
from data_prep.source_clips import DecodedClip

SIDE = 16


def a_clip(name: str, talker: str, split: str = "test", frames: int = 75, seed: int = 0) -> TalkingClip:
    """It speaks in stretches drawn for it, with pauses of 14 frames and more at both ends."""
    rng = np.random.default_rng([seed, *name.encode()])
    speaking = np.zeros(frames, bool)
    start = int(rng.integers(16, 26))
    speaking[start : frames - int(rng.integers(16, 22))] = True
    level = np.where(speaking, rng.uniform(0.3, 1.0, frames), 0.0)
    sound = (rng.choice([-1.0, 1.0], (frames, 640)) * 0.1 * level[:, None]).astype(np.float32).ravel()
    crops = np.broadcast_to((250 * level).astype(np.uint8)[:, None, None], (frames, SIDE, SIDE)).copy()
    boxes = np.tile(np.array([0.2, 0.2, 0.6, 0.8], np.float32), (frames, 1))
    return TalkingClip(name, talker.split("/")[0], talker, split, DecodedClip(crops, boxes, sound, speaking, True))


class Rule(Asked):
    """A model that compares what it sees with what it hears, or does not listen."""

    def __init__(self, listens: bool = True, facts: dict[str, Any] | None = None) -> None:
        super().__init__(None, Config(), Path("rule"), facts or {})  # type: ignore[arg-type]
        object.__setattr__(self, "listens", listens)

    def scores(self, scenes: Scenes, label: str) -> list[NDArray[np.float32]]:
        return [self._score(scenes, index) for index in range(len(scenes.tracks))]

    def _score(self, scenes: Scenes, index: int) -> NDArray[np.float32]:
        clip = scenes.read(index)
        shown = clip.crops.mean(axis=(1, 2)).astype(np.float64)
        if not self.listens:  # type: ignore[attr-defined]
            return shown.astype(np.float32)
        heard = np.sqrt(np.mean(clip.audio.reshape(-1, 640).astype(np.float64) ** 2, axis=1))
        fit = (shown @ heard) / max(heard @ heard, 1e-9)  # what is heard, in grey levels
        return (np.minimum(shown, 50) / 50 - np.abs(shown - fit * heard) / 50).astype(np.float32)
