"""The TalkNet folder layout, read in place: one JPEG per face and frame, one wav per face track.

    <root>/csv/<split>_orig.csv                                     rows of all tracks
    <root>/csv/<split>_loader.csv                                   may be absent; else it names the tracks
    <root>/clips_videos/<split>/<video_id>/<entity_id>/<time>.jpg   the face box, cut out; <time> in seconds of the film
    <root>/clips_audios/<split>/<video_id>/<entity_id>.wav          from the track's first row to its last

Pictures go in order of the number that their name is (9.96 before 10.00), each to its own row. A track is put on the
film's grid of 25 frames a second: frame ``n`` at ``n / 25`` s shows the picture nearest in time, whatever the rate of
the rows, and has the sound of its own 40 ms. (TalkNet stretches its sound features instead, four to a picture.)
Gaps and labels are those of ``data/frame_grid.py``, as in a dataset extracted from the films.

The layout's wav ends where the last frame begins: that frame's sound is padded with zeros, as are the up to 20 ms by
which the first grid frame may lie before the first row. Nothing else is: a shorter wav is an error.
Boxes of any shape are stretched to a square, as all published models of this layout do; they have no margin, other
than crops that avfusion cuts itself.

Source of the layout: github.com/TaoRuijie/TalkNet-ASD, utils/tools.py; UniTalk-ASD's README names the same tree.
Shapes: crops ``(T, 112, 112)`` uint8, sound ``(640 T,)``.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import FRAME_MS, SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME
from avfusion.data.annotations import Annotation, read_annotations
from avfusion.data.clips import Clip, Skipped
from avfusion.data.frame_grid import nearest_rows, to_grid
from avfusion.data.talknet.tables import LoaderRow, read_loader
from avfusion.errors import AvfusionError, UsageError
from avfusion.media.audio import num_samples_of, read_audio
from avfusion.media.jpeg import read_pictures
from avfusion.tracks import FaceTrack

CROP_SIZE = 112  # TalkNet's own
JPEG_ENDINGS = (".jpg", ".jpeg")
SAMPLES_PER_MS = SAMPLE_RATE // 1000
# The last frame, half a frame from the last row to the grid, and the rounding of a stamp.
MAX_PADDING = SAMPLES_PER_VIDEO_FRAME + SAMPLES_PER_VIDEO_FRAME // 2 + 10 * SAMPLES_PER_MS
_PRIVATE_COLON = "\uf03a"  # what Cygwin, WSL and SMB servers put for ":" on a Windows disk
_COLON_SUBSTITUTES = ("_", _PRIVATE_COLON, "-", "%3A", "")


@dataclass(frozen=True)
class Source:
    """Where a track of the dataset comes from.

    Attributes:
        entity: the rows of the face as annotated; several tracks share it where long gaps split it.
        row: ``(T,)`` which of the entity's rows, and so which picture, each frame shows.
        first_sample: where the track's sound begins within the wav, in samples at 16 kHz; down to -320.
    """

    entity: Annotation
    row: NDArray[np.int64]
    first_sample: int


class TalkNetDataset:
    """The tracks of one split as a :class:`avfusion.data.clips.ClipDataset`.

    Args:
        root: the folder that holds ``csv``, ``clips_videos`` and ``clips_audios``.
        split: ``train``, ``val`` or ``test``.
        skipped: tracks to leave out; the entity's own key stands for all its pieces.

    Raises:
        UsageError: no such layout or split lies there.
        AvfusionError: a table is wrong, or no track is left.
    """

    def __init__(self, root: str | Path, split: str, skipped: Skipped | None = None) -> None:
        self.root, self.split = Path(root), split
        check_layout(self.root, split)
        self.name = self.root.resolve().name
        self.skipped = skipped or Skipped()
        self.entities = read_annotations(self.root / "csv" / f"{split}_orig.csv", "unitalk")
        self.not_in_loader: list[str] = []  # tracks that the loader file leaves out
        loader = self.root / "csv" / f"{split}_loader.csv"
        self.loader: list[LoaderRow] | None = read_loader(loader) if loader.is_file() else None
        if self.loader is not None:
            listed = {row.entity_id for row in self.loader}
            others = [entity for entity in self.entities if entity.entity_id not in listed]
            self.not_in_loader = [f"{entity.entity_id!r} of {entity.video_id!r}" for entity in others]
            self.entities = [entity for entity in self.entities if entity.entity_id in listed]
        self.sources: list[Source] = []
        self.tracks: Sequence[FaceTrack] = [
            track
            for entity in self.entities
            if key_of(entity) not in self.skipped.tracks
            for track in self._pieces(entity)
        ]
        if not self.tracks:
            num_listed = len(self.entities) + len(self.not_in_loader)
            tables = f"csv/{split}_orig.csv" + ("" if self.loader is None else f" and csv/{split}_loader.csv")
            raise AvfusionError(
                f"{self.root}: none of the {num_listed} tracks of split {split!r} can be used; compare the"
                f" entity_id of {tables} with the names below clips_videos/{split} and clips_audios/{split}"
            )

        twice = [key for key, count in Counter((t.video_id, t.entity_id) for t in self.tracks).items() if count > 1]
        if twice:
            raise AvfusionError(
                f"{self.root}: a piece of a track with a gap is called {twice[0][1]!r} like another track of"
                f" {twice[0][0]!r}; rename that one"
            )

    def _pieces(self, entity: Annotation) -> Iterator[FaceTrack]:
        """Puts an entity on the grid: one track, or several where long gaps split it."""
        sound = f"clips_audios/{self.split}/{entity.video_id}/{entity.entity_id}.wav"
        for piece in to_grid(entity):
            if (entity.video_id, piece.entity_id) in self.skipped.tracks:
                continue
            frames_ms = FRAME_MS * np.arange(piece.start_frame, piece.end_frame)
            row = nearest_rows(entity.timestamp_ms, frames_ms)
            first_ms = FRAME_MS * piece.start_frame - int(entity.timestamp_ms[0])
            self.sources.append(Source(entity, row, SAMPLES_PER_MS * first_ms))
            labels = np.zeros(len(row), np.bool_) if piece.speaking is None else piece.speaking
            yield FaceTrack(entity.video_id, piece.entity_id, piece.start_s, labels, piece.boxes_xyxy, audio_id=sound)

    def subset(self, indices: Sequence[int]) -> TalkNetDataset:
        """Some of the tracks alone, light enough to be sent to another process."""
        part = copy.copy(self)
        part.entities, part.loader, part.not_in_loader = [], None, []
        part.tracks = [self.tracks[index] for index in indices]
        part.sources = [self.sources[index] for index in indices]
        return part

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """Reads frames ``first_frame ..`` of track ``index`` with the sound of exactly those frames.

        Args:
            index: which track.
            first_frame: first frame within the track.
            num_frames: how many; None reads to the track's end.

        Returns:
            Crops ``(T, 112, 112)``, sound ``(640 T,)`` and labels ``(T,)``.

        Raises:
            AvfusionError: the stretch lies outside the track, or a file is missing or damaged.
        """
        source, track = self.sources[index], self.tracks[index]
        count = track.num_frames - first_frame if num_frames is None else num_frames
        if first_frame < 0 or count < 1 or first_frame + count > track.num_frames:
            asked = f"frames {first_frame} .. {first_frame + count - 1}"
            raise AvfusionError(
                f"asked for {asked} of track {track.entity_id} in {self.root}, which has {track.num_frames}"
            )
        stretch = slice(first_frame, first_frame + count)
        pictures = self.pictures(source.entity)
        if len(pictures) != len(source.entity.timestamp_ms):
            rows = len(source.entity.timestamp_ms)
            raise AvfusionError(f"{self.picture_folder(source.entity)} has {len(pictures)} pictures for {rows} rows")
        crops = read_pictures([pictures[row] for row in source.row[stretch]], CROP_SIZE)
        audio = _sound(
            self.sound_path(source.entity), source.first_sample + SAMPLES_PER_VIDEO_FRAME * first_frame, count
        )
        return Clip(crops, audio, track.speaking[stretch])

    @property
    def source_labels(self) -> Path | None:
        """The rows as annotated, for scores on exactly those; None where the loader file chooses some of them."""
        return None if self.not_in_loader else self.root / "csv" / f"{self.split}_orig.csv"

    @property
    def left_out(self) -> dict[str, Any]:
        """What the loader file leaves out, in the form of ``left_out`` in ``dataset.json``."""
        if not self.not_in_loader:
            return {}
        what = f"tracks of {self.split} that {self.split}_loader.csv does not name"
        return {what: {"of": len(self.entities) + len(self.not_in_loader), "names": self.not_in_loader}}

    def pictures(self, entity: Annotation) -> list[Path]:
        """The pictures of an entity in order of time."""
        return [path for _, path in timed_pictures(self.picture_folder(entity))]

    def picture_folder(self, entity: Annotation) -> Path:
        """The folder of an entity's pictures; where it would be expected if there is none."""
        return _locate(self.root / "clips_videos" / self.split, entity, "")

    def sound_path(self, entity: Annotation) -> Path:
        """The wav of an entity; where it would be expected if there is none."""
        return _locate(self.root / "clips_audios" / self.split, entity, ".wav")


