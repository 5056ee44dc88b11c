"""``eval.py --scores=CSV --labels=PATH --protocol=asw|columbia``: from files to a report.

Without a folder to write to, the report is printed as JSON; with one it becomes ``report.json`` and ``report.md``
there, and its tables are printed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from avfusion.evaluation.bootstrap import enough_resamples
from avfusion.evaluation.protocols.asw import evaluate_asw
from avfusion.evaluation.protocols.asw_labels import read_asw
from avfusion.evaluation.protocols.columbia import STRETCH_S, evaluate_columbia
from avfusion.evaluation.protocols.columbia_labels import read_columbia
from avfusion.evaluation.protocols.report_text import as_markdown, as_text
from avfusion.evaluation.record import check_out, file_record, made_by
from avfusion.evaluation.table_files import read_score_files, table_record
from avfusion.files import whole_text_file

PROTOCOLS = ("asw", "columbia")


def evaluate_protocol(
    protocol: str, scores: Path, labels: Path, out: Path | None, resamples: int, command: Sequence[str]
) -> None:
    """Judges a score file by the rules of a benchmark and reports.

    Args:
        protocol: one of ``PROTOCOLS``.
        scores: the score file, AVA columns and score, or a folder of them.
        labels: the benchmark's own annotation, a file or a folder.
        out: folder to write to; None prints JSON.
        resamples: bootstrap resamples; 0 leaves the intervals out.
        command: the command line, for the record.

    Raises:
        AvfusionError: a file cannot be read or used.
        UsageError: the folder cannot be made, or is a run's own.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol {protocol!r}, expected one of {', '.join(PROTOCOLS)}")
    check_out(out, ("report.json", "report.md"))
    report = protocol_report(protocol, scores, labels, resamples, command)
    content = json.dumps(report, indent=2, allow_nan=False) + "\n"
    if out is None:
        print(content, end="")
        return
    written = {out / "report.json": content, out / "report.md": as_markdown(report)}
    for path, text in written.items():
        with whole_text_file(path) as file:
            file.write(text)
    print(as_text(report))
    print("\n".join(map(str, written)))


def protocol_report(
    protocol: str, scores: Path, labels: Path, resamples: int, command: Sequence[str]
) -> dict[str, Any]:
    """The content of ``report.json``: figures, and all it takes to know what they are of."""
    table = read_score_files(scores)
    resamples, notes = enough_resamples(resamples)
    if protocol == "asw":
        asw_labels = read_asw(labels)
        figures, files, drawn = evaluate_asw(asw_labels, table, resamples).to_dict(), asw_labels.files, "videos"
        num_drawn = figures["num_videos"]
    else:
        faces = read_columbia(labels)
        figures, files = evaluate_columbia(faces, table, resamples).to_dict(), faces.files
        drawn, num_drawn = f"stretches of {STRETCH_S} s", figures["num_stretches"]
    figures["notes"] += notes
    return {
        "protocol": protocol,
        **made_by(command),
        "files": {"scores": table_record(scores), "labels": file_record(labels, files)},
        "num_score_rows": len(table),
        "intervals": {
            "kind": "percentile bootstrap",
            "level": 0.95,
            "drawn": drawn,
            "num_drawn": num_drawn,
            "resamples": resamples,
            "seed": 0,
        },
        "figures": figures,
    }
