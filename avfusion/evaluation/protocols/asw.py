"""The figures of ASW: average precision, AUROC and EER over the rows that its annotation marks as evaluated.

Scores are joined by video, track and time: an evaluated row takes the score of its track's nearest frame, at most
25 ms away (25 fps frames stand on its rows every 0.2 s). Tracks go by ``VIDEO:TRACK``, as ``data_prep.ava`` names
them, or by the bare name of the annotation; ``#2``, ``#3`` ... are later pieces of a track with a gap. Scores of other
rows are counted and ignored.

An evaluated row without a score is an error: which frames count is fixed, so that figures can be compared. Only videos
without any score are left out, and named: YouTube has lost some, and the authors ask to evaluate without them.

The authors published no evaluation code. TS-TalkNet's authors (issue 2 of their repository) drop rows with ``eval`` 0
and report the same three figures. AP here is VOC all-point AP as for AVA, never below scikit-learn's step sum.

Source: Kim et al. (2021), arXiv 2108.07640; github.com/clovaai/lookwhostalking, README; Jiang et al., Target Active
Speaker Detection with Audio-visual Cues (2023), github.com/Jiang-Yidi/TS-TalkNet.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.evaluation.bootstrap import few_groups
from avfusion.evaluation.figures import figures_of, why_no_figures
from avfusion.evaluation.groups import group_index
from avfusion.evaluation.protocols.asw_labels import AswLabels
from avfusion.evaluation.protocols.score_checks import refuse_duplicates
from avfusion.evaluation.source_rows import FARTHEST_MS, nearest_frames
from avfusion.tracks import FaceTable, LabelTable, ScoreTable

Interval = tuple[float, float]
_NAMED = 3
_FIGURES = ("average_precision", "auroc", "equal_error_rate")


@dataclass(frozen=True)
class AswReport:
    """Figures in 0..1 over the evaluated rows; intervals are 95 % over videos, None where there is one video.

    Attributes:
        average_precision: VOC all-point AP, all evaluated rows pooled.
        average_precision_interval: its interval.
        auroc: area under the ROC curve.
        auroc_interval: its interval.
        equal_error_rate: rate at which misses and false accepts are equally frequent.
        equal_error_rate_interval: its interval.
        prevalence: share of evaluated rows that speak, the AP of a constant score.
        num_rows: evaluated rows.
        num_positive: those that speak.
        num_tracks: tracks with an evaluated row.
        num_videos: videos with an evaluated row.
        num_not_evaluated: annotated rows with ``eval`` 0, in all label files.
        num_scores_ignored: score rows that no evaluated row takes.
        videos_without_scores: videos of the labels that the scores do not have.
        notes: what the figures do not say by themselves.
    """

    average_precision: float
    average_precision_interval: Interval | None
    auroc: float
    auroc_interval: Interval | None
    equal_error_rate: float
    equal_error_rate_interval: Interval | None
    prevalence: float
    num_rows: int
    num_positive: int
    num_tracks: int
    num_videos: int
    num_not_evaluated: int
    num_scores_ignored: int
    videos_without_scores: list[str]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and None, as JSON takes them."""
        return asdict(self)


def evaluate_asw(labels: AswLabels, scores: ScoreTable, resamples: int = 1000) -> AswReport:
    """Computes all figures.

    Args:
        labels: the annotated rows.
        scores: of any frames, those of the evaluated rows among them.
        resamples: bootstrap resamples of the videos; 0 leaves the intervals out.

    Raises:
        AvfusionError: no video in common, an evaluated row without a score, a score row that is there twice, or rows
            that all speak or all do not.
    """
    scores = _with_video_in_names(scores)
    refuse_duplicates(scores)
    scored_videos = set(scores.video_id.tolist())
    absent = [video for video in labels.video_ids if video not in scored_videos]
    if len(absent) == len(labels.video_ids):
        raise AvfusionError(
            f"{scores.path}: no score of any of the {len(absent)} labelled videos, first {absent[0]!r}; the scores are "
            f"of {', '.join(map(repr, sorted(scored_videos)[:_NAMED])) or 'no video'}; expected the same video ids"
        )
    rows = _of_videos(labels.evaluated, scored_videos)
    if not len(rows):
        raise AvfusionError(f"{labels.evaluated.path}: no evaluated row in the videos with scores, expected some")
    taken = _scores_of(rows, scores)
    score, speaking, videos = scores.score[taken], rows.speaking, rows.video_id
    reason = why_no_figures(speaking)
    if reason:
        raise AvfusionError(
            f"{labels.evaluated.path}: {reason} among the {len(rows)} evaluated rows, expected rows of both kinds: "
            "check the labels, or score other videos"
        )
    figures = figures_of(speaking, score, videos, resamples, seed=0)
    num_videos = len(group_index(videos)[1])
    notes = ["one video: no intervals"] if num_videos == 1 else []
    few = few_groups(num_videos)
    notes += [few] if few and resamples else []
    if absent:
        named = ", ".join(absent[:_NAMED]) + (", ..." if len(absent) > _NAMED else "")
        notes.append(f"{len(absent)} of {len(labels.video_ids)} labelled videos have no scores, left out: {named}")

    return AswReport(
        **{name: figures[name] for figure in _FIGURES for name in (figure, f"{figure}_interval")},
        prevalence=float(speaking.mean()),
        num_rows=len(rows),
        num_positive=int(speaking.sum()),
        num_tracks=len(group_index(videos, rows.entity_id)[1]),
        num_videos=num_videos,
        num_not_evaluated=labels.num_rows - len(labels.evaluated),
        num_scores_ignored=len(scores) - len(np.unique(taken)),
        videos_without_scores=absent,
        notes=notes,
    )


def _of_videos(labels: LabelTable, videos: set[str]) -> LabelTable:
    kept = np.array([video in videos for video in labels.video_id.tolist()], dtype=np.bool_)
    names = ("video_id", "timestamp_ms", "boxes_xyxy", "entity_id", "line", "speaking")
    return replace(labels, **{name: getattr(labels, name)[kept] for name in names})


def _with_video_in_names(scores: ScoreTable) -> ScoreTable:
    """The same scores, each entity named ``VIDEO:TRACK``."""
    named = [
        entity if entity.startswith(f"{video}:") else f"{video}:{entity}"
        for video, entity in zip(scores.video_id.tolist(), scores.entity_id.tolist(), strict=True)
    ]
    return replace(scores, entity_id=np.array(named, dtype=np.object_))


def _scores_of(rows: LabelTable, scores: ScoreTable) -> NDArray[np.int64]:
    """``(N,)`` the score row of each evaluated row.

    Raises:
        AvfusionError: one has none.
    """
    taken = nearest_frames(rows, scores)
    without = np.flatnonzero(taken < 0)
    if len(without):
        first = int(without[0])
        raise AvfusionError(
            f"{scores.path}: no score for {len(without)} of {len(rows)} evaluated rows, first {rows.row_name(first)}"
            f"{_hint(rows, first, scores)}; expected a score of the same video and track within {FARTHEST_MS} ms of "
            "each row with eval 1"
        )
    return taken


def _hint(rows: LabelTable, first: int, scores: FaceTable) -> str:
    """Tells a track without scores from one with scores at other times."""
    same = (scores.video_id == rows.video_id[first]) & (scores.entity_id == rows.entity_id[first])
    if not same.any():
        return " (no score of that track at all)"
    return f" (nearest score {np.abs(scores.timestamp_ms[same] - rows.timestamp_ms[first]).min()} ms away)"
