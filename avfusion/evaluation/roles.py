"""Which negatives fool the model: figures for each kind of negative frame, and for each corpus.

Every negative frame of the split belongs to exactly one kind: a face that speaks at some other time of its track gives
``pauses``, any other track gives the kind that its role names (``shifted``, ``other_voice`` ...; ``unknown`` where the
role is empty). A kind is measured against ALL positive frames of the split. Kinds differ in size, so their AP differ by
chance alone (chance AP = share of positives); AUROC does not, and is the figure to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from avfusion.errors import AvfusionError
from avfusion.evaluation.bootstrap import bootstrap_interval
from avfusion.evaluation.groups import FaceKey, group_index, independent_groups, names_of_faces
from avfusion.evaluation.join import Joined
from avfusion.evaluation.ranking import Ranking
from avfusion.tracks import FaceTrack

PAUSES = "pauses"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class RoleRow:
    """One kind of negative frame against all positive frames of the split.

    Attributes:
        role: the kind: ``pauses``, or the role of tracks that never speak.
        average_precision: VOC AP over all positives and this kind's negatives.
        chance: AP of a constant score over the same rows, positives / (positives + negatives).
        auroc: probability that a positive frame of the split scores higher than a frame of this kind.
        auroc_interval: its 95 % bootstrap interval over groups (videos where none are known); None for one group.
        num_positive_frames: positive frames of the whole split, the same in each row.
        num_frames: negative frames of this kind.
        num_tracks: tracks these frames belong to.
        mean_score: mean score of the negative frames.
    """

    role: str
    average_precision: float
    chance: float
    auroc: float
    auroc_interval: tuple[float, float] | None
    num_positive_frames: int
    num_frames: int
    num_tracks: int
    mean_score: float


@dataclass(frozen=True)
class SourceRow:
    """One corpus by itself: its own positives against its own negatives.

    Attributes:
        source: the corpus.
        average_precision: VOC AP within the corpus; None where nothing in it speaks.
        chance: share of positive frames, the AP of a constant score.
        auroc: within the corpus; None where frames are all of one kind.
        auroc_interval: 95 % bootstrap interval over the groups of the corpus (its videos where none are known); None
            for one group.
        num_frames: frames of the corpus.
        num_tracks: tracks of the corpus.
        num_videos: videos of the corpus.
    """

    source: str
    average_precision: float | None
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
    resamples: int = 1000,
    seed: int = 0,
    group_of_entity: Mapping[FaceKey, str] | None = None,
) -> list[RoleRow]:
    """Measures each kind of negative frame against all positive frames.

    Args:
        joined: labels and scores of the split.
        role_of_entity: (video_id, entity_id) to role; tracks of other splits may be in it.
        resamples: bootstrap resamples of the groups; 0 for no intervals.
        seed: seed of the bootstrap.
        group_of_entity: (video_id, entity_id) to the group that is drawn as a whole; None draws whole videos.

    Returns:
        One row per kind that occurs, by name, ``pauses`` first.

    Raises:
        AvfusionError: the split has no positive frame, or a track has no entry.
    """
    face, faces = group_index(joined.video_id, joined.entity_id)
    names = [name or UNKNOWN for name in names_of_faces(faces, role_of_entity, "role")]
    groups = independent_groups(joined.video_id, joined.entity_id, group_of_entity)
    speaks = np.bincount(face, weights=joined.speaking, minlength=len(faces)) > 0
    kind_of_face = np.array([PAUSES if spoken else name for name, spoken in zip(names, speaks, strict=True)])
    kind, negative = kind_of_face[face], ~joined.speaking
    if negative.all():
        raise AvfusionError(f"none of {len(joined)} rows is SPEAKING_AUDIBLE, expected positives to compare roles with")
    rows = []
    for role in sorted(set(kind[negative].tolist()), key=lambda name: (name != PAUSES, name)):
        of_role = negative & (kind == role)
        kept = joined.speaking | of_role
        ranking = Ranking(joined.speaking[kept], joined.score[kept])
        rows.append(
            RoleRow(
                role=role,
                average_precision=ranking.average_precision(),
                chance=float(joined.speaking[kept].mean()),
                auroc=ranking.auroc(),
                auroc_interval=bootstrap_interval(groups[kept], ranking.auroc, resamples, seed=seed),
                num_positive_frames=int(joined.speaking.sum()),
                num_frames=int(of_role.sum()),
                num_tracks=len(np.unique(face[of_role])),
                mean_score=float(joined.score[of_role].mean()),
            )
        )
    return rows


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
        ranking = Ranking(labels, joined.score[kept])
        both = labels.any() and not labels.all()
        rows.append(
            SourceRow(
                source=name,
                average_precision=ranking.average_precision() if labels.any() else None,
                chance=float(labels.mean()),
                auroc=ranking.auroc() if both else None,
                auroc_interval=bootstrap_interval(groups[kept], ranking.auroc, resamples, seed=seed) if both else None,
                num_frames=int(kept.sum()),
                num_tracks=len(np.unique(face[kept])),
                num_videos=len(group_index(joined.video_id[kept])[1]),
            )
        )
    return rows
