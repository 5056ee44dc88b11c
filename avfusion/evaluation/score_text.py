"""The report of a score file as tables: for the terminal, and for ``report.md``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from avfusion.errors import one_line
from avfusion.evaluation.record import record_lines
from avfusion.evaluation.tables import (
    Table,
    bullets,
    interval,
    markdown_table,
    number,
    percent,
    text_table,
    without_empty_end,
)

SUBSETS_TITLE = "Subsets: each by its own rows, so AP goes with its prevalence"


def as_text(report: dict[str, Any]) -> str:
    """The tables for the terminal."""
    head = "\n".join(["", *map(one_line, (_title(report), *report["notes"]))])
    return "\n\n".join([head, *(text_table(table) for table in _tables(report))]) + "\n"


def as_markdown(report: dict[str, Any], picture: str) -> str:
    """The whole of ``report.md``.

    Args:
        report: content of ``report.json``.
        picture: the precision-recall curve, as seen from its folder.
    """
    parts = [f"# {one_line(_title(report))}", bullets(_provenance(report)), *map(markdown_table, _tables(report))]
    parts.append(f"## Precision and recall\n\n![precision and recall]({picture})")
    return "\n\n".join(parts) + "\n"


def whole_table(whole: dict[str, Any], drawn: str = "videos", title: str = "All face boxes") -> Table:
    """All rows pooled, from the dictionary of a :class:`~avfusion.evaluation.report.Report`.

    Args:
        whole: the dictionary; reports written before EER, FPR and ECE had intervals are fine.
        drawn: what its ``num_groups`` counts.
        title: of the table.
    """
    names = ("average_precision", "auroc", "equal_error_rate", "fpr_at_95_tpr", "expected_calibration_error")
    header = [text for name in ("AP", "AUROC", "EER", "FPR at 95 % TPR", "ECE") for text in (name, "95 %")]
    header += ["boxes", "speaking", "tracks", drawn]
    cells = [
        *(text for name in names for text in (number(whole[name]), interval(whole.get(f"{name}_interval")))),
        str(whole["num_rows"]),
        percent(whole["prevalence"]),
        str(whole["num_tracks"]),
        str(whole["num_groups"]),
    ]
    return title, header, [cells]


def subset_table(rows: Sequence[dict[str, Any]], drawn: str = "videos") -> Table:
    """Subsets, from the dictionaries of :class:`~avfusion.evaluation.subsets.SubsetRow`.

    Args:
        rows: the dictionaries.
        drawn: what their ``num_groups`` counts.
    """
    header = ["by", "subset", "AP", "95 %", "AUROC", "95 %", "speaking", "boxes", "tracks", drawn, ""]
    body = [
        [
            row["kind"],
            row["name"],
            number(row["average_precision"]),
            interval(row["average_precision_interval"]),
            number(row["auroc"]),
            interval(row["auroc_interval"]),
            percent(row["prevalence"]),
            str(row["num_rows"]),
            str(row["num_tracks"]),
            str(row["num_groups"]),
            row["reason"],
        ]
        for row in rows
    ]
    return without_empty_end((SUBSETS_TITLE, header, body))


def _title(report: dict[str, Any]) -> str:
    files = report["files"]
    against = f", compared with {files['against']['path']}" if "against" in files else ""
    return f"{files['scores']['path']} on {files['labels']['path']}{against}"


def _provenance(report: dict[str, Any]) -> list[str]:
    intervals = report["intervals"]
    lines = [
        *record_lines(report),
        f"{report['num_rows']} face boxes of which {report['num_positive']} speak audibly;"
        f" {report['num_tracks']} tracks, {report['num_videos']} videos",
        "AP: VOC all-point interpolation over all face boxes, as AVA's own tool computes it; equal scores are one"
        " threshold",
        f"intervals: {100 * intervals['level']:.0f} %, percentile bootstrap, {intervals['num_drawn']} videos drawn with"
        f" replacement, {intervals['resamples']} resamples, seed {intervals['seed']}",
        f"face widths: in pixels of pictures scaled to a width of {report['picture_width_px']}",
        "speaking: share of the boxes that speak audibly, which is the AP of a constant score",
    ]
    return lines + list(report["notes"])


def _tables(report: dict[str, Any]) -> list[Table]:
    tables = [whole_table(report)]
    if "against" in report:
        tables.append(whole_table(report["against"], title=f"All face boxes, {report['files']['against']['path']}"))
    tables.append(subset_table(report["subsets"]))
    if "comparison" in report:
        title = (
            "Compared on the same drawn videos: these scores minus the others; share of resamples in which they lead"
        )
        header = ["by", "subset", "AP", "other", "difference", "95 %", "leads"]
        header += ["AUROC", "other", "difference", "95 %", "leads", "videos", ""]
        body = [
            [
                *(row["kind"], row["name"] if row["name"] != row["kind"] else "rows"),
                *_difference(row["average_precision"]),
                *_difference(row["auroc"]),
                *(str(row["num_groups"]), row["reason"]),
            ]
            for row in report["comparison"]
        ]
        tables.append(without_empty_end((title, header, body)))
    return tables


def _difference(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return ["-"] * 5
    low_high = found["interval"]
    return [
        number(found["first"]),
        number(found["second"]),
        f"{found['difference']:+.4f}",
        "-" if low_high is None else f"{low_high[0]:+.4f}..{low_high[1]:+.4f}",
        percent(found["share_ahead"]),
    ]
