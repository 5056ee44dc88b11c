"""Which films a set of annotations needs, where they lie, what they hold, and what room their extraction will take."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from avfusion.clock import VIDEO_HZ
from avfusion.data.annotations import Annotation, read_annotations
from avfusion.data.box_rule import without_area
from avfusion.data.frame_grid import film_on_grid
from avfusion.errors import AvfusionError, UsageError
from avfusion.media.container import VIDEO_ENDINGS
from avfusion.media.source import probe
from avfusion.tracks import GridTrack

# Measured on 48 real clips of six corpora, as media/write.py encodes 112 x 112: 600 to 1600 bytes a frame; sound 9 to
# 21 kB/s.
CROP_BYTES = 1_500  # a frame of 112 x 112
FILE_BYTES = 2_000  # container of one crop file
SOUND_BYTES_S = 20_000


@dataclass(frozen=True)
class AnnotatedFilm:
    """One film that the annotations name.

    Attributes:
        split: the split its annotations were given for.
        video_id: its id in the annotations.
        annotations: its entities.
        tracks: the same on the 25 fps grid.
        path: where it lies; None where it does not.
    """

    split: str
    video_id: str
    annotations: Sequence[Annotation]
    tracks: Sequence[GridTrack]
    path: Path | None

    @property
    def scene_id(self) -> str:
        """Names the film in the journal."""
        return f"{self.split}/{self.video_id}"

    @property
    def num_frames(self) -> int:
        """Face boxes on the grid."""
        return sum(track.num_frames for track in self.tracks)

    @property
    def num_rows(self) -> int:
        """Face boxes as annotated."""
        return sum(len(annotation.timestamp_ms) for annotation in self.annotations)

    @property
    def span_s(self) -> tuple[float, float]:
        """From the first to the last annotated time."""
        first = min(int(annotation.timestamp_ms[0]) for annotation in self.annotations)
        last = max(int(annotation.timestamp_ms[-1]) for annotation in self.annotations)
        return first / 1000, last / 1000

    @property
    def num_without_area(self) -> int:
        """Annotated boxes without area; on the grid the boxes around them take their place."""
        return sum(int(without_area(annotation.boxes_xyxy).sum()) for annotation in self.annotations)

    @cached_property
    def duration_s(self) -> float:
        """As the file's header tells it; of a film that is not there or tells none, what its annotation spans."""
        told = None
        if self.path is not None:
            with suppress(AvfusionError, OSError):  # the extraction will say why
                told = probe(self.path).duration_s
        return told or self.span_s[1] + 1 / VIDEO_HZ

    def crop_bytes(self, crop_size: int) -> int:
        """About what its crops will take."""
        return round(self.num_frames * CROP_BYTES * (crop_size / 112) ** 2) + FILE_BYTES * len(self.tracks)

    def sound_bytes(self) -> int:
        """About what its sound will take."""
        return round(SOUND_BYTES_S * self.duration_s)


def parse_labels(arguments: Sequence[str]) -> dict[str, Path]:
    """Reads ``SPLIT=PATH`` arguments.

    Raises:
        UsageError: another form, a split named twice, or nothing at the path.
    """
    labels: dict[str, Path] = {}
    for argument in arguments:
        split, equals, path = argument.partition("=")
        if not equals or not split or not path or "/" in split:
            raise UsageError(f"--labels {argument}: expected SPLIT=FILE_OR_FOLDER, such as train=labels/train.csv")
        if split in labels:
            raise UsageError(f"--labels names the split {split!r} twice, expected one file or folder for each")
        labels[split] = Path(path)
        if not labels[split].exists():
            raise UsageError(f"--labels {argument}: nothing at {path}, expected a file or folder of annotations")
    return labels


def plan_films(labels: Mapping[str, Path], columns: str, folder: Path | None, max_gap_s: float) -> list[AnnotatedFilm]:
    """Reads all annotations and looks for their films, in order of split and id.

    Raises:
        UsageError: the folder does not exist, or a film is there twice.
        AvfusionError: annotations are wrong, or a film is in two splits.
    """
    found = {} if folder is None else find_films(folder)
    films: list[AnnotatedFilm] = []
    split_of: dict[str, str] = {}
    for split in sorted(labels):
        by_film: dict[str, list[Annotation]] = defaultdict(list)
        for annotation in read_annotations(labels[split], columns):
            by_film[annotation.video_id].append(annotation)
        for video_id, entities in sorted(by_film.items()):
            if video_id in split_of:
                raise UsageError(
                    f"film {video_id!r} is in the splits {split_of[video_id]!r} and {split!r}, expected each film in "
                    "one: what a model saw in training must not test it"
                )
            split_of[video_id] = split
            paths = found.get(video_id, [])
            path = the_film(video_id, paths) if paths else None
            films.append(AnnotatedFilm(split, video_id, entities, film_on_grid(entities, max_gap_s), path))
    return films


def find_films(folder: Path) -> dict[str, list[Path]]:
    """All files of a folder and its subfolders by name without ending, whatever the ending.

    Raises:
        UsageError: there is no such folder.
    """
    if not folder.is_dir():
        raise UsageError(f"no folder of films at {folder}")
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[path.stem if path.suffix else path.name].append(path)
    return found


def the_film(video_id: str, paths: Sequence[Path]) -> Path | None:
    """The one file that is the film; subtitles, sound and annotations of the same name are not."""
    films = [path for path in paths if path.suffix.lower() in VIDEO_ENDINGS]
    if not films and len(paths) == 1 and paths[0].suffix.lower() not in (".csv", ".json", ".txt", ".wav", ".flac"):
        films = list(paths)  # an ending that we do not know
    if len(films) > 1:
        raise UsageError(f"film {video_id!r} is there as {films[0]} and as {films[1]}, expected one of them")
    return films[0] if films else None


def name_in_other_case(folder: Path) -> dict[str, str]:
    """Names of files that may be films, by what they have in common with names that differ in case alone."""
    return {
        name.casefold(): paths[0].name
        for name, paths in find_films(folder).items()
        if any(path.suffix.lower() in VIDEO_ENDINGS for path in paths)
    }


def digest_of(texts: Iterable[str]) -> str:
    """Ten hex digits that change with any of the texts; their order means nothing."""
    return hashlib.sha1("\n".join(sorted(texts)).encode()).hexdigest()[:10]


def digest(films: Sequence[AnnotatedFilm]) -> str:
    """Ten hex digits that change with any annotated row, whatever the films' splits."""
    total = hashlib.sha1()
    for film in sorted(films, key=lambda film: film.video_id):
        for annotation in film.annotations:
            total.update(f"{annotation.video_id}\n{annotation.entity_id}\n".encode())
            total.update(annotation.timestamp_ms.tobytes() + annotation.boxes_xyxy.tobytes())
            for flags in (annotation.speaking, annotation.scored):
                total.update(b"-" if flags is None else np.packbits(flags).tobytes())
    return total.hexdigest()[:10]


def bytes_text(count: float) -> str:
    """A number of bytes as people read it: ``1.4 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
