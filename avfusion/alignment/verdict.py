"""A head's figures in words, and only what they support.

The rules, in this order; every bound holds for the whole 95 % interval, so without an interval nothing is claimed:

- *idle*: silencing the head moves AP by no more than 0.005 either way. Said first: what an idle head attends to
  explains no score.
- *mostly null*: more than 0.8 of its attention in speaking frames is on the null key. Its lag is then not described.
- *follows the sound*: slope above 0.5 and below 1.5, R² at least 0.9; where true event times exist the head meets them
  better than any one constant lag; and the slope of the same head of the untrained model is below 0.5, or its R² below
  0.9. The lag is said with it where its interval is narrower than 100 ms.
- *moves with the sound, but ...*: slope and R² as above, and one of the other two conditions fails; it is named.
- *positional*: slope within ±0.2, interquartile range of the lag below 150 ms, and at least 1.1 times as much attention
  within ±100 ms of the head's lag as equal weights have there: it attends to a fixed lag whatever is heard there.
- *does not move with the sound*: slope within ±0.2, but without such a fixed lag; what is lacking is named.
- *undecided*: all else, with the slope and its interval.

ΔAP is that of silencing the head; *not told from 0* where its interval holds 0, or where it has none: below
:data:`MIN_GROUPS` groups of tracks no interval is kept. A model that was not trained is described without any of the
claims above "positional", and a control by its null mass alone, or by its lag where the model has no null key.
"""

from __future__ import annotations

from collections.abc import Mapping

from avfusion.alignment.columns import NOTHING, Measured, number_text
from avfusion.alignment.pictures.clip import MOSTLY_NULL

TRAINED, UNTRAINED = "trained", "untrained"
FOLLOWS = "follows the sound"

MIN_SLOPE, MAX_SLOPE = 0.5, 1.5
MIN_R2 = 0.9
POSITIONAL_SLOPE = 0.2
FIXED_IQR_MS = 150.0  # a lag that is spread wider is no fixed lag
FIXED_LIFT = 1.1  # equal weights have 1, give or take their rounding
LAG_SAID_MS = 100.0  # a lag whose interval is wider is not said
IDLE_AP = 0.005
MIN_GROUPS = 10  # a bootstrap over fewer says little of groups that it has not seen

Figures = Mapping[str, Measured]


def in_words(model: str, figures: Figures, untrained: Figures | None = None) -> str:
    """Describes one head.

    Args:
        model: :data:`TRAINED`, :data:`UNTRAINED`, or the name of a control.
        figures: of the head, by column.
        untrained: of the same head of the untrained model. None: not compared, and then no head of a trained model
            is said to follow the sound.
    """
    if model == TRAINED:
        importance = _importance(figures.get("delta_ap_zero", NOTHING))
        parts = [_behaviour(figures, untrained), importance]
        return ", ".join(part for part in (parts[::-1] if importance.startswith("idle") else parts) if part)
    null = figures.get("null_speaking", NOTHING)
    lag = figures.get("lag_ms", NOTHING)
    heard = f"null {_percent(null)}" if null.known else "nothing measured"
    if lag.known and not null.known:
        heard = f"lag {number_text(lag.value, 0, signed=True)} ms"
    if model != UNTRAINED:
        return f"control: {heard}"
    slope, r2 = figures.get("slope", NOTHING), figures.get("slope_r2", NOTHING)
    if null.above(MOSTLY_NULL):
        return f"untrained: mostly null ({heard})"
    if not slope.known:
        return f"untrained: {heard}"
    name = "positional, " if _stands_still(slope) and not _no_fixed_lag(figures) else ""
    return f"untrained: {name}slope {number_text(slope.value, 2)}, R² {number_text(r2.value, 2)}"


def moves_with_sound(figures: Figures) -> bool:
    """Whether slope and R² pass, intervals included."""
    slope, r2 = figures.get("slope", NOTHING), figures.get("slope_r2", NOTHING)
    return slope.above(MIN_SLOPE) and slope.below(MAX_SLOPE) and r2.has_interval and r2.low >= MIN_R2


def surely_does_not_move(figures: Figures) -> bool:
    """Whether slope or R² surely fails: a head that is undecided, or was not measured, may do it as well."""
    return figures.get("slope", NOTHING).below(MIN_SLOPE) or figures.get("slope_r2", NOTHING).below(MIN_R2)


def _stands_still(slope: Measured) -> bool:
    return slope.within(-POSITIONAL_SLOPE, POSITIONAL_SLOPE)


def _no_fixed_lag(figures: Figures) -> str:
    """What a head lacks to attend to a fixed lag; nothing where it does."""
    iqr, lift = figures.get("lag_iqr_ms", NOTHING), figures.get("lift_100", NOTHING)
    if iqr.has_interval and not iqr.below(FIXED_IQR_MS):
        return f"lag spread over {number_text(iqr.value, 0)} ms"
    if lift.has_interval and not lift.above(FIXED_LIFT):
        return "attention spread as if its weights were equal" if lift.below(FIXED_LIFT) else "attention spread"
    return "" if iqr.has_interval and lift.has_interval else "no fixed lag shown"


def _behaviour(figures: Figures, untrained: Figures | None) -> str:
    """What the head attends to."""
    null, slope = figures.get("null_speaking", NOTHING), figures.get("slope", NOTHING)
    r2, gain = figures.get("slope_r2", NOTHING), figures.get("event_gain_ms", NOTHING)
    if null.above(MOSTLY_NULL):
        return f"mostly null ({_percent(null)} in speech)"
    if not slope.known:
        return "slope not measured"
    line = f"slope {number_text(slope.value, 2)}"
    if _stands_still(slope):
        lacks = _no_fixed_lag(figures)
        return f"does not move with the sound ({line}), {lacks}" if lacks else f"positional ({line})"
    line += f", R² {number_text(r2.value, 2)}"
    if not moves_with_sound(figures):
        ends = f", {number_text(slope.low, 2)}..{number_text(slope.high, 2)}" if slope.has_interval else ", no interval"
        return f"undecided ({line}{ends})"
    if gain.known and not gain.above(0.0):
        return f"moves with the sound ({line}), but meets true times no better than one constant lag"
    if untrained is None:
        return f"moves with the sound ({line}), but is not compared with an untrained head"
    if moves_with_sound(untrained):
        without = number_text(untrained["slope"].value, 2)
        return f"moves with the sound ({line}), but so does the untrained head (slope {without})"
    if not surely_does_not_move(untrained):
        return f"moves with the sound ({line}), but not told from the untrained head"
    return f"{FOLLOWS} ({line}){_after(figures.get('lag_ms', NOTHING))}"


def _after(lag: Measured) -> str:
    if not (lag.has_interval and lag.high - lag.low < LAG_SAID_MS):
        return ""
    rounded = round(lag.value)
    if rounded == 0:
        return ", with the picture"
    return f", {abs(rounded)} ms {'after' if rounded > 0 else 'before'} the picture"


def _importance(delta: Measured) -> str:
    """What silencing the head does to AP."""
    if not delta.known:
        return ""
    # Three digits where two would print a difference as zero.
    said = f"ΔAP {number_text(delta.value, 2 if abs(delta.value) >= 0.0095 else 3, signed=True)}"
    if not delta.has_interval:
        return f"{said}, not told from 0 (no interval)"
    if delta.within(-IDLE_AP, IDLE_AP):
        return f"idle ({said})"
    return said if delta.high < 0 or delta.low > 0 else f"{said}, not told from 0"


def _percent(share: Measured) -> str:
    return f"{100 * share.value:.0f} %"
