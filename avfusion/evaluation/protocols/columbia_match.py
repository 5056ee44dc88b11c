"""Which scored face is the annotated one: frames of two rates brought together, then boxes by their overlap.

Film frame ``n`` at 29.97 per second belongs to frame ``floor(n / 29.97 * 25)`` at 25 per second, so every sixth of
those has two annotated ones. A score belongs to the 25 fps frame nearest to its time. There, a scored box is a match
where the overlap is above 0.5; pairs are taken by falling overlap, equal ones by falling score, and each face, scored
or annotated, is in one pair of a film frame at most.

Two overlaps: *IoU*, intersection over union, and the *covered share*, intersection over the area of the scored box.
The published code calls the second one IoU, and does not keep one scored box from being two speakers.

Shapes: ``N`` annotated faces, ``M`` scored ones. Source: as :mod:`avfusion.evaluation.protocols.columbia_labels`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import FRAME_MS, VIDEO_HZ
from avfusion.evaluation.groups import group_index
from avfusion.evaluation.join import SAME_FRAME_MS
from avfusion.evaluation.protocols.columbia_labels import ColumbiaLabels
from avfusion.evaluation.protocols.score_checks import (
    refuse_duplicates,
    refuse_other_than_one_video,
    refuse_pixels,
)
from avfusion.tracks import ScoreTable

MIN_OVERLAP = 0.5  # a match is above it
Boxes = NDArray[np.float64]
Overlap = Callable[[Boxes, Boxes], NDArray[np.float64]]
_ROUNDING = 1e-5  # of six-digit fractions: what is 0.5 in pixels must not pass as more


@dataclass(frozen=True, eq=False)
class FrameScores:
    """``M`` scored faces on the 25 fps grid, in order of frames.

    Attributes:
        frame: ``(M,)`` int64 ascending, frame at 25 per second.
        boxes_xyxy: ``(M, 4)`` float64 fractions of the picture.
        score: ``(M,)`` float64.
        num_off_grid: rows of the file whose time is more than 5 ms from its frame's.
        num_superseded: rows left out because another one of their track is nearer to the frame.
    """

    frame: NDArray[np.int64]
    boxes_xyxy: Boxes
    score: NDArray[np.float64]
    num_off_grid: int
    num_superseded: int


def frame_at_25(film_frame: NDArray[np.int64]) -> NDArray[np.int64]:
    """The 25 fps frame of film frames at 29.97 per second: ``floor(n / 29.97 * 25)`` in whole numbers."""
    return film_frame * (100 * VIDEO_HZ) // 2997


def intersection_over_union(scored: Boxes, annotated: Boxes) -> NDArray[np.float64]:
    """IoU of ``(P, 4)`` boxes, pair by pair, in 0..1."""
    shared = _intersection(scored, annotated)
    return shared / (_area(scored) + _area(annotated) - shared)


def covered_share(scored: Boxes, annotated: Boxes) -> NDArray[np.float64]:
    """Share of each of ``(P, 4)`` scored boxes that lies in the annotated one; 0 for a box without area."""
    area = _area(scored)
    return np.divide(_intersection(scored, annotated), area, out=np.zeros(len(area)), where=area > 0)


def scores_by_frame(scores: ScoreTable) -> FrameScores:
    """Puts scores on the 25 fps grid. Rows of one track that fall into one frame: the one nearest to it counts.

    Raises:
        AvfusionError: no rows, more than one video, a row that is there twice, or boxes that are no fractions.
    """
    refuse_other_than_one_video(scores)
    refuse_pixels(scores)
    refuse_duplicates(scores)
    frame = np.rint(scores.timestamp_ms * (VIDEO_HZ / 1000)).astype(np.int64)
    distance_ms = np.abs(scores.timestamp_ms - frame * FRAME_MS)
    track, _ = group_index(scores.entity_id)
    order = np.lexsort((scores.timestamp_ms, distance_ms, track, frame))
    again = (np.diff(track[order]) == 0) & (np.diff(frame[order]) == 0)
    kept = order[np.append(True, ~again)]
    return FrameScores(
        frame=frame[kept],
        boxes_xyxy=scores.boxes_xyxy[kept].astype(np.float64),
        score=scores.score[kept],
        num_off_grid=int((distance_ms > SAME_FRAME_MS).sum()),
        num_superseded=int(again.sum()),
    )


def match(labels: ColumbiaLabels, scores: FrameScores, overlap: Overlap) -> NDArray[np.int64]:
    """Finds the scored face of every annotated one.

    Returns:
        ``(N,)`` index of the scored face, -1 where none overlaps enough: the face was not detected.
    """
    frame = frame_at_25(labels.frame)
    first, end = np.searchsorted(scores.frame, frame, side="left"), np.searchsorted(scores.frame, frame, side="right")
    annotated = np.repeat(np.arange(len(labels)), end - first)
    before = np.cumsum(end - first) - (end - first)
    scored = np.arange(len(annotated)) + np.repeat(first - before, end - first)
    shares = overlap(scores.boxes_xyxy[scored], labels.boxes_xyxy[annotated])
    enough = shares > MIN_OVERLAP + _ROUNDING
    annotated, scored, shares = annotated[enough], scored[enough], shares[enough]
    order = np.lexsort((annotated, -scores.score[scored], -shares))
    found = np.full(len(labels), -1, dtype=np.int64)
    taken: set[tuple[int, int]] = set()  # film frame, scored face
    film_frames = labels.frame[annotated].tolist()
    for pair in order.tolist():
        face, used = int(annotated[pair]), (film_frames[pair], int(scored[pair]))
        if found[face] < 0 and used not in taken:
            found[face] = used[1]
            taken.add(used)
    return found


def _area(boxes: Boxes) -> NDArray[np.float64]:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def _intersection(one: Boxes, other: Boxes) -> NDArray[np.float64]:
    across, down = (
        np.maximum(np.minimum(one[:, axis + 2], other[:, axis + 2]) - np.maximum(one[:, axis], other[:, axis]), 0.0)
        for axis in (0, 1)
    )
    return np.asarray(across * down, dtype=np.float64)
