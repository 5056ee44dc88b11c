"""What makes runs comparable: one dataset, one split, the same rows; and their scores beside its labels.

A score file has no labels. They come from the dataset of the first run, whose tracks are known without decoding a
clip. That the reports belong to these scores and labels is checked: the AP is computed again and must be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from avfusion.data.left_out import read_skipped
from avfusion.data.open import open_dataset
from avfusion.errors import AvfusionError, UsageError
from avfusion.evaluation.groups import group_index
from avfusion.evaluation.join import Joined, join
from avfusion.evaluation.ranking import Ranking
from avfusion.tracks import FaceTrack, LabelTable, ScoreTable
from avfusion.training.side_by_side.runs import AVERAGE_PRECISION, COUNTS, Run, command_for

_SAME_AP = 1e-9
_SYNTHETIC = ("seed", "scene_s", "espeak", "roles")  # what a split is made of, besides the number of its scenes


@dataclass(frozen=True, eq=False)
class SameRows:
    """The labelled rows of a split, with the scores of every run.

    Attributes:
        tracks: those with labels.
        joined: for each run, labels and scores in the order of the tracks.
        unlabelled: how many tracks have no labels and count in no figure.
        left_out: how many tracks of the split could not be used.
    """

    tracks: list[FaceTrack]
    joined: list[Joined]
    unlabelled: int
    left_out: int


def refuse_other_data(runs: Sequence[Run], split: str) -> None:
    """Refuses runs whose reports are of different rows.

    Raises:
        UsageError: they are; the message names the first difference.
    """
    first = runs[0]
    for run in runs[1:]:
        for what, ours, theirs in _what_must_agree(first, run):
            if ours != theirs:
                raise UsageError(
                    f"{first.folder} and {run.folder} were not scored on the same rows of {split}: {what} is {ours!r}"
                    f" in the first and {theirs!r} in the second; compare runs on one dataset and split"
                )


def same_rows(runs: Sequence[Run], split: str) -> SameRows:
    """Reads the labels and sets the scores of every run beside them.

    Raises:
        UsageError: the dataset is no longer where it was.
        AvfusionError: scores and labels are not of the same rows, or a report is not of its scores.
    """
    first = runs[0]
    data = first.config.data if first.root is None else replace(first.config.data, root=first.root)
    dataset = open_dataset(data, split, kept=read_skipped(first.folder, data))
    tracks = [track for track in dataset.tracks if track.labelled]
    unlabelled = {(track.video_id, track.entity_id) for track in dataset.tracks if not track.labelled}
    labels = LabelTable.from_tracks(tracks)
    joined = []
    for run in runs:
        rows = join(labels, _without(run.scores, unlabelled))
        found = Ranking(rows.speaking, rows.score).average_precision()
        reported = run.figures[AVERAGE_PRECISION]
        if reported is None or abs(found - reported) > _SAME_AP:
            raise AvfusionError(
                f"{run.folder}: its report has AP {reported}, its scores {run.scores.path} give {found:.6f} on the"
                f" labels of {dataset.name}: they do not belong together; `{command_for(run.folder, split)}` makes both"
                " again"
            )
        joined.append(rows)
    return SameRows(tracks, joined, len(unlabelled), len(dataset.skipped.tracks))


def _what_must_agree(first: Run, run: Run) -> list[tuple[str, object, object]]:
    """Name, and the value of both."""
    ours, theirs = first.config.data, run.config.data
    agree: list[tuple[str, object, object]] = [
        ("the dataset", first.dataset, run.dataset),
        ("data.format", ours.format, theirs.format),
    ]
    if ours.format == "synthetic":
        agree += [
            (f"data.synthetic.{key}", getattr(ours.synthetic, key), getattr(theirs.synthetic, key))
            for key in _SYNTHETIC
        ]
    agree += [
        (f"the {key} of the dataset", first.data.get(key), run.data.get(key)) for key in ("scenes", "settings", "table")
    ]
    return agree + [(f"{count} of the report", first.counts[count], run.counts[count]) for count in COUNTS]


def _without(scores: ScoreTable, left_out: set[tuple[str, str]]) -> ScoreTable:
    """The scores but for those of some tracks."""
    if not left_out:
        return scores
    face, faces = group_index(scores.video_id, scores.entity_id)
    kept = np.array([key not in left_out for key in faces], np.bool_)[face]
    columns = ("video_id", "entity_id", "timestamp_ms", "boxes_xyxy", "line", "score")
    return replace(scores, **{column: getattr(scores, column)[kept] for column in columns})
