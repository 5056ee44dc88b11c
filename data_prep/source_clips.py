"""Talking-face clips on disk: which there are, where the face is, and when its voice is active.

A folder of clips holds either ``clips.csv`` (columns path, corpus, talker, split and more) or a folder per talker; in
both cases ``boxes.csv`` (path, frame, x1, y1, x2, y2 in pixels; a row every few frames is enough) says where the face
is. Beside a clip ``X.align`` may give its words: start, end in 1/25000 s and the word, ``sil`` and ``sp`` for none.
"""

from __future__ import annotations

import csv
import hashlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE
from avfusion.data.compose import SILENT_PEAK, active_frames
from avfusion.errors import AvfusionError, UsageError
from avfusion.faces.crop import crop_faces
from avfusion.media.decode import read_retimed

VIDEO_SUFFIXES = (".mp4", ".mkv", ".avi", ".mov", ".webm")
ALIGN_UNITS_PER_S = 25_000
DETECTOR_DELAY_S = 0.04  # silero-vad reports a start so much after the first word's, measured on 25 GRID clips
BOXES_FORMAT = "path,frame,x1,y1,x2,y2 (path relative to the folder, frame counted from 0, box in pixels)"


@dataclass(frozen=True)
class ClipEntry:
    """One clip of the list.

    Attributes:
        path: the file.
        clip_id: its path relative to the folder, without suffix, with forward slashes.
        corpus: where it comes from.
        talker: ``corpus/talker``: distinct over corpora.
        split: train, val or test.
        box_frames: ``(K,)`` frames with a known box.
        boxes_xyxy_px: ``(K, 4)`` those boxes.
    """

    path: Path
    clip_id: str
    corpus: str
    talker: str
    split: str
    box_frames: NDArray[np.int64]
    boxes_xyxy_px: NDArray[np.float64]


@dataclass(frozen=True)
class DecodedClip:
    """A clip at 25 fps and 16 kHz.

    Attributes:
        crops: ``(T, S, S)`` uint8 grey.
        boxes_xyxy: ``(T, 4)`` fractions of the picture.
        audio: ``(640 T,)`` float32.
        speaking: ``(T,)`` bool; all False where the sound is silent.
    """

    crops: NDArray[np.uint8]
    boxes_xyxy: NDArray[np.float32]
    audio: NDArray[np.float32]
    speaking: NDArray[np.bool_]


def list_clips(folder: Path) -> tuple[list[ClipEntry], list[str]]:
    """Lists the clips of a folder.

    Returns:
        The clips whose face's place is known, and the paths of those without a row in ``boxes.csv``.

    Raises:
        UsageError: no folder, no clips or no boxes.
    """
    if not folder.is_dir():
        raise UsageError(f"no folder of clips at {folder}")
    rows = _listed(folder) if (folder / "clips.csv").is_file() else _found(folder)
    if not rows:
        raise UsageError(
            f"no clips in {folder}; expected clips.csv or a folder per talker with {', '.join(VIDEO_SUFFIXES)}"
        )
    boxes = _read_boxes(folder)
    entries = [_entry(folder, row, boxes[row["path"]]) for row in rows if row["path"] in boxes]
    if not entries:
        raise UsageError(f"{folder / 'boxes.csv'} names none of the {len(rows)} clips; expected {BOXES_FORMAT}")
    return entries, [row["path"] for row in rows if row["path"] not in boxes]


def _entry(folder: Path, row: dict[str, str], boxes: list[tuple[int, tuple[float, ...]]]) -> ClipEntry:
    ordered = sorted(boxes)
    return ClipEntry(
        path=folder / row["path"],
        clip_id=Path(row["path"]).with_suffix("").as_posix(),
        corpus=row["corpus"],
        talker=f"{row['corpus']}/{row['talker']}",
        split=row["split"],
        box_frames=np.array([frame for frame, _ in ordered]),
        boxes_xyxy_px=np.array([box for _, box in ordered]),
    )


def _listed(folder: Path) -> list[dict[str, str]]:
    rows = _read_csv(folder / "clips.csv", ("path", "corpus", "talker", "split"))
    splits: dict[str, str] = {}
    for row in rows:
        talker = f"{row['corpus']}/{row['talker']}"
        if splits.setdefault(talker, row["split"]) != row["split"]:
            raise UsageError(
                f"{folder / 'clips.csv'} puts talker {talker} into two splits; expected one split per talker"
            )
    return rows


