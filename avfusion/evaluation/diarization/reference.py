"""The reference of a diarization: turns of RTTM files, or the stretches that AVA labels call SPEAKING_AUDIBLE.

Either way turns by video, under the video ids of the score file, and notes on what the two files do not share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from avfusion.errors import AvfusionError
from avfusion.evaluation.diarization.diarize import labelled_speech
from avfusion.evaluation.diarization.identities import entry_of, speakers_by_map
from avfusion.evaluation.diarization.rttm import Turn, read_rttm, refuse_same_names, rttm_name
from avfusion.evaluation.groups import FaceKey
from avfusion.tracks import FaceTable, LabelTable

VIDEOS_NAMED = 5


@dataclass(frozen=True)
class Reference:
    """Who spoke when.

    Attributes:
        path: the file or folder it comes from.
        turns: by video; no turns where the labels of a video say that nobody speaks.
        notes: what has to be known about them.
    """

    path: Path
    turns: dict[str, list[Turn]]
    notes: tuple[str, ...] = ()


def faces_of(table: FaceTable) -> list[FaceKey]:
    """The tracks of a table, in order of first appearance."""
    return list(dict.fromkeys(zip(table.video_id.tolist(), table.entity_id.tolist(), strict=True)))


def reference_of_rttm(path: Path, video_ids: Sequence[str]) -> Reference:
    """Reads reference turns.

    Args:
        path: a file or a folder.
        video_ids: of the scores. A blank in one is ``_`` in RTTM.

    Raises:
        AvfusionError: the files cannot be read or hold no turn; two video ids differ only in blanks.
    """
    refuse_same_names(video_ids)
    own_id = {rttm_name(video_id): video_id for video_id in video_ids}
    turns: dict[str, list[Turn]] = {}
    for turn in read_rttm(path):
        turns.setdefault(own_id.get(turn.video_id, turn.video_id), []).append(turn)
    if not turns:
        raise AvfusionError(f"{path}: no SPEAKER line, expected the turns of a reference")
    return Reference(path, turns)


def reference_of_labels(
    path: Path, labels: LabelTable, scored: Sequence[FaceKey], people: Mapping[FaceKey, str] | None, map_path: str
) -> Reference:
    """Makes reference turns of labels.

    Args:
        path: the label file.
        labels: what is in it.
        scored: the tracks of the scores.
        people: the map of identities; None: every labelled track is its own speaker.
        map_path: the file of that map.

    Raises:
        AvfusionError: a labelled track of a scored video is not in the map, or the rows are no tracks.
    """
    labelled, videos = faces_of(labels), {video_id for video_id, _ in scored}
    speakers = {face: face[1] for face in labelled}
    if people is not None:
        speakers |= speakers_by_map([face for face in labelled if face[0] in videos], people, map_path)
    speech = labelled_speech(labels, speakers)
    turns = {video_id: [s.turn for s in stretches] for video_id, stretches in speech.items()}
    return Reference(path, turns, (_meaning(path), *_unshared_tracks(scored, labelled)))


def _meaning(path: Path) -> str:
    return (
        f"reference: the stretches of SPEAKING_AUDIBLE in {path}; speech off screen is not in the labels: nobody misses"
        " it, and on a face it is a false alarm"
    )


def _unshared_tracks(scored: Sequence[FaceKey], labelled: Sequence[FaceKey]) -> list[str]:
    """Notes on tracks that only one side has, in videos that both have."""
    known, videos = set(labelled), {video_id for video_id, _ in scored}
    both = videos & {video_id for video_id, _ in known}
    entries = {face: entry_of(face, known) for face in scored if face[0] in both}
    in_both = {face for face in known if face[0] in both}
    unlabelled = sum(entry is None for entry in entries.values())
    unscored = len(in_both - set(entries.values()))
    notes = []
    if unlabelled:
        notes.append(f"{unlabelled} of {len(entries)} scored tracks have no labels: their speech is a false alarm")
    if unscored:
        notes.append(f"{unscored} of {len(in_both)} labelled tracks have no scores: their speech is missed")
    return notes


def unshared_videos(scores: Path, video_ids: Sequence[str], reference: Reference) -> list[str]:
    """Notes on the videos that only the scores or only the reference has.

    Raises:
        AvfusionError: no video is in both.
    """
    without = [video_id for video_id in video_ids if video_id not in reference.turns]
    unscored = [video_id for video_id in reference.turns if video_id not in set(video_ids)]
    if len(without) == len(video_ids):
        raise AvfusionError(
            f"no video of {scores} ({_some(video_ids)}) is in {reference.path} ({_some(unscored)}); expected the same"
            " video ids in both"
        )
    notes = []
    if without:
        notes.append(f"no reference for {len(without)} of {len(video_ids)} scored videos, left out: {_some(without)}")
    if unscored:
        total = len(reference.turns)
        notes.append(f"no scores for {len(unscored)} of {total} reference videos, left out: {_some(unscored)}")
    return notes


def _some(video_ids: Sequence[str]) -> str:
    return ", ".join(video_ids[:VIDEOS_NAMED]) + (", ..." if len(video_ids) > VIDEOS_NAMED else "")
