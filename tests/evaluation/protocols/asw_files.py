"""Small ASW cases: label files and score tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from avfusion.tracks import ScoreTable

BOX = [0.1, 0.1, 0.3, 0.5]


def asw_row(time_s, label, counts=1, box=BOX):
    return {"time": time_s, "bbox": box, "label": label, "eval": counts}


def write_videos(folder: Path, videos: dict[str, dict[str, list]]) -> Path:
    """Writes ``VIDEO.json`` with {track: rows} each."""
    folder.mkdir(parents=True, exist_ok=True)
    for video, tracks in videos.items():
        (folder / f"{video}.json").write_text(json.dumps(tracks, indent=2), encoding="utf-8")
    return folder


def score_table(rows):
    """Rows of (video, seconds, track, score)."""
    videos, times, tracks, scores = zip(*rows, strict=True)
    return ScoreTable(
        video_id=np.array(videos, dtype=object),
        timestamp_ms=np.rint(np.array(times) * 1000).astype(np.int64),
        boxes_xyxy=np.zeros((len(rows), 4), np.float32),
        entity_id=np.array(tracks, dtype=object),
        line=np.arange(1, len(rows) + 1),
        path="pred.csv",
        score=np.array(scores, dtype=np.float64),
    )
