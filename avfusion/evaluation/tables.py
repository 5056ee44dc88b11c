"""Tables of text: a title, a header and rows of cells, for a terminal and as Markdown.

Names in them are anybody's: what is no visible letter is written as its number, and ``|`` ends no cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from avfusion.errors import one_line

Table = tuple[str, list[str], list[list[str]]]  # title, header, rows


def text_table(table: Table) -> str:
    """Columns flush left, two spaces apart, below the title."""
    title, header, rows = table
    cells = [[one_line(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([one_line(title), *lines])


def markdown_table(table: Table) -> str:
    """A table below a heading of its title."""
    title, header, rows = table
    return f"## {one_line(title)}\n\n{markdown_rows(header, rows)}"


def markdown_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown without a heading."""
    return "\n".join(_row(cells) for cells in [header, ["---"] * len(header), *rows])


def without_empty_end(table: Table) -> Table:
    """The table without its last column where no row has anything to say in it."""
    title, header, rows = table
    return table if any(row[-1] for row in rows) else (title, header[:-1], [row[:-1] for row in rows])


def number(value: float | None) -> str:
    """Four digits; ``-`` where there is none."""
    return "-" if value is None else f"{value:.4f}"


def interval(value: Sequence[float] | None) -> str:
    """``0.812..0.846``; ``-`` where there is none."""
    return "-" if value is None else f"{value[0]:.3f}..{value[1]:.3f}"


def percent(value: float | None) -> str:
    """``24.9 %``; ``-`` where there is none."""
    return "-" if value is None else f"{100 * value:.1f} %"


def bullets(lines: Iterable[str]) -> str:
    """A list in Markdown."""
    return "\n".join(f"- {one_line(line)}" for line in lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(one_line(cell).replace('|', chr(92) + '|') for cell in cells)} |"
