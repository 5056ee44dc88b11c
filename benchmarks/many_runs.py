"""Several trainings of a benchmark, each a ``train.py`` of its own in a folder of its own.

A finished one is kept, a begun one goes on, one with other settings is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from avfusion.config import Config, RunConfig, load_config, to_flat_dict
from avfusion.errors import AvfusionError, UsageError
from avfusion.files import whole_text_file

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Run:
    """One training: its model, its seed (as text), its folder."""

    model: str
    seed: str
    folder: Path

    @property
    def finished(self) -> bool:
        """Whether train.py came to its end."""
        return (self.folder / "report.json").is_file()


def read_names(option: str, text: str, known: Collection[str]) -> list[str]:
    """Names with commas between them, each known and named once.

    Raises:
        UsageError: they are not.
    """
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"{option}={text}: {unknown[0]!r} is none of {', '.join(known)}")
    if len(set(names)) < len(names):
        raise UsageError(f"{option}={text}: something is named twice; name each once")
    return names


def read_seeds(text: str) -> list[str]:
    """Seeds with commas between them.

    Raises:
        UsageError: one is no seed, or named twice.
    """
    seeds = text.split(",")
    wrong = [seed for seed in seeds if not (seed.isdecimal() and seed.isascii() and seed == str(int(seed)))]
    if wrong:
        raise UsageError(f"--seeds={text}: {wrong[0]!r} is no seed; give whole numbers with commas, such as 0,1,2")
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"--seeds={text}: something is named twice; name each once")
    return seeds


def train(run: Run, config_path: Path, settings: list[str], config: Config) -> None:
    """Trains one run, or goes on with it, unless it is finished; adds up its wall time in ``minutes.json``.

    Raises:
        UsageError: the folder holds a training with other settings.
        AvfusionError: the training failed.
    """
    config_file = run.folder / "config.yaml"
    if config_file.is_file():
        changed = differing_keys(load_config(config_file), config)
        if changed:
            raise UsageError(
                f"{run.folder}: a training with other settings is there ({', '.join(changed)}); choose another OUT or"
                " remove it"
            )
    if run.finished:
        return
    if config_file.is_file():
        arguments = ["--resume", str(run.folder)]
    else:
        arguments = [os.path.relpath(config_path), *settings, f"--run.dir={run.folder}"]
    script = os.path.relpath(REPOSITORY / "train.py")  # the run's report shows the command, which others may repeat
    before = read_minutes(run)
    began = time.monotonic()
    with subprocess.Popen([sys.executable, script, *arguments]) as training:
        code = None
        while code is None:  # noted as it goes, so that a kill loses a quarter of a minute at most
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = training.wait(timeout=15)
            if run.folder.is_dir():
                write_minutes(run, before + (time.monotonic() - began) / 60)
    if code != 0:
        raise AvfusionError(f"{run.folder}: train.py ended with exit code {code}; the same command goes on from there")


def differing_keys(there: Config, asked: Config) -> list[str]:
    """The keys in which two configurations differ, leaving out where a run is written and what it runs on."""
    one, other = (to_flat_dict(replace(config, run=RunConfig(seed=config.run.seed))) for config in (there, asked))
    return [f"{key}: {one[key]}, now {other[key]}" for key in one if one[key] != other[key]]


def read_minutes(run: Run) -> float:
    """Wall time that went into a training so far."""
    path = run.folder / "minutes.json"
    return float(read_json(path)["minutes"]) if path.is_file() else 0.0


def write_minutes(run: Run, minutes: float) -> None:
    """Notes the wall time of a training."""
    with whole_text_file(run.folder / "minutes.json") as file:
        file.write(json.dumps({"minutes": minutes}) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Reads a file that a training wrote.

    Raises:
        AvfusionError: it is damaged.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AvfusionError(f"{path}: damaged ({error}); remove it, and the same command goes on from there") from error
    return content
