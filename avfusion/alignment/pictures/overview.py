"""A few clips side by side in one small picture: score, label, and which sound each head listened to.

Made to be read while a model learns, many times and small (at the width of a thumbnail of W&B); ``clip.py`` draws one
clip with everything about it. A column is a clip, a row a head; maps are in lag coordinates as there.
Shapes: ``H`` heads, ``T`` video frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from avfusion.alignment.pictures.clip import (
    COLOR_MAP,
    HALF_WIDTH_S,
    NULL_COLOR,
    OUTSIDE,
    SILENT,
    SPEAKING,
    ClipAlignment,
)
from avfusion.alignment.statistics import alignment_statistics, lag_image
from avfusion.clock import AUDIO_HZ, VIDEO_HZ
from avfusion.tracks import runs_of_true

if TYPE_CHECKING:
    from typing import Literal

    from matplotlib.axes import Axes

# Inches; at 100 dots an inch three clips of four heads are 640 by 480 pixels, and nothing is smaller than 8 points.
COLUMN, LEFT, RIGHT, TOP, FOOT, GAP = 1.85, 0.6, 0.1, 0.5, 0.42, 0.12
SCORE, HEAD = 0.6, 0.66
SMALL, NORMAL = 8.0, 9.5  # points
DPI = 100


def overview_figure(clips: Sequence[ClipAlignment], title: str) -> Figure:
    """Draws the clips beside each other, every head of all clips in the same colors for the same weights.

    Args:
        clips: one or more, of one model.
        title: stands above them.

    Raises:
        ValueError: no clip, or clips of different numbers of heads.
    """
    heads = {len(clip.weights) for clip in clips}
    if len(heads) != 1:
        raise ValueError(f"expected clips of one number of heads, found {len(clips)} clips of {sorted(heads)} heads")
    rows = [SCORE] + [HEAD] * heads.pop()
    width = LEFT + RIGHT + COLUMN * len(clips)
    height = TOP + FOOT + sum(rows) + 0.06 * (len(rows) - 1)
    figure = Figure(figsize=(width, height), facecolor="white", dpi=DPI)
    FigureCanvasAgg(figure)
    figure.text(0.1 / width, 1 - 0.14 / height, title, fontsize=NORMAL, weight="bold", va="center", parse_math=False)
    maps = [[lag_image(weights, HALF_WIDTH_S) for weights in clip.weights] for clip in clips]
    brightest = np.nanpercentile(np.concatenate([np.ravel(image) for images in maps for image in images]), 99.5)
    scale = PowerNorm(0.5, vmin=0.0, vmax=max(float(brightest), 1e-3))
    for column, (clip, images) in enumerate(zip(clips, maps, strict=True)):
        top = TOP
        for row, row_height in enumerate(rows):
            box = (
                (LEFT + COLUMN * column + GAP / 2) / width,
                1 - (top + row_height) / height,
                (COLUMN - GAP) / width,
                row_height / height,
            )
            axes = figure.add_axes(box)
            if row == 0:
                _draw_score(axes, clip)
            else:
                _draw_head(axes, clip, row - 1, images[row - 1], scale)
            _label(axes, clip, column, row, last=row == len(rows) - 1)
            top += row_height + 0.06
    return figure


def _draw_score(axes: Axes, clip: ClipAlignment) -> None:
    """Label as a bar, score as a line from 0 to 1."""
    times_s = np.arange(len(clip.scores)) / VIDEO_HZ
    axes.axhspan(1.1, 1.4, color=SILENT, linewidth=0)
    for start, stop in runs_of_true(clip.speaking):
        axes.axvspan((start - 0.5) / VIDEO_HZ, (stop - 0.5) / VIDEO_HZ, 1.1 / 1.4, 1.0, color=SPEAKING, linewidth=0)
    axes.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
    axes.plot(times_s, clip.scores, color="black", linewidth=1.4, marker="." if len(times_s) == 1 else "")
    axes.set_ylim(0, 1.4)
    axes.set_yticks([0, 1])


def _draw_head(axes: Axes, clip: ClipAlignment, head: int, image: NDArray[np.float64], scale: PowerNorm) -> None:
    """One map, lag upwards, and at its foot the null mass as a gray band of that height."""
    half = HALF_WIDTH_S + 0.5 / AUDIO_HZ
    extent = (-0.5 / VIDEO_HZ, (image.shape[1] - 0.5) / VIDEO_HZ, -half, half)
    axes.set_facecolor(OUTSIDE)
    axes.imshow(
        image, origin="lower", aspect="auto", extent=extent, cmap=COLOR_MAP, norm=scale, interpolation="nearest"
    )
    axes.axhline(0.0, color="white", linewidth=0.8, linestyle=(0, (4, 4)))
    null = float(alignment_statistics(clip.weights[head : head + 1]).null_mass.mean())
    axes.text(
        0.98, 0.93, f"null {100 * null:.0f} %", color="white", fontsize=SMALL, ha="right", va="top", weight="bold",
        transform=axes.transAxes, bbox={"facecolor": NULL_COLOR, "edgecolor": "none", "pad": 1.2, "alpha": 0.8},
    )  # fmt: skip
    axes.set_ylim(-half, half)
    axes.set_yticks([-0.5, 0.0, 0.5], ["−.5", "0", "+.5"])
    inside: tuple[Literal["bottom", "center", "top"], ...] = ("bottom", "center", "top")
    for label, alignment in zip(axes.get_yticklabels(), inside, strict=True):
        label.set_verticalalignment(alignment)  # clear of the rows above and below


def _label(axes: Axes, clip: ClipAlignment, column: int, row: int, *, last: bool) -> None:
    """Ticks and names at the edges of the grid only."""
    axes.set_xlim(-0.5 / VIDEO_HZ, (len(clip.scores) - 0.5) / VIDEO_HZ)
    axes.tick_params(labelsize=SMALL, labelbottom=last, labelleft=column == 0, length=2, pad=2)
    if row == 0:
        name = clip.role or clip.title
        name = name if len(name) <= 26 else f"{name[:25]}…"
        axes.set_title(name, fontsize=NORMAL, pad=3, parse_math=False)
    if column == 0:
        axes.set_ylabel("score" if row == 0 else f"head {row}\nlag s", fontsize=SMALL, labelpad=1)
    if last:
        axes.set_xlabel("s", fontsize=SMALL, labelpad=0)
