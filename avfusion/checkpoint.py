"""Checkpoints: one file that rebuilds its model, loads with ``weights_only=True``, and is never half written.

Weights that are handed out (``.safetensors``, ``avfusion/weights.py``) are read as checkpoints too: training cannot go
on from them, and everything else can. A run keeps ``best.pt`` and two generations of its state, ``last.pt`` and
``previous.pt``. Archives carry a checksum of every tensor, which torch does not look at when it reads; here it is, so a
flipped bit is found like a missing half.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from avfusion.config import Config, DataConfig, config_from_dict, load_config, with_overrides
from avfusion.errors import AvfusionError, UsageError, one_line
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.weights import SUFFIX, read_weights

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
        raise AvfusionError(
            f"{path.parent}: no checkpoint can be written ({reason}); the one before is untouched. Make room, then go"
            " on with python train.py --resume RUN"
        ) from error
    os.replace(draft, path)
    _keep_names(path.parent)


def save_generation(folder: Path, model: ActiveSpeakerDetector, config: Config, state: Mapping[str, Any]) -> None:
    """Writes ``last.pt``; the one before becomes ``previous.pt``. At every instant one of them is whole."""
    last = folder / "last.pt"
    new = folder / "next.pt"
    save_checkpoint(new, model, config, state)
    if last.is_file():
        os.replace(last, folder / "previous.pt")
    os.replace(new, last)
    _keep_names(folder)


def read_generation(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Reads ``last.pt``; where that is missing or damaged, ``next.pt`` (killed before its rename) or ``previous.pt``.

    A damaged one is named and put aside.

    Returns:
        Path and content of the one that was read; None where there is none.

    Raises:
        AvfusionError: none can be read.
    """
    there = [path for name in ("last.pt", "next.pt", "previous.pt") if (path := folder / name).exists()]
    damaged: list[DamagedError] = []
    for path in there:
        try:
            content = read_checkpoint(path)
        except DamagedError as error:
            damaged.append(error)
            continue
        for bad in damaged:
            print(f"{one_line(str(bad))}; going on from {path}", file=sys.stderr)
            # Put aside, or the next save would take it for a whole generation.
            os.replace(bad.path, bad.path.with_name(f"{bad.path.name}.damaged"))
        return path, content
    if damaged:
        raise AvfusionError(
            f"{'; '.join(map(str, damaged))}; best.pt may still be whole (python eval.py RUN), begin a new run from"
            " the same config.yaml"
        )
    return None


class DamagedError(AvfusionError):
    """A checkpoint whose content is not what was written.

    Attributes:
        path: of the checkpoint.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: cannot be read as a checkpoint ({why}: damaged or cut short)")
        self.path = path


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Reads a checkpoint, or weights as they are released; no code in the file is run.

    Raises:
        UsageError: there is no such file.
        DamagedError: it is damaged.
        AvfusionError: it cannot be opened, or is no avfusion checkpoint of this format.
    """
    if not path.is_file():
        what = "not a file" if path.exists() else "no checkpoint"
        raise UsageError(f"{path}: {what} there; train.py writes checkpoints/best.pt and last.pt into its run folder")
    return _of_weights(path) if path.suffix == SUFFIX else _of_run(path)


def _of_weights(path: Path) -> dict[str, Any]:
    """The content of released weights in the form of a checkpoint, and with its ``facts``."""
    weights, about = read_weights(path)
    lacks = [key for key in ("config", "progress", "facts") if not isinstance(about.get(key), dict)]
    if lacks:
        raise AvfusionError(f"{path}: these weights do not rebuild a model: their header lacks {', '.join(lacks)}")
    return {**about, "format": FORMAT, "model": weights}


def _of_run(path: Path) -> dict[str, Any]:
    """The content of a checkpoint of train.py."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise zipfile.BadZipFile(f"checksum of {broken}")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise AvfusionError(f"{path}: cannot be opened ({error.strerror or error})") from error
    except MemoryError as error:
        raise AvfusionError(f"{path}: there is not enough memory to read it") from error
    except Exception as error:  # torch and zipfile raise many kinds for a damaged file
        raise DamagedError(path, type(error).__name__) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise AvfusionError(f"{path}: expected an avfusion checkpoint of format {FORMAT}, found {found!r}")
    lacks = [key for key in ("config", "model", "progress") if not isinstance(content.get(key), dict)]
    if not isinstance(content.get("ema") or {}, dict):
        lacks.append("weights under 'ema'")
    if lacks:
        raise AvfusionError(f"{path}: not a whole checkpoint of train.py: it lacks {', '.join(lacks)}")
    return content


def _keep_names(folder: Path) -> None:
    """Makes renames last through a power cut, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:  # some network file systems
        pass
    finally:
        os.close(handle)


