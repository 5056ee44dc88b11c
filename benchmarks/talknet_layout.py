"""Writes face tracks in the TalkNet layout (see ``avfusion/data/talknet``): a JPEG per frame, a wav per track.

The wav is cut as TalkNet's own preparation cuts it: from the first row's time to the last row's, so the last frame has
no sound. ``N`` rows of a track, at any times.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from PIL import Image

from avfusion.clock import SAMPLE_RATE
from avfusion.data.annotations import read_annotations
from avfusion.data.clips import ClipDataset
from avfusion.data.talknet.tables import loader_text
from avfusion.tracks import LABEL_COLUMNS, POSITIVE_LABEL

FIELD_QUALITY = 95  # what cv2.imwrite, which TalkNet's preparation calls, uses by default


@dataclass(frozen=True)
class LayoutTrack:
    """One track as the layout keeps it.

    Attributes:
        video_id: the film.
        entity_id: the track.
        times_s: ``(N,)`` time of each row in the film.
        boxes_xyxy: ``(N, 4)`` fractions of the picture.
        labels: ``(N,)`` AVA's words.
        crops: ``N`` grey pictures ``(H, W)`` uint8 of any size.
        sound: 16 kHz mono from the first row's time on, at least to the last row's.
    """

    video_id: str
    entity_id: str
    times_s: NDArray[np.float64]
    boxes_xyxy: NDArray[np.float32]
    labels: Sequence[str]
    crops: Sequence[NDArray[np.uint8]]
    sound: NDArray[np.float32]


def tracks_of(dataset: ClipDataset) -> list[LayoutTrack]:
    """The tracks of a dataset, read whole."""
    tracks = []
    for index, track in enumerate(dataset.tracks):
        clip = dataset.read(index)
        labels = [POSITIVE_LABEL if speaks else "NOT_SPEAKING" for speaks in clip.speaking]
        columns = (track.timestamps_s, track.boxes_xyxy, labels, list(clip.crops), clip.audio)
        tracks.append(LayoutTrack(track.video_id, track.entity_id, *columns))
    return tracks


def write_layout(
    root: Path,
    split: str,
    tracks: Sequence[LayoutTrack],
    quality: int = FIELD_QUALITY,
    *,
    color: bool = True,
    loader: bool = True,
) -> None:
    """Writes one split.

    Args:
        root: the folder; other splits may lie there already.
        split: ``train``, ``val``, ``test``.
        tracks: the tracks, in the order of the tables.
        quality: of the JPEG files.
        color: three channels, as TalkNet's preparation writes; grey files are smaller and faster to read.
        loader: also write ``<split>_loader.csv``.
    """
    (root / "csv").mkdir(parents=True, exist_ok=True)
    table = root / "csv" / f"{split}_orig.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*LABEL_COLUMNS, "label_id", "instance_id"])
        for track in tracks:
            writer.writerows(_rows(track))
    for track in tracks:
        pictures = root / "clips_videos" / split / track.video_id / track.entity_id
        pictures.mkdir(parents=True, exist_ok=True)
        for time_s, crop in zip(track.times_s, track.crops, strict=True):
            write_picture(pictures / f"{time_s:.2f}.jpg", crop, quality, color)
        sound = root / "clips_audios" / split / track.video_id / f"{track.entity_id}.wav"
        sound.parent.mkdir(parents=True, exist_ok=True)
        lasts_s = round(float(track.times_s[-1]), 2) - round(float(track.times_s[0]), 2)
        samples = np.clip(np.rint(32768 * track.sound[: round(lasts_s * SAMPLE_RATE)]), -32768, 32767).astype(np.int16)
        soundfile.write(sound, samples, SAMPLE_RATE, subtype="PCM_16")
    if loader:
        of_key = {(entity.video_id, entity.entity_id): entity for entity in read_annotations(table, "unitalk")}
        ordered = [of_key[track.video_id, track.entity_id] for track in tracks]
        (root / "csv" / f"{split}_loader.csv").write_text(loader_text(ordered), encoding="utf-8")


def write_picture(path: Path, grey: NDArray[np.uint8], quality: int, color: bool) -> None:
    """Writes one picture ``(H, W)``; in color it has three equal channels."""
    picture = Image.fromarray(grey)
    (picture.convert("RGB") if color else picture).save(path, "JPEG", quality=quality)


def _rows(track: LayoutTrack) -> list[list[str]]:
    """The lines of ``*_orig.csv``; an instance is a stretch of one label."""
    numbers = {"NOT_SPEAKING": 0, POSITIVE_LABEL: 1, "SPEAKING_NOT_AUDIBLE": 2}
    rows: list[list[str]] = []
    instance = -1
    previous = ""
    for time_s, box, label in zip(track.times_s, track.boxes_xyxy.tolist(), track.labels, strict=True):
        instance += label != previous
        previous = label
        cells = [track.video_id, f"{time_s:.2f}", *(f"{value:.4f}" for value in box), label, track.entity_id]
        rows.append([*cells, str(numbers[label]), f"{track.entity_id}:{instance}"])
    return rows
