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
from avfusion.tracks import FaceTable, LabelTable, ScoreTable, read_labels, read_scores

_Table = TypeVar("_Table", bound=FaceTable)


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
