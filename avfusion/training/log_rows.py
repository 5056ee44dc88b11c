"""The rows of ``log.jsonl``: which stay when a run goes on, and when two rows say the same.

A run that was stopped between two checkpoints writes the rows since the last one again, so they are cut off first. Not
those up to a row of final figures: there the training had ended, and what follows (more epochs, another evaluation)
follows on it. So a row keeps its index for ever once a run has ended, and that index is W&B's step.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FINAL = "final/"  # keys of the figures that end a run
FINAL_ROLE = "final_role/"
CLOCKS = ("seconds", "frames_per_s", "data_wait_percent", "memory")  # in keys whose values no two runs share

Row = dict[str, Any]


def cut_back(path: Path, log_bytes: int | None) -> tuple[list[Row], list[Row]]:
    """Cuts ``log.jsonl`` back to where the run goes on.

    Args:
        path: the file; it may be missing.
        log_bytes: its length at the checkpoint; rows of final figures after it stay, with those before them. None
            keeps every whole line.

    Returns:
        The rows that stay, and those cut off.
    """
    content = path.read_bytes() if path.is_file() else b""
    if log_bytes is not None and log_bytes > len(content):
        print(
            f"{path}: {len(content)} bytes, but the checkpoint was saved when it had {log_bytes}: rows are lost",
            file=sys.stderr,
        )
    whole = content.rfind(b"\n") + 1
    end = whole if log_bytes is None else content.rfind(b"\n", 0, log_bytes) + 1
    after = content[end:whole].split(b"\n")
    finals = [number for number, row in enumerate(_rows(content[end:whole])) if is_final(row)]
    if finals:
        end += sum(len(line) + 1 for line in after[: finals[-1] + 1])
    if end < len(content):
        os.truncate(path, end)
    return _rows(content[:end]), _rows(content[end:whole])


def is_final(row: Row) -> bool:
    """Whether a row has final figures. One without any figure is of a report on tracks without labels."""
    return set(row) == {"step"} or any(key.startswith((FINAL, FINAL_ROLE)) for key in row)


def same(first: Row, second: Row) -> bool:
    """Whether two rows are equal to the last digit; a figure that is not a number equals itself."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def same_but_for_clocks(first: Row, second: Row) -> bool:
    """Whether two rows are equal apart from what clocks and memory say."""
    return same(_timeless(first), _timeless(second))


def _timeless(row: Row) -> Row:
    return {key: value for key, value in row.items() if not any(word in key for word in CLOCKS)}


def _rows(lines: bytes) -> list[Row]:
    """The rows of whole lines; a line that is no row (damaged) counts as an empty one, so that indices stay."""
    rows = []
    for line in lines.split(b"\n")[:-1]:
        try:
            row = json.loads(line)
        except ValueError:
            row = {}
        rows.append(row if isinstance(row, dict) else {})
    return rows