def key_of(entity: Annotation) -> tuple[str, str]:
    """(video_id, entity_id)."""
    return entity.video_id, entity.entity_id


def check_layout(root: Path, split: str) -> None:
    """Tells a wrong folder from a right one before any table is read.

    Raises:
        UsageError: what is missing, what was found instead, and what was expected.
    """
    splits = sorted(path.name.removesuffix("_orig.csv") for path in root.glob("csv/*_orig.csv"))
    if not splits:
        found = ", ".join(sorted(path.name for path in root.iterdir())[:6]) or "nothing" if root.is_dir() else None
        state = f"holds {found}" if found else "is no folder"
        hint = ""
        if (root / "dataset.json").is_file():
            hint = "; this is a prepared dataset: --data.format=prepared"
        elif any(root.parent.glob("csv/*_orig.csv")):
            hint = f"; did you mean {root.parent}?"
        raise UsageError(
            f"no TalkNet layout at {root}: it {state}; expected csv/{split}_orig.csv, clips_videos/{split}/ and"
            f" clips_audios/{split}/{hint}"
        )
    if split not in splits:
        raise UsageError(f"{root} has no split {split!r}: csv/{split}_orig.csv is missing; found {', '.join(splits)}")
    for name in ("clips_videos", "clips_audios"):
        if not (root / name / split).is_dir():
            raise UsageError(f"{root} lacks the folder {name}/{split}; expected {name}/{split}/<video_id>/<entity_id>")


