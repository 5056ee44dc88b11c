"""Results as the pipeline hands them over, of films and boxes that a test chooses, and their datasets of crops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avfusion.data.prepared_tables import TrackRow
from avfusion.data.prepared_writer import PreparedWriter, SceneRecord
from avfusion.faces.extract import extract_tracks
from avfusion.faces.track_records import DETECTED, DetectedTrack
from avfusion.inference.result import Result, ScoredFace
from avfusion.media.audio import read_audio
from avfusion.media.ingest import ingest


def face(
    name: str,
    start_frame: int,
    scores: Sequence[float] | NDArray[np.floating],
    box: Sequence[float] | NDArray[np.floating] = (10, 10, 40, 40),
    seen: Sequence[int] | None = None,
    raw: Sequence[float] | None = None,
    shot: int = 0,
) -> ScoredFace:
    """A face whose box stays, or ``(T, 4)`` boxes."""
    count = len(scores)
    boxes = np.broadcast_to(np.asarray(box, np.float32), (count, 4)).copy()
    looks = np.full(count, DETECTED, np.uint8) if seen is None else np.asarray(seen, np.uint8)
    track = DetectedTrack(name, shot, start_frame, boxes, looks, np.ones(count, np.float32))
    smooth = np.asarray(scores, np.float32)
    return ScoredFace(track, smooth if raw is None else np.asarray(raw, np.float32), smooth)


def result_of(
    faces: Sequence[ScoredFace],
    folder: Path = Path("media"),
    source: Path = Path("talk.mp4"),
    size: tuple[int, int] = (160, 64),
    num_frames: int = 100,
    video_id: str = "talk",
    threshold: float = 0.5,
) -> Result:
    """A result whose film lies in a folder as ingest leaves it, or nowhere."""
    return Result(
        video_id, source, folder / "video.mp4", folder / "audio.flac", *size, num_frames, tuple(faces), threshold
    )


def ingested_result(source: Path, folder: Path, faces: Sequence[ScoredFace], **options: bool) -> Result:
    """A result on a film that is ingested into a folder."""
    film = ingest(source, folder, **options)
    size = (film.details["width"], film.details["height"])
    return result_of(faces, folder, source, size, film.num_frames)


def write_crops_of(result: Result, root: Path, crop_px: int = 48) -> Path:
    """The dataset that belongs to a result, split ``own``, made by the rule of training."""
    writer = PreparedWriter(root, result.video_id, "python -m test", crop_px, settings={})
    audio = writer.audio("own", result.video_id, read_audio(result.audio))
    tracks = [one.track for one in result.faces]
    crops: dict[str, list[NDArray[np.uint8]]] = {track.entity_id: [] for track in tracks}
    for piece, _, crop in extract_tracks(
        result.video, [track.on_grid(result.width, result.height) for track in tracks], crop_px
    ):
        crops[piece.entity_id].append(crop)
    rows = [
        TrackRow(
            split="own",
            video_id=result.video_id,
            entity_id=track.entity_id,
            start_s=track.start_frame / 25,
            num_frames=track.num_frames,
            crops=writer.crops("own", track.entity_id, np.stack(crops[track.entity_id])),
            audio=audio,
            labelled=False,
        )
        for track in tracks
    ]
    silent = [np.zeros(track.num_frames, dtype=np.bool_) for track in tracks]
    boxes = [track.on_grid(result.width, result.height).boxes_xyxy for track in tracks]
    writer.add_scene(result.video_id, SceneRecord(rows, silent, boxes, {}))
    writer.finish()
    return root
