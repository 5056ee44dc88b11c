"""Small Columbia cases: label files, and score tables with boxes in pixels of the annotated picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from avfusion.tracks import ScoreTable

SIZE_PX = (640, 360, 640, 360)


def write_labels(folder: Path, rows_of: dict[str, list[tuple[int, int, int, int, int]]]) -> Path:
    """Writes ``fusion/SPEAKER.txt`` with (film frame, x, y, size, label) a line."""
    (folder / "fusion").mkdir(parents=True, exist_ok=True)
    for speaker, rows in rows_of.items():
        text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
        (folder / "fusion" / f"{speaker}.txt").write_text(text, encoding="utf-8")
    return folder


def score_table(rows: list[tuple[float, str, tuple[float, float, float, float], float]], video: str = "col"):
    """Rows of (25 fps frame, track, box in pixels, score)."""
    frames, tracks, boxes, scores = zip(*rows, strict=True)
    return ScoreTable(
        video_id=np.array([video] * len(rows), dtype=object),
        timestamp_ms=np.rint(np.array(frames) * 40).astype(np.int64),
        boxes_xyxy=(np.array(boxes, dtype=np.float64) / SIZE_PX).astype(np.float32),
        entity_id=np.array(tracks, dtype=object),
        line=np.arange(1, len(rows) + 1),
        path="pred.csv",
        score=np.array(scores, dtype=np.float64),
    )
