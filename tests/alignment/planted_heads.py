"""Four heads with figures chosen by hand: the first follows the sound, then positional, mostly null, undecided."""

from __future__ import annotations

import numpy as np

from avfusion.alignment.columns import Measured
from avfusion.alignment.measures.slope import SlopeFit
from avfusion.alignment.pictures.summary import Condition

LAGS_S = np.arange(-50, 51) / 100
SHIFTS_MS = np.arange(-200.0, 201.0, 40.0)


def triple(value: float, half: float) -> np.ndarray:
    return np.array([value, value - half, value + half])


def planted_measures(layers: int = 1) -> dict[str, dict[str, np.ndarray]]:
    """Trained, untrained, and one control; ``(L, H = 4, 3)`` each."""

    def columns(**values: list[tuple[float, float]]) -> dict[str, np.ndarray]:
        return {
            name: np.repeat(np.stack([triple(*one) for one in of_heads])[None], layers, axis=0)
            for name, of_heads in values.items()
        }

    trained = columns(
        slope=[(0.97, 0.02), (0.02, 0.03), (0.9, 0.05), (0.35, 0.1)],
        slope_r2=[(0.99, 0.005), (0.1, 0.1), (0.97, 0.02), (0.7, 0.1)],
        delta_ap_zero=[(-0.08, 0.02), (-0.01, 0.02), (0.0, 0.002), (0.02, 0.01)],
        delta_ap_uniform=[(-0.07, 0.02), (-0.005, 0.01), (0.001, 0.002), (0.01, 0.01)],
        delta_ap_only=[(-0.03, 0.02), (-0.3, 0.05), (-0.35, 0.05), (-0.2, 0.05)],
        lag_ms=[(62.0, 5.0), (80.0, 1.0), (-20.0, 30.0), (10.0, 10.0)],
        lag_iqr_ms=[(40.0, 5.0), (10.0, 2.0), (400.0, 30.0), (300.0, 20.0)],
        lift_100=[(4.0, 0.2), (4.5, 0.2), (1.2, 0.1), (1.5, 0.1)],
        width_ms=[(45.0, 5.0), (20.0, 2.0), (200.0, 20.0), (150.0, 10.0)],
        null_speaking=[(0.1, 0.02), (0.05, 0.01), (0.93, 0.02), (0.4, 0.05)],
        null_silent=[(0.8, 0.02), (0.05, 0.01), (0.95, 0.02), (0.5, 0.05)],
        event_mae_ms=[(24.0, 3.0), (70.0, 5.0), (90.0, 9.0), (71.0, 5.0)],
        event_constant_ms=[(68.0, 3.0), (68.0, 5.0), (80.0, 9.0), (70.0, 5.0)],
        event_best_ms=[(66.0, 3.0), (66.0, 3.0), (66.0, 3.0), (66.0, 3.0)],
        event_gain_ms=[(42.0, 4.0), (-2.0, 3.0), (-10.0, 5.0), (-1.0, 3.0)],
    )
    untrained = columns(
        slope=[(0.05, 0.03), (0.01, 0.03), (0.02, 0.03), (0.3, 0.05)],
        slope_r2=[(0.3, 0.2), (0.1, 0.1), (0.1, 0.1), (0.95, 0.02)],
        delta_ap_zero=[(0.0, 0.004), (-0.01, 0.02), (0.0, 0.002), (0.002, 0.01)],
        lag_ms=[(2.0, 5.0), (-30.0, 1.0), (3.0, 30.0), (0.0, 10.0)],
        lag_iqr_ms=[(20.0, 5.0)] * 4,
        lift_100=[(1.5, 0.1)] * 4,
        width_ms=[(280.0, 5.0)] * 4,
        null_speaking=[(0.01, 0.005)] * 4,
    )
    control = columns(lag_ms=[(5.0, 20.0)] * 4, width_ms=[(250.0, 9.0)] * 4, null_speaking=[(0.85, 0.02)] * 4)
    return {"trained": trained, "untrained": untrained, "other_sound": control}


