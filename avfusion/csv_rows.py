"""Columns of a CSV file, as texts and as numbers.

A plain file (no quotes, no blank line, every number one) is read by ``numpy.loadtxt``, in a third of the time that
``csv.reader`` and ``float`` take. Anything else is read by ``csv.reader``, which can say in which line a fault is. Both
give the same texts and, to the last bit, the same numbers.
"""

from __future__ import annotations

import csv
import io
import os
import stat
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError

_CHUNK_ROWS = 4_096  # small enough to stay in the processor cache: twice as fast as 65,536
_HEAD_BYTES = 1 << 20
_SHOWN = 60  # letters of a found text in a message


class Columns(Protocol):
    """``N`` rows by the names of their columns."""

    def has(self, name: str) -> bool:
        """Whether the file has the column; only optional ones may be absent."""

    def texts(self, name: str) -> NDArray[np.object_]:
        """``(N,)`` str objects; equal ones are mostly one object."""

    def numbers(self, name: str) -> NDArray[np.float64]:
        """``(N,)`` what ``float`` makes of the texts; NaN where it makes nothing, or the text has an underscore."""


@dataclass
class _Layout:
    """Where the columns of a file stand, and how far it has been read."""

    path: str | os.PathLike[str]
    names: tuple[str, ...]
    aliases: Mapping[str, str]
    more_columns: int
    optional: tuple[tuple[str, ...], ...]
    position: dict[str, int]
    width: int
    lines: int = 0
    has_rows: bool = False

    def take_header(self, words: list[str], line: int) -> bool:
        """Whether the row is a header; columns stand where it says from then on."""
        words = [word.strip().lower() for word in words]
        words = [self.aliases.get(word, word) for word in words]
        if any(name not in words for name in self.names[:2]):
            return False
        may_lack = {name for group in self.optional if not set(group) & set(words) for name in group}
        absent = [name for name in self.names if name not in words and name not in may_lack]
        if absent:
            raise AvfusionError(
                f"{self.path} line {line}: the header lacks {', '.join(absent)}, expected {','.join(self.names)}"
            )
        again = [name for name in self.names if words.count(name) > 1]
        if again:
            raise AvfusionError(f"{self.path} line {line}: the header names {again[0]} twice, expected it once")
        position = {name: words.index(name) for name in self.names if name not in may_lack}
        if self.has_rows and position != self.position:
            raise AvfusionError(
                f"{self.path} line {line}: a second header with other columns, expected one order of columns "
                "throughout: write the parts as separate files"
            )
        self.position, self.width, self.more_columns = position, len(words), 0
        return True

    def take_first_row(self, width: int) -> None:
        """The first row of a file without a header decides whether more columns follow."""
        self.width += self.more_columns if width == self.width + self.more_columns else 0
        self.more_columns = 0


def read_columns(
    path: str | os.PathLike[str],
    names: tuple[str, ...],
    aliases: Mapping[str, str] | None = None,
    more_columns: int = 0,
    *,
    numeric: Collection[str] = (),
    optional: tuple[tuple[str, ...], ...] = (),
) -> Iterator[tuple[NDArray[np.int64], Columns]]:
    """Yields the rows of a file in order, all at once or some thousands at a time.

    A header is a row that holds the first two names, in capitals or not; it may order the columns otherwise and name
    more. BOM, CRLF and blank lines are fine.

    Args:
        path: the file.
        names: the columns, in the order they have without a header.
        aliases: other words of a header for them.
        more_columns: so many columns may follow in a file without a header; the first row decides.
        numeric: columns that will be asked for as numbers, the others as texts; without them ``csv.reader`` reads.
        optional: groups of columns of which a header may name all or none.

    Yields:
        ``(N,)`` line of each row, from 1, and the columns.

    Raises:
        AvfusionError: the file cannot be read, is empty, or a row has too few or too many columns; the message names
            the line.
    """
    position = {name: index for index, name in enumerate(names)}
    layout = _Layout(path, names, aliases or {}, more_columns, optional, position, len(names))
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):
            raise AvfusionError(f"{path}: a pipe cannot be read twice, expected a CSV file: save it as one")
        with open(path, "rb") as file:
            rows = _plain_rows(file, layout, numeric) if numeric else None
            if rows is not None:
                yield np.arange(rows.first_line, rows.first_line + len(rows.table)), rows
                return
        with open(path, "rb") as file:
            layout = _Layout(path, names, aliases or {}, more_columns, optional, position, len(names))
            yield from _careful(file, layout)
            if layout.lines == 0:
                raise AvfusionError(f"{path}: the file is empty, expected rows of {','.join(names)}")
    except OSError as error:
        raise AvfusionError(f"{path}: cannot be read ({error.strerror}), expected a CSV file") from error
    except UnicodeDecodeError as error:
        line = _line_that_is_no_text(path)
        raise AvfusionError(
            f"{path} line {line}: not UTF-8 text ({error.reason}), expected CSV in UTF-8: save it so"
        ) from error


