"""Cuts many faces out of one film: the film is decoded once, in order, and each face is cut while it is on screen.

The crop rule is that of :mod:`avfusion.faces.crop`, applied to a whole piece: its boxes are smoothed over time, then
each frame gives one square. Memory holds the crops of the faces on screen and, of the film, its present picture.

Shapes: crops ``(T, S, S)`` uint8 grey.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.errors import AvfusionError
from avfusion.faces.crop import CROP_SCALE, crop_square, face_squares
from avfusion.media.decode import iterate_retimed
from avfusion.tracks import GridTrack


@dataclass(eq=False)
class _OnScreen:
    """A piece that is being cut: its squares ``(T, 3)`` in pixels and the crops so far."""

    track: GridTrack
    squares: NDArray[np.float64]
    crops: NDArray[np.uint8]

    def cut(self, frame: int, picture: NDArray[np.uint8]) -> bool:
        """Cuts one frame; True after the last."""
        index = frame - self.track.start_frame
        self.crops[index] = crop_square(picture, self.squares[index], self.crops.shape[1])
        return frame + 1 == self.track.end_frame


def extract_tracks(
    path: str | Path, pieces: Iterable[GridTrack], crop_size: int, scale: float = CROP_SCALE
) -> Iterator[tuple[GridTrack, NDArray[np.uint8]]]:
    """Cuts the faces of one film.

    Args:
        path: the film; frame ``n`` of the grid is its picture at ``n / 25`` s.
        pieces: the faces, in any order.
        crop_size: height and width ``S`` of the crops.
        scale: side of the square in units of the box's longer side.

    Yields:
        Each piece with its crops ``(T, S, S)``, in order of their last frames.

    Raises:
        AvfusionError: the film cannot be decoded, or a piece lies beyond its end.
    """
    starting: dict[int, list[GridTrack]] = defaultdict(list)
    for piece in pieces:
        starting[piece.start_frame].append(piece)
    on_screen: list[_OnScreen] = []
    num_frames = 0
    picture: NDArray[np.uint8] | None = None
    for _, picture in iterate_retimed(path):
        if not starting and not on_screen:
            return
        yield from _cut(num_frames, picture, starting, on_screen, crop_size, scale)
        num_frames += 1
    if picture is not None and (starting or on_screen):
        # A stamp half a frame before the film's end may be rounded to the frame after it: its picture is the last one.
        yield from _cut(num_frames, picture, starting, on_screen, crop_size, scale)
    late = [face.track for face in on_screen] + [piece for group in starting.values() for piece in group]
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
    on_screen: list[_OnScreen],
    crop_size: int,
    scale: float,
) -> Iterator[tuple[GridTrack, NDArray[np.uint8]]]:
    """Cuts one picture for every face on screen, and yields the faces whose last frame it is."""
    for piece in starting.pop(frame, ()):
        height, width = picture.shape[:2]
        boxes_px = piece.boxes_xyxy.astype(np.float64) * np.array([width, height, width, height])
        crops = np.empty((piece.num_frames, crop_size, crop_size), dtype=np.uint8)
        on_screen.append(_OnScreen(piece, face_squares(boxes_px, scale), crops))
    ended = [face for face in on_screen if face.cut(frame, picture)]
    for face in ended:
        on_screen.remove(face)
        yield face.track, face.crops
