"""Checkpoints: one file that rebuilds its model, loads with ``weights_only=True``, and is never half written.

A run keeps ``best.pt`` and two generations of its state, ``last.pt`` and ``previous.pt``. Archives carry a checksum of
every tensor, which torch does not look at when it reads; here it is, so a flipped bit is found like a missing half.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from avfusion.config import Config, config_from_dict
from avfusion.errors import AvfusionError, UsageError, one_line
from avfusion.models import ActiveSpeakerDetector, build_model

FORMAT = 2


def save_checkpoint(path: Path, model: ActiveSpeakerDetector, config: Config, state: Mapping[str, Any]) -> None:
    """Writes a checkpoint beside its place and moves it there in one step.

    Args:
        path: where it shall lie.
        model: whose weights to keep.
        config: rebuilds the model.
        state: whatever else training needs to go on; tensors, numbers, strings, lists and dicts only.
    """
    whole = {"format": FORMAT, "config": asdict(config), "model": model.state_dict(), **state}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    try:
        with draft.open("wb") as file:
            torch.save(whole, file)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:  # torch tells a full disk as a RuntimeError
        draft.unlink(missing_ok=True)
        reason = (error.strerror if isinstance(error, OSError) else None) or "is the disk full?"
        raise AvfusionError(f"{path}: cannot be written ({reason}); the checkpoint before it is untouched") from error
    os.replace(draft, path)


def save_generation(folder: Path, model: ActiveSpeakerDetector, config: Config, state: Mapping[str, Any]) -> None:
    """Writes ``last.pt``; the one before becomes ``previous.pt``. At every instant one of them is whole."""
    last = folder / "last.pt"
    new = folder / "next.pt"
    save_checkpoint(new, model, config, state)
    if last.is_file():
        os.replace(last, folder / "previous.pt")
    os.replace(new, last)


def read_generation(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Reads ``last.pt``, or ``previous.pt`` where that is missing or damaged, which is said; it is put aside then.

    Returns:
        Its path and content; None where there is neither.

    Raises:
        AvfusionError: neither can be read.
    """
    last, previous = folder / "last.pt", folder / "previous.pt"
    if not last.is_file():
        return (previous, read_checkpoint(previous)) if previous.is_file() else None
    try:
        return last, read_checkpoint(last)
    except AvfusionError as error:
        if not previous.is_file():
            raise
        content = read_checkpoint(previous)
        os.replace(last, last.with_name("last.pt.damaged"))  # or the next save would take it for a whole generation
        print(f"{one_line(str(error))}; going on from {previous}, the one before", file=sys.stderr)
        return previous, content


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Reads a checkpoint; no code in the file is run.

    Raises:
        UsageError: there is no such file.
        AvfusionError: it is damaged, or no avfusion checkpoint.
    """
    if not path.is_file():
        raise UsageError(
            f"no checkpoint at {path}; train.py writes checkpoints/best.pt and last.pt into its run folder"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise zipfile.BadZipFile(f"checksum of {broken}")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch and zipfile raise many kinds for a damaged file
        raise AvfusionError(
            f"{path}: cannot be read as a checkpoint ({type(error).__name__}: damaged or cut short)"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise AvfusionError(f"{path}: expected an avfusion checkpoint of format {FORMAT}, found {found!r}")
    missing = {"config", "model", "progress"} - content.keys()
    if missing:
        raise AvfusionError(f"{path}: not a whole checkpoint of train.py: it lacks {', '.join(sorted(missing))}")
    return content


def load_weights(model: ActiveSpeakerDetector, weights: Mapping[str, torch.Tensor], where: Path) -> None:
    """Loads weights, all of them; a ``module.`` prefix left by data-parallel training is taken off.

    Raises:
        AvfusionError: keys are missing, unknown or of another shape; it lists them.
    """
    plain = {key.removeprefix("module."): value for key, value in weights.items()}
    expected = model.state_dict()
    faults = [f"missing {key}" for key in expected if key not in plain]
    faults += [f"unknown {key}" for key in plain if key not in expected]
    faults += [
        f"{key} is {tuple(plain[key].shape)}, expected {tuple(value.shape)}"
        for key, value in expected.items()
        if key in plain and plain[key].shape != value.shape
    ]
    if faults:
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise AvfusionError(f"{where}: weights do not fit the model: {'; '.join(faults[:5])}{more}")
    model.load_state_dict(plain)


def model_of(content: Mapping[str, Any], where: Path) -> tuple[ActiveSpeakerDetector, Config]:
    """Rebuilds the model of a checkpoint's content, in evaluation mode, on the CPU.

    Where training kept an average of the weights, the model has that: it is what was validated.
    """
    config = config_from_dict(content["config"], where=str(where))
    model = build_model(config.model, config.data.num_mels)
    load_weights(model, content.get("ema") or content["model"], where)
    return model.eval(), config


def load_model(path: Path) -> tuple[ActiveSpeakerDetector, Config, dict[str, Any]]:
    """Rebuilds the model of a checkpoint, in evaluation mode.

    Returns:
        The model on the CPU, its configuration, and the whole content of the checkpoint.
    """
    content = read_checkpoint(path)
    return *model_of(content, path), content
