"""Cells, differences and balance of a benchmark's table, from numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.evaluation.comparison import Contender, Figure, balance, compare, interval_of_difference
from avfusion.evaluation.comparison_text import balance_table, difference_table, main_table, verdicts


def contender(name, values, trained=True, minutes=None):
    """One column ``dub``; values by seed."""
    runs = {seed: {"dub": Figure(value, (value - 0.04, value + 0.02))} for seed, value in values.items()}
    return Contender(name, trained, runs, minutes or {})


FULL = contender("full", {"0": 0.90, "1": 0.92, "2": 0.94}, minutes={"0": 4.0, "1": 5.0})
CLOSE = contender("one_head", {"0": 0.91, "1": 0.90, "2": 0.92})
AHEAD = contender("video", {"0": 0.95, "1": 0.95, "2": 0.95})
ENERGY = contender("energy", {"": 0.5}, trained=False)


def test_a_trained_cell_is_the_spread_of_the_seeds_and_another_the_bootstrap():
    assert FULL.cell("dub").mean == pytest.approx(0.92)
    assert FULL.cell("dub").half_width == pytest.approx(4.302653 * 0.02 / 3**0.5, abs=1e-6)
    assert ENERGY.cell("dub").mean == 0.5
    assert ENERGY.cell("dub").half_width == pytest.approx(0.03)  # 0.46 .. 0.52


def test_the_main_table_by_hand():
    assert main_table([FULL, ENERGY], ["dub"], {"dub": 0.3}).splitlines() == [
        "|  | dub | minutes |",
        "| --- | --- | --- |",
        "| full | 0.920 ± 0.050 | 4.5 |",
        "| energy | 0.500 ± 0.030 | - |",
        "| chance | 0.300 | - |",
    ]


def test_differences_by_hand():
    # full - one_head: -0.01, 0.02, 0.02; mean 0.01, deviation 0.01732, half width 4.303 * 0.01 = 0.0430.
    close = compare(FULL, CLOSE, "dub", (0.001, 0.02))
    assert close.over_seeds.mean == pytest.approx(0.01)
    assert close.over_seeds.half_width == pytest.approx(0.04302653, abs=1e-6)
    assert not close.clear
    # full - 0.5: 0.40, 0.42, 0.44.
    energy = compare(FULL, ENERGY, "dub", (0.35, 0.5))
    assert energy.over_seeds.mean == pytest.approx(0.42)
    assert energy.clear
    assert not compare(FULL, ENERGY, "dub", (-0.01, 0.5)).clear  # other scenes might have said otherwise
    text = difference_table("full", [close, energy]).splitlines()
    assert text[0] == "| full minus | dub |"
    assert text[2:] == [
        "| one_head | +0.010 ± 0.043 (0.001..0.020) |",
        "| energy | +0.420 ± 0.050 (0.350..0.500) |",
    ]


def test_verdicts_say_who_is_ahead_who_is_close_and_who_is_not():
    close, energy, ahead = (compare(FULL, other, "dub", (0.001, 0.9)) for other in (CLOSE, ENERGY, AHEAD))
    assert verdicts("full", [energy]) == [
        "dub: full is on average ahead of every other row, clear of all intervals; nearest energy (+0.420 ± 0.050)"
    ]
    assert verdicts("full", [energy, close]) == [
        "dub: full is on average ahead of every other row; within an interval of one_head (+0.010 ± 0.043)"
    ]
    assert verdicts("full", [energy, close, ahead]) == [
        "dub: full is NOT on average ahead of every other row; not of video (-0.030 ± 0.050); "
        "within an interval of one_head (+0.010 ± 0.043)"
    ]


def test_the_interval_of_a_difference_draws_the_same_scenes_for_both():
    # Both sides score alike: whatever scenes are drawn, the difference is 0, though either AP moves a lot.
    generator = np.random.default_rng(0)
    labels, scores = generator.random(60) < 0.4, generator.random(60)
    groups = np.repeat(np.arange(6), 10)
    assert interval_of_difference(labels, [scores], [2 * scores + 1], groups, 50) == (0.0, 0.0)
    # A perfect side is ahead of it by 1 - AP in every draw.
    low, high = interval_of_difference(labels, [labels.astype(float)] * 2, [scores], groups, 50)
    assert 0 < low < high < 1
    assert interval_of_difference(labels, [scores], [scores], np.zeros(60), 50) is None


def test_balance_by_hand():
    values = np.array([2.0, 4.0, 1.0, 3.0])
    found = balance(values, np.array([True, True, False, False]), np.array(["a", "b", "a", "b"]), resamples=200)
    assert (found.heard, found.unheard, found.ratio) == (3.0, 2.0, 1.5)
    assert (found.num_heard, found.num_unheard) == (2, 2)
    assert found.interval == (pytest.approx(4 / 3), 2.0)  # scene b alone 4 / 3, scene a alone 2 / 1
    assert balance(values, np.ones(4, bool), np.arange(4)) is None
    text = balance_table({("dub", "sound rms"): (found, "own"), ("turns", "sound rms"): (None, "own")})
    assert text.splitlines()[2:] == [
        "| dub | sound rms | 3 | 2 | 1.500 | (1.333..2.000) | 2 / 2 | own |",
        "| turns | sound rms | - | - | - | - | - | own |",
    ]
