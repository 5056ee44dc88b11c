"""What the figures of the suite were made from and with: for the report, and to know whether a part of them still fits.

Where checkpoint and dataset lie is told in the report, and does not matter for going on with a suite.
"""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import avfusion
from avfusion.checkpoint import encoders_record
from avfusion.config import Config
from avfusion.data.clips import ClipDataset
from avfusion.data.identity import data_record
from avfusion.files import sha256_of
from avfusion.models import ActiveSpeakerDetector
from avfusion.robustness.conditions import NEEDS_VOICES
from avfusion.robustness.suite import fingerprint
from avfusion.tracks import FaceTrack

SUITE = 2  # other figures come of the same clips where this differs; 2: shifted sound is turned in a circle


def provenance(
    config: Config,
    own: Config,
    content: dict[str, Any],
    checkpoint: Path,
    dataset: ClipDataset,
    split: str,
    device: torch.device,
) -> dict[str, Any]:
    """What the figures were made from and with.

    Args:
        config: how clips are read and figures made.
        own: configuration of the checkpoint.
        content: of the checkpoint.
        checkpoint: its path.
        dataset: the split.
        split: its name.
        device: where the model runs.
    """
    return {
        "dataset": dataset.name,
        "split": split,
        "data": data_record(config.data),
        "checkpoint": {
            "path": str(checkpoint),
            "sha256": sha256_of(checkpoint),
            "epoch": content["progress"]["epoch"],
        },
        "encoders": encoders_record(content, own),
        "command": shlex.join(["python", *sys.argv]),
        "seeds": {"training": own.run.seed, "bootstrap": 0, "offsets": 0},
        "resamples": config.report.bootstrap,
        "device": device.type,
        "music": config.data.augment.music_folder or "generated (chords, bass, melody, drums)",
        "versions": {
            "avfusion": avfusion.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }


def identity_of(head: dict[str, Any], tracks: Sequence[FaceTrack], music_folder: str | None) -> dict[str, Any]:
    """What finished conditions depend on, by names that a message can use.

    Args:
        head: of :func:`provenance`.
        tracks: with their labels.
        music_folder: of the user's; None for made music.
    """
    return {
        "suite": SUITE,
        "split": head["split"],
        "checkpoint": head["checkpoint"]["sha256"],
        "dataset": {key: value for key, value in head["data"].items() if key != "root"},
        "tracks or labels": fingerprint(tracks),
        "report.bootstrap": head["resamples"],
        "data.augment.music_folder": None if music_folder is None else str(Path(music_folder).resolve()),
        "device": head["device"],
        "versions": head["versions"],
    }


def about(model: ActiveSpeakerDetector, own: Config) -> dict[str, Any]:
    """The model in short."""
    found: dict[str, Any] = {
        "modality": own.model.modality,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    fusion = own.model.fusion
    if own.model.modality == "audio_visual":
        found["fusion"] = fusion.kind
        if fusion.kind == "cross_attention":
            found |= {"heads": fusion.heads, "key_hz": fusion.key_hz, "audio_bypass": fusion.audio_bypass}
    return found


def notes_of(dataset: ClipDataset, clips: ClipDataset, families: set[str]) -> list[str]:
    """What was not measured, and why."""
    notes = []
    if len(clips.tracks) < len(dataset.tracks):
        notes.append(f"{len(dataset.tracks) - len(clips.tracks)} tracks have no labels and count in no figure")
    if dataset.skipped.tracks:
        notes.append(f"{len(dataset.skipped.tracks)} of {dataset.skipped.total} tracks could not be used")
    missing = [name for name in NEEDS_VOICES if name not in families]
    if missing:
        notes.append(
            f"not measured: {', '.join(missing)}; for some tracks nobody speaks in another video, sound and group"
        )
    return notes
