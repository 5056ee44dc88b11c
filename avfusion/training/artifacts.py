"""What a run can hand over to W&B as files: its best checkpoint, and the description of its dataset.

A dataset's description is its tables and ``dataset.json``, never its crops and sound: it says which tracks and labels a
run was trained on, and the hashes tell whether another run had the same. For synthetic talkers it is the recipe, which
makes them again to the last bit.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import avfusion
from avfusion.config import DataConfig
from avfusion.data.left_out import SKIPPED

DESCRIBES = {
    "prepared": ("dataset.json", "tracks.csv", "labels/*.csv", "boxes/*.csv", "source_labels/*.csv"),
    "talknet": ("csv/*.csv",),
}


@dataclass(frozen=True)
class Artifact:
    """Files with a name.

    Attributes:
        name: what W&B calls it; a new version is made where the files differ.
        kind: ``model`` or ``dataset``.
        files: by name inside the artifact.
        texts: small files by name, as text.
        facts: shown beside it.
        aliases: names of this version.
    """

    name: str
    kind: str
    files: Mapping[str, Path] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, float | int | str] = field(default_factory=dict)
    aliases: Sequence[str] = ()


def model_artifact(checkpoint: Path, wandb_id: str, facts: Mapping[str, float | int | str]) -> Artifact:
    """A checkpoint; it rebuilds its model by itself."""
    files = {checkpoint.name: checkpoint}
    return Artifact(f"model-{wandb_id}", "model", files, facts=facts, aliases=[checkpoint.stem])


def dataset_artifact(data: DataConfig, run_dir: Path) -> Artifact:
    """The description of the dataset of a run, with the tracks that the run leaves out (``skipped.json``)."""
    if data.format == "synthetic":
        recipe = {
            "avfusion": avfusion.__version__,
            "splits": {"train": data.train_split, "val": data.val_split, "test": "test"},
            "crop_size": data.crop_size,
            "region": data.region,
            **asdict(data.synthetic),
        }
        text = json.dumps(recipe, indent=1) + "\n"
        facts = {"format": "synthetic", "sha256/recipe.json": _sha256(text.encode())}
        return Artifact("synthetic-talkers", "dataset", texts={"recipe.json": text}, facts=facts)
    root = Path(data.root or "")
    found = sorted(path for pattern in DESCRIBES[data.format] for path in root.glob(pattern))
    files = {path.relative_to(root).as_posix(): path for path in found}
    if (run_dir / SKIPPED).is_file():
        files[SKIPPED] = run_dir / SKIPPED
    facts = {"format": data.format, **{f"sha256/{name}": _sha256(path.read_bytes()) for name, path in files.items()}}
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", root.resolve().name) or "dataset"
    return Artifact(name, "dataset", files, facts=facts)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
