"""Tables of scores or labels to who speaks when: stretches of every track, joined per speaker.

In: an ``(N,)`` table of :mod:`avfusion.tracks`, row order meaning nothing. Out: for each video its :class:`Speech` in
order of time, as turns for RTTM and as JSON.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.evaluation.diarization.rttm import Turn
from avfusion.evaluation.diarization.segments import (
    EXACT,
    Segment,
    Segmentation,
    frame_step_s,
    merge_segments,
    segments_of,
)
from avfusion.evaluation.groups import FaceKey, group_index
from avfusion.files import whole_text_file
from avfusion.tracks import FaceTable, LabelTable, ScoreTable

LONGEST_STEP_S = 1.0  # of frames; beyond that the stamps are no seconds, or the rows no track


@dataclass(frozen=True)
class Speech:
    """One speaker's stretch of speech, otherwise as a :class:`Segment`."""

    video_id: str
    speaker: str
    start_s: float
    end_s: float
    mean_score: float

    @property
    def turn(self) -> Turn:
        """The same without the score."""
        return Turn(self.video_id, self.start_s, self.end_s, self.speaker)


def diarize(
    scores: ScoreTable, rules: Segmentation, speakers: Mapping[FaceKey, str] | None = None
) -> dict[str, list[Speech]]:
    """Who speaks when, by the scores.

    Args:
        scores: probabilities.
        rules: how they become stretches of speech.
        speakers: (video_id, entity_id) of every track to whose face it shows; None: every track is its own speaker.

    Returns:
        The speech of every video of the table, also of one in which nobody speaks.

    Raises:
        AvfusionError: a score is outside 0..1, a row is there twice, or frames are more than a second apart.
    """
    outside = np.flatnonzero((scores.score < 0) | (scores.score > 1))
    if len(outside):
        row = int(outside[0])
        raise AvfusionError(
            f"{scores.path or 'scores'}: {len(outside)} scores outside 0..1, first {scores.score[row]:g} of"
            f" {scores.row_name(row)}; expected probabilities, since onset and offset are: put logits through a sigmoid"
        )
    return _speech(scores, scores.score, rules, speakers)


def labelled_speech(labels: LabelTable, speakers: Mapping[FaceKey, str] | None = None) -> dict[str, list[Speech]]:
    """Who speaks when, by the labels: the exact stretches of SPEAKING_AUDIBLE, otherwise as :func:`diarize`.

    Raises:
        AvfusionError: a row is there twice, or frames are more than a second apart.
    """
    return _speech(labels, labels.speaking.astype(np.float64), EXACT, speakers)


def write_speech(path: str | os.PathLike[str], speech: Mapping[str, list[Speech]]) -> None:
    """Writes all stretches as a JSON list: video_id, speaker, start_s, end_s, mean_score; atomic."""
    rows = [asdict(s) | {"mean_score": round(s.mean_score, 6)} for found in speech.values() for s in found]
    with whole_text_file(path) as file:
        file.write(json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _speech(
    table: FaceTable, values: NDArray[np.float64], rules: Segmentation, speakers: Mapping[FaceKey, str] | None
) -> dict[str, list[Speech]]:
    found: dict[str, list[Speech]] = {}
    for video_id, tracks in _tracks_by_video(table).items():
        times_s = {entity: table.timestamp_ms[rows] / 1000 for entity, rows in tracks.items()}
        step_s = _step_of_video(table, video_id, list(times_s.values()))
        stretches: dict[str, list[Segment]] = defaultdict(list)
        for entity, rows in tracks.items():
            speaker = entity if speakers is None else speakers[video_id, entity]
            stretches[speaker] += segments_of(times_s[entity], values[rows], rules, step_s)
        speech = [
            Speech(video_id, speaker, **asdict(segment))
            for speaker, segments in stretches.items()
            for segment in merge_segments(segments)
        ]
        found[video_id] = sorted(speech, key=lambda s: (s.start_s, s.end_s, s.speaker))
    return found


def _tracks_by_video(table: FaceTable) -> dict[str, dict[str, NDArray[np.int64]]]:
    """For each video and entity the rows in order of time; videos in the order of their ids.

    Raises:
        AvfusionError: a row is there twice.
    """
    face, faces = group_index(table.video_id, table.entity_id)
    order = np.lexsort((table.timestamp_ms, face))
    videos: dict[str, dict[str, NDArray[np.int64]]] = {video_id: {} for video_id in sorted({f[0] for f in faces})}
    for rows in _runs(face[order], order):
        again = np.flatnonzero(np.diff(table.timestamp_ms[rows]) == 0)
        if len(again):
            raise AvfusionError(
                f"{table.path or 'table'}: {table.row_name(int(rows[again[0] + 1]))} is there twice, expected one row"
                " per face and frame: remove one"
            )
        video_id, entity_id = faces[face[rows[0]]]
        videos[video_id][entity_id] = rows
    return videos


def _runs(keys: NDArray[np.int64], values: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The values of each run of equal keys."""
    yield from np.split(values, np.flatnonzero(np.diff(keys)) + 1) if len(values) else []


def _step_of_video(table: FaceTable, video_id: str, stamps_s: list[NDArray[np.float64]]) -> float:
    """Time from frame to frame; all tracks of a video share it.

    Raises:
        AvfusionError: frames are more than a second apart.
    """
    step_s = frame_step_s(stamps_s)
    if step_s > LONGEST_STEP_S:
        raise AvfusionError(
            f"{table.path or 'table'}: rows of a face in {video_id!r} stand {step_s:g} s apart, expected frames at most"
            f" {LONGEST_STEP_S:g} s apart; are the stamps milliseconds or frame numbers? Make them seconds"
        )
    return step_s
