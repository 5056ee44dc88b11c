"""How well each kind of example is told apart: figures for the tracks of each role, and for each corpus.

A role's row holds the frames of its own tracks, speaking and not. Where its tracks speak at some time (``solo``,
``turns``), they are measured against themselves: does the model know when? Where they never speak (``shifted``,
``surrogate``), their frames are measured against the speaking frames of the reference roles, plain talkers whose sound
is their own: would the model take them for one? Roles differ in size, so their AP differ by chance alone (chance AP =
share of positives); AUROC does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.evaluation.bootstrap import bootstrap_interval
from avfusion.evaluation.groups import FaceKey, group_index, independent_groups, names_of_faces
from avfusion.evaluation.join import Joined
from avfusion.evaluation.ranking import Ranking
from avfusion.tracks import FaceTrack

UNKNOWN = "unknown"
OWN, ALL = "own", "all"


@dataclass(frozen=True)
class RoleRow:
    """The tracks of one role.

    Attributes:
        role: what the tracks are; ``unknown`` for those whose role is empty.
        average_precision: VOC AP over the rows below.
        average_precision_interval: its 95 % bootstrap interval over groups (videos where none are known); None for one
            group.
        chance: AP of a constant score over the same rows: the share of positives.
        auroc: probability that a positive scores higher than a negative; None where the role has no negative frame.
        auroc_interval: its 95 % bootstrap interval over groups.
        mean_negative_score: mean score of the role's negative frames; None where it has none.
        mean_positive_score: mean score of the role's own positive frames; None where it has none.
        num_frames: frames of the role's own tracks.
        num_tracks: tracks of the role.
        positives: which positives its negatives are measured against: ``own``, the reference roles that have some
            (``own_sound, solo``), or ``all`` of the split where no reference role speaks.
        num_positive_frames: how many these are.
    """

    role: str
    average_precision: float
    average_precision_interval: tuple[float, float] | None
    chance: float
    auroc: float | None
    auroc_interval: tuple[float, float] | None
    mean_negative_score: float | None
    mean_positive_score: float | None
    num_frames: int
    num_tracks: int
    positives: str
    num_positive_frames: int


@dataclass(frozen=True, eq=False)
class RoleSelection:
    """Which of ``N`` rows measure a role.

    Attributes:
        role: as in :class:`RoleRow`.
        own: ``(N,)`` bool, the frames of its own tracks.
        kept: ``(N,)`` bool, those and the positives of others that they are measured against.
        positives: as in :class:`RoleRow`.
    """

    role: str
    own: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    positives: str


@dataclass(frozen=True)
class SourceRow:
    """One corpus by itself: its own positives against its own negatives.

    Attributes:
        source: the corpus.
        average_precision: VOC AP within the corpus; None where nothing in it speaks.
        average_precision_interval: 95 % bootstrap interval over the groups of the corpus (its videos where none are
            known); None for one group.
        chance: share of positive frames, the AP of a constant score.
        auroc: within the corpus; None where frames are all of one kind.
        auroc_interval: as above.
        num_frames: frames of the corpus.
        num_tracks: tracks of the corpus.
        num_videos: videos of the corpus.
    """

    source: str
    average_precision: float | None
    average_precision_interval: tuple[float, float] | None
    chance: float
    auroc: float | None
    auroc_interval: tuple[float, float] | None
    num_frames: int
    num_tracks: int
    num_videos: int


def track_roles(tracks: Iterable[FaceTrack]) -> dict[FaceKey, str]:
    """The role of each track, as :func:`per_role` takes it."""
    return {(track.video_id, track.entity_id): track.role for track in tracks}


def track_sources(tracks: Iterable[FaceTrack]) -> dict[FaceKey, str]:
    """The corpus of each track, as :func:`per_source` takes it."""
    return {(track.video_id, track.entity_id): track.source for track in tracks}


def track_groups(tracks: Iterable[FaceTrack]) -> dict[FaceKey, str]:
    """What a bootstrap draws as a whole for each track: its group, or its video where it has none."""
    return {(track.video_id, track.entity_id): track.group or track.video_id for track in tracks}


def per_role(
    joined: Joined,
    role_of_entity: Mapping[FaceKey, str],
    reference_roles: Collection[str],
    resamples: int = 1000,
    seed: int = 0,
    group_of_entity: Mapping[FaceKey, str] | None = None,
) -> list[RoleRow]:
    """Measures each role by itself, with the positives of the reference roles where it has none.

    Args:
        joined: labels and scores of the split.
        role_of_entity: (video_id, entity_id) to role; tracks of other splits may be in it.
        reference_roles: roles of plain talkers with their own sound; those that do not occur do not matter.
        resamples: bootstrap resamples of the groups; 0 for no intervals.
        seed: seed of the bootstrap.
        group_of_entity: (video_id, entity_id) to the group that is drawn as a whole; None draws whole videos.

    Returns:
        One row per role that occurs, by name.

    Raises:
        AvfusionError: the split has no positive frame, or a track has no entry.
    """
    groups = independent_groups(joined.video_id, joined.entity_id, group_of_entity)
    speaking, score = joined.speaking, joined.score
    rows = []
    for chosen in role_selections(joined, role_of_entity, reference_roles):
        own, kept = chosen.own, chosen.kept
        spoken, unspoken = own & speaking, own & ~speaking
        rows.append(
            RoleRow(
                role=chosen.role,
                **_figures(speaking[kept], score[kept], groups[kept], resamples, seed),
                chance=float(speaking[kept].mean()),
                mean_negative_score=float(score[unspoken].mean()) if unspoken.any() else None,
                mean_positive_score=float(score[spoken].mean()) if spoken.any() else None,
                num_frames=int(own.sum()),
                num_tracks=len(group_index(joined.video_id[own], joined.entity_id[own])[1]),
                positives=chosen.positives,
                num_positive_frames=int(speaking[kept].sum()),
            )
        )
    return rows


def role_selections(
    joined: Joined, role_of_entity: Mapping[FaceKey, str], reference_roles: Collection[str]
) -> list[RoleSelection]:
    """Chooses the rows that measure each role.

    Args:
        joined: labels and scores of the split.
        role_of_entity: (video_id, entity_id) to role; tracks of other splits may be in it.
        reference_roles: roles of plain talkers with their own sound; those that do not occur do not matter.

    Returns:
        One selection per role that occurs, by name.

    Raises:
        AvfusionError: the split has no positive frame, or a track has no entry.
    """
    face, faces = group_index(joined.video_id, joined.entity_id)
    names = [name or UNKNOWN for name in names_of_faces(faces, role_of_entity, "role")]
    speaking, role = joined.speaking, np.array(names)[face]
    if not speaking.any():
        raise AvfusionError(f"none of {len(joined)} rows is SPEAKING_AUDIBLE, expected positives to compare roles with")
    talkers = sorted(set(role[speaking].tolist()) & set(reference_roles))
    reference = speaking & np.isin(role, talkers) if talkers else speaking
    selections = []
    for name in sorted(set(names)):
        own = role == name
        if (own & speaking).any():
            selections.append(RoleSelection(name, own, own, OWN))
        else:
            selections.append(RoleSelection(name, own, own | reference, ", ".join(talkers) or ALL))
    return selections


def _figures(
    labels: NDArray[np.bool_], scores: NDArray[np.float64], groups: NDArray[Any], resamples: int, seed: int
) -> dict[str, Any]:
    """AP and AUROC of some rows, at least one of them positive, with their intervals."""
    ranking = Ranking(labels, scores)
    both = not labels.all()

    def average_precision(weights: NDArray[np.float64]) -> float:
        # A drawn set of groups without negatives says nothing; counted, its AP of 1 would flatter a role of few scenes.
        return ranking.average_precision(weights) if not both or weights[~labels].any() else float("nan")

    return {
        "average_precision": ranking.average_precision(),
        "average_precision_interval": bootstrap_interval(groups, average_precision, resamples, seed=seed),
        "auroc": ranking.auroc() if both else None,
        "auroc_interval": bootstrap_interval(groups, ranking.auroc, resamples, seed=seed) if both else None,
    }


_NOTHING = dict.fromkeys(("average_precision", "average_precision_interval", "auroc", "auroc_interval"))


def per_source(
    joined: Joined,
    source_of_entity: Mapping[FaceKey, str],
    resamples: int = 1000,
    seed: int = 0,
    group_of_entity: Mapping[FaceKey, str] | None = None,
) -> list[SourceRow]:
    """Measures each corpus by itself.

    Args:
        joined: labels and scores of the split.
        source_of_entity: (video_id, entity_id) to corpus; tracks of other splits may be in it.
        resamples: bootstrap resamples of the groups; 0 for no intervals.
        seed: seed of the bootstrap.
        group_of_entity: (video_id, entity_id) to the group that is drawn as a whole; None draws whole videos.

    Returns:
        One row per corpus, by name.

    Raises:
        AvfusionError: a track has no entry.
    """
    face, faces = group_index(joined.video_id, joined.entity_id)
    names = [name or UNKNOWN for name in names_of_faces(faces, source_of_entity, "source")]
    source = np.array(names)[face]
    groups = independent_groups(joined.video_id, joined.entity_id, group_of_entity)
    rows = []
    for name in sorted(set(source.tolist())):
        kept = source == name
        labels = joined.speaking[kept]
        some = labels.any()
        rows.append(
            SourceRow(
                source=name,
                **(_figures(labels, joined.score[kept], groups[kept], resamples, seed) if some else _NOTHING),
                chance=float(labels.mean()),
                num_frames=int(kept.sum()),
                num_tracks=len(np.unique(face[kept])),
                num_videos=len(group_index(joined.video_id[kept])[1]),
            )
        )
    return rows
