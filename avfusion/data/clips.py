"""What every dataset is: a list of face tracks, and a way to read any stretch of one with its sound.

Shapes: ``T`` video frames, ``640 T`` sound samples (16 kHz mono) that belong to exactly those frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from avfusion.tracks import FaceTrack


@dataclass(frozen=True)
class Clip:
    """A stretch of one face track, decoded.

    Attributes:
        crops: ``(T, H, W)`` uint8 grey face pictures.
        audio: ``(640 T,)`` float32 in -1..1, the sound of those frames.
        speaking: ``(T,)`` bool labels.
    """

    crops: NDArray[np.uint8]
    audio: NDArray[np.float32]
    speaking: NDArray[np.bool_]


@dataclass(frozen=True)
class Skipped:
    """Tracks of a split that are left out because they cannot be used.

    Attributes:
        tracks: (video_id, entity_id) of each.
        total: how many tracks the split lists, those included.
        reasons: what is wrong, and how many tracks it concerns (a track may have several faults).
        orphans: ids that have label rows and no track: those rows are left out too.
    """

    tracks: frozenset[tuple[str, str]] = frozenset()
    total: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    orphans: frozenset[tuple[str, str]] = frozenset()


class ClipDataset(Protocol):
    """Face tracks known without touching media, and clips read on demand (inside the worker)."""

    name: str
    tracks: Sequence[FaceTrack]
    skipped: Skipped  # tracks that were left out

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """Reads frames ``first_frame ..`` of track ``index`` with the sound of exactly those frames."""
        ...
