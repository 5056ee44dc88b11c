"""The tables that describe talking-face clips, read and checked row by row.

    clips.csv    path,corpus,talker,split and more: which clips there are (paths relative to the folder)
    boxes.csv    path,frame,x1,y1,x2,y2 and more: the face's box in pixels; a row every few frames is enough
    X.align      beside a clip: start, end in 1/25000 s and the word, ``sil`` and ``sp`` for none
    lags.csv     talker,lag_ms and more: by how much a talker's sound comes after the picture (data_prep.find_lags)

What is wrong in them is told with file, line, what was found and what was expected.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from avfusion.errors import AvfusionError, UsageError
from avfusion.inference.settings import FARTHEST_LAG_MS

Boxes = dict[int, tuple[float, float, float, float]]  # frame to x1, y1, x2, y2 in pixels

SPLITS = ("train", "val", "test")
ALIGN_UNITS_PER_S = 25_000
CLIP_COLUMNS = ("path", "corpus", "talker", "split")
BOX_COLUMNS = ("path", "frame", "x1", "y1", "x2", "y2")
LAG_COLUMNS = ("talker", "lag_ms")
BOXES_FORMAT = "path,frame,x1,y1,x2,y2 (path relative to the folder, frame counted from 0, box in pixels)"


def read_clip_rows(path: Path) -> list[dict[str, str]]:
    """Reads ``clips.csv``.

    Returns:
        The cells of each row by column.

    Raises:
        UsageError: a row is wrong, or a talker is in two splits.
    """
    rows, splits = [], dict[str, str]()
    for line, row in _rows(path, CLIP_COLUMNS):
        if row["split"] not in SPLITS:
            raise UsageError(f"{path}, line {line}: split is {row['split']!r}, expected one of {', '.join(SPLITS)}")
        talker = f"{row['corpus']}/{row['talker']}"
        if splits.setdefault(talker, row["split"]) != row["split"]:
            raise UsageError(
                f"{path}, line {line}: puts talker {talker} into two splits; expected one split per talker"
            )
        rows.append(row)
    return rows


def read_boxes(path: Path) -> dict[str, Boxes]:
    """Reads ``boxes.csv``.

    Returns:
        For each clip's path the box of each frame that has one.

    Raises:
        UsageError: a row is wrong, or a frame has two boxes.
    """
    boxes: dict[str, Boxes] = defaultdict(dict)
    for line, row in _rows(path, BOX_COLUMNS):
        try:
            frame = int(row["frame"])
            x1, y1, x2, y2 = (float(row[name]) for name in ("x1", "y1", "x2", "y2"))
        except ValueError as error:
            raise UsageError(f"{path}, line {line}: {error}; expected {BOXES_FORMAT}") from error
        if frame < 0:
            raise UsageError(f"{path}, line {line}: frame is {frame}, expected a number from 0")
        if not (x1 < x2 and y1 < y2 and all(map(math.isfinite, (x1, y1, x2, y2)))):
            found = ",".join(row[name] for name in ("x1", "y1", "x2", "y2"))
            raise UsageError(f"{path}, line {line}: box is {found}, expected x1 < x2 and y1 < y2 in pixels")
        if frame in boxes[row["path"]]:
            raise UsageError(f"{path}, line {line}: a second box for frame {frame} of {row['path']}, expected one face")
        boxes[row["path"]][frame] = (x1, y1, x2, y2)
    return dict(boxes)


def read_word_times(path: Path) -> list[tuple[float, float]]:
    """Start and end of every spoken word, in seconds.

    Raises:
        AvfusionError: the file is no text, or a line does not parse.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise AvfusionError(f"{path}: {_not_text(error)}; expected START END WORD in 1/25000 s") from error
    words = []
    for line, text in enumerate(lines, start=1):
        cells = text.split()
        if not cells:
            continue
        try:
            start, end, word = int(cells[0]), int(cells[1]), cells[2]
        except (ValueError, IndexError) as error:
            raise AvfusionError(f"{path}, line {line}: found {text!r}; expected START END WORD in 1/25000 s") from error
        if word not in ("sil", "sp"):
            words.append((start / ALIGN_UNITS_PER_S, end / ALIGN_UNITS_PER_S))
    return words


def read_lags(path: Path, talkers: Iterable[str] = ()) -> dict[str, int]:
    """Reads a table of lags.

    Args:
        path: the table.
        talkers: who must be in it (``corpus/talker``): a name that is written otherwise must not pass for no lag.

    Returns:
        For each talker by how many milliseconds the sound comes late; negative: early.

    Raises:
        UsageError: a row is wrong, a talker has two, or one has none.
    """
    lags: dict[str, int] = {}
    for line, row in _rows(path, LAG_COLUMNS):
        try:
            lag_ms = int(row["lag_ms"])
        except ValueError as error:
            raise UsageError(
                f"{path}, line {line}: lag_ms is {row['lag_ms']!r}, expected whole milliseconds"
            ) from error
        if abs(lag_ms) > FARTHEST_LAG_MS:
            raise UsageError(f"{path}, line {line}: lag_ms is {lag_ms}, expected at most {FARTHEST_LAG_MS} either way")
        if row["talker"] in lags:
            raise UsageError(f"{path}, line {line}: a second lag of talker {row['talker']}, expected one")
        lags[row["talker"]] = lag_ms
    if missing := sorted(set(talkers) - set(lags)):
        raise UsageError(
            f"{path}: no row for talker {missing[0]} (and {len(missing) - 1} more), expected one for each, 0 where the"
            f" sound is in step; found {len(lags)} talkers, first: {min(lags, default='none')}"
        )
    return lags


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields ``(line, cells by column)``; every row has all columns of the header, and text in those named here."""
    expected = ",".join(columns)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            missing = [column for column in columns if column not in header]
            if missing:
                raise UsageError(f"{path}, line 1: lacks the columns {', '.join(missing)}; expected {expected}")
            for cells in reader:
                if not any(cell.strip() for cell in cells):
                    continue
                if len(cells) != len(header):
                    found = f"{len(cells)} cells ({','.join(cells)[:60]!r})"
                    raise UsageError(f"{path}, line {reader.line_num}: {found}, expected the {len(header)} of line 1")
                row = dict(zip(header, cells, strict=True))
                empty = [column for column in columns if not row[column].strip()]
                if empty:
                    raise UsageError(f"{path}, line {reader.line_num}: no {empty[0]}, expected {expected}")
                yield reader.line_num, row
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}), expected a table of {expected}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: {_not_text(error)}; expected a table of {expected}, saved as UTF-8") from error
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: no CSV ({error}), expected {expected}") from error


def _not_text(error: UnicodeDecodeError) -> str:
    return f"no UTF-8 text ({error.reason} at byte {error.start})"
