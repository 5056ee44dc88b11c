"""Face annotations as a corpus ships them, in one form: each entity's rows in order of time, at their own stamps.

Formats (``N`` rows of one entity):
    ava      8 columns, one CSV a film or one for all (Roth et al. 2020, arXiv 1901.01342)
    unitalk  the same and label_id, instance_id, with a header (github.com/plnguyen2908/UniTalk-ASD, README)
    wasd     as unitalk; only the face files, ``*_orig.csv`` (github.com/Tiago-Roxo/WASD, README and create_dataset.py)
    asw      a JSON a film, rows every 0.2 s: {track: [{time, bbox, label, eval}]}; rows with eval 0 are not scored:
             they lie at ends of tracks and changes of speaker (github.com/clovaai/lookwhostalking, README)
    boxes    the AVA columns without the label: tracks that nobody labeled
"""

from __future__ import annotations

import csv
import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.errors import AvfusionError
from avfusion.tracks import (
    POSITIVE_LABEL,
    FaceTable,
    milliseconds,
    read_labels,
    read_unlabeled,
)

COLUMNS = ("ava", "unitalk", "wasd", "asw", "boxes")
FARTHEST = 3.0  # of a box's corner, in pictures: faces reach over the border, but pixel coordinates are no fractions


@dataclass(frozen=True, eq=False)
class Annotation:
    """One entity's rows, as annotated.

    Attributes:
        video_id: the film.
        entity_id: the face track's name in the corpus.
        timestamp_ms: ``(N,)`` int64 ascending, time in the film.
        boxes_xyxy: ``(N, 4)`` float32 fractions of the picture; they may reach beyond it.
        speaking: ``(N,)`` bool, or None where nobody labeled the entity.
        scored: ``(N,)`` bool, False where the corpus leaves the row out of its score; None: every row counts.
    """

    video_id: str
    entity_id: str
    timestamp_ms: NDArray[np.int64]
    boxes_xyxy: NDArray[np.float32]
    speaking: NDArray[np.bool_] | None
    scored: NDArray[np.bool_] | None = None


def read_annotations(path: str | Path, columns: str = "ava") -> list[Annotation]:
    """Reads one annotation file, or all of a folder.

    Args:
        path: a CSV (asw: JSON), or a folder of them.
        columns: one of ``COLUMNS``.

    Returns:
        Every entity, films and entities in order of their ids.

    Raises:
        AvfusionError: nothing to read, a file or row that is wrong, or a row that is there twice.
    """
    if columns not in COLUMNS:
        raise ValueError(f"columns {columns!r}, expected one of {', '.join(COLUMNS)}")
    ending = ".json" if columns == "asw" else ".csv"
    files = _files(Path(path), ending)
    if columns == "wasd" and any("_body" in file.stem for file in files):
        raise AvfusionError(
            f"{path}: boxes of bodies (*_body*.csv), expected faces: give the files without _body in their names"
        )
    read = _READERS[columns]
    bar = tqdm(files, desc="annotations", unit="file", leave=False, disable=None if len(files) > 1 else True)
    tables = [(file, *read(file)) for file in bar]
    return _by_entity(tables)


