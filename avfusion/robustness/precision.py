"""AP under a condition beside the AP of the same clips unharmed: with intervals, paired on the same draws of groups.

What is drawn as a whole is a track's group, or its video where it has none.
Shapes: ``T`` frames of a track, ``N`` frames of all of them one after the other, ``R`` draws of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.evaluation.bootstrap import figures_of_resamples, percentile_interval
from avfusion.evaluation.groups import group_index
from avfusion.evaluation.ranking import Ranking
from avfusion.tracks import FaceTrack, ScoreTable

Scores = Sequence[NDArray[np.float32]]
Floats = NDArray[np.float64]


def groups_of(tracks: Sequence[FaceTrack]) -> NDArray[np.int64]:
    """``(len(tracks),)`` the number of each track's group, from 0 on."""
    return group_index(np.array([track.group or track.video_id for track in tracks], dtype=np.object_))[0]


class PairedPrecision:
    """Compares conditions with the clean clips.

    Args:
        tracks: labelled ones; some frame speaks.
        clean: ``(T,)`` scores of each with nothing changed.
        resamples: how many draws; 0 leaves the intervals out.

    Attributes:
        prevalence: share of speaking frames, the AP of a constant score.
        num_groups: what the intervals resample.
    """

    def __init__(self, tracks: Sequence[FaceTrack], clean: Scores, resamples: int) -> None:
        self._tracks = tracks
        self._speaking = np.concatenate([track.speaking for track in tracks])
        self._resamples = resamples
        groups = groups_of(tracks)
        self._group_of_row = np.repeat(groups, [track.num_frames for track in tracks])
        self.num_groups = int(groups.max()) + 1
        self.prevalence = float(self._speaking.mean())
        self._clean, self._clean_drawn = self._precision(clean)

    def clean(self) -> dict[str, Any]:
        """AP with nothing changed, and its interval."""
        return {"average_precision": self._clean, "average_precision_interval": _ends(self._clean_drawn)}

    def row(self, scores: Scores) -> dict[str, Any]:
        """AP of changed clips, the clean AP, and how they differ.

        Args:
            scores: ``(T,)`` of each track.

        Returns:
            Figures as in the table; intervals are over groups, and that of the change is paired.
        """
        value, drawn = self._precision(scores)
        return {
            "average_precision": value,
            "average_precision_interval": _ends(drawn),
            "clean_average_precision": self._clean,
            "change": value - self._clean,
            "change_interval": _ends(drawn - self._clean_drawn),
            "share_of_clean": value / self._clean,
        }

    def _precision(self, scores: Scores) -> tuple[float, Floats]:
        ranking = Ranking(self._speaking, ScoreTable.from_tracks(self._tracks, scores).score)
        drawn = figures_of_resamples(self._group_of_row, [ranking], self._resamples)  # of one seed, so of one draw
        return ranking.average_precision(), drawn[:, 0, 0]


def _ends(drawn: Floats) -> list[float] | None:
    """The interval as JSON has it."""
    found = percentile_interval(drawn)
    return None if found is None else list(found)
