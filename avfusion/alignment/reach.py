"""Which keys a frame's attention can reach: as far back as the window, and of a causal model not as far ahead.

Keys are told at 100 Hz (:data:`AUDIO_HZ`). Where the model's own are coarser, the 10 ms within one are in reach or out
of it together, as its first one is. Lag is the time of the key minus the time of the frame, in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import AUDIO_HZ
from avfusion.config import ModelConfig
from avfusion.models.reach import look_ahead
from avfusion.models.window import TOLERANCE_S

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class KeyReach:
    """How far from its frame a key may be.

    Attributes:
        before_s: seconds before the frame; None for any.
        after_s: seconds after it; None for any.
        key_hz: keys a second that the model attends to; 100 is a multiple of it.
    """

    before_s: float | None = None
    after_s: float | None = None
    key_hz: int = AUDIO_HZ

    @classmethod
    def within(cls, window_s: float | None) -> KeyReach:
        """As far before the frame as after it."""
        return cls(window_s, window_s)

    @classmethod
    def of(cls, model: ModelConfig) -> KeyReach:
        """That of a model's fusion layers."""
        window_s, ahead_s = model.fusion.window_s, look_ahead(model).fusion_s
        return cls(window_s, window_s if ahead_s is None else ahead_s, model.fusion.key_hz)

    @property
    def keys_before(self) -> int | None:
        """The same in keys of 10 ms; None for all."""
        return None if self.before_s is None else self._steps(self.before_s) * self._coarseness

    @property
    def keys_after(self) -> int | None:
        """As :attr:`keys_before`."""
        return None if self.after_s is None else (self._steps(self.after_s) + 1) * self._coarseness - 1

    @property
    def farthest(self) -> int | None:
        """The larger one of both; None where one side has no end."""
        before, after = self.keys_before, self.keys_after
        return None if before is None or after is None else max(before, after)

    def holds(self, lag_s: Floats) -> NDArray[np.bool_]:
        """Which lags are in reach, by the model's own rule.

        To a microsecond, so that a window of 0.5 s holds the key at 0.5 s whatever its last binary digit.
        """
        if self.key_hz < AUDIO_HZ:
            lag_s = np.floor(lag_s * self.key_hz + 1e-6) / self.key_hz
        first = -math.inf if self.before_s is None else -self.before_s - TOLERANCE_S
        last = math.inf if self.after_s is None else self.after_s + TOLERANCE_S
        return np.asarray((lag_s >= first) & (lag_s <= last))

    @property
    def _coarseness(self) -> int:
        return AUDIO_HZ // self.key_hz

    def _steps(self, seconds: float) -> int:
        return math.floor((seconds + TOLERANCE_S) * self.key_hz)

    def __str__(self) -> str:
        """``-0.5..0.15 s``."""
        before = "any" if self.before_s is None else f"{-self.before_s:g}"
        return f"{before}..{'any' if self.after_s is None else f'{self.after_s:g}'} s"


EVERYWHERE = KeyReach()