def write_source_labels(path: Path, annotations: Iterable[Annotation]) -> int:
    """Writes the rows that count, at their own stamps, in AVA's columns without a header; atomic.

    Returns:
        The number of rows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}.part")  # shards on other machines may write it too
    count = 0
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for annotation in annotations:
            if annotation.speaking is None:
                raise ValueError(f"{annotation.entity_id!r} has no labels")
            kept = np.ones(len(annotation.speaking), dtype=np.bool_) if annotation.scored is None else annotation.scored
            times, boxes = annotation.timestamp_ms[kept].tolist(), annotation.boxes_xyxy[kept].tolist()
            for time_ms, box, speaking in zip(times, boxes, annotation.speaking[kept].tolist(), strict=True):
                stamp, label = f"{time_ms / 1000:.3f}", POSITIVE_LABEL if speaking else "NOT_SPEAKING"
                box_text = (f"{value:.6f}" for value in box)
                writer.writerow([annotation.video_id, stamp, *box_text, label, annotation.entity_id])
                count += 1
    part.replace(path)
    return count


def _files(path: Path, ending: str) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() == ending and file.is_file())
        if not files:
            raise AvfusionError(f"{path}: no {ending} file in this folder, expected annotation files")
        return files
    if not path.is_file():
        raise AvfusionError(f"{path}: no such file or folder, expected annotations ({ending})")
    return [path]


_Table = tuple[FaceTable, NDArray[np.bool_] | None, NDArray[np.bool_] | None]  # rows, speaking, scored


def _read_ava(file: Path) -> _Table:
    table = read_labels(file)
    return table, table.speaking, None


def _read_ten_columns(file: Path) -> _Table:
    table = read_labels(file, more_columns=2)
    return table, table.speaking, None


def _read_boxes(file: Path) -> _Table:
    return read_unlabeled(file), None, None


def _read_asw(file: Path) -> _Table:
    """One film of ASW; its tracks get the ids ``<film>:<track>``, since their own repeat in every film."""
    try:
        tracks = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise AvfusionError(f"{file}: cannot be read as JSON ({error}), expected the annotation of one film") from error
    if not isinstance(tracks, dict):
        raise AvfusionError(f"{file}: a {type(tracks).__name__}, expected {{track: [rows]}}")
    times, boxes, speaking, scored, entities = [], [], [], [], []
    for track, rows in tracks.items():
        if not isinstance(rows, list):
            raise AvfusionError(f"{file}: track {track!r} is {rows!r}, expected a list of rows")
        for row in rows:
            time_s, box, label, counts = _asw_row(file, track, row)
            times.append(time_s)
            boxes.append(box)
            speaking.append(label == 1)
            scored.append(counts == 1)
            entities.append(f"{file.stem}:{track}")
    table = FaceTable(
        video_id=np.array([file.stem] * len(times), dtype=np.object_),
        timestamp_ms=milliseconds(np.array(times, dtype=np.float64)),
        boxes_xyxy=np.array(boxes, dtype=np.float32).reshape(-1, 4),
        entity_id=np.array(entities, dtype=np.object_),
        line=np.zeros(len(times), dtype=np.int64),
        path=str(file),
    )
    return table, np.array(speaking, dtype=np.bool_), np.array(scored, dtype=np.bool_)


def _asw_row(file: Path, track: str, row: Any) -> tuple[float, list[float], int, int]:
    """Time in seconds, box, label and eval of one row."""
    try:
        time_s, box, label, counts = row["time"], [float(value) for value in row["bbox"]], row["label"], row["eval"]
        right = label in (0, 1) and counts in (0, 1) and len(box) == 4 and time_s >= 0
        if right and np.isfinite([time_s, *box]).all():
            return float(time_s), box, int(label), int(counts)
    except (TypeError, KeyError, ValueError):
        pass
    raise AvfusionError(
        f"{file}: a row of track {track!r} is {row!r}, expected time in seconds, bbox of four numbers, "
        "label and eval 0 or 1"
    )


_READERS: dict[str, Callable[[Path], _Table]] = {
    "ava": _read_ava,
    "unitalk": _read_ten_columns,
    "wasd": _read_ten_columns,
    "asw": _read_asw,
    "boxes": _read_boxes,
}


def _by_entity(tables: Sequence[tuple[Path, FaceTable, Any, Any]]) -> list[Annotation]:
    """Groups the rows of all files by film and entity and puts them in order of time."""
    found: dict[tuple[str, str], Annotation] = {}
    for path, table, speaking, scored in tables:
        _check_boxes(path, table)
        numbers: dict[tuple[str, str], int] = {}
        keys = zip(table.video_id, table.entity_id, strict=True)
        entity = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.int64, count=len(table))
        order = np.lexsort((table.timestamp_ms, entity))
        again = np.flatnonzero((np.diff(entity[order]) == 0) & (np.diff(table.timestamp_ms[order]) == 0))
        if len(again):
            raise AvfusionError(
                f"{path}: {table.row_name(int(order[again[0] + 1]))} is there twice ({len(again)} such rows), expected "
                "one row for each face and time: remove them"
            )
        ends = np.searchsorted(entity[order], np.arange(len(numbers)), side="right")
        for (video_id, entity_id), end, start in zip(numbers, ends, np.append(0, ends[:-1]), strict=True):
            if (video_id, entity_id) in found:
                raise AvfusionError(
                    f"{path}: entity {entity_id!r} of {video_id!r} is in an earlier file too, expected all rows of an "
                    "entity in one file"
                )
            rows = order[start:end]
            found[video_id, entity_id] = Annotation(
                video_id=video_id,
                entity_id=entity_id,
                timestamp_ms=table.timestamp_ms[rows],
                boxes_xyxy=table.boxes_xyxy[rows],
                speaking=None if speaking is None else speaking[rows],
                scored=None if scored is None else scored[rows],
            )
    return [found[key] for key in sorted(found)]


def _check_boxes(path: Path, table: FaceTable) -> None:
    boxes = table.boxes_xyxy
    for wrong, expected in (
        (np.abs(boxes).max(axis=1, initial=0) > FARTHEST, "fractions of the picture (0..1), not pixels"),
        ((boxes[:, 2:] <= boxes[:, :2]).any(axis=1), "x1 < x2 and y1 < y2"),
    ):
        if wrong.any():
            row = int(wrong.argmax())
            raise AvfusionError(
                f"{path}: the box of {table.row_name(row)} is {boxes[row].tolist()} ({int(wrong.sum())} such rows), "
                f"expected {expected}"
            )
