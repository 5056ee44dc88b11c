"""Clips kept in memory, and a dataset whose clips are those of another with one thing changed.

A change is made to the whole track, and a stretch is cut out of it afterwards: scores of chunks stay those of the
whole. What is drawn for a track is drawn from its ids, so that every model sees the same damage of a split.
Shapes: ``T`` video frames, crops ``(T, Y, X)`` uint8, ``640 T`` sound samples.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tqdm import tqdm

from avfusion.clock import SAMPLES_PER_VIDEO_FRAME
from avfusion.data.augment.draws import Draws
from avfusion.data.clips import Clip, ClipDataset
from avfusion.data.synthetic import SyntheticDataset
from avfusion.data.synthetic.parallel import read_many
from avfusion.tracks import FaceTrack

Change = Callable[[Clip, int], Clip]
"""Takes a whole clip and the number of its track, and gives the clip with one thing changed, just as long."""


class KeptClips:
    """Some tracks of a dataset, each read once and kept, as far as there is room; the rest is read when wanted.

    Args:
        dataset: where they are.
        indices: which of its tracks; here they are numbered from 0.
        cache_gb: room for decoded clips.
    """

    def __init__(self, dataset: ClipDataset, indices: Sequence[int], cache_gb: float) -> None:
        self.name, self.skipped = dataset.name, dataset.skipped
        self.tracks: Sequence[FaceTrack] = [dataset.tracks[index] for index in indices]
        self._dataset, self._indices = dataset, indices
        self._clips: dict[int, Clip] = {}
        self._room = cache_gb * 1e9

    def read_all(self) -> None:
        """Reads clips until there is no more room."""
        if isinstance(self._dataset, SyntheticDataset):
            clips: Iterable[Clip] = read_many(self._dataset, self._indices)
        else:
            clips = map(self._dataset.read, self._indices)
        bar = tqdm(clips, desc="reading", total=len(self.tracks), leave=False, disable=None)
        for index, clip in enumerate(bar):
            self._room -= clip.crops.nbytes + clip.audio.nbytes
            if self._room < 0:
                return
            self._clips[index] = clip

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """As :class:`avfusion.data.clips.ClipDataset`."""
        if index in self._clips:
            return cut(self._clips[index], first_frame, num_frames)
        return self._dataset.read(self._indices[index], first_frame, num_frames)

    def __getstate__(self) -> dict[str, Any]:
        """Processes that are not forks read for themselves: sending them all clips would cost more."""
        return {**self.__dict__, "_clips": {}}


class ChangedClips:
    """A dataset whose clips are changed as they are read.

    Args:
        clips: what is changed.
        change: how.
        indices: which tracks; here they are numbered from 0.
    """

    def __init__(self, clips: ClipDataset, change: Change, indices: Sequence[int]) -> None:
        self.name, self.skipped = clips.name, clips.skipped
        self.tracks: Sequence[FaceTrack] = [clips.tracks[index] for index in indices]
        self._clips, self._change, self._indices = clips, change, indices
        self._last: tuple[int, Clip] | None = None

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """The whole clip changed, or a stretch of just that; the last clip is kept for the stretches that follow."""
        if self._last is None or self._last[0] != index:
            number = self._indices[index]
            self._last = index, self._change(self._clips.read(number), number)
        return cut(self._last[1], first_frame, num_frames)


def unchanged(clip: Clip, track: int) -> Clip:
    """The change that is none."""
    return clip


def cut(clip: Clip, first_frame: int, num_frames: int | None) -> Clip:
    """Frames ``first_frame ..`` of a clip with their sound; None for all that follow."""
    last = len(clip.speaking) if num_frames is None else first_frame + num_frames
    sound = slice(first_frame * SAMPLES_PER_VIDEO_FRAME, last * SAMPLES_PER_VIDEO_FRAME)
    return Clip(clip.crops[first_frame:last], clip.audio[sound], clip.speaking[first_frame:last])


def draws_of(track: FaceTrack) -> Draws:
    """What is drawn for a track, whatever the dataset around it: from the texts of its ids."""
    return Draws(zlib.crc32(track.video_id.encode()), zlib.crc32(track.entity_id.encode()))
