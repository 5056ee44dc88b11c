"""The pictures show the numbers of the rows, at their places, with the lines to compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from avfusion.robustness.charts import desync_figure, robustness_figure
from avfusion.robustness.conditions import FAMILIES


def ap_row(family: str, severity: float | None, ap: float) -> dict[str, Any]:
    return {
        "family": family, "severity": severity, "average_precision": ap, "clean_average_precision": 0.9,
        "change_interval": [ap - 0.9 - 0.05, ap - 0.9 + 0.02],
    }  # fmt: skip


def test_a_panel_for_each_family_with_clean_ap_and_chance() -> None:
    rows = [
        ap_row(family.name, severity, 0.8 - 0.1 * step)
        for family in FAMILIES
        for step, severity in enumerate(family.severities or (None,))
    ]
    figure = robustness_figure(rows, clean=0.9, chance=0.25, title="a title")
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    assert set(panels) == {family.name for family in FAMILIES if family.severities} | {"missing throughout"}
    for family in FAMILIES:
        if family.severities:
            axes = panels[family.name]
            assert axes.lines[0].get_ydata() == pytest.approx([0.8 - 0.1 * i for i in range(len(family.severities))])
            shown = [label.get_text().replace("−", "-") for label in axes.get_xticklabels()]
            assert shown == [f"{severity:g}" for severity in family.severities]
    for axes in panels.values():
        levels = [float(line.get_ydata()[0]) for line in axes.lines if len(line.get_ydata()) == 2]
        assert {0.9, 0.25} <= set(levels)
    bars = panels["blur"].collections[0].get_segments()[0]  # the interval of the change, seen from the clean AP
    assert bars[:, 1] == pytest.approx([0.75, 0.82])


def desync_row(family: str, severity: int | None, rate: float | None) -> dict[str, Any]:
    ends = None if rate is None else [rate - 0.1, rate + 0.1]
    return {
        "family": family, "severity": severity, "false_accept_rate": rate, "false_accept_rate_interval": ends,
        "own_sound_rate": None if rate is None else 0.94, "num_frames": 0 if rate is None else 7,
    }  # fmt: skip


def test_shifts_stand_in_order_around_the_own_sound_and_what_has_no_frames_is_left_out() -> None:
    rows = [desync_row("shifted sound", ms, rate) for ms, rate in ((-1600, None), (-80, 0.5), (80, 0.4), (1600, 0.2))]
    rows += [desync_row("another clip's sound", None, 0.3), desync_row("missing sound", None, 0.15)]
    axes = desync_figure(rows, 0.05, "a title").axes[0]
    names = [label.get_text().replace("−", "-") for label in axes.get_xticklabels()]
    assert names == ["-80", "0\n(own)", "+80", "+1600", "another\nclip's", "silence"]
    own, shifted = axes.lines[:2]
    assert own.get_ydata() == pytest.approx([94, 95, 94, 94])
    assert shifted.get_ydata() == pytest.approx([50, 95, 40, 20])
    points = [line for line in axes.lines[2:] if len(line.get_xdata()) == 1 and line.get_marker() == "o"]
    assert [float(np.ravel(point.get_ydata())[0]) for point in points] == pytest.approx([50, 95, 40, 20, 30, 15])
