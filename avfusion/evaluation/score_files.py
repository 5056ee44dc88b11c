"""``eval.py --scores=CSV --labels=CSV``: from files to a report, whatever model made the scores.

Without a folder to write to, the report is printed as JSON; with one, ``report.json``, ``report.md``,
``precision_recall.csv`` and ``precision_recall.png`` are written there, and the tables are printed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import avfusion
from avfusion.errors import UsageError
from avfusion.evaluation.curve import draw_precision_recall, precision_recall, write_precision_recall
from avfusion.evaluation.join import Joined, join
from avfusion.evaluation.paired import paired_rows
from avfusion.evaluation.report import evaluate, interval_record
from avfusion.evaluation.score_text import as_markdown, as_text
from avfusion.evaluation.subset_files import need_categories, read_categories, read_stretches
from avfusion.evaluation.subsets import PICTURE_WIDTH_PX, Subset, subset_rows, subsets
from avfusion.files import whole_text_file
from avfusion.tracks import read_labels, read_scores

SEED = 0  # of the bootstrap


def evaluate_files(
    scores: Path,
    labels: Path,
    *,
    against: Path | None = None,
    conditions: Path | None = None,
    categories: Path | None = None,
    out: Path | None = None,
    resamples: int = 1000,
    command: Sequence[str] = (),
) -> None:
    """Judges a score file by AVA's rules and reports.

    Args:
        scores: AVA columns and score.
        labels: the labels of the same rows.
        against: other scores of the same rows, which the first are compared with.
        conditions: labels of AVA-Speech, for figures per condition of the sound.
        categories: ``video_id,category``, for figures per category.
        out: folder to write to; None prints JSON.
        resamples: bootstrap resamples of the videos; 0 leaves the intervals out.
        command: the command line, for the record.

    Raises:
        AvfusionError: a file cannot be read, or its rows are not those of the labels.
        UsageError: the folder cannot be made.
    """
    files = {"scores": scores, "labels": labels, "against": against, "conditions": conditions, "categories": categories}
    truth = read_labels(labels, more_columns=2)  # as TalkNet's *_orig.csv has them
    joined = join(truth, read_scores(scores))
    other = None if against is None else join(truth, read_scores(against))
    chosen, notes = _subsets(joined, conditions, categories)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--out={out}: cannot be made ({error.strerror}); give another folder") from error
    report = {
        "files": {name: _named(path) for name, path in files.items() if path is not None},
        **_figures(joined, other, chosen, resamples),
        "command": shlex.join(command),
        "versions": {
            "avfusion": avfusion.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    report["notes"] += notes
    content = json.dumps(report, indent=2, allow_nan=False) + "\n"
    if out is None:
        print(content, end="")
        return
    points = precision_recall(joined.speaking, joined.score)
    curves = {scores.name: points}
    if other is not None and against is not None:
        name = against.name if against.name != scores.name else str(against)
        curves[name] = precision_recall(other.speaking, other.score)
    paths = [out / name for name in ("report.md", "report.json", "precision_recall.csv", "precision_recall.png")]
    for path, text in zip(paths[:2], (as_markdown(report, paths[3].name), content), strict=True):
        with whole_text_file(path) as file:
            file.write(text)
    write_precision_recall(paths[2], points)
    draw_precision_recall(paths[3], curves, report["prevalence"])
    print(as_text(report))
    print("\n".join(f"  {path}" for path in paths))


def _subsets(joined: Joined, conditions: Path | None, categories: Path | None) -> tuple[list[Subset], list[str]]:
    """The subsets that the files and the labels allow, and what is to be said about them."""
    sound = None if conditions is None else read_stretches(conditions)
    named = None if categories is None else read_categories(categories)
    notes = []
    videos = [name for (name,) in joined.videos[1]]
    if named is not None and categories is not None:
        need_categories(categories, named, videos)
        without = [video for video in videos if video not in named]
        if without:
            notes.append(f"{len(without)} of {len(videos)} videos have no category, first {without[0]!r}")
    if sound is not None:
        without = [video for video in videos if video not in sound.of_video]
        if without:
            notes.append(f"{len(without)} of {len(videos)} videos have no labelled sound, first {without[0]!r}")
    return subsets(joined, sound=sound, categories=named), notes


def _figures(joined: Joined, other: Joined | None, chosen: Sequence[Subset], resamples: int) -> dict[str, Any]:
    """All that comes from the rows alone."""
    report = evaluate(joined, resamples, SEED)
    figures = report.to_dict() | {
        "intervals": interval_record(report, "videos", resamples, SEED),
        "picture_width_px": PICTURE_WIDTH_PX,
        "subsets": [row.to_dict() for row in subset_rows(joined, chosen, resamples=resamples, seed=SEED)],
    }
    if other is not None:
        video, _ = joined.videos
        rows = paired_rows(joined.speaking, joined.score, other.score, video, chosen, resamples=resamples, seed=SEED)
        figures["against"] = evaluate(other, 0).to_dict()
        figures["comparison"] = [row.to_dict() for row in rows]
    return figures


def _named(path: Path) -> dict[str, str]:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return {"path": os.fspath(path), "sha256": digest.hexdigest()}
