"""Tracks whose pictures show how loud they are, so that a rule can tell whether sound and picture belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.data.clips import Clip, ClipDataset, Skipped
from avfusion.data.examples import Examples
from avfusion.robustness.clips import cut
from avfusion.tracks import FaceTrack

SIDE = 24


def a_track(
    name: str, speaking: NDArray[np.bool_], role: str = "", group: str = "", labelled: bool = True
) -> FaceTrack:
    boxes = np.tile(np.array([0.1, 0.2, 0.3, 0.4], np.float32), (len(speaking), 1))
    return FaceTrack(name, f"{name}:0", 0.0, speaking, boxes, name, role=role, group=group, labelled=labelled)


class Planted:
    """``videos`` tracks of one video each: a level drawn for every frame is the picture's and the sound's.

    Three of four speak in all frames but the first five, whose sound is louder than shown; the others never do, and
    their pictures show levels drawn apart from the sound's.
    """

    name = "planted"

    def __init__(self, videos: int = 8, frames: int = 60, role: str = "solo") -> None:
        self.skipped = Skipped()
        self.tracks: Sequence[FaceTrack] = []
        self.clips: list[Clip] = []
        self.reads = 0
        for video in range(videos):
            rng = np.random.default_rng(video)
            shown, heard = rng.integers(40, 200, (2, frames))
            if speaks := video % 4 != 3:
                heard = shown + np.where(np.arange(frames) < 5, 30, 0)
            speaking = np.arange(frames) >= (5 if speaks else frames)
            crops = np.broadcast_to(shown[:, None, None], (frames, SIDE, SIDE)).astype(np.uint8)
            noise = rng.choice([-1.0, 1.0], (frames, 640))
            audio = (noise * heard[:, None] / 255).astype(np.float32).ravel()
            self.tracks = [*self.tracks, a_track(f"v{video}", speaking, role if speaks else "off_screen")]
            self.clips.append(Clip(crops, audio, speaking))

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        self.reads += 1
        return cut(self.clips[index], first_frame, num_frames)


def agreement(dataset: ClipDataset) -> list[NDArray[np.float32]]:
    """Scores that look and listen: 1 where the level of the sound is that of the picture, lower by the difference."""
    scores = []
    for index in range(len(dataset.tracks)):
        clip = dataset.read(index)
        heard = np.sqrt(np.mean(clip.audio.reshape(-1, 640).astype(np.float64) ** 2, axis=1))
        scores.append((1 - np.abs(heard - clip.crops.mean(axis=(1, 2)) / 255)).clip(0, 1).astype(np.float32))
    return scores


def sight(dataset: ClipDataset) -> list[NDArray[np.float32]]:
    """Scores that do not listen: the picture's level."""
    return [
        dataset.read(index).crops.mean(axis=(1, 2)).astype(np.float32) / 255 for index in range(len(dataset.tracks))
    ]


class Scorer:
    """Stands in for ``score_tracks``: applies a rule to the clips as they are changed, and counts."""

    def __init__(self, rule: Any, stop_after: int | None = None) -> None:
        self.rule, self.stop_after = rule, stop_after
        self.labels: list[str] = []

    def __call__(self, model: Any, examples: Examples, *others: Any, label: str, **more: Any) -> Any:
        if len(self.labels) == self.stop_after:
            raise KeyboardInterrupt
        self.labels.append(label)
        return self.rule(examples.dataset)
