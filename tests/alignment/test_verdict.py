"""The words say what the figures support and nothing beyond, on both sides of every border."""

from __future__ import annotations

import pytest

from avfusion.alignment.columns import Measured, number_text
from avfusion.alignment.verdict import in_words
from tests.alignment.planted_heads import planted_figures

FIXED = {"lag_iqr_ms": Measured(20.0, 10.0, 30.0), "lift_100": Measured(3.0, 2.8, 3.2)}
PLAIN = {"slope": Measured(0.05, 0.02, 0.08), "slope_r2": Measured(0.4, 0.2, 0.6), **FIXED}  # an untrained head


def words(model: str = "trained", untrained: dict[str, Measured] | None = PLAIN, **changes: Measured) -> str:
    return in_words(model, {**planted_figures(), **changes}, untrained)


def test_a_head_that_follows() -> None:
    assert words() == "follows the sound (slope 0.97, R² 0.99), 62 ms after the picture, ΔAP −0.08"
    assert "12 ms before the picture" in words(lag_ms=Measured(-12.4, -20, -5))
    assert "with the picture" in words(lag_ms=Measured(0.3, -4, 4))


def test_a_lag_is_said_where_it_is_known_within_100_ms() -> None:
    assert "60 ms after" in words(lag_ms=Measured(60.0, 10.0, 109.9))
    for vague in (Measured(60.0, 10.0, 110.0), Measured(60.0)):
        assert words(lag_ms=vague) == "follows the sound (slope 0.97, R² 0.99), ΔAP −0.08"


def test_a_positional_and_an_idle_head() -> None:
    nothing = Measured(0.0, -0.004, 0.004)
    still = Measured(0.02, -0.01, 0.05)
    assert words(slope=still) == "positional (slope 0.02), ΔAP −0.08"
    assert words(slope=still, delta_ap_zero=nothing) == "idle (ΔAP 0.000), positional (slope 0.02)"
    assert words(delta_ap_zero=nothing).startswith("idle (ΔAP 0.000), follows the sound")


@pytest.mark.parametrize(
    ("slope", "found"),
    [
        (Measured(0.6, 0.501, 0.7), "follows the sound"),
        (Measured(1.2, 1.1, 1.49), "follows the sound"),
        (Measured(1.2, 1.1, 1.5), "undecided (slope 1.20, R² 0.99, 1.10..1.50)"),
        (Measured(0.6, 0.5, 0.7), "undecided (slope 0.60, R² 0.99, 0.50..0.70)"),
        (Measured(0.1, -0.2, 0.2), "positional (slope 0.10)"),
        (Measured(0.1, -0.21, 0.2), "undecided"),
        (Measured(0.1, -0.2, 0.21), "undecided"),
        (Measured(-0.5, -0.6, -0.4), "undecided (slope −0.50, R² 0.99, −0.60..−0.40)"),
        (Measured(0.97), "undecided (slope 0.97, R² 0.99, no interval)"),
        (Measured(0.01), "undecided (slope 0.01, R² 0.99, no interval)"),
        (Measured(), "slope not measured"),
    ],
)
def test_borders_of_the_slope(slope: Measured, found: str) -> None:
    assert words(slope=slope).startswith(found)


def test_borders_of_r2() -> None:
    assert words(slope_r2=Measured(0.95, 0.9, 0.99)).startswith("follows")
    assert words(slope_r2=Measured(0.95, 0.899, 0.99)).startswith("undecided")
    assert words(slope_r2=Measured(0.95)).startswith("undecided")


def test_true_times_must_be_met_where_there_are_any() -> None:
    no_better = "moves with the sound (slope 0.97, R² 0.99), but meets true times no better than one constant lag"
    assert words(event_gain_ms=Measured()).startswith("follows")
    assert words(event_gain_ms=Measured(10.0, 0.1, 20.0)).startswith("follows")
    assert words(event_gain_ms=Measured(10.0, 0.0, 20.0)).startswith(no_better)
    assert words(event_gain_ms=Measured(10.0)).startswith(no_better)


def test_the_untrained_head_must_not_do_the_same() -> None:
    passes = {"slope": Measured(0.9, 0.6, 1.0), "slope_r2": Measured(0.95, 0.92, 0.99)}
    assert "but so does the untrained head (slope 0.90)" in words(untrained=passes)
    assert words(untrained={**passes, "slope": Measured(0.4, 0.3, 0.49)}).startswith("follows")
    assert words(untrained={**passes, "slope_r2": Measured(0.8, 0.7, 0.89)}).startswith("follows")
    assert "but is not compared with an untrained head" in words(untrained=None)


