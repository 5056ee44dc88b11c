"""What the experiments of this folder share: encoders trained once a seed, arms that start from them, a JSON of each.

An experiment names its arms and says how one is trained and measured; here are the loop over seeds and arms, what
every JSON says of its training, and AP with its interval over drawn groups on parts of the frames.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.config import load_config
from avfusion.data.prepared_tables import read_info, read_track_rows
from avfusion.errors import UsageError
from avfusion.files import whole_text_file
from benchmarks.many_runs import REPOSITORY, Run, read_minutes

ENCODERS = "encoders"
ALWAYS = [
    *("--wandb.mode=disabled", "--report.inspect=false", "--report.figures_per_role=0"),
    *("--report.offset_accuracy=false", "--report.bootstrap=0"),
]
RESAMPLES = 200


def check_overrides(overrides: Sequence[str], chosen: Sequence[str]) -> None:
    """Refuses overrides of what an experiment chooses for each training.

    Raises:
        UsageError: one is among them.
    """
    for key in chosen:
        if any(override.startswith(f"--{key}=") for override in overrides):
            raise UsageError(f"--{key} is chosen for each training; see --help for the options of this command")


def add_which_work(parser: argparse.ArgumentParser) -> None:
    """Adds the options that share the work between processes."""
    parser.add_argument("--train-only", action="store_true", help="leave the measuring to another process")
    parser.add_argument("--measure-only", action="store_true", help="measure the trainings that are finished")


def check_which_work(options: argparse.Namespace) -> None:
    """Refuses options that leave nothing to do.

    Raises:
        UsageError: both are given.
    """
    if options.train_only and options.measure_only:
        raise UsageError("--train-only and --measure-only leave nothing to do; give one of them")


def check_splits(root: Path, splits: Sequence[str]) -> None:
    """Looks for splits that will be needed, before hours of training and not after them.

    Raises:
        UsageError: there is no prepared dataset, or one of the splits has no tracks in it.
    """
    read_info(root)
    there = list(dict.fromkeys(row.split for row in read_track_rows(root)))
    for split in splits:
        if split not in there:
            raise UsageError(f"{root}: no tracks of the split {split!r} in tracks.csv; there are {', '.join(there)}")


def train_and_measure(
    options: argparse.Namespace,
    arms: Sequence[str],
    seeds: Sequence[str],
    train_one: Callable[[Run, Run], None],
    measure: Callable[[Run], dict[str, Any]],
) -> None:
    """For each seed the encoders, then every arm: trains what is not trained, measures what is not measured.

    Args:
        options: ``out``, ``train_only``, ``measure_only``.
        arms: their names.
        seeds: as text.
        train_one: trains a run that starts from the encoders of another (from nothing where both are one).
        measure: the figures of a finished run, ready for JSON.
    """
    for seed in seeds:
        start = Run(ENCODERS, seed, options.out / f"{ENCODERS}-{seed}")
        if not options.measure_only:
            train_one(start, start)
        for arm in arms:
            one = Run(arm, seed, options.out / f"{arm}-{seed}")
            if not options.measure_only:
                train_one(one, start)
            if one.finished and not options.train_only:
                keep(options.out / f"{one.folder.name}.json", lambda one=one: measure(one))


def keep(path: Path, find: Callable[[], dict[str, Any]]) -> None:
    """Writes figures to a file unless it is there."""
    if not path.is_file():
        with whole_text_file(path) as file:
            file.write(json.dumps(find(), indent=1) + "\n")
    print(f"  {path}", flush=True)


def finished_model(one: Run) -> tuple[Any, Any, Any, Any]:
    """Model, configuration and content of the last checkpoint, and the device."""
    import torch

    from avfusion.checkpoint import load_model
    from avfusion.scoring import pick_device

    config = load_config(one.folder / "config.yaml", [])
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    device = pick_device(config.run.device)
    model, _, content = load_model(one.folder / "checkpoints" / "last.pt")
    return model.to(device), config, content, device


def training_facts(one: Run, config: Any, content: Mapping[str, Any], model: Any, device: Any) -> dict[str, Any]:
    """What every JSON says of its training.

    Args:
        one: the training.
        config: of it.
        content: of its checkpoint.
        model: of its checkpoint.
        device: that it is measured on.
    """
    import torch

    import avfusion

    return {
        "arm": one.model,
        "seed": int(one.seed),
        "steps": int(content["progress"]["step"]),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "minutes": round(read_minutes(one), 2),
        "commit": commit(),
        "versions": {"avfusion": avfusion.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "machine": f"{platform.machine()}, {config.run.threads or torch.get_num_threads()} threads, {device.type}",
    }


def dataset_facts(root: Path) -> dict[str, Any]:
    """What ``dataset.json`` says of how the dataset was made, without paths."""
    info = json.loads((root / "dataset.json").read_text(encoding="utf-8"))
    return {"name": info["name"], "settings": info["settings"], "counts": info["counts"]}


def precision_of_parts(
    speaking: NDArray[np.bool_],
    score: NDArray[np.floating],
    names: NDArray[np.object_],
    parts: Mapping[str, NDArray[np.bool_]],
    *,
    draw_auroc: bool = False,
) -> dict[str, dict[str, Any]]:
    """AP on parts of ``N`` frames, and the same on drawn groups (the same draws for every arm).

    Args:
        speaking: ``(N,)`` labels.
        score: ``(N,)``.
        names: ``(N,)`` the group of each frame.
        parts: ``(N,)`` each, True for the frames of a part.
        draw_auroc: draw AUROC as well.
    """
    from avfusion.alignment.measures.resampling import draws
    from avfusion.evaluation.groups import group_index
    from avfusion.evaluation.ranking import Ranking

    group, groups = group_index(names)
    counts = draws(len(groups), RESAMPLES)
    found: dict[str, dict[str, Any]] = {}
    for name, kept in parts.items():
        ranking = Ranking(speaking[kept], score[kept])
        drawn = [ranking.average_precision(times[group[kept]]) for times in counts]
        found[name] = {
            "ap": ranking.average_precision(),
            "auroc": ranking.auroc(),
            "drawn_ap": [round(float(value), 5) for value in drawn],
            "prevalence": float(speaking[kept].mean()),
            "frames": int(kept.sum()),
            "groups": len(np.unique(group[kept])),
        }
        if draw_auroc:
            found[name]["drawn_auroc"] = [round(float(ranking.auroc(times[group[kept]])), 5) for times in counts]
    return found


def commit() -> str | None:
    """The commit that is checked out, with a + where files differ from it; None outside of a repository."""
    git = ["git", "-C", str(REPOSITORY)]
    try:
        name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("AVFUSION_COMMIT")
    return name.strip() + ("+" if changed.stdout.strip() else "")
