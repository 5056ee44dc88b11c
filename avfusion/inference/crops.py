"""The stage that cuts faces out: the crops of a film and its sound as a prepared dataset of the one split ``own``.

Crops are made by the rule of training (:mod:`avfusion.faces.crop`), so a model sees what it learnt from, and whatever
reads a prepared dataset reads this one too: ``eval.py``, ``python -m avfusion.alignment``, ``data_prep.verify``.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from avfusion.config import DataConfig
from avfusion.data.prepared_tables import TrackRow
from avfusion.data.prepared_writer import PreparedWriter, SceneRecord, audio_path, crops_path
from avfusion.faces.crop import CROP_SCALE
from avfusion.faces.extract import extract_tracks
from avfusion.faces.track_records import DetectedTrack
from avfusion.files import whole_file
from avfusion.media.ingest import Ingested
from avfusion.media.write import CropWriter

SPLIT = "own"
STORED_PX = 112  # what data_prep stores unless told otherwise


def stored_crop_px(data: DataConfig) -> int:
    """Side of the crops to store for a model: as in training, or more where the region it sees needs more.

    Args:
        data: the model's; ``crop_size`` pixels of ``region`` are what it sees.
    """
    x1, y1, x2, y2 = data.region
    needed_px = data.crop_size / max(x2 - x1, y2 - y1)
    return max(STORED_PX, 2 * math.ceil(needed_px / 2 - 1e-9))


def write_dataset(
    root: Path, film: Ingested, tracks: Sequence[DetectedTrack], video_id: str, crop_px: int, command: str
) -> list[Path]:
    """Writes the dataset of one film, anew.

    Args:
        root: its folder; what lies there is removed.
        film: the film.
        tracks: its faces.
        video_id: names the film in the tables.
        crop_px: height and width of the crops.
        command: the command line, for the record.

    Returns:
        The files that were written.

    Raises:
        AvfusionError: the film cannot be decoded.
    """
    shutil.rmtree(root, ignore_errors=True)
    width, height = film.details["width"], film.details["height"]
    settings = {"corpus": SPLIT, "crop_size": crop_px, "crop_scale": CROP_SCALE}
    writer = PreparedWriter(root, video_id, command, crop_px, settings)
    crops_of = {track.entity_id: crops_path(SPLIT, track.entity_id) for track in tracks}
    sound = audio_path(SPLIT, video_id)
    _same_file(film.audio, root / sound)
    _write_crops(root, film, tracks, crops_of, crop_px)
    rows = [
        TrackRow(
            split=SPLIT,
            video_id=video_id,
            entity_id=track.entity_id,
            start_s=track.on_grid(width, height).start_s,
            num_frames=track.num_frames,
            crops=crops_of[track.entity_id],
            audio=sound,
            source=SPLIT,
            labelled=False,
        )
        for track in tracks
    ]
    if rows:
        boxes = [track.on_grid(width, height).boxes_xyxy for track in tracks]
        silent = [np.zeros(track.num_frames, dtype=np.bool_) for track in tracks]
        writer.add_scene(f"{SPLIT}/{video_id}", SceneRecord(rows, silent, boxes, {}))
    writer.finish()
    return sorted(path for path in root.rglob("*") if path.is_file())


def _write_crops(
    root: Path, film: Ingested, tracks: Sequence[DetectedTrack], crops_of: dict[str, str], crop_px: int
) -> None:
    """Cuts all faces in one walk through the film, each into its own file."""
    width, height = film.details["width"], film.details["height"]
    pieces = [track.on_grid(width, height) for track in tracks]
    writers: dict[str, CropWriter] = {}
    try:
        with tqdm(total=film.num_frames, desc="crops", unit="frame", leave=False, disable=None) as bar:
            for piece, index, crop in extract_tracks(film.video, pieces, crop_px):
                if index == 0:
                    writers[piece.entity_id] = CropWriter(root / crops_of[piece.entity_id], (crop_px, crop_px))
                writers[piece.entity_id].add(crop)
                if index + 1 == piece.num_frames:
                    writers.pop(piece.entity_id).close()
                bar.update(piece.start_frame + index + 1 - bar.n)
    finally:
        for writer in writers.values():
            writer.discard()


def _same_file(source: Path, target: Path) -> None:
    """Gives a file a second name, or copies it where the file system has no such names."""
    with whole_file(target) as part:
        try:
            os.link(source, part)
        except OSError:
            shutil.copyfile(source, part)
