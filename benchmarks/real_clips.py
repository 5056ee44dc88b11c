"""Real talking faces in memory, the scenes made of them, and the model that is asked: for the bars on real clips.

Shapes: ``T`` video frames, crops ``(T, S, S)``, ``640 T`` sound samples.
"""

from __future__ import annotations

import hashlib
import platform
import shlex
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

import avfusion
from avfusion.checkpoint import load_model
from avfusion.clock import SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.config import Config
from avfusion.data.compose import SILENT_PEAK
from avfusion.data.examples import Examples
from avfusion.errors import UsageError
from avfusion.faces.crop import CROP_SCALE
from avfusion.files import sha256_of
from avfusion.inference.film_lag import find_lag
from avfusion.models import ActiveSpeakerDetector
from avfusion.released import require_released
from avfusion.scoring import pick_device, score_tracks
from data_prep.clip_tables import read_lags
from data_prep.clips_in_memory import Scenes
from data_prep.source_clips import ClipDecoder, ClipEntry, DecodedClip, list_clips, moved_back

CROP_SIZE = 112
LEFT_OUT_CORPORA = ("lrw_ar",)  # no licence, and one to three frames out of step
LEFT_OUT_TALKERS = ("grid/s1",)  # the training talker of GRID
EACH = Path("each")  # in place of a table of lags


@dataclass(frozen=True)
class TalkingClip:
    """One talking face.

    Attributes:
        clip_id: names it.
        corpus: where it comes from.
        talker: ``corpus/talker``.
        split: train, val or test, as ``clips.csv`` has it.
        decoded: crops, boxes, sound, voice activity.
    """

    clip_id: str
    corpus: str
    talker: str
    split: str
    decoded: DecodedClip

    @property
    def num_frames(self) -> int:
        """``T``."""
        return len(self.decoded.crops)


def wanted_clips(folder: Path, splits: Collection[str] = ()) -> list[ClipEntry]:
    """The clips that can tell something: not those of the training talker of GRID, nor of corpora of uncertain sync.

    Args:
        folder: with ``clips.csv`` and ``boxes.csv``.
        splits: these only; empty for all.

    Raises:
        UsageError: the folder holds no clips.
    """
    return [
        entry
        for entry in list_clips(folder)[0]
        if entry.talker not in LEFT_OUT_TALKERS
        and entry.corpus not in LEFT_OUT_CORPORA
        and (not splits or entry.split in splits)
    ]


def read_talking(
    folder: Path, seconds: float, splits: Collection[str] = (), lags: Path | None = None
) -> list[TalkingClip]:
    """Reads the beginnings of :func:`wanted_clips`, those that have a sound.

    Args:
        folder: with ``clips.csv`` and ``boxes.csv``.
        seconds: how much of each clip.
        splits: these only; empty for all.
        lags: table of the talkers' lags, which are taken out first; None and ``EACH`` for none.

    Raises:
        UsageError: the folder holds none, or of one talker only; the table is wrong.
    """
    wanted = wanted_clips(folder, splits)
    lags_ms = {} if lags is None or lags == EACH else read_lags(lags, {entry.talker for entry in wanted})
    decoder = ClipDecoder(CROP_SIZE, CROP_SCALE, lags_ms)
    frames = round(seconds * VIDEO_HZ)
    bar = tqdm(wanted, desc="clips", unit="clip", disable=None)
    clips = [_first(entry, decoder.decode(entry), frames) for entry in bar]
    talking = [clip for clip in clips if np.abs(clip.decoded.audio).max(initial=0.0) >= SILENT_PEAK]
    if len({clip.talker for clip in talking}) < 2:
        raise UsageError(f"{folder}: {len(talking)} clips with sound, of too few talkers; expected two talkers or more")
    return talking


def _first(entry: ClipEntry, decoded: DecodedClip, frames: int) -> TalkingClip:
    part = DecodedClip(
        decoded.crops[:frames],
        decoded.boxes_xyxy[:frames],
        decoded.audio[: SAMPLES_PER_VIDEO_FRAME * frames],
        decoded.speaking[:frames],
        decoded.has_sound,
    )
    return TalkingClip(entry.clip_id, entry.corpus, entry.talker, entry.split, part)


@dataclass(frozen=True)
class Asked:
    """The model that is asked, and what is known of it.

    Attributes:
        model: in evaluation mode.
        config: its own.
        path: of its checkpoint.
        facts: of released weights; empty for a checkpoint of train.py.
    """

    model: ActiveSpeakerDetector
    config: Config
    path: Path
    facts: dict[str, Any]

    def lags_taken_out(self, scenes: Scenes) -> Scenes:
        """Every scene as ``python -m avfusion.inference`` takes a film: the lag of its sound found, and taken out."""
        device = pick_device("auto")
        by_scene: dict[str, list[int]] = {}
        for index, track in enumerate(scenes.tracks):
            by_scene.setdefault(track.video_id, []).append(index)
        lags_ms = {
            name: find_lag(self.model.to(device), scenes.part(indices), self.config, device).facts()["ms"]
            for name, indices in tqdm(by_scene.items(), desc="lags", unit="scene", disable=None)
        }
        moved = Scenes(scenes.name)
        for index, track in enumerate(scenes.tracks):
            clip = scenes.read(index)
            audio = moved_back(clip.audio, lags_ms[track.video_id])
            moved.add(track.video_id, clip.crops, track.boxes_xyxy, audio, clip.speaking)
        return moved

    def scores(self, scenes: Scenes, label: str) -> list[NDArray[np.float32]]:
        """``(T,)`` of every track."""
        device = pick_device("auto")
        return score_tracks(self.model.to(device), Examples(scenes, self.config.data), self.config, device, label=label)

    def record(self, lags: Path | None) -> dict[str, Any]:
        """What a file of figures says of how they were made.

        Args:
            lags: the table that was taken out; ``EACH`` for the lag of each scene by itself; None for none.
        """
        taken = {"table": None if lags == EACH else sha256_of(lags)} if lags is not None else None
        return {
            "lags_taken_out": taken,
            "checkpoint": {"path": str(self.path), "sha256": sha256_of(self.path)},
            "command": shlex.join(["python", *sys.argv]),
            "versions": {
                "avfusion": avfusion.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
        }


def ask(checkpoint: Path | None) -> Asked:
    """Loads a checkpoint; None for the released one.

    Raises:
        AvfusionError: there is none, or it is damaged.
    """
    path = checkpoint or require_released()
    model, config, content = load_model(path)
    return Asked(model, config, path, content.get("facts", {}))


def seen_talkers(asked: Asked, clips: Sequence[TalkingClip], given: str | None) -> set[str]:
    """The talkers that the model was trained or chosen on.

    Args:
        asked: the model; released weights say it themselves.
        clips: what there is; where nobody says anything, the talkers of the splits train and val count as seen.
        given: ``corpus/talker`` with commas, on the command line; ``none`` for nobody.
    """
    if given is not None:
        return set() if given == "none" else {name.strip() for name in given.split(",")}
    told = asked.facts.get("talkers")
    if isinstance(told, dict):
        return {str(name) for names in told.values() for name in names}
    return {clip.talker for clip in clips if clip.split != "test"}


def draws_of(*names: str) -> np.random.Generator:
    """What is drawn for some clips: from their names, whatever else there is."""
    return np.random.default_rng(int.from_bytes(hashlib.sha1("\n".join(names).encode()).digest()[:8], "little"))
