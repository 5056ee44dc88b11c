"""F1 per speaker on the Columbia panel discussion, and its mean over the five speakers that publications name.

Every annotated face of every film frame counts. It is said to speak where its match (see
:mod:`avfusion.evaluation.protocols.columbia_match`) scores above the threshold; a face without a match was not
detected and is said not to speak. With true positives TP, false positives FP and misses FN of a speaker,

    F1 = 2 TP / (2 TP + FP + FN)

The threshold is 0.5 for probabilities (all in 0..1). Scores that reach below -1 are logits, threshold 0, as in the
published code. Anything else is neither and is refused. Scores are taken as they are: the published code averages
logits over five frames and rounds them before, which is part of a method, not of the matching.

``f1`` matches by IoU. ``f1_covered_share`` takes the overlap of the published code; figures in papers are to be
compared with that one. ``f1_always`` is what saying "speaks" to every frame would give, ``2 p / (1 + p)`` for a share
``p`` of speaking frames.

Intervals: stretches of 30 s of the film are drawn with replacement, for all speakers together. Frames and turns within
a stretch are not independent, faces of one moment neither. It is one film of one evening: the interval says how far the
figure depends on which minutes were annotated, nothing about other people or other rooms.

Source: ``evaluate_col_ASD`` in demoTalkNet.py, github.com/TaoRuijie/TalkNet-ASD.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import FRAME_MS, VIDEO_HZ
from avfusion.errors import AvfusionError
from avfusion.evaluation.bootstrap import bootstrap_interval
from avfusion.evaluation.protocols.columbia_labels import MEAN_OF, ColumbiaLabels
from avfusion.evaluation.protocols.columbia_match import (
    covered_share,
    frame_at_25,
    intersection_over_union,
    match,
    scores_by_frame,
)
from avfusion.tracks import ScoreTable

STRETCH_S = 30
LOGITS_BELOW = -1.0  # logits of a whole film reach below it, probabilities with a rounding error do not
MIN_STRETCHES = 10  # an interval from fewer is no interval
Interval = tuple[float, float]
Counts = NDArray[np.int64]  # (stretches, speakers, 3): true positives, false positives, misses


@dataclass(frozen=True)
class SpeakerFigures:
    """One speaker; shares and figures in 0..1, None where nothing speaks and nothing is said to.

    Attributes:
        speaker: name, as the label file has it.
        in_mean: whether the mean is over this speaker as well.
        num_frames: annotated film frames.
        num_speaking: those in which the speaker speaks.
        num_matched: those in which a scored face was found, by IoU.
        matched_share: the share of them.
        f1: by IoU, with its interval, precision and recall.
        f1_interval: 95 % over stretches of the film.
        precision: share of right ones among the frames said to speak; None where none is.
        recall: share of the speaking frames that were said to; None where none speaks.
        f1_covered_share: F1 with the overlap of the published code.
        matched_covered_share: share of frames with a scored face by that overlap.
        f1_always: F1 of saying "speaks" always.
    """

    speaker: str
    in_mean: bool
    num_frames: int
    num_speaking: int
    num_matched: int
    matched_share: float
    f1: float | None
    f1_interval: Interval | None
    precision: float | None
    recall: float | None
    f1_covered_share: float | None
    matched_covered_share: float
    f1_always: float | None


@dataclass(frozen=True)
class ColumbiaReport:
    """All figures.

    Attributes:
        speakers: one by one, in order of their names.
        mean_f1: mean over the speakers ``in_mean``; None where one of them has no F1.
        mean_f1_interval: 95 % over stretches of the film.
        mean_f1_covered_share: the same mean with the overlap of the published code.
        threshold: a score above it says "speaks".
        num_stretches: what the intervals draw.
        num_rows: score rows.
        notes: what the figures do not say by themselves.
    """

    speakers: list[SpeakerFigures]
    mean_f1: float | None
    mean_f1_interval: Interval | None
    mean_f1_covered_share: float | None
    threshold: float
    num_stretches: int
    num_rows: int
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and None, as JSON takes them."""
        return asdict(self)


