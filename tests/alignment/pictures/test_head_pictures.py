"""The pictures of the heads show the numbers they were given, legibly at the width of a thumbnail."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from avfusion.alignment.pictures.clip import BYPASS_WARNING, TAUGHT_WARNING, save_figure
from avfusion.alignment.pictures.controls import ablation_figure, slope_figure
from avfusion.alignment.pictures.history import history_figure, read_history
from avfusion.alignment.pictures.summary import summary_figure
from avfusion.alignment.table import head_rows
from tests.alignment.planted_heads import (
    LAGS_S,
    SHIFTS_MS,
    planted_conditions,
    planted_fits,
    planted_history,
    planted_measures,
)


def drawn(name: str, layers: int = 1) -> Figure:
    title = "set $5 / val"
    if name == "summary":
        return summary_figure(planted_conditions(layers), LAGS_S, title)
    if name == "slopes":
        return slope_figure(planted_fits(layers), title)
    if name == "ablation":
        return ablation_figure(head_rows(planted_measures(layers)), title)
    return history_figure(planted_history(), title)


def seen_texts(figure: Figure) -> list[Text]:
    figure.draw_without_rendering()
    width, height = figure.canvas.get_width_height()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    seen = []
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and not _hidden_tick(text, figure):
            box = text.get_window_extent(renderer)
            assert -1 <= box.x0 <= box.x1 <= width + 1, text.get_text()
            assert -1 <= box.y0 <= box.y1 <= height + 1, text.get_text()
            seen.append(text)
    return seen


def _hidden_tick(text: Text, figure: Figure) -> bool:
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for tick in [*axis.majorTicks, *axis.minorTicks]:
                if text in (tick.label1, tick.label2):
                    low, high = sorted(axis.get_view_interval())
                    on = tick.label1.get_visible() if text is tick.label1 else tick.label2.get_visible()
                    return not axes.get_visible() or not on or not low <= tick.get_loc() <= high
    return False


@pytest.mark.parametrize(
    ("name", "layers"), [("summary", 1), ("summary", 2), ("slopes", 1), ("slopes", 2), ("ablation", 2), ("history", 1)]
)
def test_text_is_inside_apart_and_readable_at_320_pixels(name: str, layers: int) -> None:
    figure = drawn(name, layers)
    texts = seen_texts(figure)
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [(text.get_text(), text.get_window_extent(renderer).shrunk(0.9, 0.8)) for text in texts]
    assert [(a, b) for (a, one), (b, two) in combinations(boxes, 2) if one.overlaps(two)] == []
    columns = layers if name == "summary" else 1  # a thumbnail of several layers is a column each
    pixels = min(text.get_fontsize() for text in texts) / 72 * 320 * columns / figure.get_figwidth()
    assert pixels >= 8


@pytest.mark.parametrize("name", ["summary", "slopes", "ablation"])
def test_warnings_stand_inside_and_apart(name: str) -> None:
    warnings = [BYPASS_WARNING, TAUGHT_WARNING.format("null and guided")]
    figure = {
        "summary": lambda: summary_figure(planted_conditions(), LAGS_S, "set", warnings),
        "slopes": lambda: slope_figure(planted_fits(), "set", warnings),
        "ablation": lambda: ablation_figure(head_rows(planted_measures()), "set", warnings),
    }[name]()
    texts = seen_texts(figure)
    said = " ".join(" ".join(text.get_text() for text in texts).split())
    assert all(f"! {warning}" in said for warning in warnings)
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [(text.get_text(), text.get_window_extent(renderer).shrunk(0.9, 0.8)) for text in texts]
    assert [(a, b) for (a, one), (b, two) in combinations(boxes, 2) if one.overlaps(two)] == []


def test_summary_strips_hold_the_maps_in_one_scale() -> None:
    conditions = planted_conditions(layers=2)
    figure = drawn("summary", layers=2)
    panels = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title(loc="left") for axes in panels[:5]] == [
        *(f"layer 1, head {head}" for head in (1, 2, 3, 4)), "layer 2, head 1",
    ]  # fmt: skip
    for number, axes in enumerate(panels):
        image = axes.images[0]
        layer, head = divmod(number, 4)
        expected = np.stack([one.lag_map[layer, head] for one in conditions])
        np.testing.assert_array_equal(np.ma.filled(image.get_array(), np.nan), expected)
        assert image.norm is panels[0].images[0].norm
        np.testing.assert_allclose(image.get_extent(), [-0.505, 0.505, 7, 0])
        assert [text.get_text() for text in axes.texts] == [
            f"{100 * one.null_mass[layer, head]:.0f} %" for one in conditions
        ]
    labels = [label.get_text() for label in panels[0].get_yticklabels()]
    assert labels == ["speaking", "silent", "other sound", "no sound", "reversed", "frozen face", "untrained"]
    middle = panels[0].images[0].get_array()[0]
    assert LAGS_S[np.argmax(middle)] == pytest.approx(0.06)


def test_summary_survives_what_was_not_measured_and_refuses_what_does_not_fit() -> None:
    conditions = planted_conditions()
    conditions[1].lag_map[:] = np.nan
    conditions[1].null_mass[:] = np.nan
    figure = summary_figure(conditions, LAGS_S, "")
    assert figure.axes[0].texts[1].get_text() == "-"
    with pytest.raises(ValueError, match="of one shape"):
        summary_figure([], LAGS_S, "")
    with pytest.raises(ValueError, match=r"maps \(L, H, 3\)"):
        summary_figure(conditions, LAGS_S[:3], "")


def test_slope_panels_show_points_lines_and_both_references() -> None:
    figure = drawn("slopes")
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in panels] == ["head 1", "head 2", "head 3", "head 4"]
    identity, zero, plain_line, _, line, points = panels[0].lines  # the trained model lies on top
    np.testing.assert_array_equal(identity.get_xdata(), identity.get_ydata())
    np.testing.assert_array_equal(zero.get_ydata(), [0, 0])
    np.testing.assert_allclose(plain_line.get_ydata(), 0.05 * SHIFTS_MS)
    np.testing.assert_allclose(line.get_ydata(), 0.97 * SHIFTS_MS)
    moved = planted_fits()["trained"].lag_ms[:, 0, 0, 0] - 62.0
    np.testing.assert_allclose(points.get_ydata(), moved)
    ends = panels[0].collections[1].get_segments()
    np.testing.assert_allclose([end[:, 1] for end in ends], np.stack([moved - 9, moved + 9], axis=1))
    assert {text.get_text() for text in panels[0].texts} == {"slope 0.97", "slope 0.05"}
    with pytest.raises(ValueError, match="at least one model"):
        slope_figure({}, "")


def test_ablation_bars_intervals_and_untrained_marks() -> None:
    rows = head_rows(planted_measures())
    (axes,) = ablation_figure(rows, "").axes
    widths = [bar.get_width() for bar in axes.patches]
    assert widths[:6] == pytest.approx([-0.08, -0.07, -0.03, -0.01, -0.005, -0.3])
    assert len(widths) == 12
    spans = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2 and line.get_linewidth() == 1.6]
    np.testing.assert_allclose(spans[0], [-0.10, -0.06])
    assert len(spans) == 12
    marks = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D"]
    assert marks == pytest.approx([0.0, -0.01, 0.0, 0.002])  # silenced only: the others were not measured
    with pytest.raises(ValueError, match="trained model"):
        ablation_figure([row for row in rows if row.model != "trained"], "")


def test_history_is_read_from_the_log_and_drawn(tmp_path: Path) -> None:
    rows = [
        {"step": 5, "loss": 1.0},
        {"step": 10, "epoch": 1, "align/head1_lag_ms": 10.0, "align/head2_lag_ms": -5.0, "align/head1_entropy": 0.5},
        {"step": 20, "epoch": 2, "align/head1_lag_ms": 30.0, "align/head1_null_mass": 0.25},
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(json.dumps(row) for row in rows) + '\n{"step": 3')
    history = read_history(log)
    assert history == {
        (1, "lag_ms"): [(1, 10.0), (2, 30.0)],
        (2, "lag_ms"): [(1, -5.0)],
        (1, "null_mass"): [(2, 0.25)],
    }
    assert read_history(tmp_path / "none.jsonl") == {}
    lags, nulls = history_figure(history, "").axes
    np.testing.assert_array_equal(lags.lines[0].get_xydata(), [[1, 10], [2, 30]])
    np.testing.assert_array_equal(lags.lines[1].get_xydata(), [[1, -5]])
    np.testing.assert_array_equal(nulls.lines[0].get_xydata(), [[2, 0.25]])
    with pytest.raises(ValueError, match="none"):
        history_figure({}, "")


def test_many_heads_are_told_apart_by_color_and_marker() -> None:
    lines = history_figure(planted_history(heads=12), "").axes[0].lines
    assert len({(line.get_color(), line.get_marker()) for line in lines[:12]}) == 12


@pytest.mark.parametrize("name", ["summary", "slopes", "ablation", "history"])
def test_pictures_are_written_as_pixels_and_vectors(tmp_path: Path, name: str) -> None:
    figure = drawn(name)
    for suffix in ("png", "svg", "pdf"):
        save_figure(figure, tmp_path / f"{name}.{suffix}")
    with Image.open(tmp_path / f"{name}.png") as picture:
        assert picture.size[0] >= 600
    assert (tmp_path / f"{name}.svg").read_text().startswith("<?xml")