def _found(folder: Path) -> list[dict[str, str]]:
    """A folder per talker; the split of a talker follows from the hash of the folder's name: 70/15/15."""
    rows = []
    for path in sorted(folder.glob("*/*")):
        if path.suffix.lower() in VIDEO_SUFFIXES:
            share = int(hashlib.sha1(path.parent.name.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
            split = "train" if share < 0.7 else "val" if share < 0.85 else "test"
            relative = path.relative_to(folder).as_posix()
            rows.append({"path": relative, "corpus": "own", "talker": path.parent.name, "split": split})
    return rows


def _read_boxes(folder: Path) -> dict[str, list[tuple[int, tuple[float, ...]]]]:
    path = folder / "boxes.csv"
    if not path.is_file():
        raise UsageError(f"no boxes.csv in {folder}: the faces' places are needed; expected {BOXES_FORMAT}")
    boxes: dict[str, list[tuple[int, tuple[float, ...]]]] = defaultdict(list)
    for line, row in enumerate(_read_csv(path, ("path", "frame", "x1", "y1", "x2", "y2")), start=2):
        try:
            box = tuple(float(row[name]) for name in ("x1", "y1", "x2", "y2"))
            boxes[row["path"]].append((int(row["frame"]), box))
        except ValueError as error:
            raise UsageError(f"{path}, line {line}: {error}; expected {BOXES_FORMAT}") from error
    return boxes


def _read_csv(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        missing = [column for column in columns if column not in (reader.fieldnames or [])]
        if missing:
            raise UsageError(f"{path} lacks the columns {', '.join(missing)}; expected {','.join(columns)}")
        return list(reader)


class ClipDecoder:
    """Decodes clips to crops, sound and voice activity; holds the voice detector once it was needed.

    Args:
        crop_size: height and width ``S`` of the crops.
        crop_scale: side of the crop in units of the box's longer side.
    """

    def __init__(self, crop_size: int, crop_scale: float) -> None:
        self.crop_size, self.crop_scale = crop_size, crop_scale
        self._detector: Any = None

    def decode(self, entry: ClipEntry) -> DecodedClip:
        """Decodes one clip.

        Raises:
            AvfusionError: the file cannot be decoded, or the voice detector is needed and not installed.
        """
        video = read_retimed(entry.path)
        height, width = video.frames.shape[1:]
        boxes_px = np.stack(
            [np.interp(video.source_index, entry.box_frames, column) for column in entry.boxes_xyxy_px.T], axis=1
        )
        crops = crop_faces(video.frames, boxes_px, self.crop_size, self.crop_scale)
        fractions = np.clip(boxes_px / np.array([width, height, width, height]), 0.0, 1.0).astype(np.float32)
        return DecodedClip(crops, fractions, video.audio, self._speaking(entry.path, video.audio, len(crops)))

    def _speaking(self, path: Path, audio: NDArray[np.float32], num_frames: int) -> NDArray[np.bool_]:
        if np.abs(audio).max(initial=0.0) < SILENT_PEAK:
            return np.zeros(num_frames, dtype=np.bool_)
        align = path.with_suffix(".align")
        intervals_s = read_word_times(align) if align.is_file() else self._detect_voice(path, audio)
        return active_frames(intervals_s, num_frames)

    def _detect_voice(self, path: Path, audio: NDArray[np.float32]) -> list[tuple[float, float]]:
        """Stretches of speech in seconds, by silero-vad."""
        import torch

        try:
            import silero_vad
        except ImportError as error:
            raise AvfusionError(
                f"{path} has no word times ({path.stem}.align), so its voice must be detected, which needs silero-vad: "
                "pip install 'avfusion[prep]'"
            ) from error
        if self._detector is None:
            self._detector = silero_vad.load_silero_vad()
        stretches = silero_vad.get_speech_timestamps(
            torch.from_numpy(audio), self._detector, sampling_rate=SAMPLE_RATE, speech_pad_ms=0
        )
        return [(s["start"] / SAMPLE_RATE - DETECTOR_DELAY_S, s["end"] / SAMPLE_RATE) for s in stretches]


def read_word_times(path: Path) -> list[tuple[float, float]]:
    """Start and end of every spoken word, in seconds.

    Raises:
        AvfusionError: a line does not parse.
    """
    words = []
    for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        cells = text.split()
        if not cells:
            continue
        try:
            start, end, word = int(cells[0]), int(cells[1]), cells[2]
        except (ValueError, IndexError) as error:
            raise AvfusionError(f"{path}, line {line}: found {text!r}; expected START END WORD in 1/25000 s") from error
        if word not in ("sil", "sp"):
            words.append((start / ALIGN_UNITS_PER_S, end / ALIGN_UNITS_PER_S))
    return words
