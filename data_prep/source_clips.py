"""Talking-face clips on disk: which there are, where the face is, and when its voice is active.

A folder of clips holds either ``clips.csv`` or a folder per talker; in both cases ``boxes.csv`` says where the face is.
Beside a clip ``X.align`` may give its words; otherwise its voice is detected. The tables: ``data_prep/clip_tables.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE
from avfusion.data.compose import SILENT_PEAK, active_frames
from avfusion.errors import AvfusionError, UsageError
from avfusion.faces.crop import crop_faces
from avfusion.media.container import VIDEO_ENDINGS
from avfusion.media.decode import read_retimed
from data_prep.clip_tables import BOXES_FORMAT, Boxes, read_boxes, read_clip_rows, read_word_times

DETECTOR_DELAY_S = 0.04  # silero-vad reports a start so much after the first word's, measured on 25 GRID clips


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
        has_sound: whether the file has a sound stream; without one nobody knows when the face speaks.
    """

    crops: NDArray[np.uint8]
    boxes_xyxy: NDArray[np.float32]
    audio: NDArray[np.float32]
    speaking: NDArray[np.bool_]
    has_sound: bool


def list_clips(folder: Path) -> tuple[list[ClipEntry], list[str]]:
    """Lists the clips of a folder.

    Returns:
        The clips whose face's place is known, and the paths of those without a row in ``boxes.csv``.

    Raises:
        UsageError: no folder, no clips or no boxes; a row of a table is wrong; two clips share a name.
    """
    if not folder.is_dir():
        raise UsageError(f"no folder of clips at {folder}")
    table = folder / "clips.csv"
    rows = read_clip_rows(table) if table.is_file() else _found(folder)
    if not rows:
        raise UsageError(
            f"no clips in {folder}; expected clips.csv or a folder per talker with {', '.join(VIDEO_ENDINGS)}"
        )
    if not (folder / "boxes.csv").is_file():
        raise UsageError(f"no boxes.csv in {folder}: the faces' places are needed; expected {BOXES_FORMAT}")
    boxes = read_boxes(folder / "boxes.csv")
    entries = [_entry(folder, row, boxes[row["path"]]) for row in rows if row["path"] in boxes]
    if not entries:
        raise UsageError(f"{folder / 'boxes.csv'} names none of the {len(rows)} clips; expected {BOXES_FORMAT}")
    path_of: dict[str, Path] = {}
    for entry in entries:
        if path_of.setdefault(entry.clip_id, entry.path) is not entry.path:
            raise UsageError(
                f"{path_of[entry.clip_id]} and {entry.path} would both be clip {entry.clip_id}; expected each clip once"
            )
    return entries, [row["path"] for row in rows if row["path"] not in boxes]


def _entry(folder: Path, row: dict[str, str], boxes: Boxes) -> ClipEntry:
    ordered = sorted(boxes.items())
    return ClipEntry(
        path=folder / row["path"],
        clip_id=Path(row["path"]).with_suffix("").as_posix(),
        corpus=row["corpus"],
        talker=f"{row['corpus']}/{row['talker']}",
        split=row["split"],
        box_frames=np.array([frame for frame, _ in ordered]),
        boxes_xyxy_px=np.array([box for _, box in ordered]),
    )


def _found(folder: Path) -> list[dict[str, str]]:
    """A folder per talker; the split of a talker follows from the hash of the folder's name: 70/15/15."""
    rows = []
    for path in sorted(folder.glob("*/*")):
        if path.suffix.lower() in VIDEO_ENDINGS:
            share = int(hashlib.sha1(path.parent.name.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
            split = "train" if share < 0.7 else "val" if share < 0.85 else "test"
            relative = path.relative_to(folder).as_posix()
            rows.append({"path": relative, "corpus": "own", "talker": path.parent.name, "split": split})
    return rows


class ClipDecoder:
    """Decodes clips to crops, sound and voice activity; holds the voice detector once it was needed.

    Args:
        crop_size: height and width ``S`` of the crops.
        crop_scale: side of the crop in units of the box's longer side.
        lags_ms: of a talker's clips (``corpus/talker``), by how much the sound comes after the picture; it is moved
            back, and what is said with it. Others stay as they are.
        voices: whether to find when the face speaks; else it is said to be silent.
    """

    def __init__(
        self, crop_size: int, crop_scale: float, lags_ms: Mapping[str, int] | None = None, *, voices: bool = True
    ) -> None:
        self.crop_size, self.crop_scale, self.lags_ms, self.voices = crop_size, crop_scale, lags_ms or {}, voices
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
        lag_ms = self.lags_ms.get(entry.talker, 0)
        audio = moved_back(video.audio, lag_ms)
        speaking = self._speaking(entry.path, audio, len(crops), lag_ms)
        return DecodedClip(crops, fractions, audio, speaking, video.has_audio)

    def _speaking(self, path: Path, audio: NDArray[np.float32], num_frames: int, lag_ms: int) -> NDArray[np.bool_]:
        if not self.voices or np.abs(audio).max(initial=0.0) < SILENT_PEAK:
            return np.zeros(num_frames, dtype=np.bool_)
        align = path.with_suffix(".align")
        if not align.is_file():
            return active_frames(self._detect_voice(path, audio), num_frames)
        late_s = lag_ms / 1000
        return active_frames([(start - late_s, end - late_s) for start, end in read_word_times(align)], num_frames)

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


def moved_back(audio: NDArray[np.float32], lag_ms: int) -> NDArray[np.float32]:
    """A sound ``(N,)`` that comes ``lag_ms`` late, at its time: cut at one end, with silence at the other."""
    late = round(lag_ms * SAMPLE_RATE / 1000)
    if late == 0:
        return audio
    moved = np.zeros_like(audio)
    if late > 0:
        moved[: max(len(audio) - late, 0)] = audio[late:]
    else:
        moved[-late:] = audio[: max(len(audio) + late, 0)]
    return moved