def planted_figures() -> dict[str, Measured]:
    """Of a head that follows the sound."""
    return {name: Measured(*array[0, 0]) for name, array in planted_measures()["trained"].items()}


def planted_conditions(layers: int = 1) -> list[Condition]:
    """Head 1 hears +60 ms when the face speaks; the others are spread out, whatever is heard."""
    heads = 4

    def condition(name: str, lags: list[float], widths: list[float], null: list[float]) -> Condition:
        maps = np.stack(
            [np.exp(-((LAGS_S - lag) ** 2) / (2 * width**2)) for lag, width in zip(lags, widths, strict=True)]
        )
        maps *= (1 - np.array(null))[:, None] / maps.sum(axis=1, keepdims=True)
        return Condition(name, np.repeat(maps[None], layers, axis=0), np.tile(null, (layers, 1)))

    assert heads == 4
    spread = [0.05, 0.02, 0.2, 0.15]
    return [
        condition("speaking", [0.06, 0.08, 0.0, 0.01], spread, [0.1, 0.05, 0.93, 0.4]),
        condition("silent", [0.0, 0.08, 0.0, 0.01], [0.2, 0.02, 0.2, 0.15], [0.8, 0.05, 0.95, 0.5]),
        condition("other sound", [0.0, 0.08, 0.0, 0.01], [0.2, 0.02, 0.2, 0.15], [0.8, 0.05, 0.95, 0.5]),
        condition("no sound", [0.0, 0.08, 0.0, 0.0], [0.3, 0.02, 0.3, 0.3], [0.99, 0.05, 0.99, 0.9]),
        condition("reversed", [0.0, 0.08, 0.0, 0.01], [0.2, 0.02, 0.2, 0.15], [0.7, 0.05, 0.95, 0.5]),
        condition("frozen face", [0.0, 0.08, 0.0, 0.01], [0.25, 0.02, 0.2, 0.15], [0.6, 0.05, 0.95, 0.5]),
        condition("untrained", [0.0, -0.03, 0.0, 0.0], [0.28, 0.25, 0.3, 0.27], [0.01, 0.01, 0.01, 0.01]),
    ]


def planted_fits(layers: int = 1) -> dict[str, SlopeFit]:
    """Slopes 0.97, 0.02, 0.9 and 0.35 of the trained model; 0.05, 0.01, 0.02 and 0.3 without training; ±9 ms."""
    wave = 4 * np.sin(np.arange(len(SHIFTS_MS)))

    def fit(slopes: list[float], intercepts: list[float]) -> SlopeFit:
        slope, intercept = np.tile(slopes, (layers, 1)), np.tile(intercepts, (layers, 1))
        lag = intercept + slope * SHIFTS_MS[:, None, None] + wave[:, None, None]
        with_ends = [np.stack([v, v - half, v + half], -1) for v, half in ((lag, 9), (slope, 0.02), (intercept, 5))]
        return SlopeFit(SHIFTS_MS, *with_ends, np.ones((*slope.shape, 3)), 1000, 40, 30)

    return {
        "trained": fit([0.97, 0.02, 0.9, 0.35], [62.0, 80.0, -20.0, 10.0]),
        "untrained": fit([0.05, 0.01, 0.02, 0.3], [2.0, -30.0, 3.0, 0.0]),
    }


def planted_history(heads: int = 4, epochs: int = 6) -> dict[tuple[int, str], list[tuple[float, float]]]:
    """Head k goes to a lag of 20 k ms; widths shrink; null masses part."""
    history = {}
    for head in range(1, heads + 1):
        for name, start, end in (
            ("lag_ms", 0.0, 20.0 * head), ("width_ms", 290.0, 60.0 * head), ("null_mass", 0.02, 0.1 * head),
            ("null_mass_silent", 0.02, 0.2 * head),
        ):  # fmt: skip
            history[head, name] = [(e, start + (end - start) * e / epochs) for e in range(1, epochs + 1)]
    return history
