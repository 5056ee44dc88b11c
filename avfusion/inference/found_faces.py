"""The stage that finds faces: the tracks of a film, kept in one file.

faces.npz   for each of F tracks its id, shot, first frame and length; for all their N boxes together x1, y1, x2, y2
            in pixels of the ingested film, the confidence, and whether each was detected or interpolated
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.faces.detect import Detector
from avfusion.faces.track import find_tracks
from avfusion.faces.track_records import DetectedTrack, TrackReport, TrackSettings
from avfusion.files import whole_file


def find_faces(
    video: Path, num_frames: int, detector: Detector, shortest_frames: int
) -> tuple[list[DetectedTrack], TrackReport]:
    """Finds the faces of an ingested film.

    Args:
        video: the film.
        num_frames: of it.
        detector: see :mod:`avfusion.faces.detect`.
        shortest_frames: shorter tracks are dropped; in a film that is shorter itself none is, for that.

    Returns:
        The tracks by their first frame, from left to right where that is the same, named ``face0``, ``face1`` .. in
        that order; and what was left out.
    """
    report = TrackReport()
    settings = TrackSettings(shortest_frames=min(shortest_frames, num_frames))
    with tqdm(total=num_frames, desc="faces", unit="frame", leave=False, disable=None) as bar:
        found = list(find_tracks(video, detector, settings, report, on_picture=bar.update))
    found.sort(key=lambda track: (track.start_frame, float(track.boxes_xyxy_px[0, 0])))
    return [replace(track, entity_id=f"face{number}") for number, track in enumerate(found)], report


def save_tracks(path: Path, tracks: Sequence[DetectedTrack]) -> None:
    """Writes tracks; atomic."""
    with whole_file(path) as part, part.open("wb") as file:
        np.savez(
            file,
            entity_id=np.array([track.entity_id for track in tracks], dtype=np.str_),
            shot=np.array([track.shot for track in tracks], dtype=np.int64),
            start_frame=np.array([track.start_frame for track in tracks], dtype=np.int64),
            num_frames=np.array([track.num_frames for track in tracks], dtype=np.int64),
            boxes_xyxy_px=_joined([track.boxes_xyxy_px for track in tracks], (0, 4), np.float32),
            seen=_joined([track.seen for track in tracks], (0,), np.uint8),
            confidence=_joined([track.confidence for track in tracks], (0,), np.float32),
        )


def load_tracks(path: Path) -> list[DetectedTrack]:
    """Reads what :func:`save_tracks` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        ends = np.cumsum(arrays["num_frames"])[:-1]
        boxes, seen, confidence = (np.split(arrays[name], ends) for name in ("boxes_xyxy_px", "seen", "confidence"))
        facts = zip(arrays["entity_id"].tolist(), arrays["shot"].tolist(), arrays["start_frame"].tolist(), strict=True)
        return [
            DetectedTrack(entity_id, shot, start_frame, boxes[number], seen[number], confidence[number])
            for number, (entity_id, shot, start_frame) in enumerate(facts)
        ]


def _joined(parts: Sequence[NDArray[np.generic]], empty: tuple[int, ...], dtype: type) -> NDArray[np.generic]:
    joined: NDArray[np.generic] = np.concatenate([np.zeros(empty, dtype), *parts])
    return joined
