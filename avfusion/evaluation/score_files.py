"""``eval.py --scores=CSV --labels=CSV``: from files to a report, whatever model made the scores.

Without a folder to write to, the report is printed as JSON; with one, ``report.json``, ``report.md``,
``precision_recall.csv`` and ``precision_recall.png`` are written there, and the tables are printed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from avfusion.evaluation.bootstrap import enough_resamples
from avfusion.evaluation.boxes import RANGE, in_fractions
from avfusion.evaluation.curve import curve_points, draw_precision_recall, write_precision_recall
from avfusion.evaluation.join import Joined, join
from avfusion.evaluation.paired import paired_rows
from avfusion.evaluation.record import check_out, file_record, made_by
from avfusion.evaluation.report import evaluate, interval_record
from avfusion.evaluation.score_text import as_markdown, as_text
from avfusion.evaluation.subset_files import need_categories, read_categories, read_stretches
from avfusion.evaluation.subsets import PICTURE_WIDTH_PX, Subset, subset_rows, subsets
from avfusion.evaluation.table_files import read_both, read_score_files, table_record
from avfusion.files import whole_text_file
from avfusion.tracks import LabelTable

SEED = 0  # of the bootstrap
FILES = ("report.md", "report.json", "precision_recall.csv", "precision_recall.png")
THESE, OTHERS = "these scores", "the others"  # names in the picture; the files are named in the report


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
        scores: AVA columns and score; a file, or a folder of them.
        labels: the labels of the same rows, likewise.
        against: other scores of the same rows, which the first are compared with.
        conditions: labels of AVA-Speech, for figures per condition of the sound.
        categories: ``video_id,category``, for figures per category.
        out: folder to write to; None prints JSON.
        resamples: bootstrap resamples of the videos; 0 leaves the intervals out.
        command: the command line, for the record.

    Raises:
        AvfusionError: a file cannot be read, or its rows are not those of the labels.
        UsageError: the folder cannot be made, or is a run's own.
    """
    check_out(out, FILES)
    truth, predicted = read_both(labels, scores)
    joined = join(truth, predicted)
    other = None if against is None else join(truth, read_score_files(against))
    chosen, notes = _subsets(joined, truth, conditions, categories)
    resamples, few = enough_resamples(resamples)
    tables = {"scores": scores, "labels": labels, "against": against}
    files = {"conditions": conditions, "categories": categories}
    report = {
        "files": {name: table_record(path) for name, path in tables.items() if path is not None}
        | {name: file_record(path) for name, path in files.items() if path is not None},
        **_figures(joined, other, chosen, resamples),
        **made_by(command),
    }
    report["notes"] += few + notes
    content = json.dumps(report, indent=2, allow_nan=False) + "\n"
    if out is None:
        print(content, end="")
        return
    curves = {THESE: curve_points(joined.speaking, joined.score)}
    if other is not None:
        curves[OTHERS] = curve_points(other.speaking, other.score)
    paths = [out / name for name in FILES]
    for path, text in zip(paths[:2], (as_markdown(report, paths[3].name), content), strict=True):
        with whole_text_file(path) as file:
            file.write(text)
    write_precision_recall(paths[2], curves)
    points = {name: [(point.recall, point.precision) for point in curve] for name, curve in curves.items()}
    draw_precision_recall(paths[3], points, report["prevalence"])
    print(as_text(report))
    print("\n".join(f"  {path}" for path in paths))


def _subsets(
    joined: Joined, truth: LabelTable, conditions: Path | None, categories: Path | None
) -> tuple[list[Subset], list[str]]:
    """The subsets that the files and the labels allow, and what is to be said about them."""
    sound = None if conditions is None else read_stretches(conditions)
    named = None if categories is None else read_categories(categories)
    notes = []
    outside = np.flatnonzero(~in_fractions(truth.boxes_xyxy))
    if len(outside):
        row = int(outside[0])
        notes.append(
            f"no subsets by face width: {len(outside)} boxes of the labels, first that of {truth.row_name(row)}, "
            f"{truth.boxes_xyxy[row].tolist()}; expected {RANGE}"
        )
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
        figures["against"] = evaluate(other, resamples, SEED).to_dict()
        figures["comparison"] = [row.to_dict() for row in rows]
    return figures
