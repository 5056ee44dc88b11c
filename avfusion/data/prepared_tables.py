"""The tables of a prepared dataset (``dataset.json``, ``tracks.csv``, ``labels/``, ``boxes/``), read and joined by key.

What they hold is told in ``data/prepared.py``; ``T`` frames of a track at 25 per second.
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

from avfusion.clock import SAMPLE_RATE, VIDEO_HZ
from avfusion.errors import AvfusionError, UsageError
from avfusion.tracks import FaceTable, FaceTrack, LabelTable, milliseconds, read_labels, read_unlabeled

FORMAT_VERSION = 1
TRACK_COLUMNS = ("split", "video_id", "entity_id", "start_s", "num_frames", "crops", "audio")
EXTRA_COLUMNS = ("role", "source", "group", "lag_ms", "labelled")  # may be absent: older datasets lack some of them
UNLABELLED = "no"  # in the column ``labelled``; empty or absent means that the track is labelled


@dataclass(frozen=True)
class TrackRow:
    """One row of ``tracks.csv``; ``crops`` and ``audio`` are paths relative to the root, with forward slashes.

    ``labelled`` is False for a track that is there to be scored: nobody has said when the face speaks.
    """

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
    labelled: bool = True

    @property
    def key(self) -> tuple[str, str]:
        """(video_id, entity_id): names the track within its split."""
        return self.video_id, self.entity_id


@dataclass(frozen=True)
class TableFault:
    """A track whose label rows and whose row of ``tracks.csv`` contradict each other.

    Attributes:
        kind: ``listed_twice``, ``not_listed`` (label rows alone), ``row_count`` or ``stamps``.
        key: (video_id, entity_id) of the track.
        text: what was found and expected, and where.
    """

    kind: str
    key: tuple[str, str]
    text: str


@dataclass(frozen=True)
class JoinedSplit:
    """A split as its tables tell it.

    Attributes:
        rows: its rows of ``tracks.csv``.
        tracks: for each row the track with labels and boxes; None where a fault forbids it.
        faults: what contradicts; empty where all is well.
    """

    rows: Sequence[TrackRow]
    tracks: Sequence[FaceTrack | None]
    faults: Sequence[TableFault]


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
        elif any(root.glob("csv/*_orig.csv")):
            state = "holds the TalkNet layout (read it with --data.format=talknet)"
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
            labelled=(cells.get("labelled") or "").strip().lower() != UNLABELLED,
        )
    except (TypeError, ValueError) as error:
        raise AvfusionError(f"{path}, line {line}: {error}; expected {','.join(TRACK_COLUMNS)}") from error


def read_split(root: Path, split: str, all_rows: Sequence[TrackRow] | None = None) -> JoinedSplit:
    """Reads the tables of one split and gives every track its labels and boxes, by key.

    Args:
        root: the folder of the dataset.
        split: its name in ``tracks.csv``.
        all_rows: ``tracks.csv``, where it has been read already.

    Raises:
        UsageError: there is no such split.
        AvfusionError: a table cannot be read.
    """
    all_rows = read_track_rows(root) if all_rows is None else all_rows
    rows = [row for row in all_rows if row.split == split]
    if not rows:
        known = ", ".join(sorted({row.split for row in all_rows})) or "none"
        raise UsageError(
            f"{root} has no split {split!r}; its tracks.csv names: {known}. Name one of them (--data.train_split, "
            "--data.val_split), or prepare the split: data_prep.own_videos makes train and val by --val-share 0.2"
        )
    labels, boxes = root / "labels" / f"{split}.csv", root / "boxes" / f"{split}.csv"
    of_labels = _RowsOf(read_labels(labels)) if any(row.labelled for row in rows) or not boxes.is_file() else None
    of_boxes = _RowsOf(read_unlabeled(boxes)) if boxes.is_file() else None
    listed = Counter(row.key for row in rows)
    faults = [
        TableFault("listed_twice", key, f"tracks.csv lists track {key[1]!r} of {key[0]!r} twice; expected it once")
        for key, count in listed.items()
        if count > 1
    ]
    for some in (of_labels, of_boxes):
        if some is None:
            continue
        unknown = sorted(some.indices_of.keys() - listed.keys())
        for key in unknown:
            found = f"{len(unknown)} of {len(some.indices_of)} tracks are not in tracks.csv"
            first = some.table.row_name(some.indices_of[key][0])
            faults.append(TableFault("not_listed", key, f"{some.table.path}: {found}, first: {first}"))
    joined: list[FaceTrack | TableFault] = []
    for row in rows:
        where = of_labels if row.labelled else of_boxes or of_labels
        assert where is not None
        joined.append(_joined_track(row, where.table, where.indices_of.get(row.key, []), listed[row.key]))
    faults += [fault for fault in joined if isinstance(fault, TableFault) and fault.kind != "listed_twice"]
    tracks = [track if isinstance(track, FaceTrack) else None for track in joined]
    return JoinedSplit(rows, tracks, faults)


class _RowsOf:
    """A table, and for each of its tracks the indices of its rows."""

    def __init__(self, table: FaceTable) -> None:
        self.table = table
        self.indices_of: dict[tuple[str, str], list[int]] = defaultdict(list)
        for index, key in enumerate(zip(table.video_id, table.entity_id, strict=True)):
            self.indices_of[key].append(index)


def _joined_track(row: TrackRow, table: FaceTable, indices: list[int], times_listed: int) -> FaceTrack | TableFault:
    """Puts the rows of one track in order of time and looks whether they are its frames."""
    if times_listed > 1:
        return TableFault("listed_twice", row.key, "")
    if len(indices) != row.num_frames:
        found = f"{len(indices)} rows for track {row.entity_id!r} of {row.video_id!r}"
        return TableFault("row_count", row.key, f"{table.path} has {found}, tracks.csv says {row.num_frames}")
    chosen = np.array(indices)[np.argsort(table.timestamp_ms[indices], kind="stable")]
    speaking = np.zeros(len(chosen), dtype=np.bool_)
    if row.labelled and isinstance(table, LabelTable):
        speaking = table.speaking[chosen]
    track = FaceTrack(
        video_id=row.video_id,
        entity_id=row.entity_id,
        start_s=row.start_s,
        speaking=speaking,
        boxes_xyxy=table.boxes_xyxy[chosen],
        audio_id=row.audio,
        role=row.role,
        source=row.source,
        group=row.group,
        lag_ms=row.lag_ms,
        labelled=row.labelled,
    )
    error_ms = np.abs(table.timestamp_ms[chosen] - milliseconds(track.timestamps_s))
    if error_ms.max() >= 500 / VIDEO_HZ:  # half a frame: AVA rounds its times to 10 ms
        wrong = table.row_name(int(chosen[error_ms.argmax()]))
        expected = f"expected rows at {row.start_s} s + i / {VIDEO_HZ}"
        return TableFault("stamps", row.key, f"{table.path}: {wrong} is no frame of its track; {expected}")
    return track
