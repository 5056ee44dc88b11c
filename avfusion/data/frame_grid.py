"""Annotated rows at any stamps -> pieces of consecutive frames on the film's 25 fps grid.

Frame ``n`` stands at ``n / 25`` s of the film's own time. A piece reaches from the frame nearest to its first row to
the frame nearest to its last one, so every row has a frame within 20 ms. Rows at 29.97 or 20 per second, rows that are
missing for a moment and stamps rounded to 10 ms all end up on the grid; the sound never moves.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import FRAME_MS
from avfusion.data.annotations import Annotation
from avfusion.data.box_rule import without_area
from avfusion.errors import AvfusionError, UsageError
from avfusion.tracks import GridTrack

MAX_GAP_S = 0.2  # five frames; also the distance of ASW's rows
FEWEST_STEPS = 10  # from row to row of a face: fewer do not tell at what rate a film is annotated
ROUNDING_MS = 10  # of AVA's stamps: a gap may read as so much longer than it is


def to_grid(annotation: Annotation, max_gap_s: float = MAX_GAP_S) -> list[GridTrack]:
    """Puts one entity on the grid.

    Boxes are interpolated linearly between those that have an area, a frame's label is that of the nearest row (of two
    equally near, the earlier).

    Args:
        annotation: the entity.
        max_gap_s: rows farther apart than this end a piece and begin the next.

    Returns:
        The pieces in order of time; their ids are ``ID``, ``ID#2``, ``ID#3`` ...
    """
    time_ms = annotation.timestamp_ms
    breaks = np.flatnonzero(_is_gap(np.diff(time_ms), max_gap_s)) + 1
    starts, ends = [0, *breaks.tolist()], [*breaks.tolist(), len(time_ms)]
    pieces = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True), start=1):
        rows = slice(start, end)
        first, last = nearest_frame(time_ms[start]), nearest_frame(time_ms[end - 1])
        frames_ms = FRAME_MS * np.arange(first, last + 1)
        usable = ~without_area(annotation.boxes_xyxy[rows])
        usable |= not usable.any()  # no box to go by: the extraction of the film names the face
        times, columns = time_ms[rows][usable], annotation.boxes_xyxy[rows][usable].T
        boxes = [np.interp(frames_ms, times, column) for column in columns]
        speaking = None
        if annotation.speaking is not None:
            speaking = annotation.speaking[rows][nearest_rows(time_ms[rows], frames_ms)]
        entity_id = annotation.entity_id if number == 1 else f"{annotation.entity_id}#{number}"
        pieces.append(GridTrack(entity_id, first, np.stack(boxes, axis=1).astype(np.float32), speaking))
    return pieces


def film_on_grid(annotations: Iterable[Annotation], max_gap_s: float = MAX_GAP_S) -> list[GridTrack]:
    """Puts all entities of one film on the grid.

    Raises:
        UsageError: most rows stand farther apart than ``max_gap_s``: nearly every row would be a track of its own.
        AvfusionError: a piece would get the id of another entity.
    """
    annotations = list(annotations)
    _check_spacing(annotations, max_gap_s)
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


def _is_gap(steps_ms: NDArray[np.int64], max_gap_s: float) -> NDArray[np.bool_]:
    is_gap: NDArray[np.bool_] = steps_ms > 1000 * max_gap_s + ROUNDING_MS
    return is_gap


def _check_spacing(annotations: list[Annotation], max_gap_s: float) -> None:
    steps_ms = np.concatenate([np.diff(annotation.timestamp_ms) for annotation in annotations] or [np.empty(0)])
    if len(steps_ms) >= FEWEST_STEPS and _is_gap(np.median(steps_ms), max_gap_s):
        apart_s = float(np.median(steps_ms)) / 1000
        raise UsageError(
            f"{annotations[0].video_id!r}: rows of a face stand {apart_s:.2f} s apart; more than --max-gap "
            f"{max_gap_s:g} begins a new track, so most tracks would be one frame long. If the stamps are seconds, "
            f"give --max-gap {apart_s:g}; if they are milliseconds or frame numbers, make them seconds"
        )


def nearest_frame(time_ms: int | np.int64) -> int:
    """The frame nearest to a time; of two equally near, the earlier (it is surely within the film)."""
    return -((FRAME_MS // 2 - int(time_ms)) // FRAME_MS)


def nearest_rows(stamps_ms: NDArray[np.int64], times_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the stamp nearest to each time; halfway the earlier one. Stamps ascend."""
    middles = (stamps_ms[:-1] + stamps_ms[1:]) / 2
    return np.searchsorted(middles, times_ms, side="left").astype(np.int64)
