"""One row per model, layer and head: every figure with its interval, and what it says in words.

The rows go out as ``heads.csv`` (everything), as two narrow tables for ``report.md``, and as a table for W&B. "Model"
is the trained one, the untrained one, or the trained one under a control (other sound, silence ...). What may be said
in words is decided in ``verdict.py``; ``columns.py`` defines the figures. Shapes: ``L`` fusion layers, ``H`` heads.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from avfusion.alignment.columns import COLUMNS, NOTHING, Measured, Measures, number_text, text_of
from avfusion.alignment.verdict import TRAINED, UNTRAINED, in_words

Table = tuple[str, list[str], list[list[str]]]  # title, header, rows


@dataclass(frozen=True)
class HeadRow:
    """One head of one model.

    Attributes:
        model: ``trained``, ``untrained``, or the name of a control.
        layer: fusion layer, from 1.
        head: from 1.
        words: what the figures support.
        figures: by column; columns that were not measured are missing.
    """

    model: str
    layer: int
    head: int
    words: str
    figures: Mapping[str, Measured]

    def __getitem__(self, name: str) -> Measured:
        return self.figures.get(name, NOTHING)

    @property
    def name(self) -> str:
        """How tables and pictures call the head; the layer is left to whoever knows that there are several."""
        return f"{self.layer}.{self.head}"


def head_rows(measures: Mapping[str, Measures]) -> list[HeadRow]:
    """The rows of all models: models in the given order, then layers, then heads.

    Args:
        measures: for each model its figures, ``(L, H, 3)`` each.

    Raises:
        ValueError: a figure that is no column, or arrays that do not fit together.
    """
    shapes = {np.shape(array) for of_model in measures.values() for array in of_model.values()}
    unknown = sorted({name for of_model in measures.values() for name in of_model} - COLUMNS.keys())
    if unknown or len(shapes) > 1 or any(len(shape) != 3 or shape[-1] != 3 for shape in shapes):
        raise ValueError(f"expected known columns of one shape (L, H, 3), found unknown {unknown}, shapes {shapes}")
    rows = []
    for model, of_model in measures.items():
        for layer, head in np.ndindex(next(iter(shapes), (0, 0, 3))[:2]):
            figures = _figures_of(of_model, layer, head)
            plain = _figures_of(measures[UNTRAINED], layer, head) if UNTRAINED in measures else None
            rows.append(HeadRow(model, layer + 1, head + 1, in_words(model, figures, plain), figures))
    return rows


def as_csv(rows: Sequence[HeadRow]) -> str:
    """The content of ``heads.csv``: a figure and the ends of its interval in three columns; empty where not known."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = [f"{name}{end}" for name in COLUMNS for end in ("", "_low", "_high")]
    writer.writerow(["model", "layer", "head", "words", *names])
    for row in rows:
        numbers = [n for name in COLUMNS for n in (row[name].value, row[name].low, row[name].high)]
        cells = [f"{n:.6g}" if math.isfinite(n) else "" for n in numbers]
        writer.writerow([row.model, row.layer, row.head, row.words, *cells])
    return file.getvalue()


def as_json(rows: Sequence[HeadRow]) -> list[dict[str, Any]]:
    """The rows as plain data; a figure is ``[value, low, high]`` with None where it is not known."""
    return [
        {
            "model": row.model, "layer": row.layer, "head": row.head, "words": row.words,
            **{name: [_plain(n) for n in (f.value, f.low, f.high)] for name, f in row.figures.items() if f.known},
        }
        for row in rows
    ]  # fmt: skip


def tables(rows: Sequence[dict[str, Any]]) -> list[Table]:
    """The two narrow tables of a report, from rows as :func:`as_json` gives them.

    The first has words and main figures of the trained and the untrained model; the second has lag, width and null
    mass of each head under every control, beside those with its own sound.
    """
    if not rows:
        return []
    several = len({row["layer"] for row in rows}) > 1
    main = [row for row in rows if row["model"] in (TRAINED, UNTRAINED)]
    header = [
        "model",
        "head",
        "in words",
        "slope",
        "R²",
        "ΔAP",
        "true times",
        "lag",
        "width",
        "null, speaking",
        "null, else",
    ]
    body = [[row["model"], _head(row, several), row["words"], *_main_cells(row)] for row in main]
    found: list[Table] = [("Attention heads: what each listens to, and whether the model needs it", header, body)]
    models = list(dict.fromkeys(row["model"] for row in rows))
    if len(models) > 1:
        heads = list(dict.fromkeys((row["layer"], row["head"]) for row in rows))
        place = {(row["layer"], row["head"], row["model"]): row for row in rows}
        named = [model.replace("_", " ") for model in models]
        cells = [
            [_head(place[layer, head, models[0]], several), *(_control_cell(place[layer, head, m]) for m in models)]
            for layer, head in heads
        ]
        found.append(
            ("The same heads under controls: lag, width, null mass in speaking frames", ["head", *named], cells)
        )
    return found


