"""Which rows of a split make up a subset: by face width, faces in the frame, length of the track, sound, category.

The bins of face width (below 64, 64 to 128, above 128 pixels) and of faces in the frame (1, 2, 3 and more) are those in
which papers of the field split AVA-ActiveSpeaker. Its labels give boxes as fractions and no picture size, so pixels are
those of the picture scaled to one width for all videos, ``PICTURE_WIDTH_PX`` unless another is given: widths in pixels
of the films as somebody has them differ from that. Lengths of tracks have no common bins; these hold about a sentence
fragment, a sentence, a turn (AVA's tracks last 10 s at most).

Sources: Roth et al., AVA-ActiveSpeaker (2020); Alcázar et al., Active Speakers in Context (2020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.evaluation.boxes import in_fractions
from avfusion.evaluation.figures import figures_of
from avfusion.evaluation.groups import FaceKey, group_index, independent_groups
from avfusion.evaluation.join import SAME_FRAME_MS, Joined
from avfusion.evaluation.subset_files import Stretches

PICTURE_WIDTH_PX = 1280
FACE_WIDTH, FACES_IN_FRAME, TRACK_LENGTH = "face width", "faces in frame", "track length"
SOUND, CATEGORY = "sound", "category"
NOT_ANNOTATED = "not annotated"


@dataclass(frozen=True, eq=False)
class Subset:
    """Some of ``N`` rows.

    Attributes:
        kind: what the rows are told apart by.
        name: of the subset within its kind.
        kept: ``(N,)`` bool.
    """

    kind: str
    name: str
    kept: NDArray[np.bool_]


@dataclass(frozen=True)
class SubsetRow:
    """Figures of a subset, in 0..1; None where its rows do not allow one.

    Attributes:
        kind: what the rows are told apart by.
        name: of the subset within its kind.
        average_precision: VOC AP over its rows alone.
        average_precision_interval: 95 % bootstrap interval over the groups of its rows.
        auroc: area under the ROC curve; unlike AP it does not move with the share of positives.
        auroc_interval: as above.
        prevalence: share of positives, the AP of a constant score.
        num_rows: face boxes.
        num_positive: face boxes that speak audibly.
        num_tracks: face tracks.
        num_videos: videos or scenes.
        num_groups: what the intervals resample, as in :class:`~avfusion.evaluation.report.Report`.
        reason: why a figure or its interval is None or says little; empty elsewhere, and for intervals not asked for.
    """

    kind: str
    name: str
    average_precision: float | None
    average_precision_interval: tuple[float, float] | None
    auroc: float | None
    auroc_interval: tuple[float, float] | None
    prevalence: float | None
    num_rows: int
    num_positive: int
    num_tracks: int
    num_videos: int
    num_groups: int
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and None, as JSON takes them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def subsets(
    joined: Joined,
    *,
    picture_width_px: float = PICTURE_WIDTH_PX,
    sound: Stretches | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
) -> list[Subset]:
    """All subsets of a split, kind by kind; the empty ones of the first three kinds as well.

    Those of the face width are left out where a box cannot be fractions of the picture.

    Args:
        joined: labels and scores.
        picture_width_px: width to which boxes are scaled.
        sound: what is heard when, as AVA-Speech says it; None leaves this kind out.
        categories: the categories of each video that has some; None leaves this kind out.
    """
    width_px, faces = face_widths_px(joined, picture_width_px), faces_in_frame(joined)
    widths = _binned(FACE_WIDTH, _WIDTH_NAMES, (width_px >= 64).astype(np.int64) + (width_px > 128))
    found = [
        *(widths if in_fractions(joined.boxes_xyxy).all() else []),
        *_binned(FACES_IN_FRAME, _FACES_NAMES, np.minimum(faces, 3) - 1),
        *_binned(TRACK_LENGTH, _LENGTH_NAMES, np.searchsorted(_LENGTHS_S, track_lengths_s(joined))),
    ]
    if sound is not None:
        names = sound.labels_at(joined.video_id, joined.timestamp_ms)
        known = sorted(set(names.tolist()) - {""})
        found += [Subset(SOUND, name, names == name) for name in known]
        found += [Subset(SOUND, NOT_ANNOTATED, names == "")] if (names == "").any() else []
    if categories is not None:
        video, videos = joined.videos
        of_video = [set(categories.get(name, ())) for (name,) in videos]
        for category in sorted(set().union(*of_video)):
            found.append(Subset(CATEGORY, category, np.array([category in own for own in of_video])[video]))
    return found


def subset_rows(
    joined: Joined,
    chosen: Sequence[Subset],
    *,
    resamples: int = 1000,
    seed: int = 0,
    group_of_entity: Mapping[FaceKey, str] | None = None,
) -> list[SubsetRow]:
    """Measures each subset by itself.

    Args:
        joined: labels and scores of the split.
        chosen: what :func:`subsets` found in it.
        resamples: bootstrap resamples of the groups; 0 for no intervals.
        seed: seed of the bootstrap.
        group_of_entity: (video_id, entity_id) to the group that is drawn as a whole; None draws whole videos.

    Raises:
        AvfusionError: a track has no group.
    """
    face, _ = joined.faces
    video, _ = joined.videos
    group, _ = group_index(independent_groups(joined.video_id, joined.entity_id, group_of_entity))
    rows = []
    for subset in chosen:
        kept = subset.kept
        labels, scores = joined.speaking[kept], joined.score[kept]
        figures = figures_of(labels, scores, group[kept], resamples, seed)
        rows.append(
            SubsetRow(
                kind=subset.kind,
                name=subset.name,
                **{name: figures[name] for name in _FIGURES},
                prevalence=float(labels.mean()) if len(labels) else None,
                num_rows=len(labels),
                num_positive=int(labels.sum()),
                num_tracks=_distinct(face[kept]),
                num_videos=_distinct(video[kept]),
                num_groups=_distinct(group[kept]),
            )
        )
    return rows


def face_widths_px(joined: Joined, picture_width_px: float = PICTURE_WIDTH_PX) -> NDArray[np.float64]:
    """``(N,)`` widths of the boxes in a picture of that width, to a hundredth of a pixel."""
    boxes = joined.boxes_xyxy.astype(np.float64)
    return np.round((boxes[:, 2] - boxes[:, 0]) * picture_width_px, 2)  # else 0.1 of 640 may be 63.999999


def faces_in_frame(joined: Joined) -> NDArray[np.int64]:
    """``(N,)`` how many faces of the table stand in the frame of each row: same video, times within 5 ms."""
    video, _ = joined.videos
    face, faces = joined.faces
    order = np.lexsort((joined.timestamp_ms, video))
    video, time_ms = video[order], joined.timestamp_ms[order]
    other = (video[1:] != video[:-1]) | (time_ms[1:] - time_ms[:-1] > SAME_FRAME_MS)
    frame = np.empty(len(order), np.int64)
    frame[order] = np.append(0, np.cumsum(other))
    held = np.sort(frame * len(faces) + face)
    held = held[np.append(True, held[1:] != held[:-1])]  # a face counts once; many times faster than np.unique
    return np.bincount(held // len(faces))[frame]


def track_lengths_s(joined: Joined) -> NDArray[np.float64]:
    """``(N,)`` seconds from the first to the last row of each row's track."""
    face, faces = joined.faces
    first, last = np.full(len(faces), np.iinfo(np.int64).max), np.full(len(faces), -1, np.int64)
    np.minimum.at(first, face, joined.timestamp_ms)
    np.maximum.at(last, face, joined.timestamp_ms)
    lengths_s: NDArray[np.float64] = (last - first) / 1000
    return lengths_s[face]


_FIGURES = ("average_precision", "average_precision_interval", "auroc", "auroc_interval", "reason")
_WIDTH_NAMES = ("below 64 px", "64 to 128 px", "above 128 px")
_FACES_NAMES = ("1", "2", "3 or more")
_LENGTHS_S = (1.0, 3.0, 6.0)  # each belongs to the bin below it
_LENGTH_NAMES = ("up to 1 s", "1 to 3 s", "3 to 6 s", "above 6 s")


def _binned(kind: str, names: Sequence[str], row_bin: NDArray[np.int64]) -> list[Subset]:
    return [Subset(kind, name, row_bin == index) for index, name in enumerate(names)]


def _distinct(numbers: NDArray[np.int64]) -> int:
    return int(np.count_nonzero(np.bincount(numbers)))
