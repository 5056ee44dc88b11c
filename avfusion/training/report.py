"""What a run is worth: scores, figures per role and per corpus, offset accuracy, alignment pictures.

Written into the run folder: ``scores/<split>.csv``, ``report.json``, ``report.md``, ``precision_recall.png``,
``alignment/*.png`` (for a split other than the validation split: ``report-<split>.json`` ...). A dataset that keeps the
rows of its corpus as they were annotated (``source_labels/<split>.csv``) is scored on those too:
``scores/<split>-source.csv``.
"""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import avfusion
from avfusion.alignment.pictures.write_clips import draw_clips
from avfusion.alignment.table import wandb_columns, wandb_rows
from avfusion.checkpoint import encoders_record, model_of, read_checkpoint
from avfusion.config import Config
from avfusion.data.clips import ClipDataset
from avfusion.data.examples import Examples
from avfusion.data.identity import data_record
from avfusion.data.left_out import read_skipped
from avfusion.distributed import ALONE, World
from avfusion.errors import AvfusionError
from avfusion.evaluation.curve import draw_precision_recall, precision_recall
from avfusion.evaluation.join import Joined, join
from avfusion.evaluation.report import evaluate, interval_record
from avfusion.evaluation.roles import per_role, per_source, track_groups, track_roles, track_sources
from avfusion.evaluation.source_rows import score_source_rows
from avfusion.evaluation.subsets import PICTURE_WIDTH_PX, subset_rows, subsets
from avfusion.evaluation.tables import interval, number
from avfusion.files import sha256_of, whole_text_file
from avfusion.models.losses import terms_on
from avfusion.offsets import IN_SYNC_ROLES, offset_rows
from avfusion.scoring import pick_device, score_tracks
from avfusion.tracks import FaceTrack, LabelTable, ScoreTable, read_labels, write_scores
from avfusion.training.head_report import FAULTS, report_heads, say_left_out
from avfusion.training.log_rows import FINAL, FINAL_ROLE
from avfusion.training.logger import RunLogger
from avfusion.training.not_learnt import between_faces_not_learnt
from avfusion.training.predictions import COLUMNS, prediction_rows
from avfusion.training.report_text import as_markdown, as_text


