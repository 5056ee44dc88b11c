"""``python eval.py RUN --suite=robustness``: one checkpoint, one split, every condition; tables and two pictures.

Writes ``robustness.json``, ``robustness.md``, ``robustness.png`` and ``desync.png`` into OUT/robustness (for a split
other than the validation split: robustness-<split>).
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from avfusion.checkpoint import model_of, read_run
from avfusion.config import Config
from avfusion.data.clips import ClipDataset
from avfusion.data.identity import read_otherwise
from avfusion.data.left_out import read_skipped
from avfusion.data.open import open_dataset
from avfusion.errors import AvfusionError, UsageError
from avfusion.files import lock, whole_text_file
from avfusion.offsets import in_sync, offset_rows
from avfusion.robustness.charts import desync_figure, robustness_figure, save
from avfusion.robustness.clips import KeptClips
from avfusion.robustness.conditions import all_conditions
from avfusion.robustness.false_accepts import MISS_RATE
from avfusion.robustness.provenance import about, identity_of, notes_of, provenance
from avfusion.robustness.suite import Results, read_partial, run_suite
from avfusion.robustness.text import as_markdown, as_text, title_of
from avfusion.scoring import pick_device

PICTURES = ("robustness.png", "desync.png")


def evaluate_robustness(
    run_dir: Path, checkpoint_name: str, split: str | None, out: Path | None, overrides: Sequence[str]
) -> None:
    """Runs the suite and writes its results.

    Args:
        run_dir: folder of a run that train.py made, or a checkpoint or released weights alone.
        checkpoint_name: ``best`` or ``last``.
        split: None takes the run's validation split.
        out: where to write; None takes the run folder.
        overrides: ``--section.key=value`` of the command line.

    Raises:
        UsageError: no such run, or settings that do not go with it.
        AvfusionError: the split has no labels, or no track that is in sync and speaks.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("--suite=robustness runs in one process: start it with python, not torchrun")
    path, config, own, content = read_run(run_dir, checkpoint_name, overrides, out)
    if out is None or out.resolve() == run_dir.resolve():
        refuse_other_data(own, config, run_dir, checkpoint_name)
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    device = pick_device(config.run.device)
    split = split or config.data.val_split
    dataset = open_dataset(config.data, split, kept=read_skipped(run_dir, config.data))
    clips = usable_clips(dataset, split, config)
    conditions = all_conditions(clips, config.data.augment.music_folder)
    folder = (out or run_dir) / ("robustness" if split == config.data.val_split else f"robustness-{split}")
    with held(folder):
        partial = folder / "partial.json"
        head = provenance(config, own, content, path, dataset, split, device)
        identity = identity_of(head, clips.tracks, config.data.augment.music_folder)
        with going_on(partial, identity, len(conditions)):
            clips.read_all()
            model, _ = model_of(content, path)
            results = run_suite(model.to(device), clips, conditions, config, device, partial, identity)
            offsets = offset_rows(model, clips, config, device) if own.model.modality == "audio_visual" else []
        report = {
            **head,
            "notes": notes_of(dataset, clips, {condition.family for condition in conditions}),
            "model": about(model, own),
            **as_dict(results),
            "offset_accuracy": offsets,
        }
        write(report, folder)
        partial.unlink(missing_ok=True)
    print(as_text(report))
    for name in ("robustness.md", "robustness.json", *PICTURES):
        print(f"  {folder / name}")


def refuse_other_data(own: Config, config: Config, run_dir: Path, checkpoint_name: str) -> None:
    """In the run's own folder lie the figures of its best checkpoint on its own data.

    Raises:
        UsageError: these would be others.
    """
    other = read_otherwise(own, config, run_dir) + ["checkpoint"] * (checkpoint_name != "best")
    if other:
        raise UsageError(
            f"these would not be the run's own figures (other {', '.join(other)}): give --out=FOLDER for them, so that"
            " those in the run folder stay"
        )


def usable_clips(dataset: ClipDataset, split: str, config: Config) -> KeptClips:
    """The labelled tracks of a split.

    Raises:
        AvfusionError: there are none, or none of them is in sync and speaks.
    """
    labelled = [index for index, track in enumerate(dataset.tracks) if track.labelled]
    if not labelled:
        raise AvfusionError(
            f"{dataset.name} / {split}: none of {len(dataset.tracks)} tracks has labels; the suite needs them, choose"
            " another split"
        )
    if not any(in_sync(dataset.tracks[index]) for index in labelled):
        raise AvfusionError(
            f"{dataset.name} / {split}: none of {len(labelled)} labelled tracks is in sync and speaks (role own_sound"
            " or solo, or no role and more than half of its frames speaking); the suite needs some, choose another"
            " split"
        )
    return KeptClips(dataset, labelled, config.data.cache_gb)


@contextmanager
def going_on(partial: Path, identity: dict[str, Any], conditions: int) -> Iterator[None]:
    """Where Ctrl-C ends the block, says what is kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        kept, command = len(read_partial(partial, identity)[0]), shlex.join(["python", *sys.argv])
        print(f"\n{kept} of {conditions} conditions are kept; the same command goes on: {command}", file=sys.stderr)
        raise


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Makes the folder and keeps another suite out of it.

    Raises:
        UsageError: it cannot be made, or another process is at work there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made ({error.strerror}); give another folder by --out") from error
    with (folder / ".lock").open("w") as file:
        if lock(file) is False:
            raise UsageError(f"{folder}: another process is at work there; wait for its end, or give another by --out")
        yield


def as_dict(results: Results) -> dict[str, Any]:
    """The figures as ``robustness.json`` has them."""
    return {
        "counts": results.counts,
        "clean": results.clean,
        "rows": results.rows,
        "desync": {"miss_rate": MISS_RATE, "threshold": results.threshold, "rows": results.false_accepts},
    }


def write(report: dict[str, Any], folder: Path) -> None:
    """Writes the tables and draws the pictures."""
    title = title_of(report)
    clean, chance = report["clean"]["average_precision"], report["counts"]["prevalence"]
    save(robustness_figure(report["rows"], clean, chance, f"AP under damage: {title}"), folder / PICTURES[0])
    desync = report["desync"]
    save(desync_figure(desync["rows"], desync["miss_rate"], f"False accepts: {title}"), folder / PICTURES[1])
    with whole_text_file(folder / "robustness.md") as file:
        file.write(as_markdown(report, PICTURES))
    with whole_text_file(folder / "robustness.json") as file:
        file.write(json.dumps(report, indent=2, allow_nan=False) + "\n")
