"""Cuts many faces out of one film: the film is decoded once, in order, and each face is cut while it is on screen.

The crop rule is that of :mod:`avfusion.faces.crop`, applied to a whole piece: its boxes are smoothed over time, then
each frame gives one square. Crops come one by one: memory holds the film's present picture and the squares of the faces
on screen, however long they stay.

Shapes: crops ``(S, S)`` uint8 grey.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.errors import AvfusionError
from avfusion.faces.crop import CROP_SCALE, crop_square, face_squares
from avfusion.media.damage import ReadReport
from avfusion.media.decode import iterate_retimed
from avfusion.tracks import GridTrack

_OnScreen = dict[GridTrack, NDArray[np.float64]]  # the pieces that are being cut, with their squares (T, 3) in pixels


def extract_tracks(
    path: str | Path,
    pieces: Iterable[GridTrack],
    crop_size: int,
    scale: float = CROP_SCALE,
    report: ReadReport | None = None,
) -> Iterator[tuple[GridTrack, int, NDArray[np.uint8]]]:
    """Cuts the faces of one film.

    Args:
        path: the film; frame ``n`` of the grid is its picture at ``n / 25`` s.
        pieces: the faces, in any order.
        crop_size: height and width ``S`` of the crops.
        scale: side of the square in units of the box's longer side.
        report: filled with what was met while decoding.

    Yields:
        A piece, which of its frames (0, 1, 2 ...), and the crop ``(S, S)``; pieces on screen together take turns.

    Raises:
        AvfusionError: the film cannot be decoded, a piece lies beyond its end, or none of a piece's boxes has an area.
    """
    starting: dict[int, list[GridTrack]] = defaultdict(list)
    for piece in pieces:
        starting[piece.start_frame].append(piece)
    on_screen: _OnScreen = {}
    num_frames = 0
    picture: NDArray[np.uint8] | None = None
    for _, picture in iterate_retimed(path, report=report):
        if not starting and not on_screen:
            return
        yield from _cut(num_frames, picture, starting, on_screen, crop_size, scale)
        num_frames += 1
    if picture is not None and (starting or on_screen):
        # A stamp half a frame before the film's end may be rounded to the frame after it: its picture is the last one.
        yield from _cut(num_frames, picture, starting, on_screen, crop_size, scale)
    late = [*on_screen, *(piece for group in starting.values() for piece in group)]
    if late:
        last = max(late, key=lambda piece: piece.end_frame)
        raise AvfusionError(
            f"{path}: face {last.entity_id!r} is annotated until {(last.end_frame - 1) / VIDEO_HZ:.2f} s, but the "
            f"film's picture ends at {num_frames / VIDEO_HZ:.2f} s ({len(late)} such faces): it is another cut of the "
            "film, or its download was cut short"
        )


def _cut(
    frame: int,
    picture: NDArray[np.uint8],
    starting: dict[int, list[GridTrack]],
    on_screen: _OnScreen,
    crop_size: int,
    scale: float,
) -> Iterator[tuple[GridTrack, int, NDArray[np.uint8]]]:
    """Cuts one picture for every face on screen."""
    height, width = picture.shape[:2]
    for piece in starting.pop(frame, ()):
        boxes_px = piece.boxes_xyxy.astype(np.float64) * np.array([width, height, width, height])
        try:
            on_screen[piece] = face_squares(boxes_px, scale)
        except ValueError as error:
            raise AvfusionError(f"face {piece.entity_id!r} at {piece.start_s:.2f} s: {error}") from error
    for piece, squares in list(on_screen.items()):
        index = frame - piece.start_frame
        yield piece, index, crop_square(picture, squares[index], crop_size)
        if index + 1 == piece.num_frames:
            del on_screen[piece]
