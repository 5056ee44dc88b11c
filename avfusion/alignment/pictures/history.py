"""How each head's lag, width and null mass went while the model learned, from the rows of ``log.jsonl``.

The rows hold ``align/head<k>_lag_ms`` and others for the heads of the last fusion layer, measured on a few fixed clips
after each epoch. Heads are told apart by color and by marker. Made to be read at the width of a thumbnail of W&B.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from avfusion.alignment.pictures.summary import NORMAL, SMALL

# Told apart by colour-blind readers (Okabe-Ito); yellow is left out, it is pale on white.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
PANELS = {
    "lag_ms": "lag\n(ms)",
    "width_ms": "width\n(ms)",
    "null_mass": "null,\nspeaking",
    "null_mass_silent": "null,\nsilent",
}
_KEY = re.compile(r"align/head(\d+)_(.+)")

History = Mapping[tuple[int, str], Sequence[tuple[float, float]]]  # (head from 1, figure): (epoch, value) pairs


def read_history(log: Path) -> dict[tuple[int, str], list[tuple[float, float]]]:
    """The heads' figures of all epochs, in the order of the file; empty where there is no file or nothing in it.

    A half-written last line is left out.
    """
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    for line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        for key, value in row.items():
            match = _KEY.fullmatch(key)
            if match and match[2] in PANELS and "epoch" in row:
                found.setdefault((int(match[1]), match[2]), []).append((float(row["epoch"]), float(value)))
    return found


def history_figure(history: History, title: str) -> Figure:
    """Draws a panel for each figure, a line for each head.

    Args:
        history: as :func:`read_history` gives it.
        title: stands above.

    Raises:
        ValueError: nothing to draw.
    """
    if not history:
        raise ValueError("expected figures of heads, found none: the run logged no align/head<k>_... rows")
    shown = {name: label for name, label in PANELS.items() if any(key[1] == name for key in history)}
    heads = sorted({head for head, _ in history})
    height = 1.3 + 1.35 * len(shown) + 0.3 * ((len(heads) + 3) // 4)
    figure = Figure(figsize=(6.4, height), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=NORMAL, weight="bold", parse_math=False)
    panels = figure.subplots(len(shown), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (name, label) in zip(panels, shown.items(), strict=True):
        for number, head in enumerate(heads):
            points = np.array(history.get((head, name), []), dtype=np.float64).reshape(-1, 2)
            axes.plot(
                points[:, 0], points[:, 1], color=COLORS[number % len(COLORS)], marker=MARKERS[number % len(MARKERS)],
                markersize=6, linewidth=2.0, label=f"head {head}",
            )  # fmt: skip
        axes.set_ylabel(label, fontsize=SMALL)
        axes.tick_params(labelsize=SMALL)
        axes.grid(color="#DDDDDD", linewidth=0.8)
        if name.startswith("null"):
            axes.set_ylim(-0.05, 1.05)
            axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
        else:
            axes.yaxis.set_major_locator(MaxNLocator(4))
        if name == "lag_ms":
            axes.axhline(0.0, color="black", linewidth=1.0, linestyle=":")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[-1].xaxis.set_major_locator(MaxNLocator(8, integer=True))
    panels[-1].set_xlabel("epoch", fontsize=NORMAL)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=SMALL, frameon=False)
    return figure
