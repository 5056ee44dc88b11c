"""Whose voice may be mixed into a clip as an interferer: somebody who speaks in another clip of the training set.

The voice must come from another video, another sound and, where both tracks know theirs, another group (what a track
was made from): neither the clip's own voice nor what else is heard in its scene. Persons are not told apart beyond
that, since no dataset names them. Labels stay, for the voice's face is not in the picture.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from avfusion.tracks import FaceTrack


class Interferers:
    """The speaking tracks of a dataset, and the choice of one for a clip of another.

    Args:
        tracks: of the training split.
    """

    def __init__(self, tracks: Sequence[FaceTrack]) -> None:
        self._tracks = tracks
        self._speakers = np.array([i for i, track in enumerate(tracks) if track.speaking.any()], dtype=np.int64)
        self._keys = np.stack(
            [
                _numbers([track.video_id for track in tracks]),
                _numbers([track.audio_id for track in tracks]),
                # A group that is unknown is a group of its own.
                _numbers([track.group or f"\0{i}" for i, track in enumerate(tracks)]),
            ],
            axis=1,
        )

    @property
    def num_alone(self) -> int:
        """How many tracks have nobody to be mixed with."""
        speakers = self._keys[self._speakers]
        # Nearly every track finds somebody among the first few, and the rest are looked for one by one.
        near = (self._keys[:, None] != speakers[None, :8]).all(2).any(1)
        return sum(not len(self._partners(int(track))) for track in np.flatnonzero(~near))

    def draw(self, track: int, num_frames: int, rng: np.random.Generator) -> tuple[int, int, int] | None:
        """Chooses a voice: any qualifying track alike, and in it a stretch by how much of it speaks.

        Args:
            track: the clip's own track.
            num_frames: frames wanted.
            rng: source of every draw.

        Returns:
            Track, first frame and number of frames (fewer than wanted where the track has no more); at least one of
            them speaks. None where nobody qualifies.
        """
        partners = self._partners(track)
        if not len(partners):
            return None
        other = int(rng.choice(partners))
        length = self._tracks[other].num_frames
        count = min(num_frames, length)
        # The stretch lies anyhow around a frame that speaks: the more frames of a stretch do, the likelier it is.
        frame = int(rng.choice(np.flatnonzero(self._tracks[other].speaking)))
        first = int(rng.integers(max(0, frame - count + 1), min(frame, length - count) + 1))
        return other, first, count

    def _partners(self, track: int) -> NDArray[np.int64]:
        """The speaking tracks that differ from a track in everything that is known."""
        partners: NDArray[np.int64] = self._speakers[(self._keys[self._speakers] != self._keys[track]).all(1)]
        return partners


def _numbers(names: Sequence[str]) -> NDArray[np.int64]:
    """``(N,)`` a number for each name, equal where the names are."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)
