"""A run folder as a comparison reads it: its configuration, the report of one split, and the scores behind it.

The report of a run's own validation split is ``report.json``, that of another ``report-<split>.json``; the scores are
``scores/<split>.csv``. A report that does not hold what is shown of it is refused, never filled up.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from avfusion.config import Config, Scalar, load_config, to_flat_dict
from avfusion.errors import AvfusionError, UsageError
from avfusion.tracks import ScoreTable, read_scores

Interval = tuple[float, float]

AVERAGE_PRECISION = "average_precision"
FIGURES = (AVERAGE_PRECISION, "auroc", "equal_error_rate", "fpr_at_95_tpr", "expected_calibration_error")
OFFSET_ACCURACY, AS_ANNOTATED = "offset_accuracy", "average_precision_as_annotated"
COUNTS = ("num_rows", "num_positive", "num_tracks", "num_videos", "num_groups")
_NO_SETTINGS = ("run.", "wandb.")  # where a run lives, and its seed


@dataclass(frozen=True)
class Checkpoint:
    """What was scored: the file as the report names it, and the epoch after which it was written."""

    path: str
    sha256: str
    epoch: int


@dataclass(frozen=True, eq=False)
class Run:
    """One run on one split.

    Attributes:
        name: the folder's name, or its path where several folders have that name.
        folder: the run folder.
        config: its ``config.yaml``.
        dataset: name of the dataset that was scored.
        root: its folder; None for synthetic talkers.
        data: what the dataset is known by, see :func:`avfusion.data.identity.data_record`.
        encoders: the checkpoint whose encoders the training started from; None without one.
        seed: of the training.
        device: that scored.
        command: that made the report.
        versions: package to version, when the report was made.
        checkpoint: what was scored.
        model: kind of fusion and heads, in words.
        parameters: of the model.
        figures: :data:`FIGURES`, :data:`OFFSET_ACCURACY` and :data:`AS_ANNOTATED`, in 0..1; None where the report has
            none.
        interval: 95 % bootstrap interval of the AP; None where there is none.
        offset_interval: of the offset accuracy, over clips; None where there is none.
        resamples: behind the interval.
        bootstrap_seed: of the interval.
        counts: :data:`COUNTS` of the labelled rows.
        scores: of the split.
    """

    name: str
    folder: Path
    config: Config
    dataset: str
    root: str | None
    data: Mapping[str, Any]
    encoders: Mapping[str, Any] | None
    seed: int
    device: str
    command: str
    versions: Mapping[str, str]
    checkpoint: Checkpoint
    model: str
    parameters: int
    figures: Mapping[str, float | None]
    interval: Interval | None
    offset_interval: Interval | None
    resamples: int
    bootstrap_seed: int
    counts: Mapping[str, int]
    scores: ScoreTable

    @property
    def settings(self) -> dict[str, Scalar]:
        """Every dotted key that may tell one run from another; the seed and where it ran are left out."""
        return {key: value for key, value in to_flat_dict(self.config).items() if not key.startswith(_NO_SETTINGS)}


def read_runs(folders: Sequence[Path], split: str | None) -> tuple[str, list[Run]]:
    """Reads what several runs say about one split.

    Args:
        folders: run folders, all different.
        split: its name; None takes the validation split that all runs have.

    Returns:
        The name of the split, and the runs in the order given.

    Raises:
        UsageError: a folder is named twice or is none of a run, the runs have different validation splits, or one has
            no report of the split.
        AvfusionError: a file is damaged.
    """
    seen: dict[Path, Path] = {}
    for folder in folders:
        if (place := folder.resolve()) in seen:
            raise UsageError(f"{seen[place]} and {folder} are the same run; name every run once")
        seen[place] = folder
        if not (folder / "config.yaml").is_file():
            raise UsageError(f"{folder}: no config.yaml there; expected a folder that train.py made")
    configs = [load_config(folder / "config.yaml") for folder in folders]
    own = [config.data.val_split for config in configs]
    other = next((index for index, name in enumerate(own) if name != own[0]), None)
    if split is None and other is not None:
        raise UsageError(
            f"{folders[other]} has the validation split {own[other]!r}, {folders[0]} has {own[0]!r}: name the split to"
            " compare on by --split=NAME"
        )
    split = split or own[0]
    names = [place.name for place in seen]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    return split, [
        _read_run(name, folder, config, split) for name, folder, config in zip(names, folders, configs, strict=True)
    ]


def command_for(folder: Path, split: str) -> str:
    """The command line that makes the report of a split."""
    return shlex.join(["python", "eval.py", str(folder), f"--split={split}"])


def _read_run(name: str, folder: Path, config: Config, split: str) -> Run:
    suffix = "" if split == config.data.val_split else f"-{split}"
    report_path, scores_path = folder / f"report{suffix}.json", folder / "scores" / f"{split}.csv"
    make_it = f"`{command_for(folder, split)}` makes it"
    for path in (report_path, scores_path):
        if not path.is_file():
            raise UsageError(f"{path} is not there: {folder} has no report of split {split!r}; {make_it}")
    try:
        report = json.loads(report_path.read_bytes())
    except ValueError as error:
        raise AvfusionError(f"{report_path} is damaged ({error}), expected JSON; {make_it} again") from error
    try:
        found, described = report["split"], None if report["all"] is None else _described(report)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise AvfusionError(
            f"{report_path} is not a whole report of this version of avfusion ({what}); {make_it} again"
        ) from error
    if found != split:
        raise AvfusionError(f"{report_path} is of split {found!r}, expected {split!r}; {make_it} again")
    if described is None:
        raise AvfusionError(
            f"{report_path}: split {split!r} has no labels, so there are no figures to compare; choose another by"
            " --split=NAME"
        )
    return Run(name, folder, config, **described, scores=read_scores(scores_path))


def _described(report: dict[str, Any]) -> dict[str, Any]:
    """The fields of :class:`Run` that the report has.

    Raises:
        LookupError: the report does not have them all.
        TypeError: a value is of another kind.
        ValueError: a figure is not finite.
    """
    whole, checkpoint, intervals = report["all"], report["checkpoint"], report["intervals"]
    offsets = [row for row in report.get("offset_accuracy", ()) if row["source"] == "all"]
    annotated = report.get("source_rows") or {}
    figures = {figure: _number(whole[figure]) for figure in FIGURES}
    if figures[AVERAGE_PRECISION] is None:
        raise ValueError("it has no AP")
    figures[OFFSET_ACCURACY] = _number(offsets[0]["accuracy"]) if offsets else None
    figures[AS_ANNOTATED] = _number(annotated["average_precision"]) if annotated else None
    return {
        "dataset": str(report["dataset"]),
        "root": None if report["root"] is None else str(report["root"]),
        "data": dict(report["data"]),
        "encoders": None if report["encoders"] is None else dict(report["encoders"]),
        "seed": int(report["seed"]),
        "device": str(report["device"]),
        "command": str(report["command"]),
        "versions": {str(name): str(version) for name, version in report["versions"].items()},
        "checkpoint": Checkpoint(str(checkpoint["path"]), str(checkpoint["sha256"]), int(checkpoint["epoch"])),
        "model": _in_words(report["model"]),
        "parameters": int(report["model"]["parameters"]),
        "figures": figures,
        "interval": _ends(whole[f"{AVERAGE_PRECISION}_interval"]),
        "offset_interval": _ends(offsets[0]["accuracy_interval"]) if offsets else None,
        "resamples": int(intervals["resamples"]),
        "bootstrap_seed": int(intervals["seed"]),
        "counts": {count: int(whole[count]) for count in COUNTS},
    }


def _in_words(model: dict[str, Any]) -> str:
    if model["modality"] != "audio_visual":
        return f"{model['modality']} only"
    heads = "" if "heads" not in model else f", {model['heads']} head{'s' if model['heads'] != 1 else ''}"
    return f"{model['fusion']}{heads}{', audio bypass' if model.get('audio_bypass') else ''}"


def _ends(interval: Any) -> Interval | None:
    return None if interval is None else (float(interval[0]), float(interval[1]))


def _number(value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"found {value!r}, expected a number")
    if value is not None and not math.isfinite(value):
        raise ValueError(f"found {value}, expected a finite number")
    return value
