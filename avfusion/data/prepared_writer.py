"""Writes a prepared dataset, scene by scene, so that a killed run goes on where it stopped.

Media files appear whole or not at all. Every finished scene becomes one line of ``journal.jsonl`` after its files are
on disk; a torn last line is dropped. The tables are written from the journal at the end, ``dataset.json`` last: a
folder without it, or with other scenes in its journals than it tells, is unfinished. A run with other settings than
those the folder was begun with is refused.

Several runs may fill one folder at the same time when each keeps a journal of its own (``journal-1-of-4.jsonl``): a run
knows what stands in the others' journals when it begins, and whoever finishes writes the tables from all of them
(``data/journal.py``).
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, VIDEO_HZ
from avfusion.data.journal import Journal
from avfusion.data.prepared_tables import EXTRA_COLUMNS, FORMAT_VERSION, TRACK_COLUMNS, UNLABELLED, TrackRow
from avfusion.errors import AvfusionError
from avfusion.files import whole_text_file
from avfusion.media.audio import write_audio
from avfusion.media.write import write_crops
from avfusion.tracks import FaceTrack, write_labels, write_unlabeled


@dataclass(frozen=True)
class SceneRecord:
    """A finished scene: its rows, the labels of each row, and what is known about how it was made.

    Attributes:
        rows: one per face track.
        speaking: for each row ``(T,)`` bool.
        boxes_xyxy: for each row ``(T, 4)`` fractions of the picture.
        truth: columns for ``truth/<split>.csv``; may be empty.
        notes: what was odd about its source and was put up with, a line each; kept in ``dataset.json``.
    """

    rows: Sequence[TrackRow]
    speaking: Sequence[NDArray[np.bool_]]
    boxes_xyxy: Sequence[NDArray[np.float32]]
    truth: Mapping[str, str | float]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class LeftOut:
    """Names of what a preparation left out, and of how many it did so."""

    names: Sequence[str]
    total: int


class PreparedWriter:
    """Writes media files and finished scenes under one root.

    Args:
        root: the dataset's folder, made if absent.
        name: the dataset's name.
        command: the command line that makes it, for the record.
        crop_size: height and width of the crops in pixels.
        settings: everything that decides what is written; a folder begun with other settings is refused.
        journal: name of this run's journal, ``journal*.jsonl``.

    Raises:
        UsageError: the folder belongs to another dataset or to other settings, or another run writes this journal.
        AvfusionError: a journal is damaged.
    """

    def __init__(
        self,
        root: str | Path,
        name: str,
        command: str,
        crop_size: int,
        settings: Mapping[str, Any] | None = None,
        journal: str = "journal.jsonl",
    ) -> None:
        self.root = Path(root)
        self._info = {"format_version": FORMAT_VERSION, "name": name, "command": command, "fps": VIDEO_HZ}
        self._info |= {"crop_size": crop_size, "sample_rate": SAMPLE_RATE, "settings": dict(settings or {})}
        self._journal = Journal(self.root / journal, dict(settings or {}))
        self.scenes: dict[str, SceneRecord] = {}
        for path, number, line in self._journal.lines():
            scene_id, record = _from_json(line, path, number)
            self.scenes[scene_id] = record

    @property
    def is_finished(self) -> bool:
        """Whether the tables have been written, and from the scenes that the journals hold."""
        try:
            info = json.loads((self.root / "dataset.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(info, dict) and info.get("scenes") == _digest(self.scenes)

    def crops(self, split: str, crops_id: str, frames: NDArray[np.uint8]) -> str:
        """Writes crops unless they are there already.

        Args:
            split: the folder.
            crops_id: any text; decides the file's name.
            frames: ``(T, H, W)`` uint8.

        Returns:
            The path relative to the root.
        """
        path = crops_path(split, crops_id)
        if not (self.root / path).is_file():
            write_crops(self.root / path, frames)
        return path

    def audio(self, split: str, audio_id: str, audio: NDArray[np.float32]) -> str:
        """Writes the sound of a whole scene unless it is there already; returns its path relative to the root."""
        path = audio_path(split, audio_id)
        if not (self.root / path).is_file():
            write_audio(self.root / path, audio)
        return path

    def add_scene(self, scene_id: str, record: SceneRecord) -> None:
        """Records a scene whose files are on disk. A scene recorded twice counts once."""
        if scene_id in self.scenes:
            return
        self._journal.append(_to_json(scene_id, record).encode() + b"\n")
        self.scenes[scene_id] = record

    def finish(self, left_out: Mapping[str, LeftOut] | None = None) -> None:
        """Writes the tables and, last, ``dataset.json``.

        Args:
            left_out: what is not in the dataset and why, for the record (``clips without a sound stream`` ...).
        """
        (self.root / "dataset.json").unlink(missing_ok=True)  # of an earlier finish with fewer scenes
        records = [self.scenes[scene_id] for scene_id in sorted(self.scenes)]
        rows = [row for record in records for row in record.rows]
        header = [*TRACK_COLUMNS, *EXTRA_COLUMNS]
        _write_csv(self.root / "tracks.csv", header, [_cells(row) for row in rows])
        counts = {}
        for split in sorted({row.split for row in rows}):
            tracks = [track for record in records for track in _tracks(record, split)]
            for folder, write, some in (
                ("labels", write_labels, [track for track in tracks if track.labelled]),
                ("boxes", write_unlabeled, [track for track in tracks if not track.labelled]),
            ):
                if some:
                    write(self.root / folder / f"{split}.csv", some)
            frames, speaking = (sum(int(f(t)) for t in tracks) for f in (_num_frames, _num_speaking))
            counts[split] = {"tracks": len(tracks), "frames": frames, "speaking_frames": speaking}
            truth = [dict(record.truth) for record in records if record.truth and record.rows[0].split == split]
            if truth:
                _write_csv(self.root / "truth" / f"{split}.csv", list(truth[0]), truth)
        told = {what: {"of": some.total, "names": list(some.names)} for what, some in (left_out or {}).items()}
        notes = {scene_id: list(record.notes) for scene_id, record in sorted(self.scenes.items()) if record.notes}
        info = {**self._info, "scenes": _digest(self.scenes), "counts": counts}
        info |= {"left_out": told} if told else {}
        info |= (
            {"notes": {scene_id: lines for scene_id, lines in notes.items() if lines}} if any(notes.values()) else {}
        )
        self._journal.remove_parts()
        with whole_text_file(self.root / "dataset.json") as file:
            file.write(json.dumps(info, indent=2) + "\n")


def crops_path(split: str, crops_id: str) -> str:
    """Where crops of that id lie, relative to the root."""
    return f"crops/{safe_name(split)}/{safe_name(crops_id)}.mp4"


def audio_path(split: str, audio_id: str) -> str:
    """Where sound of that id lies, relative to the root."""
    return f"audio/{safe_name(split)}/{safe_name(audio_id)}.flac"


def safe_name(text: str) -> str:
    """A file name for any id, distinct for distinct ids on every file system.

    A plain id (small letters, digits, ``_-``) stays as it is. Any other loses its special characters and carries a
    hash: upper case too (some file systems ignore case), and names that Windows reserves.

    Args:
        text: an id such as ``v_0900:1``.

    Returns:
        The id itself, or its plain part and ten hex digits: ``v_0900_1-9bc...``.
    """
    if re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,99}", text) and not re.fullmatch(r"con|prn|aux|nul|(com|lpt)\d", text):
        return text
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", text)[:80]
    return f"{plain}-{hashlib.sha1(text.encode()).hexdigest()[:10]}"


def _digest(scene_ids: Iterable[str]) -> str:
    """Ten hex digits that change with any scene added or missing."""
    return hashlib.sha1(json.dumps(sorted(scene_ids)).encode()).hexdigest()[:10]


def _cells(row: TrackRow) -> dict[str, Any]:
    return {**asdict(row), "labelled": "" if row.labelled else UNLABELLED}


def _num_frames(track: FaceTrack) -> int:
    return track.num_frames


def _num_speaking(track: FaceTrack) -> int:
    return int(track.speaking.sum())


def _tracks(record: SceneRecord, split: str) -> list[FaceTrack]:
    return [
        FaceTrack(row.video_id, row.entity_id, row.start_s, speaking, boxes, row.audio, labelled=row.labelled)
        for row, speaking, boxes in zip(record.rows, record.speaking, record.boxes_xyxy, strict=True)
        if row.split == split
    ]


def _write_csv(path: Path, header: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    with whole_text_file(path) as file:
        writer = csv.DictWriter(file, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _to_json(scene_id: str, record: SceneRecord) -> str:
    return json.dumps(
        {
            "scene": scene_id,
            "rows": [asdict(row) for row in record.rows],
            "speaking": ["".join("01"[int(value)] for value in speaking) for speaking in record.speaking],
            "boxes": [np.round(boxes.astype(np.float64), 6).tolist() for boxes in record.boxes_xyxy],
            "truth": dict(record.truth),
            "notes": list(record.notes),
        }
    )


def _from_json(line: bytes, journal: Path, number: int) -> tuple[str, SceneRecord]:
    names = {field.name for field in fields(TrackRow)}
    try:
        content = json.loads(line)
        return content["scene"], SceneRecord(
            rows=[TrackRow(**{key: value for key, value in row.items() if key in names}) for row in content["rows"]],
            speaking=[np.array([bit == "1" for bit in bits], dtype=np.bool_) for bits in content["speaking"]],
            boxes_xyxy=[np.array(boxes, dtype=np.float32) for boxes in content["boxes"]],
            truth=content["truth"],
            notes=content.get("notes", ()),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AvfusionError(
            f"{journal}, line {number}: {line[:80]!r} .. is no whole scene ({type(error).__name__}); remove this line "
            "and run the same command again: its scene is made anew, its files that are whole are kept"
        ) from error
