"""The prepared dataset on disk: read by training and evaluation, checked before either starts.

    <root>/dataset.json          format version, name, command, fps, crop size, sample rate, counts per split
    <root>/tracks.csv            one row per face track: its ids, times and files (columns of ``TrackRow``)
    <root>/crops/..mp4           (T, H, W) grey crops at 25 fps; several tracks may share a file
    <root>/audio/..flac          16 kHz mono sound of a whole scene from video time 0; tracks of a scene share it
    <root>/labels/<split>.csv    the AVA-ActiveSpeaker columns without a header

Frame ``i`` of a track owns the sound samples ``start_s * 16000 + 640 i .. + 640``.
Written by ``data/prepared_writer.py``.
"""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.data.clips import Clip
from avfusion.errors import AvfusionError, UsageError
from avfusion.media.audio import fit_to_frames, num_samples_of, read_audio
from avfusion.media.video import read_frames
from avfusion.tracks import FaceTrack, LabelTable, milliseconds, read_labels

FORMAT_VERSION = 1
TRACK_COLUMNS = ("split", "video_id", "entity_id", "start_s", "num_frames", "crops", "audio")
EXTRA_COLUMNS = ("role", "source", "group", "lag_ms")  # may be absent: older datasets know no group and no lag


@dataclass(frozen=True)
class TrackRow:
    """One row of ``tracks.csv``; ``crops`` and ``audio`` are paths relative to the root, with forward slashes."""

    split: str
    video_id: str
    entity_id: str
    start_s: float
    num_frames: int
    crops: str
    audio: str
    role: str = ""
    source: str = ""
    group: str = ""
    lag_ms: float | None = None


class PreparedDataset:
    """The tracks of one split, and any stretch of them with its sound.

    Args:
        root: the folder that holds ``dataset.json``.
        split: ``train``, ``val``, ``test`` or whatever the tables name.
        check: look at every file before the first read (see :meth:`check`).

    Raises:
        AvfusionError: no such dataset or split, tables that contradict each other, or files missing or too short.
    """

    def __init__(self, root: str | Path, split: str, check: bool = True) -> None:
        self.root = Path(root)
        self.split = split
        info = read_info(self.root)
        self.name = info["name"]
        self.rows = [row for row in read_track_rows(self.root) if row.split == split]
        if not self.rows:
            known = ", ".join(sorted({row.split for row in read_track_rows(self.root)})) or "none"
            raise UsageError(f"{self.root} has no split {split!r}; its tracks.csv names: {known}")
        self.tracks: Sequence[FaceTrack] = _join(self.rows, read_labels(self.root / "labels" / f"{split}.csv"))
        if check:
            problems = self.check()
            if problems:
                raise AvfusionError("; ".join(problems))

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """Reads frames ``first_frame ..`` of track ``index`` with the sound of exactly those frames.

        Args:
            index: which track.
            first_frame: first frame within the track.
            num_frames: how many; None reads to the track's end.

        Returns:
            Crops ``(T, H, W)``, sound ``(640 T,)`` and labels ``(T,)``.

        Raises:
            AvfusionError: the stretch lies outside the track, or a file is missing or damaged.
        """
        row, track = self.rows[index], self.tracks[index]
        count = row.num_frames - first_frame if num_frames is None else num_frames
        if first_frame < 0 or count < 1 or first_frame + count > row.num_frames:
            asked = f"frames {first_frame} .. {first_frame + count - 1}"
            raise AvfusionError(
                f"asked for {asked} of track {row.entity_id} in {self.root}, which has {row.num_frames}"
            )
        crops = read_frames(self.root / row.crops, first_frame, count)
        audio_path = self.root / row.audio
        start = round(row.start_s * SAMPLE_RATE) + SAMPLES_PER_VIDEO_FRAME * first_frame
        # The last frame's sound may be cut short by the source's end; a longer shortage was refused by check().
        available = min(count * SAMPLES_PER_VIDEO_FRAME, max(num_samples_of(audio_path) - start, 0))
        if available <= (count - 1) * SAMPLES_PER_VIDEO_FRAME:
            available = count * SAMPLES_PER_VIDEO_FRAME  # lets read_audio name what is asked and what is there
        audio = fit_to_frames(read_audio(audio_path, start, available), count)
        return Clip(crops, audio, track.speaking[first_frame : first_frame + count])

    def check(self) -> list[str]:
        """Looks at every file's presence and length, without decoding.

        Returns:
            One line per kind of problem, each with a count, the first case and the next step; empty when all is well.
        """
        problems = [*self._check_sound(), *self._check_crops()]
        return [
            f"{problem}; expected under {self.root}; prepare the dataset again or correct data.root"
            for problem in problems
        ]

    def _check_sound(self) -> list[str]:
        needed: dict[str, int] = {}
        for row in self.rows:
            end = round(row.start_s * SAMPLE_RATE) + SAMPLES_PER_VIDEO_FRAME * row.num_frames
            needed[row.audio] = max(end, needed.get(row.audio, 0))
        missing = [path for path in needed if not (self.root / path).is_file()]
        found = {path: num_samples_of(self.root / path) for path in needed if path not in set(missing)}
        short = [
            f"{path} ({samples / SAMPLE_RATE:.2f} s of {needed[path] / SAMPLE_RATE:.2f} s)"
            for path, samples in found.items()
            if samples <= needed[path] - SAMPLES_PER_VIDEO_FRAME
        ]
        # A cut file's header still tells the full length: only its last sample shows that it is whole.
        damaged = [path for path in found if not _ends(self.root / path, found[path])]
        return [
            *_summary("sound files are missing", missing, len(needed)),
            *_summary("sound files are too short for their tracks", short, len(needed)),
            *_summary("sound files are cut short or damaged", damaged, len(needed)),
        ]

    def _check_crops(self) -> list[str]:
        needed: dict[str, int] = {}
        for row in self.rows:
            needed[row.crops] = max(row.num_frames, needed.get(row.crops, 0))
        missing = [path for path in needed if not (self.root / path).is_file()]
        short, wrong_rate = [], []
        for path in sorted(needed.keys() - set(missing)):
            frames, fps = _video_header(self.root / path)
            if frames < needed[path]:
                short.append(f"{path} ({frames} frames of {needed[path]})")
            if abs(fps - VIDEO_HZ) > 0.01:
                wrong_rate.append(f"{path} ({fps:g} fps)")
        return [
            *_summary("crop files are missing", missing, len(needed)),
            *_summary("crop files are shorter than their tracks", short, len(needed)),
            *_summary(f"crop files are not at {VIDEO_HZ} fps", wrong_rate, len(needed)),
        ]