def load_weights(model: ActiveSpeakerDetector, weights: Mapping[str, torch.Tensor], where: Path) -> None:
    """Loads weights, all of them; a ``module.`` prefix left by data-parallel training is taken off.

    Raises:
        AvfusionError: keys are missing, unknown or of another shape; it lists them.
    """
    odd = [f"{key!r} is no tensor of numbers" for key, value in weights.items() if not _holds_numbers(key, value)]
    if odd:
        raise AvfusionError(f"{where}: weights are damaged: {'; '.join(odd[:5])}; take another checkpoint")
    plain = _plain(weights)
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


def _holds_numbers(key: object, value: object) -> bool:
    if not isinstance(key, str) or not isinstance(value, torch.Tensor):
        return False
    return value.layout == torch.strided and not value.is_meta and not value.is_complex()


def _plain(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key.removeprefix("module."): value for key, value in weights.items()}


ENCODERS = ("visual.", "audio.")
SEEN = ("num_mels", "crop_size", "region")  # keys of data: what a model sees of its clips


def load_encoders(model: ActiveSpeakerDetector, path: Path, data: DataConfig) -> list[str]:
    """Loads the encoders of picture and sound of another model; all else of ``model`` stays as it is.

    Args:
        model: takes them.
        path: the other model's checkpoint.
        data: what ``model`` will see.

    Returns:
        What the encoders saw otherwise, a note each: they fit, but begin on pictures they do not know.

    Raises:
        AvfusionError: the file is no checkpoint, or its encoders are of another build; the message lists what differs.
    """
    content = read_checkpoint(path)
    theirs = config_from_dict(content["config"], where=str(path)).data
    if theirs.num_mels != data.num_mels:
        raise AvfusionError(
            f"{path}: its encoders hear {theirs.num_mels} mel bands, data.num_mels is {data.num_mels}; give"
            f" --data.num_mels={theirs.num_mels}, or the checkpoint of another model"
        )
    weights = _plain(content.get("ema") or content["model"])
    own = {key: value for key, value in model.state_dict().items() if not key.startswith(ENCODERS)}
    load_weights(model, own | {key: value for key, value in weights.items() if key.startswith(ENCODERS)}, path)
    return [
        f"{path}: its encoders were trained with data.{key} {getattr(theirs, key)}, here it is {getattr(data, key)}"
        for key in SEEN
        if getattr(theirs, key) != getattr(data, key)
    ]


def encoders_record(content: Mapping[str, Any], own: Config) -> dict[str, str | None] | None:
    """The checkpoint whose encoders a training started from: path and SHA-256 as they were then; None without one.

    Args:
        content: of the checkpoint of the trained model.
        own: its configuration.
    """
    if own.train.encoders is None:
        return None
    found = content.get("encoders")
    return dict(found) if found else {"path": own.train.encoders, "sha256": None}


def encoders_in_words(encoders: Mapping[str, str | None] | None) -> str:
    """A record of :func:`encoders_record` for a reader; empty without one."""
    if encoders is None:
        return ""
    known = f"sha256 `{encoders['sha256']}`" if encoders["sha256"] else "whose sha256 was not kept"
    return f"encoders trained on from `{encoders['path']}`, {known}"


def refuse_another_model(own: Config, config: Config) -> None:
    """A checkpoint fixes its model and what the model sees: neither an override nor ``config.yaml`` can change them.

    Args:
        own: the checkpoint's configuration.
        config: what it is asked to run with.

    Raises:
        UsageError: they differ in that.
    """
    changed = [f"data.{key}" for key in SEEN if getattr(own.data, key) != getattr(config.data, key)]
    changed += ["model"] * (own.model != config.model)
    if changed:
        raise UsageError(
            f"{', '.join(changed)}: fixed by the checkpoint, but different on the command line or in config.yaml"
        )


def read_run(
    run: Path, name: str, overrides: Sequence[str], out: Path | None
) -> tuple[Path, Config, Config, dict[str, Any]]:
    """A run's checkpoint with the configuration that is asked for; or a checkpoint, or released weights, alone.

    Args:
        run: folder of a run, or a file.
        name: ``best`` or ``last``, of a folder.
        overrides: ``--section.key=value`` of the command line.
        out: where figures shall go; None for the run's folder, which a file has not got.

    Returns:
        Path of the checkpoint, the configuration to run with, the checkpoint's own, and its content.

    Raises:
        UsageError: no such run, no place to write to, or settings that do not go with it.
        AvfusionError: the checkpoint is damaged.
    """
    if run.is_file():
        if out is None:
            raise UsageError(f"{run}: a file and no run folder, so nothing can be written there: give --out=FOLDER")
        path, content = run, read_checkpoint(run)
        own = config_from_dict(content["config"], where=str(path))
        config = with_overrides(own, overrides)
    else:
        if not (run / "config.yaml").is_file():
            raise UsageError(f"{run}: no config.yaml there; expected a folder that train.py made, or released weights")
        path = run / "checkpoints" / f"{name}.pt"
        config, content = load_config(run / "config.yaml", overrides), read_checkpoint(path)
        own = config_from_dict(content["config"], where=str(path))
    refuse_another_model(own, config)
    return path, config, own, content


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
