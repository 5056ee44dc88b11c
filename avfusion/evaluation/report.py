"""The figures of one split in one place: AP and AUROC with their intervals, EER, FPR at 95 % TPR, ECE, counts.

Intervals resample what is independent: the videos, or the groups of tracks made from one source clip where known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.evaluation.bootstrap import few_groups, percentile_interval, times_drawn
from avfusion.evaluation.figures import FIGURES, figures_of
from avfusion.evaluation.groups import FaceKey, group_index, independent_groups
from avfusion.evaluation.join import Joined
from avfusion.evaluation.roc import calibration_gaps, expected_calibration_error


@dataclass(frozen=True)
class Report:
    """Figures in 0..1; None where the rows do not allow one, with the reason among the notes.

    Attributes:
        average_precision: AVA AP over all rows pooled.
        average_precision_interval: its 95 % bootstrap interval over the groups.
        auroc: area under the ROC curve.
        auroc_interval: its 95 % bootstrap interval over the groups.
        equal_error_rate: rate at which misses and false accepts are equally frequent.
        equal_error_rate_interval: as above.
        fpr_at_95_tpr: false positive rate of the threshold that accepts 95 % of the speaking frames.
        fpr_at_95_tpr_interval: as above.
        expected_calibration_error: 15 bins of equal width; None where the scores are no probabilities.
        expected_calibration_error_interval: as above.
        num_rows: face boxes.
        num_positive: face boxes that speak audibly.
        num_tracks: face tracks.
        num_videos: videos or scenes.
        num_groups: what the intervals resample: groups of tracks that are not independent of each other (made from one
            source clip), or the videos where no groups are known.
        prevalence: share of positives, which is the AP of a constant score.
        notes: what is missing above, and why.
    """

    average_precision: float
    average_precision_interval: tuple[float, float] | None
    auroc: float | None
    auroc_interval: tuple[float, float] | None
    equal_error_rate: float | None
    equal_error_rate_interval: tuple[float, float] | None
    fpr_at_95_tpr: float | None
    fpr_at_95_tpr_interval: tuple[float, float] | None
    expected_calibration_error: float | None
    expected_calibration_error_interval: tuple[float, float] | None
    num_rows: int
    num_positive: int
    num_tracks: int
    num_videos: int
    num_groups: int
    prevalence: float
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and None, as JSON takes them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def evaluate(
    joined: Joined, resamples: int = 1000, seed: int = 0, group_of_entity: Mapping[FaceKey, str] | None = None
) -> Report:
    """Computes all figures of a split.

    Args:
        joined: labels and scores.
        resamples: bootstrap resamples of the groups; 0 leaves the intervals out.
        seed: seed of the bootstrap.
        group_of_entity: (video_id, entity_id) to the group that is drawn as a whole; None draws whole videos.

    Raises:
        AvfusionError: no row is positive, a score is not finite, or a track has no group.
    """
    num_rows, num_positive = len(joined), int(joined.speaking.sum())
    if num_positive == 0:
        raise AvfusionError(
            f"none of {num_rows} label rows is SPEAKING_AUDIBLE, expected some: check the label file or choose another "
            "split"
        )
    groups, names = group_index(independent_groups(joined.video_id, joined.entity_id, group_of_entity))
    figures = figures_of(joined.speaking, joined.score, groups, resamples, seed)
    probabilities = bool(((joined.score >= 0) & (joined.score <= 1)).all())
    drawn = "video" if group_of_entity is None else "group"
    notes = [f"one {drawn}: no interval"] if len(names) == 1 else []
    few = few_groups(len(names), f"{drawn}s")
    notes += [few] if few and resamples else []
    if num_positive == num_rows:
        notes.append("every row speaks: no AUROC, EER, FPR")
    if not probabilities:
        notes.append("scores outside 0..1: no calibration error")
    return Report(
        **{name: figures[name] for figure in FIGURES for name in (figure, f"{figure}_interval")},
        expected_calibration_error=(
            expected_calibration_error(joined.speaking, joined.score) if probabilities else None
        ),
        expected_calibration_error_interval=(
            _calibration_interval(joined, groups, resamples, seed) if probabilities else None
        ),
        num_rows=num_rows,
        num_positive=num_positive,
        num_tracks=len(joined.faces[1]),
        num_videos=len(joined.videos[1]),
        num_groups=len(names),
        prevalence=num_positive / num_rows,
        notes=tuple(notes),
    )


def _calibration_interval(
    joined: Joined, groups: NDArray[np.int64], resamples: int, seed: int
) -> tuple[float, float] | None:
    """The interval of the calibration error, on the groups that the other figures are drawn on as well."""
    rows_of_group = np.bincount(groups)
    if len(rows_of_group) < 2:
        return None
    gaps = calibration_gaps(joined.speaking, joined.score, groups)
    sets = times_drawn(len(rows_of_group), resamples, seed)
    errors = [float(np.abs(drawn @ gaps).sum() / (drawn @ rows_of_group)) for drawn in sets]
    return percentile_interval(np.array(errors))


def interval_record(report: Report, drawn: str, resamples: int, seed: int = 0) -> dict[str, Any]:
    """What the intervals of a report are, for the record.

    Args:
        report: the report.
        drawn: what its groups are, in words.
        resamples: as :func:`evaluate` was given.
        seed: as :func:`evaluate` was given.
    """
    return {
        "kind": "percentile bootstrap",
        "level": 0.95,
        "drawn": drawn,
        "num_drawn": report.num_groups,
        "resamples": resamples,
        "seed": seed,
    }
