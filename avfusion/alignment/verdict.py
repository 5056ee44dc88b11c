"""A head's figures in words, and only what they support.

The rules, in this order; every bound holds for the whole 95 % interval, so without an interval nothing is claimed:

- *idle*: silencing the head moves AP by no more than 0.005 either way. Said first: what an idle head attends to
  explains no score.
- *mostly null*: more than 0.8 of its attention in speaking frames is on the null key. Its lag is then not described.
- *follows the sound*: slope above 0.5, R² at least 0.9, where true event times exist the head meets them better than
  one constant lag, and the same head of the untrained model does not have such a slope and R². The lag is said with it.
- *moves with the sound, but ...*: slope and R² as above, and one of the other two conditions fails; it is named.
- *positional*: slope within ±0.2: the head attends to a fixed lag whatever is heard there.
- *undecided*: all else, with the slope and its interval.

ΔAP is that of silencing the head; *not told from 0* where its interval holds 0. A model that was not trained is
described without any of the claims above "positional", and a control by its null mass alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from avfusion.alignment.columns import NOTHING, Measured, number_text
from avfusion.alignment.pictures.clip import MOSTLY_NULL

TRAINED, UNTRAINED = "trained", "untrained"
FOLLOWS = "follows the sound"

MIN_SLOPE = 0.5
MIN_R2 = 0.9
POSITIONAL_SLOPE = 0.2
IDLE_AP = 0.005

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
    heard = f"null {_percent(null)}" if null.known else "nothing measured"
    if model != UNTRAINED:
        return f"control: {heard}"
    slope, r2 = figures.get("slope", NOTHING), figures.get("slope_r2", NOTHING)
    if null.above(MOSTLY_NULL):
        return f"untrained: mostly null ({heard})"
    if not slope.known:
        return f"untrained: {heard}"
    name = "positional, " if slope.within(-POSITIONAL_SLOPE, POSITIONAL_SLOPE) else ""
    return f"untrained: {name}slope {number_text(slope.value, 2)}, R² {number_text(r2.value, 2)}"


def moves_with_sound(figures: Figures) -> bool:
    """Whether slope and R² pass, intervals included."""
    r2 = figures.get("slope_r2", NOTHING)
    return figures.get("slope", NOTHING).above(MIN_SLOPE) and r2.has_interval and r2.low >= MIN_R2


def _behaviour(figures: Figures, untrained: Figures | None) -> str:
    """What the head attends to."""
    null, slope = figures.get("null_speaking", NOTHING), figures.get("slope", NOTHING)
    r2, gain = figures.get("slope_r2", NOTHING), figures.get("event_gain_ms", NOTHING)
    if null.above(MOSTLY_NULL):
        return f"mostly null ({_percent(null)} in speech)"
    if not slope.known:
        return "slope not measured"
    line = f"slope {number_text(slope.value, 2)}"
    if slope.within(-POSITIONAL_SLOPE, POSITIONAL_SLOPE):
        return f"positional ({line})"
    line += f", R² {number_text(r2.value, 2)}"
    if not moves_with_sound(figures):
        ends = f", {number_text(slope.low, 2)}..{number_text(slope.high, 2)}" if slope.has_interval else ", no interval"
        return f"undecided ({line}{ends})"
    if gain.known and not gain.above(0.0):
        return f"moves with the sound ({line}), but meets true times no better than a constant lag"
    if untrained is None:
        return f"moves with the sound ({line}), but is not compared with an untrained head"
    if moves_with_sound(untrained):
        without = number_text(untrained["slope"].value, 2)
        return f"moves with the sound ({line}), but so does the untrained head (slope {without})"
    return f"{FOLLOWS} ({line}){_after(figures.get('lag_ms', NOTHING))}"


def _after(lag: Measured) -> str:
    if not lag.known:
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
        return f"{said}, no interval"
    if delta.within(-IDLE_AP, IDLE_AP):
        return f"idle ({said})"
    return said if delta.high < 0 or delta.low > 0 else f"{said}, not told from 0"


def _percent(share: Measured) -> str:
    return f"{100 * share.value:.0f} %"