def report_run(
    checkpoint: Path,
    config: Config,
    examples: Examples,
    split: str,
    run_dir: Path,
    logger: RunLogger | None,
    command: Sequence[str],
    world: World = ALONE,
) -> dict[str, Any]:
    """Scores one split with one checkpoint, writes the report, prints its tables and the paths.

    Args:
        checkpoint: whose model to use.
        config: how to read data and report; its model section is the checkpoint's own.
        examples: the split, without augmentation.
        split: its name.
        run_dir: where to write.
        logger: takes the headline figures and pictures too; None leaves W&B alone.
        command: the command line, for the record.
        world: processes that share the scoring; the main one reads the checkpoint and does all the rest.

    Returns:
        The content of ``report.json``; nothing in processes other than the main one.
    """
    content = world.broadcast(read_checkpoint(checkpoint) if world.is_main else None)
    model, trained = model_of(content, checkpoint)
    device = pick_device(config.run.device, world.local_rank)
    model.to(device)
    dataset = examples.dataset
    scores = score_tracks(model, examples, config, device, world=world)
    if not world.is_main:
        return {}
    table = ScoreTable.from_tracks(dataset.tracks, scores)
    suffix = "" if split == config.data.val_split else f"-{split}"
    scores_path = run_dir / "scores" / f"{split}.csv"
    scores_path.parent.mkdir(parents=True, exist_ok=True)
    write_scores(scores_path, table)

    report = {
        "dataset": dataset.name,
        "root": config.data.root if config.data.format != "synthetic" else None,
        "data": data_record(config.data),
        "split": split,
        "device": str(device),
        "checkpoint": {"path": str(checkpoint), "sha256": sha256_of(checkpoint), "epoch": content["progress"]["epoch"]},
        "encoders": encoders_record(content, trained),
        "command": shlex.join(["python", *command]),
        "seed": trained.run.seed,
        "versions": _versions(),
        "model": {"parameters": sum(p.numel() for p in model.parameters()), **_model_summary(trained)},
        "left_out": _left_out(dataset, split, config, checkpoint.parent.parent),
        "left_out_by_preparation": getattr(dataset, "left_out", {}),
        **_figures(dataset.tracks, scores, config),
    }
    if config.report.offset_accuracy and trained.model.modality == "audio_visual":
        report["offset_accuracy"] = offset_rows(model, dataset, config, device)
    source_path = source_labels_of(dataset)
    source_scores = []
    if source_path is not None:
        path = run_dir / "scores" / f"{split}-source.csv"
        try:
            report["source_rows"] = _source_rows(source_path, table, dataset, config, path)
            source_scores.append(path)
        except AvfusionError as error:  # the training is done and its report is worth having
            report["source_rows_fault"] = str(error)

    json_path, md_path = run_dir / f"report{suffix}.json", run_dir / f"report{suffix}.md"
    title, log = f"{dataset.name} / {split}", checkpoint.parent.parent / "log.jsonl"
    curve = _draw_curve(run_dir / f"precision_recall{suffix}.png", dataset.tracks, scores, report["all"], title)
    _write(report, json_path, md_path, curve)  # what follows takes minutes and may be killed
    alignment_dir = run_dir / f"alignment{suffix}"
    heads = report_heads(model, examples, config, device, alignment_dir, title, log)
    report |= heads.content
    pictures: list[Path] = []
    try:
        pictures = draw_clips(model, examples, config, device, alignment_dir, words=heads.words)
    except FAULTS as fault:
        say_left_out("the clips are not drawn", fault)
    _write(report, json_path, md_path, [*curve, *heads.pictures, *pictures], heads.shown)
    if logger is not None:
        step, headline = int(content["progress"]["step"]), _headline(report, split)
        if not logger.has(headline, step):  # else this report was cut short once, or is made again
            logger.log_images(pictures, f"alignment/{split}", step)
            logger.log_images(heads.pictures, f"heads/{split}", step)
            logger.log_table(f"heads/{split}_table", wandb_columns(), wandb_rows(heads.rows), step)
            if heads.page is not None:
                logger.log_page(heads.page, f"heads/{split}_viewer", step)
            rows = prediction_rows(dataset.tracks, scores, config.wandb.table_rows)
            logger.log_table(f"{FINAL}{split}_predictions", COLUMNS, rows, step)
            logger.log(headline, step)
        logger.summarize(headline)
        logger.log_model(checkpoint, {"epoch": content["progress"]["epoch"], "step": step, **headline})
    print(as_text(report))
    for path in [scores_path, *source_scores, md_path, json_path, *curve, checkpoint, *heads.paths, *pictures]:
        print(f"  {path}")
    return report


def _write(
    report: dict[str, Any], json_path: Path, md_path: Path, pictures: Sequence[Path] = (), files: Sequence[Path] = ()
) -> None:
    with whole_text_file(json_path) as file:
        file.write(json.dumps(report, indent=2) + "\n")
    here = md_path.parent
    with whole_text_file(md_path) as file:
        file.write(as_markdown(report, [p.relative_to(here) for p in pictures], [p.relative_to(here) for p in files]))


def _figures(
    all_tracks: Sequence[FaceTrack], all_scores: Sequence[NDArray[np.float32]], config: Config
) -> dict[str, Any]:
    """All figures that come from labels and scores; tracks without labels count in none of them."""
    tracks = [track for track in all_tracks if track.labelled]
    without = len(all_tracks) - len(tracks)
    joined = _joined(all_tracks, all_scores)
    if joined is None:
        return {"all": None, "subsets": [], "roles": [], "sources": [], "unlabelled_tracks": without}
    resamples = config.report.bootstrap
    groups = track_groups(tracks)
    roles = per_role(joined, track_roles(tracks), IN_SYNC_ROLES, resamples, group_of_entity=groups)
    sources = per_source(joined, track_sources(tracks), resamples, group_of_entity=groups)
    whole = evaluate(joined, resamples, group_of_entity=groups)
    chosen = subset_rows(joined, subsets(joined), resamples=resamples, group_of_entity=groups)
    return {
        "all": whole.to_dict(),
        "intervals": interval_record(whole, "groups of tracks", resamples),
        "picture_width_px": PICTURE_WIDTH_PX,
        "subsets": [row.to_dict() for row in chosen],
        "roles": [asdict(row) for row in roles],
        "sources": [asdict(row) for row in sources],
        "unlabelled_tracks": without,
    }


