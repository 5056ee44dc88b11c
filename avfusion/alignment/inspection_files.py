"""Writes an inspection into a folder: the table in three forms, and the pictures; every file whole or not at all.

``heads.csv`` (every figure with its interval), ``heads.json`` (the same and what fits into no row), ``heads.md`` (the
narrow tables), ``summary``, ``slopes``, ``ablation`` and ``history`` as PNG, on demand as SVG and PDF too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from avfusion.alignment.inspection import Inspection
from avfusion.alignment.pictures.clip import save_figure
from avfusion.alignment.pictures.controls import ablation_figure, slope_figure
from avfusion.alignment.pictures.history import history_figure, read_history
from avfusion.alignment.pictures.summary import summary_figure
from avfusion.alignment.table import as_csv, as_markdown
from avfusion.alignment.verdict import TRAINED
from avfusion.files import whole_text_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150
VECTOR = (".svg", ".pdf")
PICTURES = ("summary", "slopes", "ablation", "history")
PAGE = "viewer.html"


@dataclass(frozen=True)
class InspectionFiles:
    """Paths of what was written."""

    tables: list[Path]
    pictures: list[Path]  # the PNG files
    vectors: list[Path]


def write_inspection(
    inspection: Inspection, folder: Path, title: str, log: Path | None = None, *, vector: bool = False
) -> InspectionFiles:
    """Writes tables and pictures.

    Pictures and a page of an earlier inspection are removed first: beside new tables they would pass for theirs.

    Args:
        inspection: what was found.
        folder: where to; made if it is not there.
        title: names dataset and split.
        log: the run's ``log.jsonl``, for the history; None, or one without figures of heads: no history.
        vector: also write every picture as SVG and PDF.
    """
    for name in [PAGE, *(f"{name}{suffix}" for name in PICTURES for suffix in (".png", *VECTOR))]:
        (folder / name).unlink(missing_ok=True)
    rows = inspection.rows
    texts = {
        "heads.csv": as_csv(rows),
        "heads.json": json.dumps(inspection.to_dict(), indent=1, allow_nan=False) + "\n",
        "heads.md": as_markdown(rows, inspection.remarks),
    }
    for name, text in texts.items():
        with whole_text_file(folder / name) as file:
            file.write(text)
    figures: dict[str, Figure] = {
        "summary": summary_figure(
            inspection.conditions, inspection.lags_s, f"{title}: attention on average", inspection.warnings
        )
    }
    if inspection.slopes:
        figures["slopes"] = slope_figure(inspection.slopes, f"{title}: sound moved", inspection.warnings)
    ablation = inspection.findings[TRAINED].ablation
    if ablation is not None:
        named = f"{title}: AP {ablation.base_ap[0]:.3f}, heads left out"
        figures["ablation"] = ablation_figure(rows, named, inspection.warnings)
    history = read_history(log) if log is not None else {}
    if history:
        figures["history"] = history_figure(history, "heads of the last layer while training")
    pictures, vectors = [], []
    for name, figure in figures.items():
        pictures.append(folder / f"{name}.png")
        save_figure(figure, pictures[-1], dpi=DPI)
        for suffix in VECTOR if vector else ():
            vectors.append(folder / f"{name}{suffix}")
            save_figure(figure, vectors[-1])
    return InspectionFiles([folder / name for name in texts], pictures, vectors)


def head_words(inspection: Inspection) -> list[list[str]]:
    """``L`` lists of ``H`` texts: what is said of each head of the trained model."""
    rows = [row for row in inspection.rows if row.model == TRAINED]
    layers = max(row.layer for row in rows)
    return [[row.words for row in rows if row.layer == layer + 1] for layer in range(layers)]
