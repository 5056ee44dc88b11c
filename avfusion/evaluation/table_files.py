"""Labels and scores as they are handed out: one CSV, or a folder with one for each video (as AVA ships its labels)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

from avfusion.errors import AvfusionError
from avfusion.evaluation.record import file_record
from avfusion.processes import available_cores, process_pool
from avfusion.tracks import FaceTable, LabelTable, ScoreTable, read_labels, read_scores

_Table = TypeVar("_Table", bound=FaceTable)
APART_BYTES = 20_000_000  # files as large as this are worth a process of their own, which takes half a second to begin


def read_label_files(path: Path) -> LabelTable:
    """The labels of a file, or of all CSV files of a folder, in the order of their names.

    Two more columns may follow those of AVA, as in TalkNet's ``*_orig.csv``.

    Raises:
        AvfusionError: a file cannot be read or a row is wrong, or the folder has no CSV file.
    """
    return _read(path, lambda file: read_labels(file, more_columns=2))


def read_score_files(path: Path) -> ScoreTable:
    """The scores of a file, or of all CSV files of a folder, in the order of their names.

    Raises:
        AvfusionError: a file cannot be read or a row is wrong, or the folder has no CSV file.
    """
    return _read(path, read_scores)


def read_both(labels: Path, scores: Path) -> tuple[LabelTable, ScoreTable]:
    """Labels and scores, side by side in two processes where the files are large and a second core is there.

    Raises:
        AvfusionError: as either; the labels' where both are wrong.
    """
    if available_cores() < 2 or min(_num_bytes(labels), _num_bytes(scores)) < APART_BYTES:
        return read_label_files(labels), read_score_files(scores)
    with process_pool(1, "judge fewer rows at a time") as pool:
        predicted = pool.submit(read_score_files, scores)
        return read_label_files(labels), predicted.result()


def _num_bytes(path: Path) -> int:
    """Of a file, or of all CSV files of a folder; 0 where it cannot be told: to read it will say why."""
    try:
        return sum(file.stat().st_size for file in (_files(path) if path.is_dir() else [path]))
    except (OSError, AvfusionError):
        return 0


def table_record(path: Path) -> dict[str, Any]:
    """Path and SHA-256 of a file, or of each CSV file of a folder."""
    return file_record(path, _files(path) if path.is_dir() else None)


def _files(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() == ".csv" and file.is_file())
    if not files:
        raise AvfusionError(f"{folder}: no .csv file in this folder, expected one or more")
    return files


def _read(path: Path, read: Callable[[Path], _Table]) -> _Table:
    if not path.is_dir():
        return read(path)
    files = _files(path)
    tables = [read(file) for file in tqdm(files, path.name, unit="file", leave=False, disable=None)]
    return _joined(path, tables)


def _joined(path: Path, tables: Sequence[_Table]) -> _Table:
    """One table after the other; each row keeps the name of its file."""
    columns: dict[str, Any] = {"path": str(path)}
    names = np.array([Path(table.path).name for table in tables], dtype=np.object_)
    columns["file"] = np.repeat(names, [len(table) for table in tables])
    for field in fields(tables[0]):
        if field.name not in (*columns, "texts"):
            columns[field.name] = np.concatenate([getattr(table, field.name) for table in tables])
    return type(tables[0])(**columns)
