"""Annotated rows at any stamps -> pieces of consecutive frames on the film's 25 fps grid.

Frame ``n`` stands at ``n / 25`` s of the film's own time. A piece reaches from the frame nearest to its first row to
the frame nearest to its last one, so every row has a frame within 20 ms. Rows at 29.97 or 20 per second, rows that are
missing for a moment and stamps rounded to 10 ms all end up on the grid; the sound never moves.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.data.annotations import Annotation
from avfusion.errors import AvfusionError
from avfusion.tracks import GridTrack

MAX_GAP_S = 0.2  # five frames; also the distance of ASW's rows
FRAME_MS = 1000 // VIDEO_HZ
ROUNDING_MS = 10  # of AVA's stamps: a gap may read as so much longer than it is


def to_grid(annotation: Annotation, max_gap_s: float = MAX_GAP_S) -> list[GridTrack]:
    """Puts one entity on the grid.

    Boxes are interpolated linearly, a frame's label is that of the nearest row (of two equally near, the earlier).

    Args:
        annotation: the entity.
        max_gap_s: rows farther apart than this end a piece and begin the next.

    Returns:
        The pieces in order of time; their ids are ``ID``, ``ID#2``, ``ID#3`` ...
    """
    time_ms = annotation.timestamp_ms
    breaks = np.flatnonzero(np.diff(time_ms) > 1000 * max_gap_s + ROUNDING_MS) + 1
    starts, ends = [0, *breaks.tolist()], [*breaks.tolist(), len(time_ms)]
    pieces = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True), start=1):
        rows = slice(start, end)
        first, last = nearest_frame(time_ms[start]), nearest_frame(time_ms[end - 1])
        frames_ms = FRAME_MS * np.arange(first, last + 1)
        boxes = [np.interp(frames_ms, time_ms[rows], column) for column in annotation.boxes_xyxy[rows].T]
        speaking = None
        if annotation.speaking is not None:
            speaking = annotation.speaking[rows][_nearest_rows(time_ms[rows], frames_ms)]
        entity_id = annotation.entity_id if number == 1 else f"{annotation.entity_id}#{number}"
        pieces.append(GridTrack(entity_id, first, np.stack(boxes, axis=1).astype(np.float32), speaking))
    return pieces


def film_on_grid(annotations: Iterable[Annotation], max_gap_s: float = MAX_GAP_S) -> list[GridTrack]:
    """Puts all entities of one film on the grid.

    Raises:
        AvfusionError: a piece would get the id of another entity.
    """
    annotations = list(annotations)
    own_ids = {annotation.entity_id for annotation in annotations}
    tracks = []
    for annotation in annotations:
        pieces = to_grid(annotation, max_gap_s)
        taken = [piece.entity_id for piece in pieces[1:] if piece.entity_id in own_ids]
        if taken:
            raise AvfusionError(
                f"{annotation.entity_id!r} of {annotation.video_id!r} has a gap, and its next piece would be called "
                f"{taken[0]!r} like another entity: rename that entity, or allow a longer gap"
            )
        tracks += pieces
    return tracks


def nearest_frame(time_ms: int | np.int64) -> int:
    """The frame nearest to a time; of two equally near, the earlier (it is surely within the film)."""
    return -((FRAME_MS // 2 - int(time_ms)) // FRAME_MS)


def _nearest_rows(time_ms: NDArray[np.int64], frames_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each frame the index of the row nearest in time."""
    after = np.clip(np.searchsorted(time_ms, frames_ms), 1, max(len(time_ms) - 1, 1))
    if len(time_ms) == 1:
        return np.zeros(len(frames_ms), dtype=np.int64)
    nearer_before = frames_ms - time_ms[after - 1] <= time_ms[after] - frames_ms
    return np.where(nearer_before, after - 1, after)
