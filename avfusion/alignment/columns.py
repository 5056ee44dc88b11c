"""The figures of a head by name: what each column of ``heads.csv`` means, in which unit and with how many digits.

A figure is a value with its 95 % interval (bootstrap over groups of tracks). NaN stands for "not measured": no event
times, no speech, no interval because there are fewer than ten groups. Shapes: ``L`` fusion layers, ``H`` heads;
``(L, H, 3)`` arrays hold value, low and high.

Source: DESIGN section 8, "Per head".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Measures = Mapping[str, Floats]  # name of a column to (L, H, 3)


@dataclass(frozen=True)
class Measured:
    """A figure and its 95 % interval; NaN where there is none."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return math.isfinite(self.value)

    @property
    def has_interval(self) -> bool:
        """Whether there are both ends of an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def above(self, bound: float) -> bool:
        """The whole interval is above the bound; False without an interval."""
        return self.has_interval and self.low > bound

    def below(self, bound: float) -> bool:
        """The whole interval is below the bound; False without an interval."""
        return self.has_interval and self.high < bound

    def within(self, low: float, high: float) -> bool:
        """The whole interval is inside ``low..high``, ends included; False without an interval."""
        return self.has_interval and self.low >= low and self.high <= high


NOTHING = Measured()


@dataclass(frozen=True)
class Column:
    """One figure of the table: its unit, the digits that are printed, and what it is."""

    unit: str
    digits: int
    meaning: str


COLUMNS: dict[str, Column] = {
    "slope": Column("", 2, "how far the lag moves when the sound is moved by 1 ms: 0 positional, 1 follows the sound"),
    "slope_r2": Column("", 2, "share of the lag's movement that the straight line explains"),
    "intercept_ms": Column("ms", 0, "lag of that line where the sound is not moved"),
    "delta_ap_zero": Column("", 3, "AP with the head silenced, minus AP of the whole model"),
    "delta_ap_uniform": Column("", 3, "the same with equal attention over its window"),
    "delta_ap_only": Column("", 3, "the same with every other head of the model silenced"),
    "event_mae_ms": Column("ms", 0, "mean absolute error of the lag at sounds whose time is exactly known"),
    "event_constant_ms": Column("ms", 0, "the same error of one constant lag, the head's own median"),
    "event_best_ms": Column("ms", 0, "the same error of the best constant lag, the median of the true ones"),
    "event_gain_ms": Column(
        "ms", 0, "how much smaller the head's error is than the better one of these two constants'"
    ),
    "event_within_20": Column("", 2, "share of these sounds met within ±20 ms"),
    "event_within_40": Column("", 2, "within ±40 ms"),
    "event_within_100": Column("", 2, "within ±100 ms"),
    "peak_mae_ms": Column("ms", 0, "mean absolute error of the lag of the heaviest key"),
    "lag_ms": Column("ms", 0, "median lag over speaking frames; positive: sound after the picture"),
    "lag_iqr_ms": Column("ms", 0, "interquartile range of that lag"),
    "width_ms": Column("ms", 0, "standard deviation of the attended times, median over speaking frames"),
    "entropy": Column("", 2, "entropy over that of equal weights"),
    "mass_20": Column("", 2, "share of the attention within ±20 ms of the head's median lag"),
    "mass_40": Column("", 2, "within ±40 ms"),
    "mass_100": Column("", 2, "within ±100 ms"),
    "lift_20": Column("", 2, "that share over the share of equal weights, ±20 ms"),
    "lift_40": Column("", 2, "±40 ms"),
    "lift_100": Column("", 2, "±100 ms"),
    "null_speaking": Column("", 2, "attention on the null key in speaking frames"),
    "null_silent": Column("", 2, "in the other frames"),
    "null_off_screen": Column(
        "", 2, "in silent frames of the roles off_screen, still_face, moving_face: another's voice"
    ),
    "null_auroc": Column("", 2, "how well the null mass alone tells frames that do not speak"),
    "selectivity": Column("", 2, "ln(mean weight on speech / mean weight on other sound)"),
    "redundancy": Column("nats", 2, "Jensen-Shannon divergence from the most similar head of the layer; 0: the same"),
    "lag_weighted_ms": Column("ms", 0, "median lag of the weights times the norm of what each sound adds"),
    "width_weighted_ms": Column("ms", 0, "width of the same"),
    "mass_weighted_20": Column("", 2, "share of the same within ±20 ms"),
    "mass_weighted_40": Column("", 2, "±40 ms"),
    "mass_weighted_100": Column("", 2, "±100 ms"),
    "probe_target_r2": Column("", 2, "R² with which the head's output tells the loudness of the face's own voice"),
    "probe_interferer_r2": Column("", 2, "and that of the other voice heard at the same time"),
    "probe_difference": Column("", 2, "the first minus the second"),
}


def text_of(name: str, figure: Measured, *, signed: bool = False) -> str:
    """A figure with its digits, a real minus sign, and a dash where it is not known."""
    return number_text(figure.value, COLUMNS[name].digits, signed=signed)


def number_text(value: float, digits: int, *, signed: bool = False) -> str:
    """A number as it is printed: ``−0.08``, ``+62``; no minus before zero; a dash for NaN."""
    if not math.isfinite(value):
        return "-"
    rounded = round(value, digits) + 0.0  # −0.0 becomes 0.0
    return f"{rounded:{'+' if signed and rounded else ''}.{digits}f}".replace("-", "−")


def measured(value: Floats, interval: Floats | None = None) -> Floats:
    """Joins ``(L, H)`` values with ``(2, L, H)`` ends of intervals to ``(L, H, 3)``; NaN ends where there are none."""
    values = np.asarray(value, dtype=np.float64)
    ends = np.full((2, *values.shape), np.nan) if interval is None else np.asarray(interval, dtype=np.float64)
    return np.stack([values, ends[0], ends[1]], axis=-1)
