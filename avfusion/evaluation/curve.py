"""The precision-recall curve, thinned to as many points as a chart needs: as numbers, as CSV and as a picture.

Shapes: ``(N,)`` bool labels, True = speaking audibly; ``(N,)`` finite scores, higher = more likely speaking.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.evaluation.ranking import Ranking
from avfusion.files import whole_file, whole_text_file

# Told apart by colour-blind readers (Okabe-Ito).
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


_ENVELOPE = "AP takes the envelope of the curve"


@dataclass(frozen=True)
class CurvePoint:
    """What is reached when everything down to a threshold is accepted."""

    threshold: float
    recall: float
    precision: float


def precision_recall(
    labels: NDArray[np.bool_], scores: NDArray[np.floating[Any]], max_points: int = 200
) -> list[tuple[float, float]]:
    """(recall, precision) of :func:`curve_points`."""
    return [(point.recall, point.precision) for point in curve_points(labels, scores, max_points)]


def curve_points(
    labels: NDArray[np.bool_], scores: NDArray[np.floating[Any]], max_points: int = 200
) -> list[CurvePoint]:
    """Recall and precision at thresholds spread evenly over the recall, from the highest threshold to full recall.

    Precision is what each threshold really has; the envelope that AVA's AP takes is not applied.

    Args:
        labels: ``(N,)`` bool.
        scores: ``(N,)``.
        max_points: how many points at most.

    Returns:
        Points of rising recall.

    Raises:
        AvfusionError: no row is positive, or a score is not finite.
    """
    ranking = Ranking(labels, scores)
    true_positives, false_positives = ranking.counts()
    if not len(true_positives) or true_positives[-1] == 0:
        raise AvfusionError(f"none of {len(labels)} rows is SPEAKING_AUDIBLE, expected some: recall needs positives")
    recall = true_positives / true_positives[-1]
    # The first threshold that reaches each recall: lower ones of the same recall only lose precision.
    asked = np.append(recall[0], np.linspace(0.0, 1.0, max_points)[1:])
    chosen = np.unique(np.searchsorted(recall, asked - 1e-12))
    precision = true_positives / (true_positives + false_positives)
    thresholds = ranking.thresholds()
    return [CurvePoint(float(thresholds[i]), float(recall[i]), float(precision[i])) for i in chosen]


def write_precision_recall(path: Path, curves: Mapping[str, Sequence[CurvePoint]]) -> None:
    """Writes curves as CSV with the columns ``scores,threshold,recall,precision``, ``scores`` their names; atomic."""
    with whole_text_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("scores", "threshold", "recall", "precision"))
        for name, points in curves.items():
            writer.writerows((name, repr(p.threshold), repr(p.recall), repr(p.precision)) for p in points)


def draw_precision_recall(
    path: Path, curves: Mapping[str, Sequence[tuple[float, float]]], prevalence: float, title: str | None = None
) -> None:
    """Draws curves over one another as PNG, with the precision of a constant score; atomic.

    Args:
        path: the picture.
        curves: name to (recall, precision), recall rising; at most seven, with names that the font has.
        prevalence: share of positives.
        title: stands above; None for none.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 4.6), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for (name, points), color in zip(curves.items(), _COLORS, strict=False):
        recall, precision = zip(*points, strict=True)
        axes.plot(recall, precision, color=color, linewidth=1.6, label=name.replace("$", r"\$"))
    axes.axhline(prevalence, color="#7A7A7A", linewidth=1, linestyle="--", label=f"constant score, {prevalence:.3f}")
    axes.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="recall", ylabel="precision")
    if title is not None:
        axes.set_title(title, fontsize=10, parse_math=False)
    axes.grid(color="#E6E6E6", linewidth=0.6)
    axes.legend(loc="lower left", fontsize=8, title=_ENVELOPE, title_fontsize=7, alignment="left")
    with whole_file(path) as part:
        figure.savefig(part, dpi=150, format="png")
