"""What several seeds say together: mean and interval over trainings that differ in nothing but chance.

With ``n`` seeds of mean ``m`` and standard deviation ``s`` (divided by ``n - 1``), the 95 % interval of the mean is
``m ± t s / sqrt(n)``, ``t`` the 97.5 % quantile of Student's t with ``n - 1`` degrees of freedom (4.303 for three
seeds). It says how the figure moves from training to training on the same test scenes; how it would move with other
scenes is what :mod:`avfusion.evaluation.bootstrap` says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds.

    Attributes:
        mean: over the seeds.
        half_width: half the 95 % interval of the mean; None for a single seed.
        num_seeds: how many.
    """

    mean: float
    half_width: float | None
    num_seeds: int


def mean_over_seeds(values: Sequence[float], level: float = 0.95) -> SeedMean:
    """Mean of one figure per seed, with half its interval by Student's t.

    Args:
        values: one a seed, at least one.
        level: of the interval.

    Raises:
        ValueError: there are no values.
    """
    count = len(values)
    if count == 0:
        raise ValueError("a mean over seeds needs at least one value")
    mean = math.fsum(values) / count
    if count == 1:
        return SeedMean(mean, None, 1)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return SeedMean(mean, student_quantile(level, count - 1) * deviation / math.sqrt(count), count)


def difference_over_seeds(ours: Mapping[str, float], theirs: Mapping[str, float] | float) -> SeedMean:
    """Mean of the differences, ours minus theirs, seed by seed.

    Args:
        ours: figure by seed.
        theirs: figure by seed, of which the common seeds are paired; or one figure that has no seed.

    Raises:
        ValueError: there is no common seed.
    """
    if isinstance(theirs, Mapping):
        return mean_over_seeds([ours[seed] - theirs[seed] for seed in ours if seed in theirs])
    return mean_over_seeds([value - theirs for value in ours.values()])


def student_quantile(level: float, degrees: int) -> float:
    """The ``t`` within which ``|T|`` stays with probability ``level``; 4.3027 for 0.95 and 2 degrees of freedom.

    Args:
        level: above 0 and below 1.
        degrees: of freedom, at least 1.

    Raises:
        ValueError: a number out of range.
    """
    if not 0 < level < 1 or degrees < 1:
        raise ValueError(f"level {level} and {degrees} degrees of freedom, expected 0 < level < 1 and at least 1")
    # With t = sqrt(degrees) tan(angle) the interval's probability grows with the angle from 0 to 1: halve the range.
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        low, high = (angle, high) if _probability_within(angle, degrees) < level else (low, angle)
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _probability_within(angle: float, degrees: int) -> float:
    """``P(|T| <= sqrt(degrees) tan(angle))``.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.
    """
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2 == 1
    term, total = cosine if odd else 1.0, 0.0
    for power in range(1 if odd else 0, degrees - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
