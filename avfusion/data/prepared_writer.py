"""Writes a prepared dataset, scene by scene, so that a killed run goes on where it stopped.

Media files appear whole or not at all. Every finished scene becomes one line of ``journal.jsonl`` after its files are
on disk; a torn last line is dropped. The tables are written from the journal at the end, ``dataset.json`` last: a
folder without it is unfinished. A run with other settings than those the folder was begun with is refused.

Several runs may fill one folder at the same time when each keeps a journal of its own (``journal-1-of-4.jsonl``): a run
knows what stands in the others' journals when it begins, and whoever finishes writes the tables from all of them.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, VIDEO_HZ
from avfusion.data.prepared import EXTRA_COLUMNS, FORMAT_VERSION, TRACK_COLUMNS, UNLABELLED, TrackRow
from avfusion.errors import UsageError
from avfusion.media.audio import write_audio
from avfusion.media.write import write_crops
from avfusion.tracks import FaceTrack, write_labels


@dataclass(frozen=True)
class SceneRecord:
    """A finished scene: its rows, the labels of each row, and what is known about how it was made.

    Attributes:
        rows: one per face track.
        speaking: for each row ``(T,)`` bool.
        boxes_xyxy: for each row ``(T, 4)`` fractions of the picture.
        truth: columns for ``truth/<split>.csv``; may be empty.
    """

    rows: Sequence[TrackRow]
    speaking: Sequence[NDArray[np.bool_]]
    boxes_xyxy: Sequence[NDArray[np.float32]]
    truth: Mapping[str, str | float]


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
        UsageError: the folder belongs to another dataset or to other settings.
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
        self._journal = self.root / journal
        self.scenes: dict[str, SceneRecord] = {}
        self._begin()

    @property
    def is_finished(self) -> bool:
        """Whether ``dataset.json`` has been written."""
        return (self.root / "dataset.json").is_file()

    def _begin(self) -> None:
        """Takes up what an earlier run left, or starts the journal."""
        head = json.dumps({"settings": self._info["settings"]}, sort_keys=True)
        journals = _journals(self.root)
        if self._journal in journals:
            self._rewrite_journal(self._whole_lines(self._journal, head))
        elif not journals and self.root.is_dir() and any(path.suffix != ".part" for path in self.root.iterdir()):
            raise UsageError(f"{self.root} holds files that are no dataset of this command; choose an empty folder")
        for journal in journals:
            for line in self._whole_lines(journal, head)[1:]:
                scene_id, record = _from_json(line.decode())
                self.scenes[scene_id] = record
        if self._journal in journals:
            return
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._rewrite_journal([head.encode()])
        except OSError as error:
            raise UsageError(f"{self.root}: cannot be written to ({error.strerror}); give another folder") from error

    def _whole_lines(self, journal: Path, head: str) -> list[bytes]:
        """The lines of a journal without what follows the last line end, which a kill cut short."""
        lines = journal.read_bytes().split(b"\n")
        if lines[0].decode() != head:
            raise UsageError(
                f"{self.root} was begun with other settings ({lines[0].decode()[:200]}); "
                "choose another folder, repeat those settings, or remove the folder"
            )
        return lines[:-1]

    def _rewrite_journal(self, lines: Sequence[bytes]) -> None:
        part = self._journal.with_suffix(".part")
        part.write_bytes(b"".join(line + b"\n" for line in lines))
        part.replace(self._journal)

    def crops(self, split: str, crops_id: str, frames: NDArray[np.uint8]) -> str:
        """Writes crops unless they are there already.

        Args:
            split: the folder.
            crops_id: any text; decides the file's name.
            frames: ``(T, H, W)`` uint8.

        Returns:
            The path relative to the root.
        """
        path = self.crops_path(split, crops_id)
        if not (self.root / path).is_file():
            write_crops(self.root / path, frames)
        return path

    def audio(self, split: str, audio_id: str, audio: NDArray[np.float32]) -> str:
        """Writes the sound of a whole scene unless it is there already; returns its path relative to the root."""
        path = self.audio_path(split, audio_id)
        if not (self.root / path).is_file():
            write_audio(self.root / path, audio)
        return path

    def crops_path(self, split: str, crops_id: str) -> str:
        """Where crops of that id lie, relative to the root."""
        return crops_path(split, crops_id)

    def audio_path(self, split: str, audio_id: str) -> str:
        """Where sound of that id lies, relative to the root."""
        return audio_path(split, audio_id)

    def add_scene(self, scene_id: str, record: SceneRecord) -> None:
        """Records a scene whose files are on disk. A scene recorded twice counts once."""
        if scene_id in self.scenes:
            return
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(_to_json(scene_id, record) + "\n")
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
            write_labels(self.root / "labels" / f"{split}.csv", tracks)
            frames, speaking = (sum(int(f(t)) for t in tracks) for f in (_num_frames, _num_speaking))
            counts[split] = {"tracks": len(tracks), "frames": frames, "speaking_frames": speaking}
            truth = [dict(record.truth) for record in records if record.truth and record.rows[0].split == split]
            if truth:
                _write_csv(self.root / "truth" / f"{split}.csv", list(truth[0]), truth)
        part = self.root / f"dataset.json.{os.getpid()}.part"
        told = {what: {"of": some.total, "names": list(some.names)} for what, some in (left_out or {}).items()}
        info = {**self._info, "counts": counts, **({"left_out": told} if told else {})}
        part.write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")
        part.replace(self.root / "dataset.json")


def begun_settings(root: Path) -> dict[str, Any]:
    """The settings that a folder was begun with.

    Raises:
        UsageError: nothing was begun there.
    """
    for journal in _journals(root):
        with journal.open(encoding="utf-8") as file:
            settings: dict[str, Any] = json.loads(file.readline())["settings"]
        return settings
    raise UsageError(f"{root}: no dataset was begun there (no journal*.jsonl); check the path")


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


def _journals(root: Path) -> list[Path]:
    return sorted(root.glob("journal*.jsonl"))


def _cells(row: TrackRow) -> dict[str, Any]:
    return {**asdict(row), "labelled": "" if row.labelled else UNLABELLED}


def _num_frames(track: FaceTrack) -> int:
    return track.num_frames


def _num_speaking(track: FaceTrack) -> int:
    return int(track.speaking.sum())


def _tracks(record: SceneRecord, split: str) -> list[FaceTrack]:
    return [
        FaceTrack(row.video_id, row.entity_id, row.start_s, speaking, boxes, audio_id=row.audio)
        for row, speaking, boxes in zip(record.rows, record.speaking, record.boxes_xyxy, strict=True)
        if row.split == split
    ]


def _write_csv(path: Path, header: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)


def _to_json(scene_id: str, record: SceneRecord) -> str:
    return json.dumps(
        {
            "scene": scene_id,
            "rows": [asdict(row) for row in record.rows],
            "speaking": ["".join("01"[int(value)] for value in speaking) for speaking in record.speaking],
            "boxes": [np.round(boxes.astype(np.float64), 6).tolist() for boxes in record.boxes_xyxy],
            "truth": dict(record.truth),
        }
    )


def _from_json(line: str) -> tuple[str, SceneRecord]:
    content = json.loads(line)
    names = {field.name for field in fields(TrackRow)}
    return content["scene"], SceneRecord(
        rows=[TrackRow(**{key: value for key, value in row.items() if key in names}) for row in content["rows"]],
        speaking=[np.array([bit == "1" for bit in bits], dtype=np.bool_) for bits in content["speaking"]],
        boxes_xyxy=[np.array(boxes, dtype=np.float32) for boxes in content["boxes"]],
        truth=content["truth"],
    )
