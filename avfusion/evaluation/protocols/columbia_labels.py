"""The annotation of the Columbia panel discussion, as the field distributes it: one text file for each speaker.

A line is ``frame, x, y, size, label`` with tabs between, whole numbers all: frame of the film at 29.97 per second from
0, upper left corner and side of a square box in pixels, 1 = speaking or 0. What follows the fifth column is not looked
at, as in the code that the field evaluates with. The file's name is the speaker's.

The size of the annotated picture is written down nowhere: that code halves the boxes it finds in the film as YouTube
gave it out (1280x720), which makes 640x360. Labels with a box centred outside 640x360 are refused.

Source: col_labels/fusion/*.txt and ``evaluate_col_ASD`` in demoTalkNet.py, github.com/TaoRuijie/TalkNet-ASD (issue 52:
boxes have to be scaled to the film one has); the same in Light-ASD's Columbia_test.py. First labels: Chakravarty and
Tuytelaars, Cross-modal Supervision for Learning Active Speaker Detection in Video (2016).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError

MEAN_OF = ("bell", "boll", "lieb", "long", "sick")  # the speakers that the published mean is over
ALSO_LABELED = ("abbas",)  # annotated, and left out of that mean
PICTURE_WIDTH_PX, PICTURE_HEIGHT_PX = 640, 360
_COLUMNS = "frame, x, y, size, label (whole numbers, tabs between)"
_LARGEST = 10**7  # more frames than four days of film, more pixels than any picture


@dataclass(frozen=True, eq=False)
class ColumbiaLabels:
    """``N`` annotated faces, one for each speaker and film frame.

    Attributes:
        speaker: ``(N,)`` str objects.
        frame: ``(N,)`` int64, number of the film frame at 29.97 per second.
        boxes_xyxy: ``(N, 4)`` float64 fractions of the picture.
        speaking: ``(N,)`` bool.
        files: the files they came from, by name.
    """

    speaker: NDArray[np.object_]
    frame: NDArray[np.int64]
    boxes_xyxy: NDArray[np.float64]
    speaking: NDArray[np.bool_]
    files: list[Path]

    def __len__(self) -> int:
        return len(self.frame)


def read_columbia(path: Path) -> ColumbiaLabels:
    """Reads the label file of one speaker, or all of a folder (or of ``fusion`` in it).

    Raises:
        AvfusionError: nothing to read, a file that names no speaker of the film, or a line that is wrong.
    """
    files = _files(path)
    for file in files:
        if file.stem not in (*MEAN_OF, *ALSO_LABELED):
            raise AvfusionError(
                f"{file}: {file.stem!r} is no speaker of Columbia, expected a file named after one of "
                f"{', '.join((*MEAN_OF, *ALSO_LABELED))}"
            )
    tables = [_read(file) for file in files]
    rows = np.concatenate(tables)
    x, y, size = rows[:, 1], rows[:, 2], rows[:, 3]
    corners = np.stack([x, y, x + size, y + size], axis=1)
    return ColumbiaLabels(
        speaker=np.repeat(np.array([file.stem for file in files], dtype=np.object_), [len(rows) for rows in tables]),
        frame=rows[:, 0],
        boxes_xyxy=corners / np.array([PICTURE_WIDTH_PX, PICTURE_HEIGHT_PX] * 2, dtype=np.float64),
        speaking=rows[:, 4] == 1,
        files=files,
    )


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise AvfusionError(f"{path}: no such file or folder, expected Columbia's labels: one text file a speaker")
    folder = path / "fusion" if (path / "fusion").is_dir() else path
    files = sorted(file for file in folder.iterdir() if file.suffix == ".txt" and file.is_file())
    if not files:
        raise AvfusionError(f"{folder}: no .txt file in this folder, expected one for each speaker (bell.txt, ...)")
    return files


def _read(file: Path) -> NDArray[np.int64]:
    """``(N, 5)`` numbers of one speaker's file."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AvfusionError(f"{file}: cannot be read as text ({error}), expected lines of {_COLUMNS}") from error
    rows: list[list[int]] = []
    line_of: dict[int, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = _row(file, number, line)
        if row[0] in line_of:
            raise AvfusionError(
                f"{file} line {number}: frame {row[0]} is there twice, first in line {line_of[row[0]]}, expected one "
                "line for each frame: remove one"
            )
        line_of[row[0]] = number
        rows.append(row)
    if not rows:
        raise AvfusionError(f"{file}: no line in this file, expected lines of {_COLUMNS}")
    return np.array(rows, dtype=np.int64)


def _row(file: Path, number: int, line: str) -> list[int]:
    cells = line.split("\t")
    if len(cells) < 5:
        raise AvfusionError(f"{file} line {number}: {len(cells)} columns, expected 5: {_COLUMNS}")
    try:
        row = [_whole_number(cell) for cell in cells[:5]]
    except ValueError as error:
        raise AvfusionError(f"{file} line {number}: {line!r}, expected {_COLUMNS}") from error
    frame, x, y, size, label = row
    if frame < 0 or size <= 0 or label not in (0, 1) or max(map(abs, row)) > _LARGEST:
        raise AvfusionError(
            f"{file} line {number}: frame {frame}, size {size}, label {label}, expected a frame from 0, a size above 0 "
            "and label 0 or 1"
        )
    centre_x, centre_y = x + size / 2, y + size / 2
    if not (0 <= centre_x <= PICTURE_WIDTH_PX and 0 <= centre_y <= PICTURE_HEIGHT_PX):
        raise AvfusionError(
            f"{file} line {number}: a box centred at ({centre_x:g}, {centre_y:g}), expected one inside "
            f"{PICTURE_WIDTH_PX}x{PICTURE_HEIGHT_PX}: labels of a picture of another size have to be scaled first"
        )
    return row


def _whole_number(text: str) -> int:
    if "_" in text:  # int() takes 1_0 for ten
        raise ValueError(text)
    return int(text)
