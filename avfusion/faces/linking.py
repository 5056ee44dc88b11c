"""Detections of one shot linked to tracks, look by look: the best one-to-one pairing by overlap and appearance.

Wherever another pairing would be nearly as good (two people cross, one hides the other), the tracks concerned end and
new ones begin: an identity may be split, it is never handed on by guess. A track that was out of sight for a look or
more is judged by appearance as well as by where it should be by now.

Shapes: boxes ``(N, 5)`` as x1, y1, x2, y2 in pixels and confidence, appearances ``(N, K)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from avfusion.faces.appearance import normalised
from avfusion.faces.assignment import best_pairs
from avfusion.faces.boxes import overlaps
from avfusion.faces.looks import ALIKE, Look

LEAST_ALIKE = 0.5  # appearance of one face in two looks some frames apart: heads turn
_NEXT_FRAMES = 2  # looks this near are as good as neighbouring frames, where nothing turns that fast
_LEAST_OVERLAP = 0.1  # with where the face should be
_SIZES = (0.5, 2.0)  # of a face from one look to the next
_CLEAR_GAIN = 0.5  # by which a pairing must beat another, in overlap plus correlation
_CLEAR_LOOKS = 0.1  # likewise in correlation alone, once a face was out of sight
_KEEP_LOOKS = 0.7  # share of the appearance so far in that from now on
_LONGEST_STRIDE = 12  # frames over which a face's movement is continued


@dataclass(eq=False)
class OpenTrack:
    """A track under way.

    Attributes:
        frames: where it was seen.
        boxes: ``(5,)`` each.
        after_miss: for each of them, whether it was looked for and not found since the one before.
        appearance: ``(K,)`` of late.
        missed: looks since the last one in which it was found.
    """

    frames: list[int]
    boxes: list[NDArray[np.float32]]
    after_miss: list[bool]
    appearance: NDArray[np.float32]
    missed: int = 0

    def expected(self, frame: int) -> NDArray[np.float32]:
        """The box ``(4,)`` where its movement over the last two looks leads to; it slows down and stands in the end."""
        box = self.boxes[-1][:4]
        if len(self.frames) < 2:
            return box
        before = self.boxes[-2][:4]
        step = (box[:2] + box[2:] - before[:2] - before[2:]) / (2 * (self.frames[-1] - self.frames[-2]))
        moved = np.tile(step, 2) * min(frame - self.frames[-1], _LONGEST_STRIDE)
        return (box + moved).astype(np.float32)


@dataclass
class Linker:
    """Links the looks of one shot.

    Args:
        start_confidence: a track begins with a face at least so certain; weaker ones only continue tracks.
        longest_gap_frames: a track out of sight for longer has ended.

    Attributes:
        tracks: those under way.
        split: how many ended because two pairings were nearly as good.
        unlinked: faces that belong to no track, too uncertain to begin one.
    """

    start_confidence: float
    longest_gap_frames: int
    tracks: list[OpenTrack] = field(default_factory=list)
    split: int = 0
    unlinked: int = 0

    def add(self, look: Look) -> list[OpenTrack]:
        """Takes the next look; returns the tracks that have ended."""
        alive = [t for t in self.tracks if look.frame - t.frames[-1] - 1 <= self.longest_gap_frames]
        ended = [t for t in self.tracks if look.frame - t.frames[-1] - 1 > self.longest_gap_frames]
        gain, alike = self._gains(alive, look)
        pairs = best_pairs(gain)
        doubtful = _doubtful(pairs, gain, alike, np.array([t.missed > 0 for t in alive], dtype=bool))
        self.split += len(doubtful)
        taken = set()
        for row, column in pairs:
            if row not in doubtful:
                taken.add(column)
                _extend(alive[row], look, column)
        matched = {row for row, _ in pairs}
        for row, track in enumerate(alive):
            if row not in matched:
                track.missed += 1
        ended += [alive[row] for row in sorted(doubtful)]
        self.tracks = [track for row, track in enumerate(alive) if row not in doubtful]
        for column in range(len(look.boxes)):
            if column in taken:
                continue
            if look.boxes[column, 4] >= self.start_confidence:
                self.tracks.append(OpenTrack([look.frame], [look.boxes[column]], [False], look.appearances[column]))
            else:
                self.unlinked += 1
        return ended

    def _gains(self, tracks: list[OpenTrack], look: Look) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What each pairing of a track with a face is worth (-inf: impossible), and the correlation alone."""
        if not tracks or not len(look.boxes):
            return np.zeros((len(tracks), len(look.boxes))), np.zeros((len(tracks), len(look.boxes)))
        expected = np.stack([track.expected(look.frame) for track in tracks])
        overlap = np.maximum(
            overlaps(expected, look.boxes), overlaps(np.stack([t.boxes[-1] for t in tracks]), look.boxes)
        )
        alike = (np.stack([track.appearance for track in tracks]) @ look.appearances.T).astype(np.float64)
        sides = np.sqrt((look.boxes[:, 2] - look.boxes[:, 0]) * (look.boxes[:, 3] - look.boxes[:, 1]))
        last_sides = np.sqrt((expected[:, 2] - expected[:, 0]) * (expected[:, 3] - expected[:, 1]))
        ratio = sides[None] / np.maximum(last_sides[:, None], 1e-6)
        near = np.array([look.frame - track.frames[-1] <= _NEXT_FRAMES for track in tracks])[:, None]
        missed = np.array([track.missed > 0 for track in tracks])[:, None]
        least = np.where(near | missed, ALIKE, LEAST_ALIKE)
        possible = (overlap >= _LEAST_OVERLAP) & (alike >= least) & (ratio >= _SIZES[0]) & (ratio <= _SIZES[1])
        return np.where(possible, overlap + alike, -np.inf), alike


