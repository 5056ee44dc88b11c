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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.data.box_rule import EXPECTED, far_outside
from avfusion.errors import AvfusionError
from avfusion.files import whole_text_file
from avfusion.tracks import POSITIVE_LABEL, FaceTable, milliseconds, read_labels, read_unlabeled

COLUMNS = ("ava", "unitalk", "wasd", "asw", "boxes")


@dataclass(frozen=True, eq=False)
class Annotation:
    """One entity's rows, as annotated.

    Attributes:
        video_id: the film.
        entity_id: the face track's name in the corpus.
        timestamp_ms: ``(N,)`` int64 ascending, time in the film.
        boxes_xyxy: ``(N, 4)`` float32 fractions of the picture; they may reach beyond it, some may have no area.
        speaking: ``(N,)`` bool, or None where nobody labeled the entity.
        scored: ``(N,)`` bool, False where the corpus leaves the row out of its score; None: every row counts.
        texts: ``(N,)`` str objects, time and box as the corpus wrote them (:class:`~avfusion.tracks.FaceTable`).
    """

    video_id: str
    entity_id: str
    timestamp_ms: NDArray[np.int64]
    boxes_xyxy: NDArray[np.float32]
    speaking: NDArray[np.bool_] | None
    scored: NDArray[np.bool_] | None = None
    texts: NDArray[np.object_] | None = None


def read_annotations(path: str | Path, columns: str = "ava") -> list[Annotation]:
    """Reads one annotation file, or all of a folder.

    Args:
        path: a CSV (asw: JSON), or a folder of them.
        columns: one of ``COLUMNS``.

    Returns:
        Every entity, films and entities in order of their ids.

    Raises:
        AvfusionError: no row at all, a file or row that is wrong, or a row that is there twice. A file without rows is
            fine beside others.
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
    if not any(len(table) for _, table, _, _ in tables):
        found = "the file holds" if len(files) == 1 else f"its {len(files)} {ending} files hold"
        raise AvfusionError(f"{path}: {found} no row (a header at most), expected annotated faces")
    return _by_entity(tables)


def write_source_labels(path: Path, annotations: Iterable[Annotation]) -> int:
    """Writes the rows that count, in AVA's columns without a header, times and boxes as they were written; atomic.

    Returns:
        The number of rows.
    """
    count = 0
    with whole_text_file(path) as file:  # shards on other machines may write it too
        writer = csv.writer(file, lineterminator="\n")
        for annotation in annotations:
            if annotation.speaking is None:
                raise ValueError(f"{annotation.entity_id!r} has no labels")
            kept = np.ones(len(annotation.speaking), dtype=np.bool_) if annotation.scored is None else annotation.scored
            texts = annotation.texts if annotation.texts is not None else _texts_of(annotation)
            for text, speaking in zip(texts[kept].tolist(), annotation.speaking[kept].tolist(), strict=True):
                label = POSITIVE_LABEL if speaking else "NOT_SPEAKING"
                writer.writerow([annotation.video_id, *text.split(","), label, annotation.entity_id])
                count += 1
    return count


def _texts_of(annotation: Annotation) -> NDArray[np.object_]:
    """Times and boxes as text where they came from no file."""
    rows = zip(annotation.timestamp_ms.tolist(), annotation.boxes_xyxy.tolist(), strict=True)
    texts = [",".join([f"{time_ms / 1000:.3f}", *(f"{value:.6f}" for value in box)]) for time_ms, box in rows]
    return np.array(texts, dtype=np.object_)


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
    table = read_labels(file, keep_texts=True)
    return table, table.speaking, None


def _read_ten_columns(file: Path) -> _Table:
    table = read_labels(file, more_columns=2, keep_texts=True)
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
    texts = [",".join(map(repr, [time_s, *box])) for time_s, box in zip(times, boxes, strict=True)]
    table = FaceTable(
        video_id=np.array([file.stem] * len(times), dtype=np.object_),
        timestamp_ms=milliseconds(np.array(times, dtype=np.float64)),
        boxes_xyxy=np.array(boxes, dtype=np.float32).reshape(-1, 4),
        entity_id=np.array(entities, dtype=np.object_),
        line=np.zeros(len(times), dtype=np.int64),
        path=str(file),
        texts=np.array(texts, dtype=np.object_),
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
        far = far_outside(table.boxes_xyxy)
        if far.any():
            row = int(far.argmax())
            raise AvfusionError(
                f"{path}: the box of {table.row_name(row)} is {table.boxes_xyxy[row].tolist()} ({int(far.sum())} such "
                f"rows), expected {EXPECTED}"
            )
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
        starts = np.searchsorted(entity[order], np.arange(len(numbers)), side="left")
        for (video_id, entity_id), end, start in zip(numbers, ends, starts, strict=True):
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
                texts=None if table.texts is None else table.texts[rows],
            )
    return [found[key] for key in sorted(found)]
