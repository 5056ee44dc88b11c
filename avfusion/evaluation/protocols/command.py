"""``eval.py --scores=CSV --labels=PATH --protocol=asw|columbia``: from files to a report.

Without a folder to write to, the report is printed as JSON; with one it becomes ``report.json`` and ``report.md``
there, and its tables are printed.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import avfusion
from avfusion.errors import UsageError
from avfusion.evaluation.protocols.asw import evaluate_asw
from avfusion.evaluation.protocols.asw_labels import read_asw
from avfusion.evaluation.protocols.columbia import STRETCH_S, evaluate_columbia
from avfusion.evaluation.protocols.columbia_labels import read_columbia
from avfusion.evaluation.protocols.report_text import as_markdown, as_text
from avfusion.files import whole_text_file
from avfusion.tracks import read_scores

PROTOCOLS = ("asw", "columbia")


def evaluate_protocol(
    protocol: str, scores: Path, labels: Path, out: Path | None, resamples: int, command: Sequence[str]
) -> None:
    """Judges a score file by the rules of a benchmark and reports.

    Args:
        protocol: one of ``PROTOCOLS``.
        scores: the score file, AVA columns and score.
        labels: the benchmark's own annotation, a file or a folder.
        out: folder to write to; None prints JSON.
        resamples: bootstrap resamples; 0 leaves the intervals out.
        command: the command line, for the record.

    Raises:
        AvfusionError: a file cannot be read or used.
        UsageError: the folder cannot be made.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol {protocol!r}, expected one of {', '.join(PROTOCOLS)}")
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--out={out}: cannot be made ({error.strerror}); give another folder") from error
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
    table = read_scores(scores)
    if protocol == "asw":
        asw_labels = read_asw(labels)
        figures, files, drawn = evaluate_asw(asw_labels, table, resamples).to_dict(), asw_labels.files, "videos"
    else:
        faces = read_columbia(labels)
        figures, files = evaluate_columbia(faces, table, resamples).to_dict(), faces.files
        drawn = f"stretches of {STRETCH_S} s"
    return {
        "protocol": protocol,
        "command": shlex.join(command),
        "versions": {
            "avfusion": avfusion.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "scores": {"path": str(scores), "sha256": _sha256(scores), "rows": len(table)},
        "labels": {"path": str(labels), "sha256": {file.name: _sha256(file) for file in files}},
        "intervals": {"kind": "percentile bootstrap", "of": drawn, "level": 0.95, "resamples": resamples, "seed": 0},
        "figures": figures,
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
