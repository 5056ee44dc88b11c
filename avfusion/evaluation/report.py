"""The figures of one split in one place: AP and AUROC with their intervals, EER, FPR at 95 % TPR, ECE, counts.

Intervals resample what is independent: the videos, or the groups of tracks made from one source clip where known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from avfusion.errors import AvfusionError
from avfusion.evaluation.bootstrap import figures_of_resamples, percentile_interval
from avfusion.evaluation.groups import FaceKey, group_index, independent_groups
from avfusion.evaluation.join import Joined
from avfusion.evaluation.ranking import Ranking
from avfusion.evaluation.roc import equal_error_rate_of, expected_calibration_error, false_positive_rate_of, roc_of


@dataclass(frozen=True)
class Report:
    """Figures in 0..1; None where the rows do not allow one, with the reason among the notes.

    Attributes:
        average_precision: AVA AP over all rows pooled.
        average_precision_interval: its 95 % bootstrap interval over the groups.
        auroc: area under the ROC curve.
        auroc_interval: its 95 % bootstrap interval over the groups.
        equal_error_rate: rate at which misses and false accepts are equally frequent.
        fpr_at_95_tpr: false positive rate of the threshold that accepts 95 % of the speaking frames.
        expected_calibration_error: 15 bins of equal width; None where the scores are no probabilities.
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
    fpr_at_95_tpr: float | None
    expected_calibration_error: float | None
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
    ranking = Ranking(joined.speaking, joined.score)
    num_rows, num_positive = len(joined), int(joined.speaking.sum())
    if num_positive == 0:
        raise AvfusionError(
            f"none of {num_rows} label rows is SPEAKING_AUDIBLE, expected some: check the label file or choose another "
            "split"
        )
    groups = independent_groups(joined.video_id, joined.entity_id, group_of_entity)
    num_groups = len(group_index(groups)[1])
    both = num_positive < num_rows
    probabilities = bool(((joined.score >= 0) & (joined.score <= 1)).all())
    notes = []
    if num_groups == 1:
        notes.append(f"one {'video' if group_of_entity is None else 'group'}: no interval")
    if not both:
        notes.append("every row speaks: no AUROC, EER, FPR")
    if not probabilities:
        notes.append("scores outside 0..1: no calibration error")
    figures = figures_of_resamples(groups, [ranking], resamples, seed)[:, 0]
    roc = roc_of(ranking) if both else None
    return Report(
        average_precision=ranking.average_precision(),
        average_precision_interval=percentile_interval(figures[:, 0]),
        auroc=ranking.auroc() if both else None,
        auroc_interval=percentile_interval(figures[:, 1]) if both else None,
        equal_error_rate=equal_error_rate_of(*roc) if roc else None,
        fpr_at_95_tpr=false_positive_rate_of(*roc) if roc else None,
        expected_calibration_error=(
            expected_calibration_error(joined.speaking, joined.score) if probabilities else None
        ),
        num_rows=num_rows,
        num_positive=num_positive,
        num_tracks=len(joined.faces[1]),
        num_videos=len(joined.videos[1]),
        num_groups=num_groups,
        prevalence=num_positive / num_rows,
        notes=tuple(notes),
    )


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
