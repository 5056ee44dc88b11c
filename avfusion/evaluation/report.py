"""The figures of one split in one place: AP and AUROC with intervals over videos, EER, FPR at 95 % TPR, ECE, counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from avfusion.errors import AvfusionError
from avfusion.evaluation.bootstrap import bootstrap_interval
from avfusion.evaluation.groups import group_index
from avfusion.evaluation.join import Joined
from avfusion.evaluation.ranking import Ranking
from avfusion.evaluation.roc import equal_error_rate, expected_calibration_error, false_positive_rate_at


@dataclass(frozen=True)
class Report:
    """Figures in 0..1; None where the rows do not allow one, with the reason among the notes.

    Attributes:
        average_precision: AVA AP over all rows pooled.
        average_precision_interval: its 95 % bootstrap interval over videos.
        auroc: area under the ROC curve.
        auroc_interval: its 95 % bootstrap interval over videos.
        equal_error_rate: rate at which misses and false accepts are equally frequent.
        fpr_at_95_tpr: false positive rate of the threshold that accepts 95 % of the speaking frames.
        expected_calibration_error: 15 bins of equal width; None where the scores are no probabilities.
        num_rows: face boxes.
        num_positive: face boxes that speak audibly.
        num_tracks: face tracks.
        num_videos: videos or scenes.
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
    prevalence: float
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and None, as JSON takes them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def evaluate(joined: Joined, resamples: int = 1000, seed: int = 0) -> Report:
    """Computes all figures of a split.

    Args:
        joined: labels and scores.
        resamples: bootstrap resamples of the videos; 0 leaves the intervals out.
        seed: seed of the bootstrap.

    Raises:
        AvfusionError: no row is positive, or a score is not finite.
    """
    ranking = Ranking(joined.speaking, joined.score)
    num_rows, num_positive = len(joined), int(joined.speaking.sum())
    if num_positive == 0:
        raise AvfusionError(
            f"none of {num_rows} label rows is SPEAKING_AUDIBLE, expected some: check the label file or choose another "
            "split"
        )
    num_videos = len(group_index(joined.video_id)[1])
    both = num_positive < num_rows
    probabilities = bool(((joined.score >= 0) & (joined.score <= 1)).all())
    notes = []
    if num_videos == 1:
        notes.append("one video: no interval")
    if not both:
        notes.append("every row speaks: no AUROC, EER, FPR")
    if not probabilities:
        notes.append("scores outside 0..1: no calibration error")
    auroc_interval = bootstrap_interval(joined.video_id, ranking.auroc, resamples, seed=seed) if both else None
    return Report(
        average_precision=ranking.average_precision(),
        average_precision_interval=bootstrap_interval(joined.video_id, ranking.average_precision, resamples, seed=seed),
        auroc=ranking.auroc() if both else None,
        auroc_interval=auroc_interval,
        equal_error_rate=equal_error_rate(joined.speaking, joined.score) if both else None,
        fpr_at_95_tpr=false_positive_rate_at(joined.speaking, joined.score) if both else None,
        expected_calibration_error=(
            expected_calibration_error(joined.speaking, joined.score) if probabilities else None
        ),
        num_rows=num_rows,
        num_positive=num_positive,
        num_tracks=len(group_index(joined.video_id, joined.entity_id)[1]),
        num_videos=num_videos,
        prevalence=num_positive / num_rows,
        notes=tuple(notes),
    )
