"""A report as tables: for the terminal, and for ``report.md``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from avfusion.alignment.table import tables as head_tables
from avfusion.checkpoint import encoders_in_words
from avfusion.data.identity import in_words
from avfusion.evaluation.score_text import subset_table, whole_table
from avfusion.evaluation.tables import Table, interval, markdown_table, number, text_table


def as_text(report: dict[str, Any]) -> str:
    """The tables of a report for the terminal."""
    parts = ["\n".join([f"\n{_title(report)}", *_remarks(report)])]
    parts += [text_table(table) for table in [*_tables(report), *_head_tables(report)[:1]]]
    return "\n\n".join(parts) + "\n"


def as_markdown(report: dict[str, Any], pictures: Sequence[Path], files: Sequence[Path] = ()) -> str:
    """The whole of ``report.md``.

    Args:
        report: content of ``report.json``.
        pictures: shown at its end; paths as seen from its folder, like ``files``.
        files: of the heads, linked.
    """
    parts = [f"# {_title(report)}", _provenance(report)]
    parts += [markdown_table(table) for table in [*_tables(report), *_head_tables(report)]]
    if report.get("heads"):
        parts.append(_heads_note(report["heads"]))
    if files:
        parts.append("\n".join(f"- [{path.name}](<{path.as_posix()}>)" for path in files))
    parts.extend(f"- {note}" for note in (report["all"] or {}).get("notes", []))
    if pictures:
        parts.append("## Pictures\n\n" + "\n".join(f"![{path.stem}]({path.as_posix()})" for path in pictures))
    return "\n\n".join(parts) + "\n"


def _title(report: dict[str, Any]) -> str:
    model = report["model"]
    kind = model["modality"] if model["modality"] != "audio_visual" else model["fusion"]
    heads = f", {model['heads']} heads" if "heads" in model else ""
    return f"{report['dataset']} / {report['split']}: {kind}{heads}, {model['parameters'] / 1e6:.2f} M parameters"


def _remarks(report: dict[str, Any]) -> list[str]:
    """What was not scored or scored without labels to compare with, and what of the model was never trained."""
    remarks = [report["model"]["not_learnt"]] if "not_learnt" in report["model"] else []
    for split, found in report["left_out"].items():
        why = ", ".join(f"{count}: {what}" for what, count in found["reasons"].items())
        remarks.append(f"{split}: {found['tracks']} of {found['of']} tracks left out, which could not be used ({why})")
    for what, found in report["left_out_by_preparation"].items():
        names = ", ".join(found["names"][:5]) + (", .." if len(found["names"]) > 5 else "")
        remarks.append(f"the preparation left out {len(found['names'])} of {found['of']}, {what}: {names}")
    if "source_rows_fault" in report:
        remarks.append(f"the rows as annotated were not scored: {report['source_rows_fault']}")
    if report["unlabelled_tracks"]:
        what = "no figures" if report["all"] is None else "they count in no figure"
        remarks.append(f"{report['unlabelled_tracks']} tracks have scores but no labels: {what}")
    return remarks


def _provenance(report: dict[str, Any]) -> str:
    checkpoint, versions = report["checkpoint"], report["versions"]
    lines = [
        f"- command: `{report['command']}`",
        f"- checkpoint: `{checkpoint['path']}`, epoch {checkpoint['epoch']}, sha256 `{checkpoint['sha256']}`",
        f"- dataset: {report['dataset']}, {report['split']}; {in_words(report['data'])}",
        *([f"- {encoders_in_words(report['encoders'])}"] if report["encoders"] else []),
        f"- seed {report['seed']}, device {report['device']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items()),
    ]
    if report["all"]:
        intervals, whole = report["intervals"], report["all"]
        lines.append(
            f"- {whole['num_rows']} face boxes of which {whole['num_positive']} speak audibly; {whole['num_tracks']}"
            f" tracks, {whole['num_videos']} videos, {whole['num_groups']} independent sources"
        )
        lines.append(
            "- AP: VOC all-point interpolation over all face boxes of the split, as AVA defines it; intervals: 95 %,"
            f" bootstrap over the {whole['num_groups']} independent sources of the tracks, {intervals['resamples']}"
            f" resamples, seed {intervals['seed']}"
        )
        lines.append(f"- face widths: in pixels of pictures scaled to a width of {report['picture_width_px']}")
    lines.append("- losses: " + ", ".join(f"{name} {weight:g}" for name, weight in report["model"]["losses"].items()))
    lines += [f"- {remark}" for remark in _remarks(report)]
    if report["model"].get("audio_bypass"):
        lines.append("- sound also reaches the classifier around the attention: alignment maps need not explain scores")
    return "\n".join(lines)


def _percent_interval(ends: Sequence[float] | None) -> str:
    return "-" if ends is None else f"{100 * ends[0]:.1f}..{100 * ends[1]:.1f} %"


def _tables(report: dict[str, Any]) -> list[Table]:
    whole = report["all"]
    if whole is None:
        return []
    tables = [
        whole_table(whole, "sources"),
        *([subset_table(rows, "sources")] if (rows := _telling_subsets(report["subsets"])) else []),
        (
            "Each role: its own frames; where its tracks never speak, beside the speaking frames named under positives",
            [
                *["role", "AP", "95 %", "chance", "AUROC", "95 %"],
                *["mean score, not speaking", "speaking", "frames", "tracks", "positives"],
            ],
            [
                [
                    row["role"],
                    number(row["average_precision"]),
                    interval(row["average_precision_interval"]),
                    number(row["chance"]),
                    number(row["auroc"]),
                    interval(row["auroc_interval"]),
                    number(row["mean_negative_score"]),
                    number(row["mean_positive_score"]),
                    str(row["num_frames"]),
                    str(row["num_tracks"]),
                    f"{row['num_positive_frames']} ({row['positives']})",
                ]
                for row in report["roles"]
            ],
        ),
        (
            "Each corpus by itself",
            ["corpus", "AP", "95 %", "chance", "AUROC", "95 %", "frames", "tracks"],
            [
                [
                    row["source"],
                    number(row["average_precision"]),
                    interval(row["average_precision_interval"]),
                    number(row["chance"]),
                    number(row["auroc"]),
                    interval(row["auroc_interval"]),
                    str(row["num_frames"]),
                    str(row["num_tracks"]),
                ]
                for row in report["sources"]
            ],
        ),
    ]
    if report.get("source_rows"):
        rows = report["source_rows"]
        tables.append(
            (
                "The rows as annotated, at their own stamps: each has the score of its nearest frame",
                ["AP", "95 %", "boxes", "speaking", "videos", "left out"],
                [
                    [
                        number(rows["average_precision"]),
                        interval(rows["average_precision_interval"]),
                        str(rows["num_rows"]),
                        f"{100 * rows['num_positive'] / rows['num_rows']:.1f} %",
                        str(rows["num_videos"]),
                        str(rows["rows_left_out"]),
                    ]
                ],
            )
        )
    if report.get("offset_accuracy"):
        tables.append(
            (
                "Offset accuracy: sound moved by -8..8 frames found again within ±1 frame, searched over ±12",
                ["corpus", "accuracy", "95 %", "always 0", "median error", "clips"],
                [
                    [
                        row["source"],
                        f"{100 * row['accuracy']:.1f} %",
                        _percent_interval(row["accuracy_interval"]),
                        f"{100 * row['chance']:.0f} %",
                        f"{row['median_error_ms']:.0f} ms",
                        str(row["num_clips"]),
                    ]
                    for row in report["offset_accuracy"]
                ],
            )
        )
    return tables


def _telling_subsets(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the kinds that part the rows at all, empty ones left out."""
    held = [row for row in rows if row["num_rows"]]
    kinds = [row["kind"] for row in held]
    return [row for row in held if kinds.count(row["kind"]) > 1]


def _head_tables(report: dict[str, Any]) -> list[Table]:
    return head_tables(report["heads"]["rows"]) if report.get("heads") else []


def _heads_note(heads: dict[str, Any]) -> str:
    """What the figures of the heads are over, and what could not be measured."""
    lines = [
        f"- heads: over {heads['tracks']} of {heads['of_tracks']} labelled tracks, intervals over {heads['groups']}"
        " groups; an untrained model and controls stand beside them, docs/alignment.md says how to read them"
    ]
    if heads["average_precision"]:
        lines.append(
            f"- AP on these tracks {number(heads['average_precision'][0])}; with every head silenced it changes by "
            f"{heads['without_any_head'][0]:+.4f}"
        )
    lines += [f"- {line}" for line in heads["basis"]]
    lines += [f"- ! {warning}" for warning in heads["warnings"]]
    return "\n".join([*lines, *(f"- not measured: {note}" for note in heads["notes"])])
