"""What a score file must be before a protocol looks at it; each fault is one line that names the first wrong row."""

from __future__ import annotations

import numpy as np

from avfusion.errors import AvfusionError
from avfusion.evaluation.boxes import RANGE, in_fractions
from avfusion.evaluation.groups import group_index
from avfusion.tracks import ScoreTable


def refuse_duplicates(scores: ScoreTable) -> None:
    """Wants one score for each face and time.

    Raises:
        AvfusionError: a row is there twice.
    """
    face, _ = group_index(scores.video_id, scores.entity_id)
    order = np.lexsort((scores.timestamp_ms, face))
    again = np.flatnonzero((np.diff(face[order]) == 0) & (np.diff(scores.timestamp_ms[order]) == 0))
    if len(again):
        raise AvfusionError(
            f"{scores.path}: {len(again)} duplicate rows, expected one row per face and frame: "
            f"{scores.row_name(int(order[again[0] + 1]))}; remove them"
        )


def refuse_other_than_one_video(scores: ScoreTable) -> None:
    """Wants the scores of a single video.

    Raises:
        AvfusionError: no row, or rows of several videos.
    """
    if not len(scores):
        raise AvfusionError(f"{scores.path}: no score rows, expected some: there is nothing to evaluate")
    videos = sorted(set(scores.video_id.tolist()))
    if len(videos) > 1:
        raise AvfusionError(
            f"{scores.path}: scores of {len(videos)} videos ({', '.join(map(repr, videos[:3]))}), expected those of "
            "one: leave out the others"
        )


def refuse_pixels(scores: ScoreTable) -> None:
    """Wants boxes as fractions of the picture.

    Raises:
        AvfusionError: there are no boxes, or one lies far outside the picture or has its corners the wrong way round.
    """
    boxes = scores.boxes_xyxy
    if np.isnan(boxes).any():
        raise AvfusionError(
            f"{scores.path}: no boxes, expected entity_box_x1, entity_box_y1, entity_box_x2, entity_box_y2: by these "
            "rules an annotated face is found by its box"
        )
    wrong = ~in_fractions(boxes) | (boxes[:, 2:] < boxes[:, :2]).any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise AvfusionError(
            f"{scores.path}: the box of {scores.row_name(row)} is {boxes[row].tolist()} ({int(wrong.sum())} such "
            f"rows), expected {RANGE}"
        )
