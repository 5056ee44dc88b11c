"""Speaker turns in RTTM, the text format of diarization: one turn a line.

``SPEAKER video channel start_s duration_s <NA> <NA> speaker <NA> <NA>``, fields separated by blanks, so names cannot
hold any: each is written as ``_`` (:func:`rttm_name`). Lines of other types and comments (``;;``) are skipped.

Source: NIST, Rich Transcription evaluation plan RT-09, appendix A.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from avfusion.errors import AvfusionError
from avfusion.files import whole_text_file

FIELDS = "SPEAKER video channel start duration <NA> <NA> speaker <NA> <NA>"


@dataclass(frozen=True)
class Turn:
    """One speaker's turn in one video, ``start_s <= t < end_s``."""

    video_id: str
    start_s: float
    end_s: float
    speaker: str


def rttm_name(text: str) -> str:
    """An id as RTTM can hold it: every blank in it is ``_``."""
    return re.sub(r"\s", "_", text)


def rttm_file_name(video_id: str) -> str:
    """The file of a video's turns: letters, digits and ``_.-~`` stay, all else is ``%`` and its bytes in hex."""
    return f"{quote(video_id, safe='')}.rttm"


def read_rttm(path: str | os.PathLike[str]) -> list[Turn]:
    """Reads the turns of an RTTM file, or of all ``.rttm`` files of a folder.

    Returns:
        The turns as they stand; a file may hold several videos, and none.

    Raises:
        AvfusionError: the file cannot be read, the folder has none, or a SPEAKER line is wrong.
    """
    return [turn for file in rttm_files(Path(path)) for turn in _turns(file)]


def rttm_files(path: Path) -> list[Path]:
    """The file itself, or the ``.rttm`` files of a folder in order of their names.

    Raises:
        AvfusionError: the folder has none.
    """
    files = sorted(path.glob("*.rttm")) if path.is_dir() else [path]
    if not files:
        raise AvfusionError(f"{path}: no .rttm file in this folder, expected one or more")
    return files


def write_rttm(path: str | os.PathLike[str], turns: Iterable[Turn]) -> None:
    """Writes turns in order of video and time, to the millisecond; atomic.

    Raises:
        AvfusionError: two ids differ only in blanks, so RTTM would make them one.
        ValueError: a turn is shorter than a millisecond.
    """
    turns = sorted(turns, key=lambda turn: (turn.video_id, turn.start_s, turn.end_s, turn.speaker))
    refuse_same_names(turn.video_id for turn in turns)
    for video_id in {turn.video_id for turn in turns}:
        refuse_same_names(turn.speaker for turn in turns if turn.video_id == video_id)
    lines = []
    for turn in turns:
        duration_s = round(turn.end_s, 3) - round(turn.start_s, 3)
        if duration_s < 0.0005:
            raise ValueError(f"{turn}: expected at least a millisecond")
        video, speaker = rttm_name(turn.video_id), rttm_name(turn.speaker)
        lines.append(f"SPEAKER {video} 1 {turn.start_s:.3f} {duration_s:.3f} <NA> <NA> {speaker} <NA> <NA>\n")
    with whole_text_file(path) as file:
        file.writelines(lines)


def refuse_same_names(ids: Iterable[str]) -> None:
    """Refuses ids that would be one in RTTM.

    Raises:
        AvfusionError: two ids differ only in blanks.
    """
    taken: dict[str, str] = {}
    for text in ids:
        other = taken.setdefault(rttm_name(text), text)
        if other != text:
            raise AvfusionError(
                f"{other!r} and {text!r} are both {rttm_name(text)!r} in RTTM, which holds no blanks: rename one"
            )


def _turns(file: Path) -> Iterator[Turn]:
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                fields = line.split()
                if fields and fields[0] == "SPEAKER":
                    yield _turn(fields, f"{file} line {number}")
    except OSError as error:
        raise AvfusionError(
            f"{file}: cannot be read ({error.strerror}), expected an RTTM file or a folder of .rttm files"
        ) from error
    except UnicodeDecodeError as error:
        raise AvfusionError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start}), expected RTTM") from error


def _turn(fields: list[str], where: str) -> Turn:
    """One SPEAKER line. Two fields at the end may be missing, as in older files."""
    if not 8 <= len(fields) <= 10:
        raise AvfusionError(f"{where}: {len(fields)} fields, expected 8 to 10: {FIELDS}; names hold no blanks")
    if fields[7] == "<NA>":
        raise AvfusionError(f"{where}: speaker is '<NA>', expected a name in the eighth field: {FIELDS}")
    start_s = _seconds(fields[3], f"{where}: start", "seconds from 0")
    duration_s = _seconds(fields[4], f"{where}: duration", "seconds above 0")
    if duration_s == 0:
        raise AvfusionError(
            f"{where}: duration is {fields[4]!r}, expected seconds above 0: correct or remove this line"
        )
    return Turn(fields[1], start_s, start_s + duration_s, fields[7])


def _seconds(text: str, what: str, expected: str) -> float:
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise AvfusionError(f"{what} is {text!r}, expected {expected}: correct this line")
    return value
