"""The picture of a comparison: precision over recall of all runs in one axes, and their AP with intervals beside it.

Colour and line style name a run in both, so that curves which lie on one another can be told apart; the names stand in
the legend and at the points of the AP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from avfusion.files import whole_file

# Told apart by colour-blind readers (Okabe-Ito, without its yellow). The styles change with every run too: a dashed
# curve shows the one below it in its gaps.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_LINES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class DrawnRun:
    """What is drawn of a run.

    Attributes:
        name: of the run.
        curve: (recall, precision), recall rising.
        average_precision: AP.
        interval: its 95 % interval; None where there is none.
    """

    name: str
    curve: Sequence[tuple[float, float]]
    average_precision: float
    interval: tuple[float, float] | None


def draw_runs(path: Path, runs: Sequence[DrawnRun], prevalence: float, title: str) -> None:
    """Draws the runs as PNG; atomic.

    Args:
        path: the picture.
        runs: in the order of the tables.
        prevalence: share of positives, the AP of a constant score.
        title: stands above.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, max(4.6, 1.6 + 0.3 * len(runs))), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=11, weight="bold", parse_math=False)
    curves, points = figure.subplots(1, 2)
    for place, run in enumerate(runs):
        color, line = _COLORS[place % len(_COLORS)], _LINES[place % len(_LINES)]
        curves.plot(*zip(*run.curve, strict=True), color=color, linestyle=line, linewidth=1.6, label=run.name)
        if run.interval is not None:
            points.plot(run.interval, [place, place], color=color, linestyle=line, linewidth=1.6, marker="|")
        points.plot([run.average_precision], [place], color=color, marker="o", markersize=6)
    curves.axhline(prevalence, color="#7A7A7A", linewidth=0.8, label=f"constant score, {prevalence:.3f}")
    curves.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="recall", ylabel="precision")
    legend = curves.legend(loc="lower left", fontsize=8, title="AP takes the envelope of the curve", title_fontsize=7)
    for name in legend.get_texts():
        name.set_parse_math(False)
    points.set_yticks(range(len(runs)), [run.name for run in runs], parse_math=False)
    points.set_ylim(len(runs) - 0.4, -0.6)
    points.set_xlabel("AP, 95 % interval")
    for axes in (curves, points):
        axes.grid(color="#E6E6E6", linewidth=0.6)
        axes.set_axisbelow(True)
    with whole_file(path) as part:
        figure.savefig(part, dpi=150, format="png")