def _doubtful(
    pairs: list[tuple[int, int]],
    gain: NDArray[np.float64],
    alike: NDArray[np.float64],
    was_missed: NDArray[np.bool_],
) -> set[int]:
    """The tracks for which another pairing would be nearly as good."""
    column_of, row_of = dict(pairs), {column: row for row, column in pairs}
    doubtful: set[int] = set()
    for row, column in pairs:
        for other in np.flatnonzero(np.isfinite(gain[:, column])).tolist():  # tracks that could have had this face
            if other == row:
                continue
            theirs = column_of.get(other)
            if theirs is None:  # the other was left without
                rivals = [(row, column)], [(other, column)]
            elif np.isfinite(gain[row, theirs]):
                rivals = [(row, column), (other, theirs)], [(row, theirs), (other, column)]
            else:
                continue
            if _is_close(*rivals, gain, alike, bool(was_missed[[row, other]].any())):
                doubtful |= {row, other}
        for free in np.flatnonzero(np.isfinite(gain[row])).tolist():  # faces that this track could have had
            if free != column and free not in row_of:
                rivals = [(row, column)], [(row, free)]
                if _is_close(*rivals, gain, alike, bool(was_missed[row])):
                    doubtful.add(row)
    return doubtful


def _is_close(
    chosen: list[tuple[int, int]],
    other: list[tuple[int, int]],
    gain: NDArray[np.float64],
    alike: NDArray[np.float64],
    was_missed: bool,
) -> bool:
    gained, looks = (sum(t[p] for p in chosen) - sum(t[p] for p in other) for t in (gain, alike))
    return bool(gained < _CLEAR_GAIN * len(chosen) or (was_missed and looks < _CLEAR_LOOKS * len(chosen)))


def _extend(track: OpenTrack, look: Look, column: int) -> None:
    track.frames.append(look.frame)
    track.boxes.append(look.boxes[column])
    track.after_miss.append(track.missed > 0)
    track.missed = 0
    mixed = np.float32(_KEEP_LOOKS) * track.appearance + np.float32(1 - _KEEP_LOOKS) * look.appearances[column]
    track.appearance = normalised(mixed)
