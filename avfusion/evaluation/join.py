"""Labels and scores brought together by key, never by row order: (video_id, frame time, entity_id).

Times are whole milliseconds. AVA rounds its times to two digits (1000.53 for the frame at 1000.5333), so two times of
one face are the same frame when they are at most 5 ms apart; half a frame off (20 ms) is not the same frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.evaluation.groups import FaceKey, group_index
from avfusion.tracks import FaceTable, LabelTable, ScoreTable

SAME_FRAME_MS = 5  # half of AVA's last digit; frames are 16 ms apart even at 60 per second
_ROWS_NAMED = 3


@dataclass(frozen=True, eq=False)
class Joined:
    """``N`` face boxes with label and score, in the row order of the labels.

    Attributes:
        video_id: ``(N,)`` str objects.
        entity_id: ``(N,)`` str objects.
        timestamp_ms: ``(N,)`` int64, as the labels have it.
        boxes_xyxy: ``(N, 4)`` float32 fractions of the picture, as the labels have it.
        speaking: ``(N,)`` bool.
        score: ``(N,)`` float64.
    """

    video_id: NDArray[np.object_]
    entity_id: NDArray[np.object_]
    timestamp_ms: NDArray[np.int64]
    boxes_xyxy: NDArray[np.float32]
    speaking: NDArray[np.bool_]
    score: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.score)

    @cached_property
    def videos(self) -> tuple[NDArray[np.int64], list[tuple[str]]]:
        """``(N,)`` number of each row's video, and the video that each number stands for."""
        return group_index(self.video_id)

    @cached_property
    def faces(self) -> tuple[NDArray[np.int64], list[FaceKey]]:
        """``(N,)`` number of each row's track, and (video_id, entity_id) that each number stands for."""
        return group_index(self.video_id, self.entity_id)


def join(labels: LabelTable, scores: ScoreTable) -> Joined:
    """Gives every label row its score.

    Raises:
        AvfusionError: the labels are empty; a row is there twice; a label row has no score; a score row has no label.
            The message counts such rows and names the first of them.
    """
    if not len(labels):
        raise AvfusionError(f"{_name(labels, 'labels')}: no label rows, expected some: there is nothing to evaluate")
    face, _ = group_index(
        np.concatenate([labels.video_id, scores.video_id]), np.concatenate([labels.entity_id, scores.entity_id])
    )
    label_face, score_face = face[: len(labels)], face[len(labels) :]
    label_order = np.lexsort((labels.timestamp_ms, label_face))
    score_order = np.lexsort((scores.timestamp_ms, score_face))
    _refuse_duplicates(labels, "labels", label_face, label_order)
    _refuse_duplicates(scores, "scores", score_face, score_order)
    # Both sorted by face and time: if any one-to-one pairing stays within the tolerance, this one does.
    same = len(labels) == len(scores) and bool(
        np.all(label_face[label_order] == score_face[score_order])
        and np.all(np.abs(labels.timestamp_ms[label_order] - scores.timestamp_ms[score_order]) <= SAME_FRAME_MS)
    )
    if not same:
        raise _difference(labels, scores, (label_face, label_order), (score_face, score_order))
    score = np.empty(len(labels))
    score[label_order] = scores.score[score_order]
    return Joined(labels.video_id, labels.entity_id, labels.timestamp_ms, labels.boxes_xyxy, labels.speaking, score)


def _refuse_duplicates(table: FaceTable, kind: str, face: NDArray[np.int64], order: NDArray[np.int64]) -> None:
    time_ms = table.timestamp_ms[order]
    again = np.flatnonzero((face[order][1:] == face[order][:-1]) & (time_ms[1:] == time_ms[:-1])) + 1
    if len(again):
        raise AvfusionError(
            f"{_name(table, kind)}: {len(again)} duplicate rows, expected one row per face and frame: "
            f"{_first_rows(table, order[again].tolist())}; remove them"
        )


def _difference(
    labels: LabelTable,
    scores: ScoreTable,
    label_keys: tuple[NDArray[np.int64], NDArray[np.int64]],
    score_keys: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> AvfusionError:
    """The error that names label rows without score and score rows without label.

    Args:
        labels: the ground truth.
        scores: the predictions.
        label_keys: face numbers of the label rows, and the order that sorts the rows by face and time.
        score_keys: the same for the scores.
    """
    label_keyed = _sorted_keys(labels, *label_keys)
    score_keyed = _sorted_keys(scores, *score_keys)
    missing: list[int] = []
    extra: list[int] = []
    at = 0
    for face, time_ms, row in label_keyed:
        while at < len(score_keyed) and score_keyed[at][:2] < (face, time_ms - SAME_FRAME_MS):
            extra.append(score_keyed[at][2])
            at += 1
        if at < len(score_keyed) and score_keyed[at][:2] <= (face, time_ms + SAME_FRAME_MS):
            at += 1
        else:
            missing.append(row)
    extra += [row for _, _, row in score_keyed[at:]]
    found = []
    if missing:
        rows = _first_rows(labels, missing)
        found.append(f"no score for {len(missing)} of {len(labels)} label rows: {rows}{_hint(labels, scores, missing)}")
    if extra:
        found.append(f"{len(extra)} of {len(scores)} score rows without a label: {_first_rows(scores, extra)}")
    return AvfusionError(
        f"{_name(scores, 'scores')}: {'; '.join(found)}; expected exactly one score for each row of "
        f"{_name(labels, 'the labels')}, same video, entity and time within {SAME_FRAME_MS} ms"
    )


def _sorted_keys(table: FaceTable, face: NDArray[np.int64], order: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    return list(zip(face[order].tolist(), table.timestamp_ms[order].tolist(), order.tolist(), strict=True))


def _hint(labels: LabelTable, scores: ScoreTable, missing: list[int]) -> str:
    """Says how far the nearest score of the first missing row's face is, which tells a shift from an absent track."""
    row = missing[0]
    same_face = (scores.video_id == labels.video_id[row]) & (scores.entity_id == labels.entity_id[row])
    if not same_face.any():
        return " (no score of that face at all)"
    distance_ms = np.abs(scores.timestamp_ms[same_face] - labels.timestamp_ms[row]).min()
    return f" (nearest score of the first is {distance_ms} ms away)"


def _first_rows(table: FaceTable, rows: list[int]) -> str:
    named = ", ".join(table.row_name(row) for row in sorted(rows)[:_ROWS_NAMED])
    return f"{named}, ..." if len(rows) > _ROWS_NAMED else named


def _name(table: FaceTable, otherwise: str) -> str:
    return table.path or otherwise
