"""The run folder: made once, refused when it is already there, found again on resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from avfusion.config import Config, DataConfig, to_yaml
from avfusion.data.clips import Skipped
from avfusion.errors import AvfusionError, UsageError
from avfusion.files import whole_text_file

SKIPPED = "skipped.json"
MADE_BEFORE_A_CHECKPOINT = {"config.yaml", "log.jsonl", "checkpoints", "wandb", SKIPPED}


def make_run_folder(config: Config, config_name: str) -> Path:
    """Makes ``run.dir`` (default ``runs/<config>-<date>``) and writes ``config.yaml`` into it.

    A folder in which a run began and was stopped before its first checkpoint is taken again.

    Raises:
        UsageError: it already holds something else.
    """
    folder = Path(config.run.dir or f"runs/{config_name}-{datetime.now():%Y%m%d-%H%M%S}")
    begun = folder.is_dir() and not any(folder.glob("checkpoints/*.pt"))
    if folder.exists() and not (begun and {entry.name for entry in folder.iterdir()} <= MADE_BEFORE_A_CHECKPOINT):
        raise UsageError(
            f"run.dir={folder} already exists; go on with it by `python train.py --resume {folder}`,"
            " or choose another by --run.dir=FOLDER"
        )
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(to_yaml(config), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"run.dir={folder}: cannot be made ({error.strerror}); choose another by --run.dir=FOLDER"
        ) from error
    return folder


def keep_config(config: Config, folder: Path) -> Path:
    """Writes the configuration with which a run is resumed, overrides included, into its ``config.yaml``."""
    (folder / "config.yaml").write_text(to_yaml(config), encoding="utf-8")
    return folder


def keep_skipped(folder: Path, data: DataConfig, skipped: Mapping[str, Skipped]) -> None:
    """Writes ``skipped.json``: which tracks a run leaves out, so that a resumed run trains on the same ones."""
    splits = {
        split: {
            "total": left_out.total,
            "reasons": dict(left_out.reasons),
            "tracks": sorted(map(list, left_out.tracks)),
            "orphans": sorted(map(list, left_out.orphans)),
        }
        for split, left_out in skipped.items()
    }
    with whole_text_file(folder / SKIPPED) as file:
        file.write(json.dumps({"data": _source(data), "splits": splits}, indent=1) + "\n")


def read_skipped(folder: Path, data: DataConfig) -> dict[str, Skipped]:
    """Reads what :func:`keep_skipped` wrote; nothing where the run was on other data or left nothing out.

    Raises:
        AvfusionError: the file is damaged.
    """
    path = folder / SKIPPED
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content["data"] != _source(data):
            return {}
        return {
            split: Skipped(
                tracks=frozenset((video_id, entity_id) for video_id, entity_id in left_out["tracks"]),
                total=left_out["total"],
                reasons=left_out["reasons"],
                orphans=frozenset((video_id, entity_id) for video_id, entity_id in left_out["orphans"]),
            )
            for split, left_out in content["splits"].items()
        }
    except (ValueError, KeyError, TypeError) as error:
        raise AvfusionError(f"{path} is damaged ({error!r}); remove it, and the dataset is checked again") from error


def _source(data: DataConfig) -> dict[str, str]:
    return {"format": data.format, "root": str(Path(data.root or "").resolve())}
