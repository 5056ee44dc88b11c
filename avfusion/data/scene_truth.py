"""The exact truth of a synthetic scene, from wherever its tracks are read: made in memory, or prepared on disk.

``data/synthetic/truth.py`` says what is in it. A prepared dataset keeps it as ``truth/<split>/<scene>.json``.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from avfusion.data.clips import ClipDataset
from avfusion.data.prepared import PreparedDataset
from avfusion.data.prepared_writer import safe_name
from avfusion.data.synthetic import SyntheticDataset
from avfusion.data.synthetic.truth import FaceTruth, SceneTruth, VoiceTruth
from avfusion.errors import AvfusionError
from avfusion.files import whole_text_file

_PAIRS = {"phones_s", "syllables_s", "active_s", "said_s", "occluded_s"}
_Part = TypeVar("_Part", VoiceTruth, FaceTruth)


def read_truth(dataset: ClipDataset, track: int) -> SceneTruth | None:
    """What is exactly known about the scene of a track; None for tracks of which nothing is.

    Args:
        dataset: any.
        track: index into it.

    Raises:
        AvfusionError: the file of the scene cannot be understood.
    """
    if isinstance(dataset, SyntheticDataset):
        return dataset.truth(track)
    if not isinstance(dataset, PreparedDataset):
        return None
    path = truth_path(dataset.root, dataset.split, dataset.tracks[track].video_id)
    if not path.is_file():
        return None
    try:
        return truth_from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise AvfusionError(
            f"{path}: expected the truth of a scene as data_prep.synthesize writes it ({type(error).__name__}: "
            f"{error}); make the dataset again"
        ) from error


def write_truth(root: Path, split: str, truth: SceneTruth) -> None:
    """Writes the truth of a scene into a prepared dataset."""
    with whole_text_file(truth_path(root, split, truth.video_id)) as file:
        file.write(json.dumps(truth.to_json(), separators=(",", ":"), allow_nan=False) + "\n")


def truth_path(root: Path, split: str, video_id: str) -> Path:
    """Where a prepared dataset keeps the truth of a scene."""
    return root / "truth" / safe_name(split) / f"{safe_name(video_id)}.json"


def truth_from_json(plain: dict[str, Any]) -> SceneTruth:
    """The inverse of :meth:`SceneTruth.to_json`, up to its rounding.

    Raises:
        KeyError: something is missing.
        TypeError: something is no object or list.
        ValueError: a list holds no numbers.
    """
    return SceneTruth(
        video_id=plain["video_id"],
        role=plain["role"],
        background=plain["background"],
        snr_db=math.nan if plain["snr_db"] is None else float(plain["snr_db"]),
        voices=tuple(_part(VoiceTruth, voice) for voice in plain["voices"]),
        faces=tuple(_part(FaceTruth, face) for face in plain["faces"]),
    )


def face_of(truth: SceneTruth, entity_id: str) -> FaceTruth | None:
    """The face of a track; None where the scene does not show it."""
    return next((face for face in truth.faces if face.entity_id == entity_id), None)


def _part(kind: type[_Part], plain: dict[str, Any]) -> _Part:
    return kind(**{field.name: _value(field.name, plain[field.name]) for field in fields(kind)})


def _value(name: str, value: Any) -> Any:
    """A list of names as a tuple, of truths or numbers as an array; all else as it is."""
    if not isinstance(value, list):
        return value
    if name in ("phones", "bursts", "said"):
        return tuple(str(item) for item in value)
    if name == "speaking":
        return np.array(value, dtype=bool)
    numbers = np.array(value, dtype=np.float64)
    return numbers.reshape(-1, 2) if name in _PAIRS else numbers
