"""AP and false accepts of scored frames, with intervals over talkers, also where two talkers are seen in one scene.

Talkers are drawn with replacement, as many as there are; a frame counts as often as its talker was drawn, and a frame
of a scene of two people as often as the product says. Frames ``N``, talkers of a frame ``K`` (one or two).
Source: Owen, The pigeonhole bootstrap (2007), for the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.evaluation.bootstrap import few_groups, percentile_interval, times_drawn
from avfusion.evaluation.desync import threshold_at_miss_rate, weighted_threshold_at_miss_rate
from avfusion.evaluation.ranking import Ranking

MISS_RATE = 0.05


@dataclass(frozen=True)
class Frames:
    """Scored frames.

    Attributes:
        scores: ``(N,)``.
        talkers: ``(N, K)`` the number of each frame's talkers; of one frame they differ.
    """

    scores: NDArray[np.float64]
    talkers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.scores)

    def of(self, kept: NDArray[np.bool_]) -> Frames:
        """Some of them; ``(N,)``."""
        return Frames(self.scores[kept], self.talkers[kept])


def together(parts: Sequence[tuple[NDArray[Any], Sequence[int]]]) -> Frames:
    """Frames from stretches: ``(T,)`` scores, and the talkers of the stretch, equally many in each."""
    scores = np.concatenate([scores for scores, _ in parts]).astype(np.float64)
    talkers = np.concatenate([np.tile(np.array(of, np.int64), (len(scores), 1)) for scores, of in parts])
    return Frames(scores, talkers)


def compared(own: Frames, other: Frames, resamples: int = 1000, seed: int = 0) -> dict[str, Any]:
    """How well frames to accept (``own``) are told from frames to refuse.

    Args:
        own: frames of faces that are heard.
        other: frames of faces that are not.
        resamples: of the intervals; 0 for none.
        seed: of the draws.

    Returns:
        AP, prevalence, AUROC, and the share of ``other`` accepted at the threshold that misses 5 % of ``own``, which is
        found again in every draw; each with the ends of its 95 % interval, None where there is none to give.
    """
    frames = Frames(np.concatenate([own.scores, other.scores]), np.concatenate([own.talkers, other.talkers]))
    positive = np.arange(len(frames)) < len(own)
    ranking, rising = Ranking(positive, frames.scores), np.argsort(own.scores, kind="stable")
    numbers, index = np.unique(frames.talkers, return_inverse=True)
    index = index.reshape(frames.talkers.shape)
    drawn = []
    for counts in times_drawn(len(numbers), resamples if len(numbers) > 1 else 0, seed):
        weights = counts[index].prod(axis=1)
        threshold = weighted_threshold_at_miss_rate(own.scores[rising], weights[: len(own)][rising], MISS_RATE)
        accepted = weights[len(own) :][other.scores >= threshold].sum()
        refusable = weights[len(own) :].sum()
        share = accepted / refusable if refusable and threshold == threshold else float("nan")
        drawn.append((ranking.average_precision(weights.astype(np.float64)), share))
    columns = np.array(drawn).reshape(-1, 2).T
    threshold = threshold_at_miss_rate(own.scores, MISS_RATE)
    return {
        "average_precision": ranking.average_precision(),
        "average_precision_interval": _ends(columns[0]),
        "prevalence": len(own) / len(frames),
        "auroc": ranking.auroc(),
        "false_accept_rate": float((other.scores >= threshold).mean()),
        "false_accept_rate_interval": _ends(columns[1]),
        "threshold": threshold,
        "frames": len(frames),
        "talkers": len(numbers),
        "note": few_groups(len(numbers), "talkers"),
    }


def _ends(drawn: NDArray[np.float64]) -> list[float] | None:
    found = percentile_interval(drawn)
    return None if found is None else [round(end, 6) for end in found]


def in_words(figure: float | None, ends: Sequence[float] | None) -> str:
    """``.714 (.650-.770)``."""
    if figure is None:
        return "-"
    return _short(figure) + (f" ({_short(ends[0])}-{_short(ends[1])})" if ends else "")


def _short(figure: float) -> str:
    return f"{figure:.3f}".removeprefix("0") if figure < 1 else f"{figure:.3f}"