def evaluate_columbia(labels: ColumbiaLabels, scores: ScoreTable, resamples: int = 1000) -> ColumbiaReport:
    """Computes all figures.

    Args:
        labels: the annotated faces.
        scores: of one video, boxes as fractions of the picture; their track names do not matter.
        resamples: bootstrap resamples of the stretches; 0 leaves the intervals out.

    Raises:
        AvfusionError: no annotated speaker that the mean is over, scores that cannot be used, or no match at all.
    """
    names = sorted(set(labels.speaker.tolist()))
    if not set(names) & set(MEAN_OF):
        raise AvfusionError(f"labels of {', '.join(names)} only, expected some of {', '.join(MEAN_OF)}")
    threshold = decision_threshold(scores)
    rows = scores_by_frame(scores)
    by_iou, by_share = match(labels, rows, intersection_over_union), match(labels, rows, covered_share)
    if (by_share < 0).all():
        raise AvfusionError(
            f"{scores.path}: none of {len(labels)} annotated faces has a scored one over it, expected most of them: "
            "check that scores are of the whole film from its start, and boxes fractions of the picture"
        )
    stretch, of_stretch = np.unique(frame_at_25(labels.frame) // (STRETCH_S * VIDEO_HZ), return_inverse=True)
    index = np.array([names.index(name) for name in labels.speaker.tolist()])
    iou_counts, share_counts = (
        _counts(labels.speaking, (found >= 0) & (rows.score[found] > threshold), of_stretch, index)
        for found in (by_iou, by_share)
    )
    meant = np.array([name in MEAN_OF for name in names])
    if len(stretch) < MIN_STRETCHES:
        resamples = 0

    def interval(chosen: NDArray[np.bool_]) -> Interval | None:
        figure = _mean_f1_of(iou_counts[:, chosen])
        return bootstrap_interval(np.arange(len(stretch)), figure, resamples)

    figures = []
    for place, name in enumerate(names):
        own = index == place
        interval_here = interval(np.arange(len(names)) == place)
        of_speaker = (by_iou[own] >= 0, by_share[own] >= 0)
        total, total_share = iou_counts[:, place].sum(axis=0), share_counts[:, place].sum(axis=0)
        figures.append(
            _figures(name, labels.speaking[own], of_speaker, total.tolist(), total_share.tolist(), interval_here)
        )
    return ColumbiaReport(
        speakers=figures,
        mean_f1=_mean([row.f1 for row in figures if row.in_mean]),
        mean_f1_interval=interval(meant),
        mean_f1_covered_share=_mean([row.f1_covered_share for row in figures if row.in_mean]),
        threshold=threshold,
        num_stretches=len(stretch),
        num_rows=len(scores),
        notes=_notes(labels, scores, names, rows.num_off_grid, rows.num_superseded, threshold, len(stretch)),
    )


def decision_threshold(scores: ScoreTable) -> float:
    """What a score must be above to say "speaks": 0.5 for probabilities, 0 for logits.

    Raises:
        AvfusionError: the scores are neither.
    """
    if not len(scores) or (scores.score.min() >= 0 and scores.score.max() <= 1):
        return 0.5
    if scores.score.min() < LOGITS_BELOW:
        return 0.0
    row = int(np.argmax((scores.score < 0) | (scores.score > 1)))
    raise AvfusionError(
        f"{scores.path}: score {scores.score[row]:g} of {scores.row_name(row)} and none below {LOGITS_BELOW:g}, "
        "expected probabilities, all in 0..1, or logits, some below that: F1 needs to know what means speaking"
    )


def f1(true_positives: float, false_positives: float, misses: float) -> float | None:
    """2 TP / (2 TP + FP + FN); None where nothing speaks and nothing is said to."""
    total = 2 * true_positives + false_positives + misses
    return 2 * true_positives / total if total else None


def _counts(
    speaking: NDArray[np.bool_], said: NDArray[np.bool_], stretch: NDArray[np.int64], speaker: NDArray[np.int64]
) -> Counts:
    """Counts ``(N,)`` rows by the numbers of their stretch and speaker."""
    counts = np.zeros((stretch.max() + 1, speaker.max() + 1, 3), dtype=np.int64)
    for kind, of_kind in enumerate((speaking & said, ~speaking & said, speaking & ~said)):
        np.add.at(counts, (stretch[of_kind], speaker[of_kind], kind), 1)
    return counts


def _mean_f1_of(counts: Counts) -> Callable[[NDArray[np.float64]], float]:
    """Mean F1 of the speakers in ``(stretches, speakers, 3)`` counts, by how often each stretch was drawn."""

    def figure(weights: NDArray[np.float64]) -> float:
        drawn = np.einsum("n,nsk->sk", weights, counts)
        total = 2 * drawn[:, 0] + drawn[:, 1] + drawn[:, 2]
        return float(np.mean(2 * drawn[:, 0] / total)) if total.all() else float("nan")

    return figure


def _figures(
    name: str,
    speaking: NDArray[np.bool_],
    matched: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    by_iou: list[int],
    by_share: list[int],
    interval: Interval | None,
) -> SpeakerFigures:
    """One speaker's row; ``matched``, and TP, FP and misses, by IoU and by covered share."""
    right, wrong, missed = by_iou
    num_speaking = int(speaking.sum())
    return SpeakerFigures(
        speaker=name,
        in_mean=name in MEAN_OF,
        num_frames=len(speaking),
        num_speaking=num_speaking,
        num_matched=int(matched[0].sum()),
        matched_share=float(matched[0].mean()),
        f1=f1(right, wrong, missed),
        f1_interval=interval,
        precision=right / (right + wrong) if right + wrong else None,
        recall=right / num_speaking if num_speaking else None,
        f1_covered_share=f1(*by_share),
        matched_covered_share=float(matched[1].mean()),
        f1_always=f1(num_speaking, len(speaking) - num_speaking, 0) if num_speaking else None,
    )


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _notes(
    labels: ColumbiaLabels,
    scores: ScoreTable,
    names: list[str],
    off_grid: int,
    superseded: int,
    threshold: float,
    stretches: int,
) -> list[str]:
    notes = []
    absent = [name for name in MEAN_OF if name not in names]
    if absent:
        notes.append(f"no labels of {', '.join(absent)}: the mean is not the one that papers report")
    if threshold == 0:
        notes.append("scores outside 0..1: taken as logits, threshold 0")
    if off_grid:
        notes.append(f"{off_grid} of {len(scores)} score rows lie between 25 fps frames, {superseded} of them left out")
    frame = frame_at_25(labels.frame) * FRAME_MS
    half_ms = 500 // VIDEO_HZ
    outside = (frame < scores.timestamp_ms.min() - half_ms) | (frame > scores.timestamp_ms.max() + half_ms)
    if outside.any():
        notes.append(f"{int(outside.sum())} of {len(labels)} annotated faces before the first score or after the last")
    if stretches < MIN_STRETCHES:
        notes.append(f"{stretches} stretches of {STRETCH_S} s, fewer than {MIN_STRETCHES}: no intervals")
    return notes
