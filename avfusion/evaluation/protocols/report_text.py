"""A protocol's report as tables: for the terminal, and for ``report.md``."""

from __future__ import annotations

from typing import Any

from avfusion.errors import one_line
from avfusion.evaluation.record import record_lines
from avfusion.evaluation.tables import Table, bullets, interval, markdown_table, number, percent, text_table

_EXPLAINED = {
    "columbia": (
        "F1 at IoU above 0.5 over every annotated face; a face without a match is said not to speak. Covered share: "
        "the overlap of the published code, intersection over the scored box, the figure to compare with papers. "
        "Always: F1 of saying that every frame speaks. One film: intervals say nothing about other people."
    ),
    "asw": "Over the rows with eval 1. AP: VOC all-point interpolation; chance is the AP of a constant score.",
}


def as_text(report: dict[str, Any]) -> str:
    """The tables of a report for the terminal."""
    notes = [one_line(note) for note in report["figures"]["notes"]]
    parts = [f"\n{_title(report)}", *map(text_table, _tables(report)), *(["\n".join(notes)] if notes else [])]
    return "\n\n".join(parts) + "\n"


def as_markdown(report: dict[str, Any]) -> str:
    """The whole of ``report.md``."""
    notes = report["figures"]["notes"]
    parts = [f"# {_title(report)}", bullets(_provenance(report)), _EXPLAINED[report["protocol"]]]
    parts += [*map(markdown_table, _tables(report)), *([bullets(notes)] if notes else [])]
    return "\n\n".join(parts) + "\n"


def _title(report: dict[str, Any]) -> str:
    name = {"asw": "ASW", "columbia": "Columbia"}[report["protocol"]]
    return f"{name}: {one_line(report['files']['scores']['path'])}"


def _provenance(report: dict[str, Any]) -> list[str]:
    intervals = report["intervals"]
    return [
        *record_lines(report),
        f"{report['num_score_rows']} score rows",
        f"intervals: {100 * intervals['level']:.0f} %, {intervals['kind']}, {intervals['num_drawn']} "
        f"{intervals['drawn']} drawn with replacement, {intervals['resamples']} resamples, seed {intervals['seed']}",
    ]


def _tables(report: dict[str, Any]) -> list[Table]:
    return [_columbia(report["figures"])] if report["protocol"] == "columbia" else _asw(report["figures"])


def _columbia(figures: dict[str, Any]) -> Table:
    header = ["speaker", "F1", "95 %", "precision", "recall", "matched", "F1, covered share", "matched so"]
    header += ["F1, always", "frames", "speaking"]
    rows = [
        [
            row["speaker"] + ("" if row["in_mean"] else " (not in the mean)"),
            number(row["f1"]),
            interval(row["f1_interval"]),
            number(row["precision"]),
            number(row["recall"]),
            percent(row["matched_share"]),
            number(row["f1_covered_share"]),
            percent(row["matched_covered_share"]),
            number(row["f1_always"]),
            str(row["num_frames"]),
            percent(row["num_speaking"] / row["num_frames"]),
        ]
        for row in figures["speakers"]
    ]
    mean = ["mean", number(figures["mean_f1"]), interval(figures["mean_f1_interval"]), "-", "-", "-"]
    rows.append([*mean, number(figures["mean_f1_covered_share"]), "-", "-", "-", "-"])
    return f"F1 of each speaker, threshold {figures['threshold']:g}", header, rows


def _asw(figures: dict[str, Any]) -> list[Table]:
    figure_rows = [
        ["AP", number(figures["average_precision"]), interval(figures["average_precision_interval"])],
        ["AUROC", number(figures["auroc"]), interval(figures["auroc_interval"])],
        ["EER", number(figures["equal_error_rate"]), interval(figures["equal_error_rate_interval"])],
        ["chance", number(figures["prevalence"]), "-"],
    ]
    counts = ["num_rows", "num_positive", "num_tracks", "num_videos", "num_not_evaluated", "num_scores_ignored"]
    header = ["evaluated", "speaking", "tracks", "videos", "not evaluated", "scores ignored"]
    return [
        ("Evaluated rows", ["figure", "value", "95 %"], figure_rows),
        ("Counts", header, [[str(figures[name]) for name in counts]]),
    ]
