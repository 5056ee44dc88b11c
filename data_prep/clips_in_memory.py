"""Faces with their sound in memory, as a dataset: clips as they were decoded, and scenes made of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from avfusion.data.clips import Clip, Skipped
from avfusion.robustness.clips import cut
from avfusion.tracks import FaceTrack


class Scenes:
    """A dataset in memory, as :class:`avfusion.data.clips.ClipDataset`.

    Args:
        name: of it.
    """

    def __init__(self, name: str) -> None:
        self.name, self.skipped = name, Skipped()
        self.tracks: list[FaceTrack] = []
        self._clips: list[Clip] = []

    def add(
        self,
        video_id: str,
        crops: NDArray[np.uint8],
        boxes: NDArray[np.float32],
        audio: NDArray[np.float32],
        speaking: NDArray[np.bool_],
    ) -> int:
        """Adds a face of a scene; faces of one ``video_id`` are seen together. Returns the number of its track."""
        entity_id = f"{video_id}:{len(self.tracks)}"
        self.tracks.append(FaceTrack(video_id, entity_id, 0.0, speaking, boxes, video_id))
        self._clips.append(Clip(crops, audio, speaking))
        return len(self.tracks) - 1

    def part(self, indices: Sequence[int]) -> Scenes:
        """Some of the tracks."""
        some = Scenes(self.name)
        some.tracks, some._clips = [self.tracks[i] for i in indices], [self._clips[i] for i in indices]
        return some

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """A stretch of a track."""
        return cut(self._clips[index], first_frame, num_frames)
