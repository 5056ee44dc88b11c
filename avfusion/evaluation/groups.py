"""Groups of rows: which video, which face, or which unit of independent evidence each of ``N`` rows belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError

FaceKey = tuple[str, str]  # video_id, entity_id


def group_index(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], list[tuple[Any, ...]]]:
    """Numbers the distinct combinations of the columns in order of first appearance.

    Args:
        columns: one or more ``(N,)`` columns, such as ``video_id`` and ``entity_id``.

    Returns:
        ``(N,)`` group numbers from 0, and the combination that each number stands for.
    """
    count = len(columns[0])
    if not count:
        return np.empty(0, np.int64), []
    if len(columns) == 1 and columns[0].dtype.kind == "i":  # numbers of groups: many times as fast in any row order
        values, first, index = np.unique(columns[0], return_index=True, return_inverse=True)
        rank = np.empty(len(values), np.int64)
        rank[np.argsort(first)] = np.arange(len(values))
        return rank[index], [(value,) for value in values[np.argsort(first)].tolist()]
    # Rows of a face mostly follow each other, so only the first of each stretch is looked up. A dict keeps text of any
    # length cheap, where np.unique would sort a million Python strings.
    first = np.append(0, np.flatnonzero(np.logical_or.reduce([column[1:] != column[:-1] for column in columns])) + 1)
    numbers: dict[tuple[Any, ...], int] = {}
    rows = zip(*(column[first] for column in columns), strict=True)
    index = np.fromiter((numbers.setdefault(key, len(numbers)) for key in rows), np.int64, count=len(first))
    return np.repeat(index, np.diff(np.append(first, count))), list(numbers)


def names_of_faces(faces: Sequence[FaceKey], names: Mapping[FaceKey, str], kind: str) -> list[str]:
    """Looks up what is known about each face.

    Args:
        faces: the faces of a split.
        names: what is known, such as their roles; faces of other splits may be in it.
        kind: what the names are, for the message.

    Raises:
        AvfusionError: a face has no entry.
    """
    absent = [face for face in faces if face not in names]
    if absent:
        raise AvfusionError(
            f"no {kind} for {len(absent)} of {len(faces)} tracks, first {absent[0][1]!r} in {absent[0][0]!r}, expected "
            "one for each: scores and tracks come from different datasets or splits"
        )
    return [names[face] for face in faces]


def independent_groups(
    video_id: NDArray[Any], entity_id: NDArray[Any], group_of_entity: Mapping[FaceKey, str] | None
) -> NDArray[Any]:
    """What a bootstrap draws as a whole: the group of each row's track, or its video where no groups are known.

    Args:
        video_id: ``(N,)``.
        entity_id: ``(N,)``.
        group_of_entity: (video_id, entity_id) to group, as :func:`~avfusion.evaluation.roles.track_groups` gives it;
            an empty group stands for the video. None: every row counts with its video.

    Returns:
        ``(N,)`` str objects; rows with the same text are not independent of each other.

    Raises:
        AvfusionError: a track has no entry.
    """
    if group_of_entity is None:
        return video_id
    face, faces = group_index(video_id, entity_id)
    groups = names_of_faces(faces, group_of_entity, "group")
    named = [group or video for (video, _), group in zip(faces, groups, strict=True)]
    return np.array(named, dtype=np.object_)[face]
