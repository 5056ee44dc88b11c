"""The run folder: made once, refused when it is already there, found again on resume."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from avfusion.config import Config, to_yaml
from avfusion.data.left_out import SKIPPED
from avfusion.errors import UsageError
from avfusion.files import lock, whole_text_file

LOCK = ".lock"
MADE_BEFORE_A_CHECKPOINT = {"config.yaml", "log.jsonl", "checkpoints", "wandb", "alignment", "replay", SKIPPED, LOCK}


def make_run_folder(config: Config, config_name: str) -> Path:
    """Makes ``run.dir`` (default ``runs/<config>-<date>``).

    A named folder in which a run began and was stopped before its first checkpoint is taken again. Of runs without a
    name that begin in the same second, as those of a sweep may, each gets a folder of its own (``-2``, ``-3`` ...).

    Raises:
        UsageError: it already holds something else.
    """
    try:
        folder = _new_folder(config_name) if config.run.dir is None else _free_folder(Path(config.run.dir))
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        where = config.run.dir or error.filename or "runs"
        raise UsageError(
            f"run.dir={where}: cannot be made ({error.strerror}); choose another by --run.dir=FOLDER"
        ) from error
    return folder


def _new_folder(config_name: str) -> Path:
    """A folder that nobody else has: making it is what decides."""
    started = f"runs/{config_name}-{datetime.now():%Y%m%d-%H%M%S}"
    number = 1
    while True:
        folder = Path(started if number == 1 else f"{started}-{number}")
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            number += 1


def _free_folder(folder: Path) -> Path:
    begun = folder.is_dir() and not any(folder.glob("checkpoints/*.pt"))
    if folder.exists() and not (begun and {entry.name for entry in folder.iterdir()} <= MADE_BEFORE_A_CHECKPOINT):
        raise UsageError(
            f"run.dir={folder} already exists; go on with it by `python train.py --resume {folder}`,"
            " or choose another by --run.dir=FOLDER"
        )
    return folder


def keep_config(config: Config, folder: Path) -> Path:
    """Writes the configuration with which a run is resumed, overrides included, into its ``config.yaml``."""
    with whole_text_file(folder / "config.yaml") as file:
        file.write(to_yaml(config))
    return folder


@contextmanager
def hold_run_folder(folder: Path) -> Iterator[None]:
    """Keeps other processes from training in the same folder for as long as the block lasts.

    Raises:
        UsageError: another process trains there.
    """
    with (folder / LOCK).open("w") as file:
        if lock(file) is False:
            raise UsageError(
                f"{folder}: another process is training there; wait for its end, or choose another run.dir"
            )
        yield
