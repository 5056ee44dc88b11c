"""Scores at a corpus's own stamps: each annotated row takes the score of its entity's nearest 25 fps frame.

A prepared dataset stands on the 25 fps grid; the corpus's rows (AVA: the film's own rate, stamps of two digits) do not.
Figures that are compared with other people's must be over exactly those rows. An entity with a gap was split into
tracks ``ID``, ``ID#2``, ``ID#3`` ...; any of them may hold the nearest frame.
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.errors import AvfusionError
from avfusion.evaluation.groups import FaceKey, group_index
from avfusion.tracks import LabelTable, ScoreTable

FARTHEST_MS = 500 // VIDEO_HZ + 5  # half a frame, and half of a stamp's last digit


def score_source_rows(source: LabelTable, scores: ScoreTable, partial: bool = False) -> tuple[LabelTable, ScoreTable]:
    """Gives every annotated row a score.

    Args:
        source: the rows as annotated.
        scores: one score for each 25 fps frame of each track.
        partial: leave out rows without a frame (tracks that could not be used have none); else they are an error.

    Returns:
        The rows of ``source`` in its order, and the same with their scores.

    Raises:
        AvfusionError: a row has no frame of its entity within 25 ms, or none of them has.
    """
    frame = nearest_frames(source, scores)
    without = np.flatnonzero(frame < 0)
    if len(without) and (not partial or len(without) == len(source)):
        raise AvfusionError(
            f"{source.path}: {len(without)} of {len(source)} annotated rows have no frame within {FARTHEST_MS} ms, "
            f"first {source.row_name(int(without[0]))}; expected the annotation that the dataset was prepared from"
        )
    kept = frame >= 0
    columns = {
        name: getattr(source, name)[kept] for name in ("video_id", "timestamp_ms", "boxes_xyxy", "entity_id", "line")
    }
    columns["texts"] = None if source.texts is None else source.texts[kept]
    return (
        LabelTable(**columns, path=source.path, speaking=source.speaking[kept]),
        ScoreTable(**columns, score=scores.score[frame[kept]]),
    )


def nearest_frames(source: LabelTable, scores: ScoreTable) -> NDArray[np.int64]:
    """For each annotated row the score row of its entity's nearest frame; -1 where none is within 25 ms."""
    entity, entities = group_index(source.video_id, source.entity_id)
    frames_of = _frames_of(scores, set(entities))
    found = np.full(len(source), -1, dtype=np.int64)
    for rows in _groups(entity):
        frames = frames_of.get(entities[entity[rows[0]]])
        if frames is None:
            continue
        after = np.searchsorted(scores.timestamp_ms[frames], source.timestamp_ms[rows])
        candidates = np.stack([frames[np.maximum(after - 1, 0)], frames[np.minimum(after, len(frames) - 1)]])
        distance_ms = np.abs(scores.timestamp_ms[candidates] - source.timestamp_ms[rows])
        nearest = np.where(distance_ms[0] <= distance_ms[1], candidates[0], candidates[1])
        found[rows] = np.where(distance_ms.min(axis=0) <= FARTHEST_MS, nearest, -1)
    return found


def _groups(number: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The row indices of each group number."""
    order = np.argsort(number, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(number[order])) + 1) if len(order) else []


def _frames_of(scores: ScoreTable, entities: set[FaceKey]) -> dict[FaceKey, NDArray[np.int64]]:
    """For each annotated entity the score rows of its tracks, in order of time."""
    track, tracks = group_index(scores.video_id, scores.entity_id)
    rows_of: dict[FaceKey, list[NDArray[np.int64]]] = defaultdict(list)
    for rows in _groups(track):
        video_id, entity_id = tracks[track[rows[0]]]
        # An id that the corpus itself ends in #2 is no piece of another entity.
        whole = entity_id if (video_id, entity_id) in entities else re.sub(r"#\d+$", "", entity_id)
        rows_of[video_id, whole].append(rows)
    joined = {key: np.concatenate(parts) for key, parts in rows_of.items()}
    return {key: rows[np.argsort(scores.timestamp_ms[rows], kind="stable")] for key, rows in joined.items()}
