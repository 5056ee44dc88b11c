"""The two pictures of the suite: AP against severity, a panel for each family; false accepts against the shift.

The clean AP and the AP of a constant score are lines in every panel. Bars are 95 % intervals; those of AP are of the
change from the clean AP, paired, so that one that reaches the clean line shows no sure change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from avfusion.files import whole_file
from avfusion.robustness.conditions import FAMILIES, OTHER, SHIFTED, SILENCE, Family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]

SOUND, PICTURE, CLEAN, CHANCE = "#0072B2", "#D55E00", "#000000", "#777777"
SMALL, NORMAL = 9.0, 11.0
COLUMNS = 4
DPI = 120


def robustness_figure(rows: Sequence[Row], clean: float, chance: float, title: str) -> Figure:
    """Draws AP against severity.

    Args:
        rows: AP under each condition.
        clean: AP with nothing changed.
        chance: AP of a constant score.
        title: stands above.
    """
    families = [family for family in FAMILIES if family.severities and _rows_of(rows, family.name)]
    whole = [family for family in FAMILIES if not family.severities and _rows_of(rows, family.name)]
    lines = -(-(len(families) + 1) // COLUMNS)
    figure = _figure(11.0, 0.9 + 2.5 * lines)
    figure.suptitle(title, fontsize=NORMAL, weight="bold", parse_math=False)
    grid = figure.subplots(lines, COLUMNS, sharey=True, squeeze=False)
    panels = list(grid.flat)
    for axes, family in zip(panels, families, strict=False):
        _draw_family(axes, _rows_of(rows, family.name), family)
    _draw_missing(panels[len(families)], rows, whole)
    for axes in panels[: len(families) + 1]:
        axes.axhline(clean, color=CLEAN, linewidth=1.2, linestyle="--", label=f"clean AP {clean:.3f}")
        axes.axhline(chance, color=CHANCE, linewidth=1.2, linestyle=":", label=f"constant score {chance:.3f}")
        axes.set_ylim(0, 1.02)
        _plain(axes)
    for axes in panels[len(families) + 1 :]:
        axes.set_axis_off()
    for line in grid:
        line[0].set_ylabel("AP", fontsize=SMALL)
    from matplotlib.lines import Line2D

    handles, _ = panels[0].get_legend_handles_labels()
    kinds = [
        Line2D([], [], color=color, marker="o", label=f"{stream} changed")
        for color, stream in ((SOUND, "sound"), (PICTURE, "picture"))
    ]
    bars = Line2D(
        [], [], linestyle="", marker="|", markersize=10, color=CHANCE, label="95 % interval of the change, paired"
    )
    shown = [*kinds, bars, *handles[-2:]]
    figure.legend(handles=shown, loc="outside lower center", ncols=5, fontsize=SMALL, frameon=False)
    return figure


def desync_figure(rows: Sequence[Row], miss_rate: float, title: str) -> Figure:
    """Draws the share of speaking frames that are accepted against the shift, and with another sound or none.

    Args:
        rows: false accepts.
        miss_rate: of the threshold, on synchronous sound.
        title: stands above.
    """
    figure = _figure(8.4, 4.6)
    figure.suptitle(title, fontsize=NORMAL, weight="bold", parse_math=False)
    axes = figure.subplots()
    shifts = [row for row in rows if row["family"] == SHIFTED and row["num_frames"]]
    accepted = 1 - miss_rate
    own = {"severity": 0, "false_accept_rate": accepted, "false_accept_rate_interval": None, "own_sound_rate": accepted}
    shown = sorted([*shifts, own], key=lambda row: row["severity"])
    places: list[float] = list(range(len(shown)))
    names = ["0\n(own)" if row is own else f"{row['severity']:+d}".replace("-", "−") for row in shown]
    axes.plot(
        places,
        [100 * row["own_sound_rate"] for row in shown],
        color=CLEAN,
        linestyle="--",
        label="own sound, same frames",
    )
    axes.plot(
        places, [100 * row["false_accept_rate"] for row in shown], color=SOUND, linewidth=1.6, label="shifted sound"
    )
    for name, place, label in ((OTHER, 1.6, "another\nclip's"), (SILENCE, 2.9, "silence")):
        for row in _rows_of(rows, name):
            shown.append(row)
            places.append(len(shifts) + place)
            names.append(label)
    for place, row in zip(places, shown, strict=True):
        color = CLEAN if row is own else PICTURE if row["severity"] is None else SOUND
        ends = row["false_accept_rate_interval"]
        _point(axes, place, 100 * row["false_accept_rate"], ends and [100 * end for end in ends], color)
    axes.set_xticks(places, names, fontsize=SMALL)
    axes.set_xlabel("sound later by, in ms", fontsize=SMALL)
    axes.set_ylabel("speaking frames still accepted, %", fontsize=SMALL)
    axes.set_ylim(0, 106)
    figure.legend(loc="outside lower center", ncols=2, fontsize=SMALL, frameon=False)
    _plain(axes)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Writes a PNG, whole or not at all."""
    with whole_file(path) as part:
        figure.savefig(part, format="png", dpi=DPI)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _draw_family(axes: Axes, rows: Sequence[Row], family: Family) -> None:
    """Mild to the left, severe to the right; the steps are evenly spaced."""
    color = SOUND if family.stream == "sound" else PICTURE
    axes.plot(range(len(rows)), [row["average_precision"] for row in rows], color=color, linewidth=1.6)
    for place, row in enumerate(rows):
        _point(axes, place, row["average_precision"], _ends_of_change(row), color)
    axes.set_xticks(range(len(rows)), [f"{row['severity']:g}".replace("-", "−") for row in rows], fontsize=SMALL)
    axes.set_xlim(-0.4, len(rows) - 0.6)
    axes.set_xlabel(family.unit, fontsize=SMALL, labelpad=1)
    axes.set_title(family.name, fontsize=NORMAL)


def _draw_missing(axes: Axes, rows: Sequence[Row], families: Sequence[Family]) -> None:
    for place, family in enumerate(families):
        color = SOUND if family.stream == "sound" else PICTURE
        row = _rows_of(rows, family.name)[0]
        _point(axes, place, row["average_precision"], _ends_of_change(row), color)
    axes.set_xticks(range(len(families)), [family.stream for family in families], fontsize=SMALL)
    axes.set_xlim(-0.6, len(families) - 0.4)
    axes.set_title("missing throughout", fontsize=NORMAL)


def _point(axes: Axes, place: float, value: float, ends: Sequence[float] | None, color: str) -> None:
    bars = None if ends is None else [[max(value - ends[0], 0)], [max(ends[1] - value, 0)]]
    axes.errorbar([place], [value], yerr=bars, color=color, marker="o", markersize=5, capsize=3, linewidth=1.2)


def _ends_of_change(row: Row) -> list[float] | None:
    """Where the interval of the change lies, seen from the clean AP."""
    ends = row["change_interval"]
    return None if ends is None else [row["clean_average_precision"] + end for end in ends]


def _rows_of(rows: Sequence[Row], family: str) -> list[Row]:
    return [row for row in rows if row["family"] == family]


def _plain(axes: Axes) -> None:
    axes.tick_params(labelsize=SMALL, length=2)
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
