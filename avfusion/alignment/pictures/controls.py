"""Two pictures that tell a head that listens from one that only points: the shift slope, and the ablation.

*Shift slope*: the sound is moved by some ms; a head that follows it moves its lag by as much (the dashed diagonal), a
positional head does not move (the flat line). *Ablation*: how much the AP changes without the head. The untrained model
stands beside both. Shapes: ``L`` layers, ``H`` heads, ``N`` shifts. Made to be read at the width of a thumbnail of W&B.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from avfusion.alignment.columns import number_text
from avfusion.alignment.measures.slope import SlopeFit
from avfusion.alignment.pictures.clip import SPEAKING, WARNING
from avfusion.alignment.pictures.summary import LINE, NORMAL, SMALL, head_name, warning_lines
from avfusion.alignment.table import HeadRow
from avfusion.alignment.verdict import TRAINED, UNTRAINED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLAIN, PLAIN_TEXT = "#8A8A8A", "#5A5A5A"  # the untrained model
KINDS = {  # column: name, color, hatch; the names are also told apart by place and hatch
    "delta_ap_zero": ("silenced", "#0072B2", ""),
    "delta_ap_uniform": ("equal weights", "#E69F00", "//"),
    "delta_ap_only": ("only this head", "#009E73", ".."),
}


def slope_figure(fits: Mapping[str, SlopeFit], title: str, warnings: Sequence[str] = ()) -> Figure:
    """A panel per head: how far the lag moves (from the line's middle) when the sound is moved.

    Args:
        fits: by model; the trained one is drawn strongly, any other in gray.
        title: stands above.
        warnings: what to know of the model, below the panels.

    Raises:
        ValueError: no model.
    """
    if not fits:
        raise ValueError("expected the fit of at least one model, found none")
    layers, heads, _ = next(iter(fits.values())).slope.shape
    columns = min(2, layers * heads)
    rows = math.ceil(layers * heads / columns)
    width = 0.4 + 3.0 * columns
    said = warning_lines(warnings, width)
    size = (width, 1.5 + 2.75 * rows + LINE * len(said))
    figure = Figure(figsize=size, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=NORMAL, weight="bold", parse_math=False)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    reach = max(float(abs(fit.shifts_ms).max()) for fit in fits.values())
    for number, axes in enumerate(grid.ravel()):
        if number >= layers * heads:
            axes.set_visible(False)
            continue
        layer, head = divmod(number, heads)
        _draw_slopes(axes, fits, layer, head, reach)
        axes.set_title(head_name(layer, head, layers), fontsize=NORMAL)
        if number >= layers * heads - columns:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("sound moved by (ms)", fontsize=SMALL)
    figure.supylabel("lag moves by (ms)", fontsize=NORMAL)
    handles = [
        Line2D([], [], color="black", linestyle=(0, (5, 3)), label="follows: 1"),
        Line2D([], [], color="black", linestyle=":", label="positional: 0"),
    ]
    for model in fits:
        color, marker = (SPEAKING, "o") if model == TRAINED else (PLAIN, "s")
        handles.append(Line2D([], [], color=color, marker=marker, label=model.replace("_", " ")))
    _put_legend(figure, handles, said)
    return figure


def _draw_slopes(axes: Axes, fits: Mapping[str, SlopeFit], layer: int, head: int, reach: float) -> None:
    """One head: both reference lines, and for each model its line, its points with intervals, and its slope."""
    axes.plot([-reach, reach], [-reach, reach], color="black", linewidth=1.2, linestyle=(0, (5, 3)))
    axes.axhline(0.0, color="black", linewidth=1.2, linestyle=":")
    for place, (model, fit) in enumerate(reversed(list(fits.items()))):  # the first lies on top
        strong = model == TRAINED
        color, marker = (SPEAKING, "o") if strong else (PLAIN, "s")
        line = fit.slope[layer, head, 0] * fit.shifts_ms
        moved = (fit.lag_ms[:, layer, head] - fit.intercept_ms[layer, head, 0]).T
        axes.plot(fit.shifts_ms, line, color=color, linewidth=2.2 if strong else 1.6)
        axes.plot(fit.shifts_ms, moved[0], marker, color=color, markersize=6 if strong else 5)
        axes.vlines(fit.shifts_ms, moved[1], moved[2], color=color, linewidth=1.4)
        said = f"slope {number_text(float(fit.slope[layer, head, 0]), 2)}"
        axes.text(
            0.97, 0.03 + 0.11 * place, said, fontsize=SMALL, ha="right", va="bottom", transform=axes.transAxes,
            color=color if strong else PLAIN_TEXT, weight="bold" if strong else "normal",
        )  # fmt: skip
    ticks = [-reach, 0.0, reach]
    names = [number_text(tick, 0) for tick in ticks]
    axes.set_xlim(-1.1 * reach, 1.1 * reach)
    axes.set_ylim(-1.35 * reach, 1.35 * reach)
    axes.set_xticks(ticks, names, fontsize=SMALL)
    axes.set_yticks(ticks, names, fontsize=SMALL)


def ablation_figure(rows: Sequence[HeadRow], title: str, warnings: Sequence[str] = ()) -> Figure:
    """Bars per head: AP without the head, with equal weights, with only this head, each minus AP of the whole model.

    The black line on a bar is its 95 % interval. A gray diamond is the same of the untrained model.

    Args:
        rows: of the trained model, and of the untrained one if there is one; others are left out.
        title: stands above.
        warnings: what to know of the model, below the bars.

    Raises:
        ValueError: no row of a trained model.
    """
    trained = [row for row in rows if row.model == TRAINED]
    plain = {(row.layer, row.head): row for row in rows if row.model == UNTRAINED}
    if not trained:
        raise ValueError("expected rows of a trained model, found none")
    layers = max(row.layer for row in trained)
    kinds = [kind for kind in KINDS if any(row[kind].known for row in trained)]
    said = warning_lines(warnings, 6.4)
    tall = 1.9 + 0.34 * (len(kinds) + 0.7) * len(trained) + LINE * len(said)
    figure = Figure(figsize=(6.4, tall), facecolor="white")
    figure.set_layout_engine("constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=NORMAL, weight="bold", parse_math=False)
    axes = figure.subplots()
    height = 1.0 / (len(kinds) + 0.7)
    for place, row in enumerate(trained):
        for number, kind in enumerate(kinds):
            figure_of_head, (_, color, hatch) = row[kind], KINDS[kind]
            if not figure_of_head.known:
                continue
            y = place + (number - (len(kinds) - 1) / 2) * height
            axes.barh(y, figure_of_head.value, 0.92 * height, color=color, hatch=hatch, edgecolor="white")
            if figure_of_head.has_interval:
                axes.plot([figure_of_head.low, figure_of_head.high], [y, y], color="black", linewidth=1.6)
                for end in (figure_of_head.low, figure_of_head.high):
                    axes.plot([end], [y], "|", color="black", markersize=7, markeredgewidth=1.6)
            other = plain[row.layer, row.head][kind] if (row.layer, row.head) in plain else None
            if other is not None and other.known:
                axes.plot([other.value], [y], "D", color=PLAIN, markeredgecolor="black", markersize=5.5, zorder=4)
    axes.axvline(0.0, color="black", linewidth=1.2)
    names = [head_name(row.layer - 1, row.head - 1, layers) for row in trained]
    axes.set_yticks(range(len(trained)), names, fontsize=NORMAL)
    axes.set_ylim(len(trained) - 0.5, -0.5)
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("change of AP (left: the model needs it)", fontsize=NORMAL)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    _put_legend(figure, _legend(kinds, bool(plain)), said)
    return figure


def _put_legend(figure: Figure, handles: Sequence[Artist], warnings: Sequence[str]) -> None:
    """The legend at the foot, and above its entries, as its heading, what to know of the model."""
    legend = figure.legend(
        handles=handles, loc="outside lower center", ncols=2, fontsize=SMALL, frameon=False,
        title="\n".join(warnings) or None, title_fontsize=SMALL,
    )  # fmt: skip
    legend.get_title().set(color=WARNING, parse_math=False)


def _legend(kinds: Sequence[str], with_plain: bool) -> list[Artist]:
    from matplotlib.patches import Patch

    handles: list[Artist] = [
        Patch(facecolor=KINDS[kind][1], hatch=KINDS[kind][2], edgecolor="white", label=KINDS[kind][0]) for kind in kinds
    ]
    if with_plain:
        diamond = Line2D([], [], color=PLAIN, marker="D", markeredgecolor="black", linestyle="", label="untrained")
        handles.append(diamond)
    return handles
