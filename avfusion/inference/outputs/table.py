"""``scores.csv``: every face in every frame, one row each, track after track.

AVA's columns and ``score`` come first, as ``avfusion.tracks`` writes them; after them what only this table knows. The
header names them all, so whatever reads score files by their header reads this one: ``eval.py --scores`` does.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avfusion.faces.track_records import BETWEEN, DETECTED, MISSED
from avfusion.files import whole_text_file
from avfusion.inference.outputs.speech import score_texts
from avfusion.inference.result import Result, ScoredFace
from avfusion.tracks import POSITIVE_LABEL, SCORE_COLUMNS

MORE_COLUMNS = ("raw_score", "speaking", "frame", "shot", "box")
BOX_WORDS = {DETECTED: "detected", BETWEEN: "between", MISSED: "missed"}


def write_table(path: Path, result: Result, speaking: Sequence[NDArray[np.bool_]]) -> None:
    """Writes the table, whole or not at all; of a film without a face the header alone.

    Args:
        path: of the table.
        result: the faces and their scores.
        speaking: for each face ``(T,)``, whether it speaks.
    """
    with whole_text_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*SCORE_COLUMNS, *MORE_COLUMNS))
        for face, speaks in zip(result.faces, speaking, strict=True):
            writer.writerows(_rows(result, face, speaks))


def _rows(result: Result, face: ScoredFace, speaking: NDArray[np.bool_]) -> Iterator[tuple[str | int, ...]]:
    track = face.track
    boxes = track.on_grid(result.width, result.height).boxes_xyxy.tolist()
    scores, raw = score_texts(face.scores).tolist(), score_texts(face.raw).tolist()
    columns = zip(track.times_s.tolist(), boxes, scores, raw, speaking.tolist(), track.seen.tolist(), strict=True)
    for number, (time_s, (x1, y1, x2, y2), score, raw_score, speaks, seen) in enumerate(columns):
        yield (
            result.video_id,
            f"{time_s:.3f}",  # n / 25 s ends after two digits
            *(f"{x1:.6f}", f"{y1:.6f}", f"{x2:.6f}", f"{y2:.6f}"),
            POSITIVE_LABEL,  # whose score it is, as the official tool wants it
            track.entity_id,
            score,
            raw_score,
            int(speaks),
            track.start_frame + number,
            track.shot,
            BOX_WORDS[seen],
        )
