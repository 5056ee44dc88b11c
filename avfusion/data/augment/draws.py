"""The chance of one example: everything that augmentation draws comes from (seed, epoch, track) and nothing else.

What has always been drawn comes from one generator in a fixed order (``main``). Every later option has a generator of
its own, named after it, so that turning an option on leaves all other draws of the clip as they were, and an option
that is off draws nothing. Workers, processes, memory and the order of reading have no part in it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np


class Draws:
    """The generators of one example.

    Args:
        entropy: whole numbers that name the example: seed, epoch, track.
    """

    def __init__(self, *entropy: int) -> None:
        self._entropy = list(entropy)
        self.main = np.random.default_rng(self._entropy)

    def of(self, option: str) -> np.random.Generator:
        """The generator of one option, from its beginning at every call."""
        key = (zlib.crc32(option.encode()),)
        return np.random.default_rng(np.random.SeedSequence(self._entropy, spawn_key=key))

    def chance(self, option: str, probability: float) -> np.random.Generator | None:
        """Decides whether an option is applied.

        Args:
            option: its name.
            probability: 0..1; at 0 nothing is drawn.

        Returns:
            The generator to draw its strength from, or None where the option is not applied.
        """
        if probability <= 0:
            return None
        rng = self.of(option)
        return rng if rng.random() < probability else None


def between(rng: np.random.Generator, ends: Sequence[float]) -> float:
    """A number drawn uniformly between two."""
    low, high = ends
    return float(rng.uniform(low, high))
