"""How often a speaking face is still accepted as the one heard when the sound is not its own, or not at its own time.

The threshold is the one that misses 5 % of the speaking frames on synchronous sound. It is found again in every draw of
groups, so the intervals hold its uncertainty too. A shift turns the sound of a
track in a circle; which frames count at it is said by :meth:`avfusion.robustness.sounds.Shifted.counts`.
Shapes: ``T`` frames of a track, ``N`` speaking frames of all tracks, ``R`` draws of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.evaluation.bootstrap import percentile_interval, times_drawn
from avfusion.evaluation.desync import (
    false_accept_rate,
    threshold_at_miss_rate,
    weighted_threshold_at_miss_rate,
)
from avfusion.robustness.precision import Floats, Scores, groups_of
from avfusion.tracks import FaceTrack, ScoreTable

MISS_RATE = 0.05


class FalseAccepts:
    """The speaking frames of tracks that are known to be in sync.

    Args:
        tracks: these tracks; some frame of them speaks.
        synchronous: ``(T,)`` scores of each with its own sound.
        resamples: how many draws; 0 leaves the intervals out.

    Attributes:
        threshold: a score from which on a frame is accepted.
        num_frames: ``N``.
        num_groups: what the intervals resample.
    """

    def __init__(self, tracks: Sequence[FaceTrack], synchronous: Scores, resamples: int) -> None:
        self._tracks = tracks
        self._speaking = np.concatenate([track.speaking for track in tracks])
        groups = groups_of(tracks)
        self.num_groups = int(groups.max()) + 1
        self._counts = list(times_drawn(self.num_groups, resamples if self.num_groups > 1 else 0))
        self._track_of_row = np.repeat(np.arange(len(tracks)), [track.num_frames for track in tracks])[self._speaking]
        self._group_of_row = groups[self._track_of_row]
        scores = self._scores(synchronous)
        self.num_frames = len(scores)
        self.threshold = threshold_at_miss_rate(scores, MISS_RATE)
        self._own = scores
        order = np.argsort(scores, kind="stable")
        rising, group_of_rising = scores[order], self._group_of_row[order]
        self._thresholds = [
            weighted_threshold_at_miss_rate(rising, counts[group_of_rising], MISS_RATE) for counts in self._counts
        ]

    def row(self, scores: Scores, counting: Sequence[NDArray[np.bool_]] | None = None) -> dict[str, Any]:
        """The rate with changed sound.

        Args:
            scores: ``(T,)`` of each track.
            counting: ``(T,)`` of each track, which frames count; None for all.

        Returns:
            The rate with its interval, and that of the same frames with their own sound; None where no frame counts.
            And over how much it is.
        """
        kept = np.ones(self.num_frames, bool) if counting is None else np.concatenate(counting)[self._speaking]
        changed, groups = self._scores(scores)[kept], self._group_of_row[kept]
        drawn = np.full(len(self._counts), np.nan)
        for number, (counts, threshold) in enumerate(zip(self._counts, self._thresholds, strict=True)):
            weights = counts[groups]
            if weights.any() and not np.isnan(threshold):
                drawn[number] = weights[changed >= threshold].sum() / weights.sum()
        ends = percentile_interval(drawn)
        return {
            "false_accept_rate": false_accept_rate(changed, self.threshold) if len(changed) else None,
            "false_accept_rate_interval": None if ends is None else list(ends),
            "own_sound_rate": false_accept_rate(self._own[kept], self.threshold) if len(changed) else None,
            "num_frames": len(changed),
            "num_tracks": len(np.unique(self._track_of_row[kept])),
            "num_groups": len(np.unique(groups)),
        }

    def _scores(self, scores: Scores) -> Floats:
        """``(N,)`` those of the speaking frames."""
        score: Floats = ScoreTable.from_tracks(self._tracks, scores).score[self._speaking]
        return score