def as_markdown(rows: Sequence[HeadRow], remarks: Sequence[str] = ()) -> str:
    """The content of ``heads.md``: the tables, and below them what is to be known of their figures."""
    parts = []
    for title, header, body in tables(as_json(rows)):
        lines = [f"## {title}", "", _line(header), _line(["---"] * len(header)), *(_line(cells) for cells in body)]
        parts.append("\n".join(lines))
    if remarks:
        parts.append("\n".join(f"- {remark}" for remark in remarks))
    return "\n\n".join(parts) + "\n"


def as_text(rows: Sequence[dict[str, Any]]) -> str:
    """The first table for the terminal: words and the figures beside them."""
    parts = []
    for title, header, body in tables(rows)[:1]:
        cells = [header, *body]
        widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
        parts.append("\n".join([title, *lines]))
    return "\n\n".join(parts)


WANDB_FIGURES = (
    *("slope", "slope_r2", "delta_ap_zero", "delta_ap_uniform", "delta_ap_only", "event_mae_ms", "event_best_ms"),
    *("lag_ms", "width_ms", "entropy", "mass_100", "lift_100", "null_speaking", "null_silent", "null_auroc"),
    *("selectivity", "redundancy", "probe_difference"),
)


def wandb_columns() -> list[str]:
    """Columns of the W&B table: figures as numbers, so that they sort, and intervals as text."""
    return ["model", "layer", "head", "words", *(c for name in WANDB_FIGURES for c in (name, f"{name} 95 %"))]


def wandb_rows(rows: Sequence[HeadRow]) -> list[list[float | int | str | None]]:
    """The rows that go with :func:`wandb_columns`; None where a number is not known."""
    found = []
    for row in rows:
        cells: list[float | int | str | None] = [row.model, row.layer, row.head, row.words]
        for name in WANDB_FIGURES:
            cells += [_plain(row[name].value), _interval(name, row[name])]
        found.append(cells)
    return found


def _figures_of(measures: Measures, layer: int, head: int) -> dict[str, Measured]:
    return {name: Measured(*(float(n) for n in array[layer, head])) for name, array in measures.items()}


def _main_cells(row: dict[str, Any]) -> list[str]:
    """Slope, R², ΔAP, error at true times beside the best constant's, lag, width, null masses."""
    figures = {name: _measured(row, name) for name in COLUMNS}
    error, constant = (text_of(name, figures[name]) for name in ("event_mae_ms", "event_best_ms"))
    return [
        _with_interval("slope", figures["slope"]),
        text_of("slope_r2", figures["slope_r2"]),
        _with_interval("delta_ap_zero", figures["delta_ap_zero"], signed=True),
        "-" if error == "-" else f"{error} ms (best constant lag {constant})",
        _milliseconds(figures["lag_ms"], signed=True),
        _milliseconds(figures["width_ms"]),
        *(_share(figures[name]) for name in ("null_speaking", "null_silent")),
    ]


def _control_cell(row: dict[str, Any]) -> str:
    lag, width, null = (_measured(row, name) for name in ("lag_ms", "width_ms", "null_speaking"))
    return f"{_milliseconds(lag, signed=True)}, {_milliseconds(width)}, {_share(null)}"


def _measured(row: dict[str, Any], name: str) -> Measured:
    ends = row.get(name) or (None, None, None)
    return Measured(*(math.nan if n is None else float(n) for n in ends))


def _head(row: dict[str, Any], several: bool) -> str:
    return f"{row['layer']}.{row['head']}" if several else str(row["head"])


def _milliseconds(figure: Measured, *, signed: bool = False) -> str:
    return f"{number_text(figure.value, 0, signed=signed)} ms" if figure.known else "-"


def _share(figure: Measured) -> str:
    return f"{100 * figure.value:.0f} %" if figure.known else "-"


def _with_interval(name: str, figure: Measured, *, signed: bool = False) -> str:
    interval = _interval(name, figure)
    return text_of(name, figure, signed=signed) + (f" ({interval})" if interval else "")


def _interval(name: str, figure: Measured) -> str:
    digits = COLUMNS[name].digits
    return f"{number_text(figure.low, digits)}..{number_text(figure.high, digits)}" if figure.has_interval else ""


def _plain(number: float) -> float | None:
    return round(float(number), 6) if math.isfinite(number) else None


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
