"""A dataset whose pictures and sound say which frame of which track they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from avfusion.data.clips import Clip, Skipped
from avfusion.tracks import FaceTrack


class Ramp:
    """Tracks of given lengths; pixel and sound of frame ``i`` of track ``k`` say so: ``10 k + i``."""

    name = "ramp"
    skipped = Skipped()

    def __init__(self, lengths: list[int]) -> None:
        self.tracks = [
            FaceTrack(f"v{k}", f"v{k}:0", 0.0, np.arange(n) % 2 == 0, np.zeros((n, 4), np.float32), f"v{k}")
            for k, n in enumerate(lengths)
        ]
        self.reads = 0

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        self.reads += 1
        track = self.tracks[index]
        last = track.num_frames if num_frames is None else first_frame + num_frames
        assert 0 <= first_frame < last <= track.num_frames
        values = 10 * index + np.arange(first_frame, last)
        crops = np.broadcast_to(values[:, None, None], (len(values), 16, 16)).astype(np.uint8)
        return Clip(crops, self.sound(index)[640 * first_frame : 640 * last], track.speaking[first_frame:last])

    def sound(self, index: int) -> NDArray[np.float32]:
        values = 10 * index + np.arange(self.tracks[index].num_frames)
        return np.repeat(values / 1000, 640).astype(np.float32)
