"""``eval.py RUN RUN ...``: tables of several runs on one split, and with a folder to write to, three files.

``comparison.json``, ``comparison.md`` and ``comparison.png``. The runs' own reports stand as they are; what is new is
how far each run is from the first, on the same drawn groups of tracks.
"""

from __future__ import annotations

import json
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import avfusion
from avfusion.config import Config, with_overrides
from avfusion.errors import UsageError
from avfusion.evaluation.curve import precision_recall
from avfusion.files import sha256_of, whole_text_file
from avfusion.training.side_by_side.measures import SEED, differences, seed_rows, settings_that_differ
from avfusion.training.side_by_side.picture import DrawnRun, draw_runs
from avfusion.training.side_by_side.runs import AVERAGE_PRECISION, COUNTS, Run, command_for, read_runs
from avfusion.training.side_by_side.same_rows import SameRows, refuse_other_data, same_rows
from avfusion.training.side_by_side.text import as_markdown, as_text, excludes_zero


def compare_runs(
    folders: Sequence[Path], split: str | None, out: Path | None = None, overrides: Sequence[str] = ()
) -> None:
    """Compares runs by their reports and scores, prints the tables, and writes them where a folder is given.

    Args:
        folders: two run folders or more; the others are compared with the first.
        split: the split; None takes the validation split of the runs.
        out: folder to write to; None only prints.
        overrides: ``--report.bootstrap=N`` sets the resamples of the differences; nothing else counts here.

    Raises:
        UsageError: another override, a folder that is no run or has no report of the split, runs on different data, or
            a folder that cannot be made.
        AvfusionError: a file is damaged, or scores, labels and reports do not belong together.
    """
    other = [text for text in overrides if not text.startswith("--report.bootstrap=")]
    if other:
        raise UsageError(f"{other[0]}: runs are compared as their reports stand; only --report.bootstrap=N counts here")
    resamples = with_overrides(Config(), overrides).report.bootstrap
    split, runs = read_runs(folders, split)
    refuse_other_data(runs, split)
    rows = same_rows(runs, split)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--out={out}: cannot be made ({error.strerror}); give another folder") from error
    content = _compared(runs, rows, split, resamples)
    print(as_text(content))
    if out is not None:
        for path in _write(content, runs, rows, out):
            print(f"  {path}")


def _compared(runs: Sequence[Run], rows: SameRows, split: str, resamples: int) -> dict[str, Any]:
    """The content of ``comparison.json``."""
    first = runs[0]
    seeds, seed_notes = seed_rows(runs)
    found = differences(runs, rows, resamples)
    prevalence = first.counts["num_positive"] / first.counts["num_rows"]
    return {
        "dataset": first.dataset,
        "root": first.root,
        "data": dict(first.data),
        "split": split,
        "command": shlex.join(["python", *sys.argv]),
        "versions": {"avfusion": avfusion.__version__, "numpy": np.__version__, "python": platform.python_version()},
        "counts": {**{count: first.counts[count] for count in COUNTS}, "prevalence": prevalence},
        "intervals": {
            "kind": "percentile bootstrap of the differences",
            "level": 0.95,
            "drawn": "groups of tracks",
            "num_drawn": first.counts["num_groups"],
            "resamples": resamples,
            "seed": SEED,
        },
        "first": first.name,
        "runs": [_record(run) for run in runs],
        "settings": settings_that_differ(runs),
        "differences": found["of_run"],
        "subsets": found["subsets"],
        "seeds": seeds,
        "notes": [*_notes(runs, rows, split), *seed_notes, *_by_chance(found["of_run"])],
    }


def _record(run: Run) -> dict[str, Any]:
    return {
        "name": run.name,
        "folder": str(run.folder),
        "model": run.model,
        "parameters": run.parameters,
        "seed": run.seed,
        "checkpoint": asdict(run.checkpoint),
        "figures": dict(run.figures),
        "interval": run.interval,
        "offset_accuracy_interval": run.offset_interval,
        "intervals": {"resamples": run.resamples, "seed": run.bootstrap_seed},
        "root": run.root,
        "data": dict(run.data),
        "encoders": run.encoders,
        "device": run.device,
        "command": run.command,
        "versions": dict(run.versions),
    }


def _notes(runs: Sequence[Run], rows: SameRows, split: str) -> list[str]:
    """What a reader has to know about the figures."""
    notes = [] if settings_that_differ(runs) else ["the settings of all runs are the same, but for run.* and wandb.*"]
    chosen_on = [run for run in runs if run.config.data.val_split == split]
    if chosen_on:
        which = "each run" if len(chosen_on) == len(runs) else ", ".join(run.name for run in chosen_on)
        notes.append(f"{split} also chose the best epoch of {which}: a split that chose nothing is the fairer test")
    for run in runs:
        path = run.folder / "checkpoints" / Path(run.checkpoint.path).name
        if path.is_file() and sha256_of(path) != run.checkpoint.sha256:
            notes.append(
                f"{run.name}: {path} has changed since its report was made; `{command_for(run.folder, split)}` makes"
                " the report of the new one"
            )
    if rows.left_out:
        notes.append(f"{rows.left_out} tracks of {split} could not be used and are left out")
    if rows.unlabelled:
        notes.append(f"{rows.unlabelled} tracks have scores but no labels: they count in no figure")
    if runs[0].counts["num_groups"] == 1:
        notes.append("one independent source: no intervals")
    return notes


def _by_chance(of_run: dict[str, list[dict[str, Any]]]) -> list[str]:
    """How many differences on subsets are marked, and how many would be if there were none at all."""
    shown = [row["average_precision"] for rows in of_run.values() for row in rows[1:] if row["average_precision"]]
    with_interval = [difference for difference in shown if difference["interval"] is not None]
    if not with_interval:
        return []
    marked = sum(map(excludes_zero, with_interval))
    return [
        f"{marked} of {len(with_interval)} differences on subsets have an interval that excludes 0; about"
        f" {0.05 * len(with_interval):.1f} would by chance alone, and more where there are few sources"
    ]


def _write(content: dict[str, Any], runs: Sequence[Run], rows: SameRows, out: Path) -> list[Path]:
    """Writes the files and gives their paths."""
    markdown, numbers, picture = (out / f"comparison.{ending}" for ending in ("md", "json", "png"))
    drawn = [
        DrawnRun(run.name, precision_recall(of.speaking, of.score), run.figures[AVERAGE_PRECISION] or 0.0, run.interval)
        for run, of in zip(runs, rows.joined, strict=True)
    ]
    title = f"{content['dataset']} / {content['split']}"
    draw_runs(picture, drawn, content["counts"]["prevalence"], title)
    with whole_text_file(numbers) as file:
        file.write(json.dumps(content, indent=2, allow_nan=False) + "\n")
    with whole_text_file(markdown) as file:
        file.write(as_markdown(content, picture.name))
    return [markdown, numbers, picture]
