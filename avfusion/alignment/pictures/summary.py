"""The head summary: where each head listens on average, with its own sound and under every control.

One panel per head, one strip per condition, lag to the right; the strips of all panels have the same colors for the
same weights. A head that follows the lips has a bright spot in the first strip that the controls lack; a head whose
strips look alike attends to a fixed lag. Beside each strip stands the null mass, the attention on no sound at all.
Shapes: ``L`` layers, ``H`` heads, ``W`` lags in steps of 10 ms. Made to be read at the width of a thumbnail of W&B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from avfusion.alignment.pictures.clip import COLOR_MAP, OUTSIDE, WARNING
from avfusion.clock import AUDIO_HZ

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

# Inches and points: at 320 pixels a figure of one layer has 48 pixels an inch, and 12 points are 8 pixels.
PANEL, LEFT, NULL, STRIP, HEADING, GAP, TOP, FOOT = 3.5, 1.55, 0.75, 0.27, 0.34, 0.1, 0.5, 1.25
LINE = 0.22
SMALL, NORMAL = 12.0, 13.0
SHOWN_LAGS_S = 0.5


@dataclass(frozen=True)
class Condition:
    """What the heads did under one condition, on average over frames.

    Attributes:
        name: stands beside the strip.
        lag_map: ``(L, H, W)`` mean weight at each lag; NaN where no frame reaches it.
        null_mass: ``(L, H)`` mean null mass of the same frames.
    """

    name: str
    lag_map: Floats
    null_mass: Floats


def summary_figure(conditions: Sequence[Condition], lags_s: Floats, title: str, warnings: Sequence[str] = ()) -> Figure:
    """Draws all heads under all conditions: a column per layer, a panel per head.

    Args:
        conditions: of one model's shape; the first are its own sound, speaking and silent frames.
        lags_s: ``(W,)`` evenly spaced lags.
        title: stands above.
        warnings: what to know of the model, below the title.

    Raises:
        ValueError: no condition, or maps of different shapes.
    """
    shapes = {np.shape(one.lag_map) for one in conditions}
    if len(shapes) != 1 or next(iter(shapes))[-1] != len(lags_s):
        raise ValueError(f"expected maps (L, H, {len(lags_s)}) of one shape, found {sorted(shapes)}")
    layers, heads, _ = next(iter(shapes))
    panel_height = STRIP * len(conditions)
    width = LEFT + layers * (PANEL + NULL)
    said = warning_lines(warnings, width)
    space = TOP + LINE * len(said)
    height = space + FOOT + heads * (HEADING + panel_height + GAP)
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(0.08 / width, 1 - 0.25 / height, title, fontsize=NORMAL, weight="bold", va="center", parse_math=False)
    for number, line in enumerate(said):
        y = 1 - (TOP + LINE * number) / height
        figure.text(0.08 / width, y, line, fontsize=SMALL, va="center", color=WARNING, parse_math=False)
    values = np.concatenate([one.lag_map.ravel() for one in conditions])
    values = values[np.isfinite(values)]
    brightest = float(np.percentile(values, 99.5)) if len(values) else 0.0
    scale = PowerNorm(0.5, vmin=0.0, vmax=max(brightest, 1e-3))
    for layer, head in np.ndindex(layers, heads):
        top = space + head * (HEADING + panel_height + GAP) + HEADING
        left = LEFT + layer * (PANEL + NULL)
        box = (left / width, 1 - (top + panel_height) / height, PANEL / width, panel_height / height)
        axes = figure.add_axes(box)
        _draw_panel(axes, conditions, layer, head, lags_s, scale)
        axes.set_title(head_name(layer, head, layers), fontsize=NORMAL, weight="bold", loc="left", pad=4)
        if head == 0:
            axes.set_title("null", fontsize=SMALL, loc="right", pad=4, x=1 + 0.62 / PANEL)
        axes.tick_params(labelleft=layer == 0, labelbottom=head == heads - 1)
        if head == heads - 1:
            axes.set_xlabel("lag (s), sound later →", fontsize=SMALL, labelpad=2)
    bar = figure.add_axes((LEFT / width, 0.42 / height, PANEL / width, 0.12 / height))
    colors = figure.colorbar(ScalarMappable(scale, COLOR_MAP), cax=bar, orientation="horizontal", extend="max")
    ticks = [tick for tick in (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0) if tick == 0 or 0.3 <= scale(tick) <= 1]
    colors.ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=SMALL)
    colors.minorticks_off()
    figure.text(0.08 / width, 0.48 / height, "weight", fontsize=SMALL, va="center")
    figure.text(0.08 / width, 0.26 / height, "per 10 ms", fontsize=SMALL, va="center")
    return figure


def warning_lines(warnings: Sequence[str], width: float) -> list[str]:
    """Warnings in lines that fit into a figure so many inches wide."""
    return [line for warning in warnings for line in wrap(f"! {warning}", int(9.5 * width), subsequent_indent="  ")]


def head_name(layer: int, head: int, layers: int) -> str:
    """How pictures call a head, counted from 1; the layer is named where there are several."""
    return f"head {head + 1}" if layers == 1 else f"layer {layer + 1}, head {head + 1}"


def _draw_panel(
    axes: Axes, conditions: Sequence[Condition], layer: int, head: int, lags_s: Floats, scale: PowerNorm
) -> None:
    """One head: a strip per condition from top to bottom, and the null masses at the right."""
    half_step = 0.5 / AUDIO_HZ
    rows = np.stack([one.lag_map[layer, head] for one in conditions])
    extent = (lags_s[0] - half_step, lags_s[-1] + half_step, len(conditions), 0)
    axes.set_facecolor(OUTSIDE)
    axes.imshow(rows, aspect="auto", extent=extent, cmap=COLOR_MAP, norm=scale, interpolation="nearest")
    axes.axvline(0.0, color="white", linewidth=1.0, linestyle=(0, (4, 4)))
    for row in range(1, len(conditions)):
        axes.axhline(row, color="white", linewidth=2.5 if row == 2 else 1.0)
    axes.set_yticks(np.arange(len(conditions)) + 0.5, [one.name for one in conditions], fontsize=SMALL)
    axes.set_xlim(max(lags_s[0], -SHOWN_LAGS_S) - half_step, min(lags_s[-1], SHOWN_LAGS_S) + half_step)
    axes.set_xticks([-0.4, -0.2, 0.0, 0.2, 0.4], ["−0.4", "−0.2", "0", "0.2", "0.4"], fontsize=SMALL)
    axes.tick_params(length=3, pad=3)
    for row, one in enumerate(conditions):
        null = one.null_mass[layer, head]
        said = f"{100 * null:.0f} %" if np.isfinite(null) else "-"
        right, beside = axes.get_yaxis_transform(), 1 + 0.62 / PANEL  # x in shares of the axis, y in strips
        axes.text(beside, row + 0.5, said, fontsize=SMALL, ha="right", va="center", transform=right)