def read_info(root: Path) -> dict[str, Any]:
    """Reads and checks ``dataset.json``.

    Raises:
        UsageError: there is none.
        AvfusionError: it is of another version, or its rates are not 25 fps and 16 kHz.
    """
    path = root / "dataset.json"
    if not path.is_file():
        state = "holds none" if root.is_dir() else "does not exist"
        if (root / "journal.jsonl").is_file():
            state = "is unfinished (run the same data_prep command again)"
        raise UsageError(
            f"no prepared dataset at {root}: the folder {state}; expected dataset.json, written by a data_prep command"
            " (python -m data_prep.compose --help)"
        )
    try:
        info: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = (info["format_version"], info["fps"], info["sample_rate"])
        info["name"] = str(info["name"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise AvfusionError(f"{path} is damaged ({error!r}); prepare the dataset again") from error
    if found != (FORMAT_VERSION, VIDEO_HZ, SAMPLE_RATE):
        wanted = f"format {FORMAT_VERSION}, {VIDEO_HZ} fps, {SAMPLE_RATE} Hz"
        raise AvfusionError(f"{path} says format {found[0]}, {found[1]} fps, {found[2]} Hz; expected {wanted}")
    return info


def read_track_rows(root: Path) -> list[TrackRow]:
    """Reads ``tracks.csv``.

    Raises:
        AvfusionError: it is missing, lacks a column, or a row does not parse.
    """
    path = root / "tracks.csv"
    if not path.is_file():
        raise AvfusionError(f"no tracks.csv in {root}; prepare the dataset again")
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        missing = [column for column in TRACK_COLUMNS if column not in (reader.fieldnames or [])]
        if missing:
            raise AvfusionError(f"{path} lacks the columns {', '.join(missing)}; expected {','.join(TRACK_COLUMNS)}")
        try:
            return [_track_row(cells, path, reader.line_num) for cells in reader]
        except UnicodeDecodeError as error:
            raise AvfusionError(f"{path} is no UTF-8 text ({error.reason}); prepare the dataset again") from error


def _track_row(cells: dict[str, str], path: Path, line: int) -> TrackRow:
    try:
        return TrackRow(
            split=cells["split"],
            video_id=cells["video_id"],
            entity_id=cells["entity_id"],
            start_s=float(cells["start_s"]),
            num_frames=int(cells["num_frames"]),
            crops=cells["crops"],
            audio=cells["audio"],
            role=cells.get("role") or "",
            source=cells.get("source") or "",
            group=cells.get("group") or "",
            lag_ms=float(cells["lag_ms"]) if cells.get("lag_ms") else None,
        )
    except (TypeError, ValueError) as error:
        raise AvfusionError(f"{path}, line {line}: {error}; expected {','.join(TRACK_COLUMNS)}") from error


def _join(rows: Sequence[TrackRow], labels: LabelTable) -> list[FaceTrack]:
    """Gives every track its labels and boxes, by key; what has no counterpart is an error."""
    rows_of_track: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, key in enumerate(zip(labels.video_id, labels.entity_id, strict=True)):
        rows_of_track[key].append(index)
    known = Counter((row.video_id, row.entity_id) for row in rows)
    twice = [key for key, count in known.items() if count > 1]
    if twice:
        raise AvfusionError(
            f"tracks.csv lists track {twice[0][1]!r} of {twice[0][0]!r} twice; expected each track once"
        )
    unknown = sorted(rows_of_track.keys() - known.keys())
    if unknown:
        first = labels.row_name(rows_of_track[unknown[0]][0])
        found = f"{len(unknown)} of {len(rows_of_track)} labeled tracks are not in tracks.csv"
        raise AvfusionError(f"{labels.path}: {found}, first: {first}; prepare the dataset again")
    return [_track(row, labels, rows_of_track.get((row.video_id, row.entity_id), [])) for row in rows]


def _track(row: TrackRow, labels: LabelTable, indices: list[int]) -> FaceTrack:
    """Puts the label rows of one track in order of time and checks that they are its frames."""
    if len(indices) != row.num_frames:
        found = f"{len(indices)} rows for track {row.entity_id!r} of {row.video_id!r}"
        raise AvfusionError(f"{labels.path} has {found}, tracks.csv says {row.num_frames}; prepare the dataset again")
    chosen = np.array(indices)[np.argsort(labels.timestamp_ms[indices], kind="stable")]
    track = FaceTrack(
        video_id=row.video_id,
        entity_id=row.entity_id,
        start_s=row.start_s,
        speaking=labels.speaking[chosen],
        boxes_xyxy=labels.boxes_xyxy[chosen],
        audio_id=row.audio,
        role=row.role,
        source=row.source,
        group=row.group,
        lag_ms=row.lag_ms,
    )
    error_ms = np.abs(labels.timestamp_ms[chosen] - milliseconds(track.timestamps_s))
    if error_ms.max() >= 500 / VIDEO_HZ:  # half a frame: AVA rounds its times to 10 ms
        wrong = labels.row_name(int(chosen[error_ms.argmax()]))
        raise AvfusionError(
            f"{labels.path}: {wrong} is no frame of its track; expected rows at {row.start_s} s + i / {VIDEO_HZ}"
        )
    return track


def _ends(path: Path, num_samples: int) -> bool:
    """Whether the last sample of a sound file can be read."""
    try:
        return num_samples == 0 or len(read_audio(path, num_samples - 1, 1)) == 1
    except AvfusionError:
        return False


def _summary(what: str, cases: Sequence[str], total: int) -> list[str]:
    return [f"{len(cases)} of {total} {what}, first: {sorted(cases)[0]}"] if cases else []


def _video_header(path: Path) -> tuple[int, float]:
    """Number of frames and frames per second, from the header; (0, 0) where it cannot be read."""
    import av

    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            return int(stream.frames), float(stream.average_rate or 0)
    except (av.FFmpegError, IndexError):
        return 0, 0.0
