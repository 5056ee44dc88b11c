"""The run folder: made once, refused when it is already there, found again on resume."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from avfusion.config import Config, to_yaml
from avfusion.errors import UsageError

MADE_BEFORE_A_CHECKPOINT = {"config.yaml", "log.jsonl", "checkpoints", "wandb"}


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