def _joined(all_tracks: Sequence[FaceTrack], all_scores: Sequence[NDArray[np.float32]]) -> Joined | None:
    """Labels and scores of the tracks that have labels; None where none has."""
    labelled = [index for index, track in enumerate(all_tracks) if track.labelled]
    if not labelled:
        return None
    tracks = [all_tracks[index] for index in labelled]
    return join(LabelTable.from_tracks(tracks), ScoreTable.from_tracks(tracks, [all_scores[i] for i in labelled]))


def _draw_curve(
    path: Path,
    tracks: Sequence[FaceTrack],
    scores: Sequence[NDArray[np.float32]],
    whole: dict[str, Any] | None,
    title: str,
) -> list[Path]:
    """Draws precision over recall where there are labels."""
    joined = _joined(tracks, scores)
    if joined is None or whole is None:
        return []
    ends = whole["average_precision_interval"]
    label = f"AP {number(whole['average_precision'])}" + (f" ({interval(ends)})" if ends else "")
    curve = {label: precision_recall(joined.speaking, joined.score)}
    draw_precision_recall(path, curve, float(joined.speaking.mean()), title)
    return [path]


def _left_out(dataset: ClipDataset, split: str, config: Config, trained_in: Path) -> dict[str, Any]:
    """By split, the tracks that could not be used: of the split that is scored, and of the training."""
    skipped = {**read_skipped(trained_in, config.data), split: dataset.skipped}
    return {
        name: {"tracks": len(found.tracks), "of": found.total, "reasons": dict(found.reasons)}
        for name, found in skipped.items()
        if found.tracks or found.orphans
    }


def source_labels_of(dataset: ClipDataset) -> Path | None:
    """The rows of the split as its corpus annotated them; None where the dataset does not keep them."""
    path: Path | None = getattr(dataset, "source_labels", None)
    return path if path is not None and path.is_file() else None


def _source_rows(
    source_path: Path, table: ScoreTable, dataset: ClipDataset, config: Config, scores_path: Path
) -> dict[str, Any]:
    """Scores the rows as annotated, writes them, and gives their AP with its interval over videos."""
    source = read_labels(source_path, more_columns=2, keep_texts=True)  # as TalkNet's *_orig.csv has them
    skipped = dataset.skipped
    kept, scores = score_source_rows(source, table, partial=bool(skipped.tracks or skipped.orphans))
    write_scores(scores_path, scores)
    figures = evaluate(join(kept, scores), config.report.bootstrap)
    return {
        "average_precision": figures.average_precision,
        "average_precision_interval": figures.average_precision_interval,
        "num_rows": figures.num_rows,
        "num_positive": figures.num_positive,
        "num_videos": figures.num_videos,
        "rows_left_out": len(source) - len(kept),
    }


def _headline(report: dict[str, Any], split: str) -> dict[str, float]:
    numbers = {f"{FINAL}{split}_ap": report["all"]["average_precision"]} if report["all"] else {}
    for figure, short in (("average_precision", "ap"), ("auroc", "auroc")):
        rows = [row for row in report["roles"] if row[figure] is not None]
        # Not the keys of the epochs: these are the best checkpoint's, and would bend their curves at the end.
        numbers |= {f"{FINAL_ROLE}{split}_{short}_{row['role']}": row[figure] for row in rows}
    for row in report.get("offset_accuracy", []):
        if row["source"] == "all":
            numbers[f"{FINAL}{split}_offset_accuracy"] = row["accuracy"]
    return numbers


def _model_summary(config: Config) -> dict[str, Any]:
    fusion = config.model.fusion
    audio_visual = config.model.modality == "audio_visual"
    losses = terms_on(config.train.loss) if audio_visual else {"speaking": 1.0}
    summary: dict[str, Any] = {"modality": config.model.modality, "losses": losses}
    if audio_visual:
        summary["fusion"] = fusion.kind if config.model.kind == "avfusion" else config.model.kind
        if fusion.kind == "cross_attention":
            summary |= {"heads": fusion.heads, "audio_bypass": fusion.audio_bypass}
    not_learnt = between_faces_not_learnt(config)
    if not_learnt is not None:
        summary["not_learnt"] = not_learnt
    return summary


def _versions() -> dict[str, str]:
    return {
        "avfusion": avfusion.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
