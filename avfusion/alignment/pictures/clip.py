"""One picture per clip: what was seen, what was heard, what the model said, and which sound each head listened to.

Shapes: ``H`` heads, ``T`` video frames (25 a second), ``A`` audio frames (100 a second), ``M`` mel bins. Every panel
shares one time axis in seconds. A head's map is drawn in lag coordinates (time of the sound minus time of the frame),
where a head that follows the lips is a straight line and one that ignores them is not.

Figures are built without pyplot: no window system is asked for, and nothing keeps a figure alive after its last use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from avfusion.alignment.statistics import alignment_statistics, lag_image, median_over
from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, AUDIO_HZ, SAMPLE_RATE, VIDEO_HZ
from avfusion.errors import UsageError
from avfusion.files import whole_file
from avfusion.tracks import runs_of_true

if TYPE_CHECKING:
    from typing import Literal

    from matplotlib.axes import Axes

HALF_WIDTH_S = 0.5  # lags shown
MOSTLY_NULL = 0.8  # above this mean null mass, lag and width describe too little of the attention to be shown
NUM_CROPS = 12
SUBTITLE = "positive lag: attends to sound after the frame"
TEACHES = ("null", "guided")  # losses on the attention itself
TAUGHT_WARNING = "the {} loss taught the attention where to look: a ridge or a null mass need not come from the sound"
BYPASS_WARNING = "sound also reaches the classifier around the attention: these maps need not explain the score"

# Inches. Text is placed in points, so panels of fixed size stay legible whatever the number of heads.
WIDTH, LEFT, RIGHT = 12.0, 1.05, 2.2
TITLE, CROPS, MEL, SCORE, HEAD, NULL, FOOT, GAP = 0.66, 0.74, 0.8, 0.8, 0.84, 0.15, 1.42, 0.1
SMALL, NORMAL, LARGE = 8.0, 9.0, 14.5  # points; LARGE is read in a panel 600 pixels wide, half the picture's width

# Told apart by colour-blind readers (Okabe-Ito).
SPEAKING, SILENT, WARNING = "#0072B2", "#D9D9D9", "#B03A00"
MEDIAN, NULL_COLOR, OUTSIDE = "#3FD0FF", "#7A7A7A", "#E6E6E6"
COLOR_MAP = "inferno"
CLIP_DPI = 110


def map_warnings(audio_bypass: bool, losses: Collection[str]) -> list[str]:
    """What to know of a model before anything is read out of its maps.

    Args:
        audio_bypass: sound also reaches the classifier around the attention.
        losses: names of the terms that the model was trained with.
    """
    taught = [name for name in TEACHES if name in losses]
    warnings = [BYPASS_WARNING] if audio_bypass else []
    return warnings + [TAUGHT_WARNING.format(" and ".join(taught))] * bool(taught)


@dataclass(frozen=True)
class ClipAlignment:
    """One clip as a model saw, heard and judged it.

    Attributes:
        title: names the clip.
        role: what kind of example it is (``own_sound``, ``shifted`` ...); empty where unknown.
        crops: ``(T, height, width)`` uint8 grey face pictures.
        log_mel: ``(A, M)`` log-mel frames, ``A = 4 T``.
        speaking: ``(T,)`` bool labels.
        scores: ``(T,)`` probabilities that the face is the audible speaker.
        weights: ``(H, T, A)`` attention of one layer, the null key left out.
        audio_bypass: sound also reaches the classifier around the attention.
        losses: what the model was trained with, name and weight of each term; empty where unknown.
        words: what figures over a whole dataset say of each head; empty where they were not made.
    """

    title: str
    role: str
    crops: NDArray[np.uint8]
    log_mel: NDArray[np.float32]
    speaking: NDArray[np.bool_]
    scores: NDArray[np.float32]
    weights: NDArray[np.float32]
    audio_bypass: bool = False
    losses: Mapping[str, float] = field(default_factory=dict)
    words: Sequence[str] = ()

    @property
    def warnings(self) -> list[str]:
        """What to know before anything is read out of the maps."""
        return map_warnings(self.audio_bypass, self.losses)

    def __post_init__(self) -> None:
        frames, keys = len(self.speaking), len(self.log_mel)
        found = (len(self.crops), np.shape(self.scores), np.shape(self.weights)[1:], np.ndim(self.weights), keys)
        if (
            frames == 0
            or np.size(self.weights) == 0
            or found != (frames, (frames,), (frames, keys), 3, AUDIO_FRAMES_PER_VIDEO_FRAME * frames)
        ):
            raise ValueError(
                "expected T > 0 labels, crops and scores, 4 T log-mel frames and weights (H > 0, T, 4 T); found "
                f"{frames} labels, {len(self.crops)} crops, {np.shape(self.scores)} scores, {keys} log-mel frames and "
                f"weights {np.shape(self.weights)}"
            )


def alignment_figure(clip: ClipAlignment) -> Figure:
    """Draws a clip: faces, sound, label and score, and one map per head, over one time axis.

    Every head is drawn in the same colors for the same weights. The figures at the right of a head are over
    the speaking frames, or over all frames where nobody speaks; a head that mostly hears nothing has no lag.
    """
    num_heads, num_frames = clip.weights.shape[:2]
    figure, rows = _layout(num_heads, num_warnings=len(clip.warnings))
    crops, mel, score, *heads = rows
    edges_s = (-0.5 / VIDEO_HZ, (num_frames - 0.5) / VIDEO_HZ)
    _draw_titles(figure, clip)
    _draw_crops(crops, clip.crops, clip.speaking, edges_s)
    _draw_mel(mel, clip.log_mel)
    _draw_score(score, clip.speaking, clip.scores)
    maps = [lag_image(weights, HALF_WIDTH_S) for weights in clip.weights]
    # The brightest half percent may saturate, or one frame's spike would darken every other head.
    scale = PowerNorm(0.5, vmin=0.0, vmax=max(float(np.nanpercentile(np.stack(maps), 99.5)), 1e-3))
    _draw_heads(figure, heads, clip, maps, scale)
    for row in rows:
        row.set_xlim(edges_s)
        row.tick_params(labelsize=SMALL, labelbottom=row is rows[-1])
    rows[-1].set_xlabel("time in the clip (s)", fontsize=NORMAL)
    _draw_legend(figure, scale, clip.losses)
    return figure


def save_figure(figure: Figure, path: Path, dpi: int = CLIP_DPI) -> None:
    """Writes a figure, whole or not at all: ``.png``, or ``.svg`` and ``.pdf`` as vectors.

    The file holds no date and no program name: the same figure gives the same bytes.

    Raises:
        UsageError: another suffix.
    """
    import matplotlib

    nothing: dict[str, dict[str, str | None]] = {
        ".png": {"Software": None},
        ".svg": {"Date": None, "Creator": None},
        ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    suffix = path.suffix.lower()
    if suffix not in nothing:
        raise UsageError(f"{path}: figures are written as .png, .svg or .pdf; change the suffix")
    with matplotlib.rc_context({"svg.hashsalt": "avfusion"}), whole_file(path) as part:
        figure.savefig(part, dpi=dpi, format=suffix[1:], metadata=nothing[suffix])


def _layout(num_heads: int, num_warnings: int) -> tuple[Figure, list[Axes]]:
    """A figure with a row of axes for crops, sound, score, and two per head (map, null mass), sized in inches."""
    heights = [CROPS, MEL, SCORE] + [HEAD, NULL] * num_heads
    gaps = [GAP, GAP, GAP] + [0.02, 1.3 * GAP] * num_heads
    top = TITLE + 0.26 * num_warnings
    height = top + sum(heights) + sum(gaps) + FOOT
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    FigureCanvasAgg(figure)
    rows: list[Axes] = []
    for row_height, gap in zip(heights, gaps, strict=True):
        box = (LEFT / WIDTH, 1 - (top + row_height) / height, 1 - (LEFT + RIGHT) / WIDTH, row_height / height)
        rows.append(figure.add_axes(box, sharex=rows[0] if rows else None))
        top += row_height + gap
    return figure, rows


def _from_top(figure: Figure, inches: float) -> float:
    return float(1 - inches / figure.get_figheight())


def _draw_titles(figure: Figure, clip: ClipAlignment) -> None:
    speaking = clip.speaking
    label = f"speaking in {100 * speaking.mean():.0f} % of frames" if speaking.any() else "not speaking"
    means = [f"mean score {clip.scores.mean():.2f}"]
    if 0 < speaking.sum() < len(speaking):
        means.append(f"({clip.scores[speaking].mean():.2f} speaking, {clip.scores[~speaking].mean():.2f} not)")
    first = _shortened(_drawable(" · ".join(part for part in (clip.title, clip.role) if part)), 88)
    second = f"label: {label} · {' '.join(means)} · {SUBTITLE}"
    x = LEFT / WIDTH
    # A name may hold a dollar sign: it is no formula.
    figure.text(x, _from_top(figure, 0.2), first, fontsize=12, weight="bold", va="center", parse_math=False)
    figure.text(x, _from_top(figure, 0.45), second, fontsize=NORMAL, va="center", color="#333333", parse_math=False)
    box = {"boxstyle": "round,pad=0.25", "facecolor": "#FFF1E6", "edgecolor": WARNING}
    for number, warning in enumerate(clip.warnings):
        y = _from_top(figure, 0.72 + 0.26 * number)
        figure.text(x + 0.004, y, f"! {warning}", fontsize=NORMAL, va="center", color=WARNING, bbox=box)


def _drawable(text: str) -> str:
    """The text of the bold title, with what its font has no glyph for escaped as :func:`ascii` does."""
    font = get_font(findfont(FontProperties(weight="bold")))
    return "".join(c if c.isprintable() and font.get_char_index(ord(c)) else ascii(c)[1:-1] for c in text)


def _shortened(text: str, length: int) -> str:
    """The text with its middle left out where it is longer: both ends of a name tell clips apart."""
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[:half]}…{text[-half:]}"


def _draw_crops(
    axes: Axes, crops: NDArray[np.uint8], speaking: NDArray[np.bool_], edges_s: tuple[float, float]
) -> None:
    """Face pictures, each centred on the time of its frame, framed in the colour of its label."""
    num_frames = len(crops)
    count = min(NUM_CROPS, num_frames)
    chosen = np.floor((np.arange(count) + 0.5) * num_frames / count).astype(int)
    second_per_inch = (edges_s[1] - edges_s[0]) / (WIDTH - LEFT - RIGHT)
    square_s = min(CROPS * second_per_inch, 0.96 * (edges_s[1] - edges_s[0]) / count)
    axes.set_ylim(0, 1)
    for index in chosen:
        height, width = crops[index].shape
        half_s = 0.5 * square_s * min(1.0, width / height)
        # A clip's first and last picture may stand half outside its time axis; they are moved in, whole.
        centre_s = np.clip(index / VIDEO_HZ, edges_s[0] + half_s, edges_s[1] - half_s)
        half_height = half_s * height / width / second_per_inch / CROPS
        extent = (centre_s - half_s, centre_s + half_s, 0.5 - half_height, 0.5 + half_height)
        picture = axes.imshow(crops[index], cmap="gray", vmin=0, vmax=255, extent=extent, aspect="auto")
        picture.set_gid(f"crop-{index}")
        color = SPEAKING if speaking[index] else SILENT
        axes.plot(
            [extent[0], extent[1], extent[1], extent[0], extent[0]],
            [extent[2], extent[2], extent[3], extent[3], extent[2]],
            color=color,
            linewidth=2.0,
        )
    axes.set_yticks([])
    axes.set_ylabel("face", fontsize=NORMAL)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(bottom=False)


def _draw_mel(axes: Axes, log_mel: NDArray[np.float32]) -> None:
    num_keys, num_mels = log_mel.shape
    extent = (-0.5 / AUDIO_HZ, (num_keys - 0.5) / AUDIO_HZ, -0.5, num_mels - 0.5)
    axes.imshow(log_mel.T, origin="lower", aspect="auto", extent=extent, cmap="Greys", interpolation="nearest")
    kilohertz = (0.3, 1, 3, 6)
    axes.set_yticks([_mel_bin(1000 * value, num_mels) for value in kilohertz], [f"{value:g}" for value in kilohertz])
    axes.set_ylabel("sound\n(kHz)", fontsize=NORMAL)


def _mel_bin(hz: float, num_mels: int) -> float:
    """Row of a frequency among ``num_mels`` bins evenly spaced on the HTK mel scale from 20 Hz up to half the rate."""
    low, at, high = (np.log1p(value / 700.0) for value in (20.0, hz, SAMPLE_RATE / 2))
    return float((at - low) / (high - low) * (num_mels + 1) - 1)


def _draw_score(axes: Axes, speaking: NDArray[np.bool_], scores: NDArray[np.float32]) -> None:
    """The label as a band above, the score as a line from 0 to 1, the threshold dotted."""
    axes.set_ylim(-0.06, 1.5)
    axes.axhspan(1.14, 1.5, color=SILENT, linewidth=0)
    for start, stop in runs_of_true(speaking):
        axes.fill_between(_cell_edges_s(start, stop), 1.14, 1.5, color=SPEAKING, linewidth=0)
    times_s = np.arange(len(scores)) / VIDEO_HZ
    axes.axhline(0.5, color="black", linewidth=1.0, linestyle=":")
    axes.plot(times_s, scores, color="black", linewidth=1.4, marker="." if len(scores) == 1 else "")
    axes.set_yticks([0, 0.5, 1, 1.32], ["0", "0.5", "1", "label"])
    axes.set_ylabel("score", fontsize=NORMAL)


def _cell_edges_s(start: int, stop: int) -> tuple[float, float]:
    return (start - 0.5) / VIDEO_HZ, (stop - 0.5) / VIDEO_HZ


def _draw_heads(
    figure: Figure, rows: list[Axes], clip: ClipAlignment, maps: list[NDArray[np.float64]], scale: PowerNorm
) -> None:
    """One map and one strip of null mass per head, with its figures at the right."""
    frames = clip.speaking if clip.speaking.any() else np.ones_like(clip.speaking)
    described = alignment_statistics(clip.weights)
    lags, widths = median_over(described.lag_ms, frames), median_over(described.width_ms, frames)
    edges_s = [edge for run in runs_of_true(clip.speaking) for edge in _cell_edges_s(*run)]
    for head, (image, map_axes, null_axes) in enumerate(zip(maps, rows[::2], rows[1::2], strict=True)):
        null = described.null_mass[head, frames].mean()
        hears = null <= MOSTLY_NULL
        _draw_map(map_axes, image, scale, float(lags[head]) if hears else None)
        for edge_s in edges_s:
            map_axes.axvline(edge_s, color="white", linewidth=0.6, alpha=0.6)
        _draw_null(null_axes, described.null_mass[head])
        beyond = 1.0 - null - np.nansum(image[:, frames], axis=0).mean()
        lag = f"lag {_signed(lags[head])}" if hears else "hears little"
        lines = [f"width {widths[head]:.0f} ms · null {100 * null:.0f} %" if hears else f"null {100 * null:.0f} %"]
        if beyond >= 0.01:
            lines.append(f"beyond ±{HALF_WIDTH_S:g} s: {100 * beyond:.0f} %")
        if clip.words:
            lines.append(_first_claim(clip.words[head]))
        _write_beside(figure, map_axes, f"head {head + 1}", lag, lines)


CLAIM_LENGTH = 34  # letters; more would run out of the picture


def _first_claim(words: str) -> str:
    """What is said first of a head, with the first figure behind it: there is room for that beside a map."""
    claim, bracket, figures = words.split("), ")[0].partition(" (")
    if "), but " in words:
        return f"{claim}, but …"  # never without its reservation
    with_figure = f"{claim} ({figures.split(',')[0].rstrip(')')})"
    if bracket and len(with_figure) <= CLAIM_LENGTH:
        return with_figure
    return _shortened(claim.split(",")[0], CLAIM_LENGTH)


def _write_beside(figure: Figure, axes: Axes, name: str, lag: str, lines: list[str]) -> None:
    """Name and lag large, for they are what is looked for in a small copy; the rest below."""
    box = axes.get_position()
    x, top = box.x1 + 0.22 / WIDTH, box.y1
    for offset, text, weight in ((0.1, name, "bold"), (0.36, lag, "normal")):
        figure.text(x, top - offset / figure.get_figheight(), text, fontsize=LARGE, weight=weight, va="center")
    for number, text in enumerate(lines):
        y = top - (0.59 + 0.16 * number) / figure.get_figheight()
        figure.text(x, y, text, fontsize=SMALL + 0.5, va="center")


def _signed(milliseconds: float) -> str:
    return f"{round(milliseconds):+d} ms".replace("-", "−")


def _draw_map(axes: Axes, image: NDArray[np.float64], scale: PowerNorm, median_ms: float | None) -> None:
    half = HALF_WIDTH_S + 0.5 / AUDIO_HZ
    extent = (-0.5 / VIDEO_HZ, (image.shape[1] - 0.5) / VIDEO_HZ, -half, half)
    axes.set_facecolor(OUTSIDE)  # shows where the map is NaN
    axes.imshow(
        image, origin="lower", aspect="auto", extent=extent, cmap=COLOR_MAP, norm=scale, interpolation="nearest"
    )
    axes.axhline(0.0, color="white", linewidth=0.9, linestyle=(0, (5, 4)))
    if median_ms is not None:
        height = float(np.clip(median_ms / 1000, -half, half))
        axes.axhline(height, color=MEDIAN, linewidth=1.0, linestyle=(0, (1.5, 10)))  # sparse: it lies on the ridge
        ends = axes.get_yaxis_transform()  # x in shares of the axis, y in seconds
        for x, marker in ((-0.004, ">"), (1.004, "<")):
            axes.plot([x], [height], marker, color=MEDIAN, markersize=6, clip_on=False, transform=ends)
    axes.set_ylim(-half, half)
    axes.set_yticks([-0.5, 0.0, 0.5], ["−0.5", "0", "+0.5"])
    axes.tick_params(axis="y", pad=8)  # leaves room for the marker of the median
    inside: tuple[Literal["bottom", "center", "top"], ...] = ("bottom", "center", "top")
    for label, alignment in zip(axes.get_yticklabels(), inside, strict=True):
        label.set_verticalalignment(alignment)  # clear of the rows above and below
    axes.set_ylabel("sound later →\nlag (s)", fontsize=SMALL)  # turned with the text, the arrow points up


def _draw_null(axes: Axes, null_mass: NDArray[np.float64]) -> None:
    """Null mass as a filled curve from 0 (bottom) to 1 (top)."""
    edges_s = (np.arange(len(null_mass) + 1) - 0.5) / VIDEO_HZ
    axes.stairs(null_mass, edges_s, fill=True, color=NULL_COLOR)
    axes.set_ylim(0, 1)
    axes.set_yticks([0.5], ["null"])
    axes.tick_params(left=False)


def _draw_legend(figure: Figure, scale: PowerNorm, losses: Mapping[str, float]) -> None:
    """The color bar, what the lines and grays mean, and what the figures at the right are taken over."""
    height = figure.get_figheight()
    bar = figure.add_axes((LEFT / WIDTH, 0.68 / height, 3.3 / WIDTH, 0.13 / height))
    ticks = [digit * 10.0**power for power in range(-5, 1) for digit in (1, 3)]
    ticks = [tick for tick in ticks if 0.22 <= scale(tick) <= 1.0]  # further left they run together
    colors = ScalarMappable(scale, COLOR_MAP)
    colorbar = figure.colorbar(colors, cax=bar, orientation="horizontal", extend="max", ticks=[0.0, *ticks])
    colorbar.ax.set_xticks([0.0, *ticks], [f"{tick:g}" for tick in (0.0, *ticks)], fontsize=SMALL)
    colorbar.minorticks_off()
    bar.set_title("weight per 10 ms of sound (one square-root scale for all heads)", fontsize=SMALL, loc="left", pad=3)
    handles = [
        Patch(facecolor=SPEAKING, label="speaking"),
        Patch(facecolor=SILENT, label="not speaking"),
        Line2D([], [], color="#555555", linestyle="--", label="lag 0"),
        Line2D(
            [], [], color=MEDIAN, linestyle=":", marker="<", label=f"median lag (null up to {100 * MOSTLY_NULL:.0f} %)"
        ),
        Patch(facecolor=NULL_COLOR, label="null: nothing heard, 0 to 100 %"),
        Patch(facecolor=OUTSIDE, edgecolor="#999999", label="outside the clip"),
    ]
    corner = (5.0 / WIDTH, 0.44 / height)
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=corner, ncols=3, fontsize=SMALL, frameon=False)
    even_ms = 1000 * 2 * HALF_WIDTH_S / np.sqrt(12)
    note = (
        "at the right: median lag and width, mean null, over the speaking frames (all frames where nobody speaks) · "
        f"attention spread evenly over ±{HALF_WIDTH_S:g} s has width {even_ms:.0f} ms"
    )
    figure.text(LEFT / WIDTH, 0.3 / height, note, fontsize=SMALL, va="center", color="#333333")
    if losses:
        terms = ", ".join(f"{name} {weight:g}" for name, weight in losses.items())
        figure.text(LEFT / WIDTH, 0.14 / height, f"losses: {terms}", fontsize=SMALL, va="center", color="#333333")
