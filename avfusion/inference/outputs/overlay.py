"""``overlay.mp4``: the film with a box around every face, coloured by its score, and with its sound.

Picture ``n`` shows the boxes of frame ``n``. Pictures go through one by one: memory does not grow with the film.
Large films are drawn smaller and small ones larger, so that labels can be read; pixels that are not square become so.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.errors import AvfusionError
from avfusion.faces.track_records import MISSED
from avfusion.inference.outputs.film_sound import FilmSound, SourceSoundError, open_sound, sound_after_failure
from avfusion.inference.outputs.film_writer import film_writer
from avfusion.inference.outputs.painter import Painter, ShownFace
from avfusion.inference.result import Result
from avfusion.media.container import open_source, picture_stream

LONGEST_SIDE_PX = 1280
SHORTEST_LONG_SIDE_PX = 640


def write_overlay(path: Path, result: Result, speaking: Sequence[NDArray[np.bool_]]) -> list[str]:
    """Writes the film, whole or not at all.

    Args:
        path: an ``.mp4``.
        result: the film and its faces.
        speaking: for each face ``(T,)``, whether it speaks.

    Returns:
        What a user should know of it, a sentence each.

    Raises:
        AvfusionError: the ingested film cannot be read.
    """
    sound, notes = open_sound(result)
    try:
        _write(path, result, speaking, sound)
    except SourceSoundError as error:
        sound, notes = sound_after_failure(result, error)
        _write(path, result, speaking, sound)
    return notes


def shown_size(width: int, height: int, pixel_aspect: float = 1.0) -> tuple[int, int]:
    """Even width and height of the pictures that are drawn.

    Args:
        width: of the film in its own pixels.
        height: likewise.
        pixel_aspect: width of such a pixel over its height.
    """
    wide = width * pixel_aspect
    longest = max(wide, height)
    factor = min(max(longest, SHORTEST_LONG_SIDE_PX), LONGEST_SIDE_PX) / longest
    return max(2, 2 * round(wide * factor / 2)), max(2, 2 * round(height * factor / 2))


def _write(path: Path, result: Result, speaking: Sequence[NDArray[np.bool_]], sound: FilmSound | None) -> None:
    with open_source(result.video) as container, closing(_frames(container, result.video)) as frames:
        first = next(frames, None)
        if first is None:
            raise AvfusionError(f"{result.video} has no picture; expected the film that ingest made")
        width, height = shown_size(first.width, first.height, _pixel_aspect(container))
        painter = Painter(width, height, result.threshold)
        scene = _Scene(result, speaking, width / result.width, height / result.height)
        of_sound = None if sound is None else (sound.rate_hz, sound.layout)
        bar = tqdm(total=result.num_frames, unit="frame", desc="overlay", leave=False, disable=None)
        with film_writer(path, (width, height + painter.strip_px), first, of_sound) as film, bar:
            for number, frame in enumerate(_with_first(first, frames)):
                picture = frame.reformat(width=width, height=height, format="rgb24").to_ndarray()
                drawn = painter.paint(picture, number, scene.at(number))
                film.add(drawn, None if sound is None else sound.next_frame())
                bar.update()


def _frames(container: Any, path: Path) -> Generator[Any]:
    import av

    stream = picture_stream(container)
    if stream is None:
        raise AvfusionError(f"{path} has no video stream; expected the film that ingest made")
    try:
        yield from container.decode(stream)
    except av.FFmpegError as error:
        raise AvfusionError(f"{path} cannot be decoded ({error.strerror}); ingest the film again") from error


def _with_first(first: Any, frames: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from frames


def _pixel_aspect(container: Any) -> float:
    return float(picture_stream(container).sample_aspect_ratio or 1)


@dataclass
class _Scene:
    """Who is seen in which frame.

    Attributes:
        result: the faces.
        speaking: for each ``(T,)``, whether it speaks.
        x_scale: pixels drawn for each pixel of the film.
        y_scale: likewise.
    """

    result: Result
    speaking: Sequence[NDArray[np.bool_]]
    x_scale: float
    y_scale: float

    def __post_init__(self) -> None:
        self._coming = sorted(range(len(self.result.faces)), key=lambda i: -self.result.faces[i].track.start_frame)
        self._there: list[int] = []

    def at(self, frame: int) -> list[ShownFace]:
        """The faces of a frame; frames are asked for in order."""
        faces = self.result.faces
        while self._coming and faces[self._coming[-1]].track.start_frame <= frame:
            self._there.append(self._coming.pop())
        self._there = [i for i in self._there if frame < faces[i].track.start_frame + faces[i].track.num_frames]
        return [self._shown(i, frame - faces[i].track.start_frame) for i in self._there]

    def _shown(self, index: int, number: int) -> ShownFace:
        face = self.result.faces[index]
        scale = np.array([self.x_scale, self.y_scale] * 2)
        return ShownFace(
            name=face.track.entity_id,
            box_xyxy_px=face.track.boxes_xyxy_px[number] * scale,
            score=float(face.scores[number]),
            speaking=bool(self.speaking[index][number]),
            missed=int(face.track.seen[number]) == MISSED,
        )