@pytest.mark.parametrize(
    "untrained",
    [
        {"slope": Measured(0.9, 0.5, 1.0), "slope_r2": Measured(0.95, 0.92, 0.99)},
        {"slope": Measured(0.9, 0.6, 1.0), "slope_r2": Measured(0.95, 0.89, 0.99)},
        {"slope": Measured(0.3, 0.1, 0.5), "slope_r2": Measured(0.8, 0.6, 0.9)},
        {"slope": Measured(0.05), "slope_r2": Measured(0.1)},
        {"slope": Measured(), "slope_r2": Measured()},
        {},
    ],
)
def test_an_untrained_head_that_may_do_the_same_is_no_evidence(untrained: dict[str, Measured]) -> None:
    expected = "moves with the sound (slope 0.97, R² 0.99), but not told from the untrained head"
    assert words(untrained=untrained).startswith(expected)


def test_positional_needs_a_fixed_lag() -> None:
    still = {**FIXED, "slope": Measured(0.0, -0.01, 0.01)}
    assert words(**still).startswith("positional (slope 0.00)")
    assert words(**{**still, "lag_iqr_ms": Measured(140, 130, 149)}).startswith("positional")
    wide = words(**{**still, "lag_iqr_ms": Measured(1300, 1250, 1350)})
    assert wide == "does not move with the sound (slope 0.00), lag spread over 1300 ms, ΔAP −0.08"
    equal = {**still, "lag_iqr_ms": Measured(0, 0, 0), "lift_100": Measured(1.0, 1.0, 1.0 + 1e-9)}
    said = "does not move with the sound (slope 0.00), attention spread as if its weights were equal"
    assert words(**equal).startswith(said)
    unknown = {**still, "lift_100": Measured()}
    assert words(**unknown).startswith("does not move with the sound (slope 0.00), no fixed lag shown")
    assert in_words("untrained", {**PLAIN, **equal}) == "untrained: slope 0.00, R² 0.40"


def test_null_mass_comes_before_the_slope() -> None:
    assert words(null_speaking=Measured(0.9, 0.81, 0.95)) == "mostly null (90 % in speech), ΔAP −0.08"
    assert words(null_speaking=Measured(0.9, 0.8, 0.95)).startswith("follows")


@pytest.mark.parametrize(
    ("delta", "said"),
    [
        (Measured(-0.0823, -0.1, -0.06), "ΔAP −0.08"),
        (Measured(-0.006, -0.009, -0.0001), "ΔAP −0.006"),
        (Measured(0.02, 0.01, 0.03), "ΔAP +0.02"),
        (Measured(-0.02, -0.05, 0.01), "ΔAP −0.02, not told from 0"),
        (Measured(-0.02, -0.05, 0.0), "ΔAP −0.02, not told from 0"),
        (Measured(-0.0044, -0.00501, 0.001), "ΔAP −0.004, not told from 0"),
        (Measured(-0.02), "ΔAP −0.02, not told from 0 (no interval)"),
    ],
)
def test_importance(delta: Measured, said: str) -> None:
    assert words(delta_ap_zero=delta).endswith(f"picture, {said}")


def test_idle_up_to_the_border() -> None:
    assert words(delta_ap_zero=Measured(-0.001, -0.005, 0.005)).startswith("idle (ΔAP −0.001)")
    assert words(delta_ap_zero=Measured()).endswith("62 ms after the picture")


@pytest.mark.parametrize("slope", [0.0, 0.3, 0.97, 1.0])
@pytest.mark.parametrize("null", [0.0, 0.5, 0.95])
def test_no_untrained_model_and_no_control_reads_as_alignment(slope: float, null: float) -> None:
    sure = {"slope": Measured(slope, slope, slope), "null_speaking": Measured(null, null, null)}
    for model in ("untrained", "other_sound", "silence", "reversed_sound", "frozen_picture"):
        said = words(model, **sure)
        assert said.startswith("untrained: " if model == "untrained" else "control: ")
        assert "follows" not in said
        assert "moves with" not in said
        assert "ΔAP" not in said


def test_words_of_untrained_models_and_controls() -> None:
    assert in_words("untrained", PLAIN) == "untrained: positional, slope 0.05, R² 0.40"
    assert in_words("untrained", {"null_speaking": Measured(0.9, 0.85, 0.95)}) == "untrained: mostly null (null 90 %)"
    assert in_words("silence", {"null_speaking": Measured(0.99)}) == "control: null 99 %"
    assert in_words("silence", {"lag_ms": Measured(12.4)}) == "control: lag +12 ms"  # a model without a null key
    assert in_words("silence", {}) == "control: nothing measured"


def test_numbers_as_they_are_printed() -> None:
    assert number_text(-0.0004, 3) == "0.000"
    assert number_text(-0.0004, 3, signed=True) == "0.000"
    assert number_text(61.6, 0, signed=True) == "+62"
    assert number_text(-0.08, 2) == "−0.08"
    assert number_text(float("nan"), 2) == "-"
