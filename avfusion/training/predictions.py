"""Single predictions to look through: a table of frames with label and score, of bounded size.

Which frames is decided by the number of frames alone: every report of the same split shows the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from avfusion.tracks import FaceTrack

COLUMNS = ("video_id", "entity_id", "time_s", "role", "label", "score")


def prediction_rows(
    tracks: Sequence[FaceTrack], scores: Sequence[NDArray[np.float32]], max_rows: int
) -> list[tuple[str, str, float, str, int, float]]:
    """Frames drawn evenly at random from all labelled ones, in the order of the tracks.

    Args:
        tracks: of the split.
        scores: ``(T,)`` of each track.
        max_rows: how many frames at most.

    Returns:
        Rows of :data:`COLUMNS`; label 1 is SPEAKING_AUDIBLE.
    """
    labelled = [(track, score) for track, score in zip(tracks, scores, strict=True) if track.labelled]
    ends = np.cumsum([track.num_frames for track, _ in labelled], dtype=np.int64)
    count = int(ends[-1]) if len(ends) else 0
    rows: list[tuple[str, str, float, str, int, float]] = []
    if not count:
        return rows
    for frame in np.sort(np.random.default_rng(0).choice(count, min(max_rows, count), replace=False)):
        index = int(np.searchsorted(ends, frame, side="right"))
        track, score = labelled[index]
        at = int(frame - (ends[index] - track.num_frames))
        time_s = round(float(track.timestamps_s[at]), 3)
        label = int(track.speaking[at])
        rows.append((track.video_id, track.entity_id, time_s, track.role, label, float(score[at])))
    return rows