def timed_pictures(folder: Path) -> list[tuple[float, Path]]:
    """The JPEG files of a folder with the time in seconds that each name tells, in order of time.

    Hidden files (what macOS leaves beside copies) do not count; a name that is no number has the time NaN, last of all.
    """
    if not folder.is_dir():
        return []
    files = (path for path in folder.iterdir() if path.suffix.lower() in JPEG_ENDINGS and not path.name.startswith("."))
    timed = [(_number_or_nan(path.stem), path) for path in files]
    return sorted(timed, key=lambda pair: (pair[0] != pair[0], pair[0], pair[1].name))


def _number_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _locate(folder: Path, entity: Annotation, ending: str) -> Path:
    """Finds an entity's folder or file.

    The video's folder is its id, or the first 11 characters of the entity's, which is where TalkNet's loader looks.
    On disks that allow no colon it may be another character, as copying programs choose.
    """
    exact = folder / entity.video_id / f"{entity.entity_id}{ending}"
    if exact.exists():
        return exact
    for video_name in dict.fromkeys((*_names(entity.video_id), *_names(entity.entity_id[:11]))):
        for entity_name in _names(entity.entity_id):
            path = folder / video_name / f"{entity_name}{ending}"
            if video_name and path.exists():
                return path
    return exact


def _names(text: str) -> Iterator[str]:
    """The id, then what copying programs make of it on a disk without colons."""
    yield text
    if ":" in text:
        for substitute in _COLON_SUBSTITUTES:
            yield text.replace(":", substitute)


def _sound(path: Path, first_sample: int, num_frames: int) -> NDArray[np.float32]:
    """The sound of ``num_frames`` frames from a wav; what may be padded is told at the head of this file."""
    if not path.is_file():
        raise AvfusionError(f"no sound file at {path}")
    wanted, available = SAMPLES_PER_VIDEO_FRAME * num_frames, num_samples_of(path)
    last_sample = first_sample + wanted
    if last_sample - available > MAX_PADDING:
        asked = f"{max(first_sample, 0) / SAMPLE_RATE:.2f} .. {last_sample / SAMPLE_RATE:.2f} s"
        raise AvfusionError(f"asked for {asked} of {path}, which lasts {available / SAMPLE_RATE:.2f} s")
    start, end = max(first_sample, 0), min(last_sample, available)
    audio = read_audio(path, start, end - start) if end > start else np.zeros(0, np.float32)
    return np.pad(audio, (start - first_sample, wanted - (start - first_sample) - len(audio)))
