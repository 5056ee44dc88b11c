"""Whose voice may be mixed into a clip as an interferer: somebody who speaks in another clip of the training set.

The voice must come from another video, another sound and, where both tracks know theirs, another group (what a track
was made from): neither the clip's own voice nor what else is heard in its scene. Persons are not told apart beyond
that, since no dataset names them. Labels stay, for the voice's face is not in the picture.

Datasets have up to some 10,000 tracks, and thousands of them may be of one video. So nobody's list of voices is ever
written down: how many of the first ``m`` speakers share nothing with a track is counted by inclusion and exclusion
(those of its video + of its sound + of its group - of its video and sound - ...), each term found by bisection.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import combinations

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
        keys = np.stack(
            [
                _numbers([track.video_id for track in tracks]),
                _numbers([track.audio_id for track in tracks]),
                # A group that is unknown is a group of its own.
                _numbers([track.group or f"\0{i}" for i, track in enumerate(tracks)]),
            ],
            axis=1,
        )
        subsets = [list(subset) for size in (1, 2, 3) for subset in combinations(range(3), size)]
        self._terms = [(1 if len(subset) == 2 else -1, _Sharing(keys[:, subset], self._speakers)) for subset in subsets]
        self._num_partners = np.full(len(tracks), len(self._speakers), np.int64)
        for sign, sharing in self._terms:
            self._num_partners += sign * sharing.counts

    @property
    def num_alone(self) -> int:
        """How many tracks have nobody to be mixed with."""
        return int((self._num_partners == 0).sum())

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
        if not self._num_partners[track]:
            return None
        other = self._partner(track, int(rng.integers(self._num_partners[track])))
        length = self._tracks[other].num_frames
        count = min(num_frames, length)
        # The stretch lies anyhow around a frame that speaks: the more frames of a stretch do, the likelier it is.
        frame = int(rng.choice(np.flatnonzero(self._tracks[other].speaking)))
        first = int(rng.integers(max(0, frame - count + 1), min(frame, length - count) + 1))
        return other, first, count

    def _partner(self, track: int, number: int) -> int:
        """The speaking track that is number ``number``, from 0, of those with which a track shares nothing."""
        blocks = [(sign, *sharing.block(track)) for sign, sharing in self._terms if sharing.counts[track]]

        def qualifying(place: int) -> int:
            """How many of the speakers up to this one share nothing with the track."""
            found = place + 1
            for sign, places, first, end in blocks:
                found += sign * (bisect_right(places, place, first, end) - first)
            return found

        return int(self._speakers[bisect_right(range(len(self._speakers)), number, key=qualifying)])


class _Sharing:
    """For every track, the speakers that share certain keys with it, in the order of the speakers.

    Args:
        keys: ``(N, K)`` numbers of every track.
        speakers: ``(S,)`` tracks.

    Attributes:
        counts: ``(N,)`` how many speakers share all ``K`` keys with each track, itself among them.
    """

    def __init__(self, keys: NDArray[np.int64], speakers: NDArray[np.int64]) -> None:
        distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
        block_of = inverse.reshape(-1)  # (N,) tracks that share the keys have one block
        places = np.argsort(block_of[speakers], kind="stable")
        bounds = np.searchsorted(block_of[speakers][places], np.arange(len(distinct) + 1))
        self._first, self._end = bounds[block_of], bounds[block_of + 1]
        self._places = array("q", places.astype(np.int64).tobytes())  # bisect is slow on numpy's own
        self.counts: NDArray[np.int64] = self._end - self._first

    def block(self, track: int) -> tuple[array[int], int, int]:
        """Where they stand: ``places[first:end]`` are their places among the speakers, ascending."""
        return self._places, int(self._first[track]), int(self._end[track])


def _numbers(names: Sequence[str]) -> NDArray[np.int64]:
    """``(N,)`` a number for each name, equal where the names are."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)
