"""Which faces are seen together, and what another face looks like in the frames of a clip.

Tracks of one video that share frames of the 25 fps grid are companions. A scene is built around one of them: its
frames, its sound, and whoever else is seen meanwhile. ``T`` video frames of ``Y`` by ``X``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.data.clips import Clip
from avfusion.tracks import FaceTrack


class Companions:
    """The faces seen together with each face of a split.

    Args:
        tracks: of the split.
    """

    def __init__(self, tracks: Sequence[FaceTrack]) -> None:
        self._first = [round(track.start_s * VIDEO_HZ) for track in tracks]
        self._count = [track.num_frames for track in tracks]
        self._video = [track.video_id for track in tracks]
        by_video: dict[str, list[int]] = defaultdict(list)
        for index in sorted(range(len(tracks)), key=self._first.__getitem__):
            by_video[tracks[index].video_id].append(index)
        self._by_video = dict(by_video)

    def seen_with(self, track: int, first_frame: int, num_frames: int) -> list[int]:
        """The other faces seen in a stretch of a track, by the time at which they appear.

        Args:
            track: index.
            first_frame: of the stretch, counted from the track's first.
            num_frames: of the stretch.
        """
        first = self._first[track] + first_frame
        return [
            other
            for other in self._by_video[self._video[track]]
            if other != track
            and self._first[other] < first + num_frames
            and first < self._first[other] + self._count[other]
        ]

    def offset(self, track: int, other: int) -> int:
        """Frame ``n`` of the track is frame ``n + offset`` of the other one."""
        return self._first[track] - self._first[other]

    def same_frames(self, track: int) -> list[int]:
        """The other faces of the video that are there in exactly the frames of this one."""
        return [
            other
            for other in self.seen_with(track, 0, self._count[track])
            if (self._first[other], self._count[other]) == (self._first[track], self._count[track])
        ]


@dataclass(frozen=True)
class Presence:
    """Where the frames of a scene lie in another track.

    Attributes:
        frame: ``(T,)`` frame of the other track, moved into it where it has none.
        there: ``(T,)`` bool, whether it has one.
    """

    frame: NDArray[np.int64]
    there: NDArray[np.bool_]

    @classmethod
    def at(cls, place: NDArray[np.float64], num_frames: int) -> Presence:
        """Of the nearest frames to ``(T,)`` places in a track of so many frames."""
        nearest = np.floor(place + 0.5).astype(np.int64)
        return cls(nearest.clip(0, num_frames - 1), (nearest >= 0) & (nearest < num_frames))

    @property
    def span(self) -> tuple[int, int]:
        """First frame and number of frames that are needed of the track, one at least."""
        if not self.there.any():
            return int(self.frame[0]), 1
        used = self.frame[self.there]
        return int(used.min()), int(used.max() - used.min()) + 1

    def shown(self, clip: Clip, first_frame: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """``(T, Y, X)`` pictures, black where the face is not there, and ``(T,)`` labels.

        Args:
            clip: a stretch of the track that holds its ``span``.
            first_frame: of that stretch.
        """
        at = np.where(self.there, self.frame - first_frame, 0)
        crops = np.where(self.there[:, None, None], clip.crops[at], 0)
        return crops.astype(np.uint8), clip.speaking[at] & self.there
