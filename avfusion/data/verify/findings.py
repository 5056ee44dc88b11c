"""What a check of a dataset found, for the terminal: a fault or a note with its count, its cases and the next step.

A fault makes tracks unusable (or, where it names none, the whole split); a note is worth knowing and stops nothing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

_WIDTHS = (30, 18, 58, 46)  # of the columns of the table, in characters
_CASES_SHOWN = 3

TrackKey = tuple[str, str, str]  # split, video_id, entity_id


@dataclass(frozen=True)
class Finding:
    """One kind of fault or one note.

    Attributes:
        what: continues "3 of 10 ..": ``sound files are missing``.
        cases: every case, as a short text.
        total: how many were looked at.
        advice: what to do about it.
        tracks: the tracks that cannot be used because of it; empty where no track is to blame.
        is_note: it stops nothing.
    """

    what: str
    cases: Sequence[str]
    total: int
    advice: str
    tracks: frozenset[TrackKey] = frozenset()
    is_note: bool = False

    def as_line(self) -> str:
        """``1 of 10 sound files are missing, first: a.flac; advice``."""
        return f"{len(self.cases)} of {self.total} {self.what}, first: {self.cases[0]}; {self.advice}"


def findings_table(findings: Sequence[Finding]) -> str:
    """A table: problem, count of total, first cases, what to do. Faults come before notes."""
    header = ("problem", "count", "first cases", "what to do")
    rows = [tuple([title] for title in header), tuple(["-" * len(title)] for title in header)]
    for finding in sorted(findings, key=lambda finding: finding.is_note):
        shown = [line for case in finding.cases[:_CASES_SHOWN] for line in _wrapped(case, _WIDTHS[2])]
        if len(finding.cases) > _CASES_SHOWN:
            shown.append(f"... and {len(finding.cases) - _CASES_SHOWN} more")
        what = f"note: {finding.what}" if finding.is_note else finding.what
        count = f"{len(finding.cases)} of {finding.total}"
        rows.append((_wrapped(what, _WIDTHS[0]), [count], shown, _wrapped(finding.advice, _WIDTHS[3])))
    return _columns(rows)


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows of text in columns."""
    return _columns([tuple([cell] for cell in row) for row in [header, *rows]])


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _columns(rows: Sequence[tuple[list[str], ...]]) -> str:
    """Cells of several lines, side by side."""
    widths = [max(len(line) for row in rows for line in row[column]) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        for number in range(max(len(cell) for cell in row)):
            cells = [cell[number] if number < len(cell) else "" for cell in row]
            lines.append("  ".join(text.ljust(width) for text, width in zip(cells, widths, strict=True)).rstrip())
    return "\n".join(lines)