def shortened(text: str) -> str:
    """A found text for a message, in quotes; of a long one the beginning."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


def _line_that_is_no_text(path: str | os.PathLike[str]) -> int:
    """The first line, from 1, that cannot be decoded; an error of a decoder counts from its last block."""
    number = 0
    with open(path, "rb") as file:
        for line in file:
            number += 1
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return number + line[: error.start].count(b"\r")
            number += line.removesuffix(b"\n").removesuffix(b"\r").count(b"\r")
    return number


def _plain_rows(file: BinaryIO, layout: _Layout, numeric: Collection[str]) -> _PlainRows | None:
    """All rows of a plain file; None where it is not plain, or the numbers are not all finite."""
    head = file.readline(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    line = head.removesuffix(b"\n").removesuffix(b"\r")
    if not line.strip() or b'"' in line or b"\r" in line:
        return None
    words = line.decode().split(",")
    if layout.take_header(words, 1):
        layout.lines = 1
    else:
        layout.take_first_row(len(words))
        file.seek(file.tell() - len(head))
    place, num_lines = file.tell(), 0
    for block in iter(lambda: file.read(_HEAD_BYTES), b""):
        if b'"' in block or (b"\r" in block and b"\r" in block.replace(b"\r\n", b"").removesuffix(b"\r")):
            return None
        num_lines += block.count(b"\n")
        last = block
    if file.tell() == place:
        return None
    num_lines += not last.endswith(b"\n")
    file.seek(place)
    named = {index: name for name, index in layout.position.items()}
    kinds = [(f"c{i}", np.float64 if named.get(i) in numeric else np.object_) for i in range(layout.width)]
    try:
        with io.TextIOWrapper(file, encoding="utf-8") as text:
            table = np.loadtxt(text, dtype=kinds, delimiter=",", comments=None, ndmin=1)
    except UnicodeDecodeError:
        raise
    except ValueError:  # not a number, or too few or too many columns: csv.reader finds the line
        return None
    finite = all(np.isfinite(table[f"c{i}"]).all() for i, kind in enumerate(kinds) if kind[1] is np.float64)
    return _PlainRows(table, layout, numeric) if finite and len(table) == num_lines else None


def _careful(file: BinaryIO, layout: _Layout) -> Iterator[tuple[NDArray[np.int64], Columns]]:
    """Yields the rows from where the file is to its end, as csv.reader sees them."""
    encoding = "utf-8" if file.tell() else "utf-8-sig"
    reader = csv.reader(io.TextIOWrapper(file, encoding=encoding, newline=""), strict=True)
    before = layout.lines
    lines: list[int] = []
    rows: list[list[str]] = []
    start = before + 1  # line in which the row begins that is read now
    try:
        for row in reader:
            line, end = start, before + reader.line_num
            start, layout.lines = end + 1, end
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if (row[0].lower() == layout.names[0] or not layout.has_rows) and layout.take_header(row, line):
                continue
            if not layout.has_rows:
                layout.take_first_row(len(row))
            layout.has_rows = True
            if len(row) != layout.width:
                quoted = f" from here to line {end}: is a quote not closed?" if end > line else ""
                raise AvfusionError(
                    f"{layout.path} line {line}: {len(row)} columns{quoted}, expected {layout.width}: "
                    f"{','.join(layout.names)}"
                )
            lines.append(line)
            rows.append(row)
            if len(rows) == _CHUNK_ROWS:
                yield np.array(lines, dtype=np.int64), _TextRows(rows, layout.position)
                lines, rows = [], []
    except csv.Error as error:
        reason = "a quote is not closed" if "unexpected end of data" in str(error) else str(error)
        long = ": is a quote not closed?" if "field larger" in reason or "expected after" in reason else ""
        raise AvfusionError(
            f"{layout.path} line {start}: not readable as CSV ({reason}){long or '; correct this row'}"
        ) from error
    layout.lines = before + reader.line_num
    if rows:
        yield np.array(lines, dtype=np.int64), _TextRows(rows, layout.position)


class _TextRows:
    """Rows that csv.reader has cut up."""

    def __init__(self, rows: list[list[str]], position: Mapping[str, int]) -> None:
        self._columns, self._position = list(zip(*rows, strict=True)), position

    def has(self, name: str) -> bool:
        return name in self._position

    def texts(self, name: str) -> NDArray[np.object_]:
        return _interned(np.array(self._columns[self._position[name]], dtype=np.object_))

    def numbers(self, name: str) -> NDArray[np.float64]:
        texts = self._columns[self._position[name]]
        return np.fromiter(map(_number_or_nan, texts), np.float64, count=len(texts))


class _PlainRows:
    """Rows that ``numpy.loadtxt`` has read."""

    def __init__(self, table: NDArray[Any], layout: _Layout, numeric: Collection[str]) -> None:
        self.table, self.first_line, self._path, self._numeric = table, layout.lines + 1, layout.path, numeric
        self._position, self._names, self._aliases = dict(layout.position), layout.names, layout.aliases
        self._optional = layout.optional

    def has(self, name: str) -> bool:
        return name in self._position

    def texts(self, name: str) -> NDArray[np.object_]:
        if name in self._numeric:  # for a message: numbers that were understood and are out of bounds
            more = max(0, self.width - len(self._names))
            parts = read_columns(self._path, self._names, self._aliases, more, optional=self._optional)
            return np.concatenate([columns.texts(name) for _, columns in parts])
        return _interned(np.ascontiguousarray(self.table[f"c{self._position[name]}"]))

    @property
    def width(self) -> int:
        """Columns of the file."""
        return len(self.table.dtype.names or ())

    def numbers(self, name: str) -> NDArray[np.float64]:
        values: NDArray[np.float64] = np.ascontiguousarray(self.table[f"c{self._position[name]}"])
        return values


def _interned(texts: NDArray[np.object_]) -> NDArray[np.object_]:
    """``(N,)`` the same texts, equal ones one object: rows of a face mostly follow each other, so few are looked up."""
    if not len(texts):
        return texts
    first = np.append(0, np.flatnonzero(texts[1:] != texts[:-1]) + 1)
    kept = np.array([sys.intern(text) for text in texts[first]], dtype=np.object_)
    return np.repeat(kept, np.diff(np.append(first, len(texts))))


def _number_or_nan(text: str) -> float:
    try:
        return float("nan") if "_" in text else float(text)  # float() takes 1_0 for ten
    except ValueError:
        return float("nan")
