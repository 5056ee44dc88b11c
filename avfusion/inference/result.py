"""What a film was found to hold: its faces, each with a score in every frame, and the film they are scored in.

Shapes: ``T`` video frames of a face track at 25 per second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.faces.track_records import DetectedTrack


@dataclass(frozen=True, eq=False)
class ScoredFace:
    """One face track with its scores.

    Attributes:
        track: where the face is, in pixels of the ingested film.
        raw: ``(T,)`` float32, the model's probabilities 0..1 that this face is the one being heard.
        scores: ``(T,)`` float32, the same smoothed over time.
    """

    track: DetectedTrack
    raw: NDArray[np.float32]
    scores: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Result:
    """A film that has been looked at and listened to.

    Attributes:
        video_id: names the film in the tables.
        source: the user's file.
        video: the ingested film, constant 25 fps from time 0.
        audio: its sound, 16 kHz mono on the same clock.
        sound_lag_frames: by how many frames it comes late, which the scores take out.
        width: of the ingested film's picture in pixels; ``height`` likewise.
        num_frames: of the ingested film.
        faces: in order of their first frame.
        threshold: a face speaks where its score is at least this.
        notes: what a user should know of this film, a sentence each.
        facts: what the report says of how it was made (model, settings, faces), ready for JSON; no seconds, so that
            the outputs of one film are the same whenever they are made.
    """

    video_id: str
    source: Path
    video: Path
    audio: Path
    width: int
    height: int
    num_frames: int
    faces: tuple[ScoredFace, ...]
    threshold: float
    sound_lag_frames: int = 0
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
