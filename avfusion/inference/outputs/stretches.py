"""Which seconds of a film tell most about a model: where faces are seen together, and the speaker changes.

A stretch belongs to one face, which is there all the while; stretches of a film do not overlap. Shapes: ``T`` frames
of a face track, ``N`` frames of the film, 25 per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.inference.outputs.speech import Speech
from avfusion.inference.result import Result, ScoredFace

STEP_FRAMES = VIDEO_HZ  # from one candidate to the next
FEWEST_FRAMES = VIDEO_HZ // 2  # shorter ones are looked at only where there is nothing else
MOST_CHANGES = 4  # more do not make a stretch better, only more crowded


@dataclass(frozen=True)
class Stretch:
    """Frames ``first <= n < end`` of the film, in all of which the face is there.

    Attributes:
        face: index into the result's faces.
        first: first frame of the film.
        end: one past the last one.
    """

    face: int
    first: int
    end: int


def telling_stretches(result: Result, speech: Sequence[Speech], count: int, longest_s: float) -> list[Stretch]:
    """Chooses stretches, in the order of the film.

    First come those with two faces or more and a change of speaker, then those with either; then those with more
    changes (up to four), with a score that moves more, and earlier ones.

    Args:
        result: the faces.
        speech: their stretches of speech.
        count: how many are wanted; there may be fewer.
        longest_s: none is longer.
    """
    longest = max(1, round(longest_s * VIDEO_HZ))
    faces_seen, changes = _faces_seen(result), _changes(result, speech)
    candidates = [
        (_rank(result.faces[stretch.face], stretch, faces_seen, changes), stretch)
        for index, face in enumerate(result.faces)
        for stretch in _candidates(index, face, longest)
    ]
    chosen: list[Stretch] = []
    for _, stretch in sorted(candidates, key=lambda one: one[0]):
        if len(chosen) == count:
            break
        if all(stretch.end <= other.first or other.end <= stretch.first for other in chosen):
            chosen.append(stretch)
    return sorted(chosen, key=lambda stretch: stretch.first)


def _candidates(index: int, face: ScoredFace, longest: int) -> list[Stretch]:
    """Stretches of one face, a second apart; the last one ends with its track."""
    start, length = face.track.start_frame, min(face.track.num_frames, longest)
    last = start + face.track.num_frames - length
    firsts = sorted({*range(start, last, STEP_FRAMES), last})
    return [Stretch(index, first, first + length) for first in firsts]


def _rank(
    face: ScoredFace, stretch: Stretch, faces_seen: NDArray[np.int64], changes: NDArray[np.int64]
) -> tuple[bool, int, int, float, int, int]:
    """What stretches are sorted by; small is good."""
    inside = slice(stretch.first, stretch.end)
    company = float((faces_seen[inside] > 1).mean()) >= 0.5
    num_changes = int(changes[inside].sum())
    start = face.track.start_frame
    spread = float(face.scores[stretch.first - start : stretch.end - start].std())
    return (
        stretch.end - stretch.first < FEWEST_FRAMES,
        -(int(company) + int(num_changes > 0)),
        -min(num_changes, MOST_CHANGES),
        -round(spread, 3),
        stretch.first,
        stretch.face,
    )


def _faces_seen(result: Result) -> NDArray[np.int64]:
    """``(N,)`` how many faces there are in each frame."""
    edges = np.zeros(_num_frames(result) + 1, dtype=np.int64)
    for face in result.faces:
        edges[face.track.start_frame] += 1
        edges[face.track.start_frame + face.track.num_frames] -= 1
    return np.cumsum(edges)[:-1]


def _changes(result: Result, speech: Sequence[Speech]) -> NDArray[np.int64]:
    """``(N,)`` how many stretches of speech begin or end in each frame while their face is there before and after."""
    changes = np.zeros(_num_frames(result), dtype=np.int64)
    for one in speech:
        track = result.faces[one.face].track
        for frame in (one.first, one.end):
            if track.start_frame < frame < track.start_frame + track.num_frames:
                changes[frame] += 1
    return changes


def _num_frames(result: Result) -> int:
    return max([result.num_frames, *(f.track.start_frame + f.track.num_frames for f in result.faces)])
