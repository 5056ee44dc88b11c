"""What a run tells: the seconds of its stages, what it found, and ``report.json``."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import avfusion
from avfusion.clock import VIDEO_HZ
from avfusion.files import whole_text_file
from avfusion.inference.work_folder import REPORT, StageRecord

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Report:
    """One video that was worked on.

    Attributes:
        name: of the video.
        num_frames: of the film at 25 per second.
        num_faces: face tracks.
        stages: by name, in order.
        notes: what a user should know, a sentence each.
        outputs: the files for the user, ``report.json`` the last.
    """

    name: str
    num_frames: int
    num_faces: int
    stages: Mapping[str, StageRecord]
    notes: tuple[str, ...]
    outputs: tuple[Path, ...]

    @property
    def film_s(self) -> float:
        """Length of the film in seconds."""
        return self.num_frames / VIDEO_HZ

    @property
    def seconds(self) -> float:
        """All stages together, those of earlier runs as they were then."""
        return sum(stage.seconds for stage in self.stages.values())

    def lines(self) -> Iterator[str]:
        """The report for a reader."""
        faces = "1 face track" if self.num_faces == 1 else f"{self.num_faces} face tracks"
        yield f"{self.name}: {faces} in {self.film_s:.2f} s of film"
        for name, stage in self.stages.items():
            share = 100 * stage.seconds / max(self.seconds, 1e-9)
            kept = " (kept from an earlier run)" if stage.kept else ""
            yield f"  {name:8} {stage.seconds:8.2f} s {share:4.0f} %  {stage.cpu_seconds:8.2f} CPU s{kept}"
        speed = self.film_s / max(self.seconds, 1e-9)
        yield f"  {'together':8} {self.seconds:8.2f} s: {speed:.2f} seconds of film a second"
        yield from (f"  note: {note}" for note in self.notes)
        yield from (f"  {path}" for path in self.outputs)

    def stages_json(self) -> list[dict[str, Any]]:
        """The stages as ``report.json`` has them."""
        return [
            {
                "stage": name,
                "seconds": round(stage.seconds, 4),
                "cpu_seconds": round(stage.cpu_seconds, 4),
                "share": round(stage.seconds / max(self.seconds, 1e-9), 4),
                "kept": stage.kept,
            }
            for name, stage in self.stages.items()
        ]


def write_report(folder: Path, report: Report, facts: Mapping[str, Any]) -> None:
    """Writes ``report.json``; atomic."""
    content = {
        "format_version": FORMAT_VERSION,
        "video_id": report.name,
        "num_frames": report.num_frames,
        "film_s": report.film_s,
        "faces": report.num_faces,
        "notes": list(report.notes),
        **facts,
        "stages": report.stages_json(),
        "seconds": round(report.seconds, 4),
        "film_seconds_a_second": round(report.film_s / max(report.seconds, 1e-9), 4),
        "outputs": [path.relative_to(folder).as_posix() for path in report.outputs],
        "versions": {"avfusion": avfusion.__version__, "numpy": np.__version__, "python": platform.python_version()},
    }
    with whole_text_file(folder / REPORT) as file:
        file.write(json.dumps(content, indent=1, allow_nan=False) + "\n")
