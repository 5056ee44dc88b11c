"""The annotation of ASW, Active Speakers in the Wild: a JSON for each video, named after it.

    {track: [{"time": seconds, "bbox": [x1, y1, x2, y2], "label": 0 or 1, "eval": 0 or 1}, ...]}

Rows stand every 0.2 s; boxes are fractions of the picture and may reach beyond it. ``label`` 1 speaks. Rows with
``eval`` 0 are not evaluated: they lie at ends of tracks and changes of speaking, where nobody can say the very moment.
The repository names its splits in ``split/{devset,valset,testset}.list``, one file name of ``json/`` a line.

Source: Kim et al., Look Who's Talking: Active Speaker Detection in the Wild (2021), arXiv 2108.07640;
github.com/clovaai/lookwhostalking: README, json/ and split/.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.errors import AvfusionError
from avfusion.tracks import LabelTable, milliseconds

_LARGEST = 1e9  # beyond any time in seconds and any fraction of a picture
_ROW = "time in seconds, bbox of four numbers, label and eval 0 or 1"


@dataclass(frozen=True, eq=False)
class AswLabels:
    """The annotated rows of some videos.

    Attributes:
        evaluated: the rows that count; entities are named ``VIDEO:TRACK``.
        num_rows: rows with those that do not count.
        video_ids: every video with a file, also one without a row that counts.
        files: the files they came from.
    """

    evaluated: LabelTable
    num_rows: int
    video_ids: list[str]
    files: list[Path]


def read_asw(path: Path) -> AswLabels:
    """Reads the JSON of one video, all of a folder (or of ``json`` in it), or those that a ``.list`` of it names.

    Raises:
        AvfusionError: nothing to read, or a file, track or row that is wrong.
    """
    files = _files(path)
    video_id: list[str] = []
    entity_id: list[str] = []
    rows: list[tuple[float, list[float], bool]] = []
    num_rows = 0
    for file in tqdm(files, desc="labels", unit="file", leave=False, disable=None if len(files) > 1 else True):
        for track, of_track in _tracks(file).items():
            found = [_row(file, track, number, row) for number, row in enumerate(of_track, start=1)]
            times = [round(time_s * 1000) for time_s, *_ in found]
            if len(set(times)) < len(times):
                again = next(number for number, time in enumerate(times) if time in times[:number])
                raise AvfusionError(
                    f"{file}: track {track!r} has two rows at {times[again] / 1000:.3f} s, expected one for each time"
                )
            counting = [(time_s, box, speaking) for time_s, box, speaking, counts in found if counts]
            num_rows += len(found)
            rows += counting
            video_id += [file.stem] * len(counting)
            entity_id += [f"{file.stem}:{track}"] * len(counting)
    if not rows:
        raise AvfusionError(f"{path}: none of {num_rows} rows has eval 1, expected some: there is nothing to evaluate")
    table = LabelTable(
        video_id=np.array(video_id, dtype=np.object_),
        timestamp_ms=milliseconds(np.array([time_s for time_s, _, _ in rows], dtype=np.float64)),
        boxes_xyxy=np.array([box for _, box, _ in rows], dtype=np.float32),
        entity_id=np.array(entity_id, dtype=np.object_),
        line=np.zeros(len(rows), dtype=np.int64),
        path=str(path),
        speaking=_flags([speaking for _, _, speaking in rows]),
    )
    return AswLabels(table, num_rows, [file.stem for file in files], files)


def _flags(values: list[bool]) -> NDArray[np.bool_]:
    return np.array(values, dtype=np.bool_)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        folder = path / "json" if (path / "json").is_dir() else path
        files = sorted(file for file in folder.iterdir() if file.suffix == ".json" and file.is_file())
        if not files:
            raise AvfusionError(f"{folder}: no .json file in this folder, expected one for each video of ASW")
        return files
    if not path.is_file():
        raise AvfusionError(f"{path}: no such file or folder, expected ASW's labels: a JSON a video, or a .list")
    if path.suffix == ".list":
        return _listed(path)
    return [path]


def _listed(path: Path) -> list[Path]:
    """The files that a split names, in ``json/`` of the repository or beside the list."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AvfusionError(f"{path}: cannot be read as text ({error}), expected file names, one a line") from error
    files: list[Path] = []
    for number, line in enumerate(lines, start=1):
        name = line.strip()
        if not name:
            continue
        places = [path.parent.parent / "json" / name, path.parent / name]
        found = next((place for place in places if place.is_file()), None)
        if found is None or found.suffix != ".json":
            raise AvfusionError(f"{path} line {number}: {name!r}, expected a JSON file in {places[0].parent}")
        if found in files:
            raise AvfusionError(f"{path} line {number}: {name!r} is there twice, expected each video once")
        files.append(found)
    if not files:
        raise AvfusionError(f"{path}: no line in this file, expected file names, one a line")
    return files


def _tracks(file: Path) -> dict[str, list[Any]]:
    try:
        tracks = json.loads(file.read_text(encoding="utf-8-sig"), object_pairs_hook=_without_repeats)
    except (OSError, ValueError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise AvfusionError(f"{file}: cannot be read as JSON ({error}), expected the annotation of a video") from error
    if not isinstance(tracks, dict):
        raise AvfusionError(f"{file}: a {type(tracks).__name__}, expected {{track: [rows]}}")
    for track, rows in tracks.items():
        if not isinstance(rows, list):
            raise AvfusionError(f"{file}: track {track!r} is a {type(rows).__name__}, expected a list of rows")
    return tracks


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the JSON; of a name that is there twice, the first would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice in one object")
    return found


def _row(file: Path, track: str, number: int, row: Any) -> tuple[float, list[float], bool, bool]:
    """Time in seconds, box, whether the face speaks, and whether the row counts."""
    if isinstance(row, dict):
        time_s, box, label, counts = _cells(row)
        right = _is_number(time_s) and time_s >= 0 and _is_flag(label) and _is_flag(counts)
        if right and isinstance(box, list) and len(box) == 4 and all(_is_number(value) for value in box):
            return float(time_s), [float(value) for value in box], label == 1, counts == 1
    raise AvfusionError(f"{file}: row {number} of track {track!r} is {row!r}, expected {_ROW}")


def _cells(row: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    return row.get("time"), row.get("bbox"), row.get("label"), row.get("eval")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _is_flag(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in (0, 1)
