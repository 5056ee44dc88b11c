"""The part of a report that asks of every attention head what it listens to: table, pictures, page of scenes."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from avfusion.alignment.inspect import choose_tracks, inspect_run
from avfusion.alignment.inspection_files import PAGE, head_words, write_inspection
from avfusion.alignment.table import HeadRow
from avfusion.alignment.viewer.page import write_viewer
from avfusion.alignment.viewer.scenes import build_scenes
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.errors import AvfusionError, one_line
from avfusion.models import ActiveSpeakerDetector

FAULTS = (Exception, KeyboardInterrupt)  # none of them may cost the report of a finished training


@dataclass(frozen=True)
class HeadReport:
    """What was written and what goes on to ``report.json`` and W&B; empty where there are no heads to look at.

    Attributes:
        content: the entry ``heads`` of ``report.json``.
        rows: of the table.
        pictures: PNG files.
        tables: ``heads.csv``, ``heads.json``, ``heads.md``.
        page: ``viewer.html``.
        words: what is said of each head of the last layer.
    """

    content: dict[str, Any] = field(default_factory=dict)
    rows: list[HeadRow] = field(default_factory=list)
    pictures: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    page: Path | None = None
    words: list[str] = field(default_factory=list)

    @property
    def shown(self) -> list[Path]:
        """What the report links to: the page, and the table with every figure."""
        return [*([self.page] if self.page else []), *(path for path in self.tables if path.suffix == ".csv")]

    @property
    def paths(self) -> list[Path]:
        """All files."""
        return [*self.tables, *self.pictures, *([self.page] if self.page else [])]


def report_heads(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    folder: Path,
    title: str,
    log: Path,
) -> HeadReport:
    """Inspects the heads on at most ``report.inspect_tracks`` tracks and writes what was found.

    What fails here, for whatever reason, is said and left out: the training is done and the rest of its report is worth
    having. Ctrl-C ends what is being done here and no more.

    Args:
        model: on ``device``.
        examples: the split, without augmentation.
        config: its ``report`` section says whether and how much.
        device: where to run.
        folder: where to write.
        title: names dataset and split.
        log: ``log.jsonl`` of the training.
    """
    attends = config.model.modality == "audio_visual" and config.model.fusion.kind == "cross_attention"
    tracks = examples.dataset.tracks
    if not (config.report.inspect and attends and any(track.labelled for track in tracks)):
        return HeadReport()
    try:
        chosen = choose_tracks(tracks, config.report.inspect_tracks)
        found = inspect_run(model, examples, config, device, tracks=chosen, resamples=config.report.bootstrap)
        files = write_inspection(found, folder, title, log)
        content, words = {"heads": found.summary()}, head_words(found)
    except FAULTS as fault:
        say_left_out("the heads are not in the report", fault)
        return HeadReport()
    page: Path | None = folder / PAGE if config.report.viewer_mb else None
    if page is not None:
        try:
            scenes = build_scenes(model, examples, config, device, words=words)
            write_viewer(page, scenes, title=title, max_mb=config.report.viewer_mb)
        except FAULTS as fault:
            say_left_out("no page of scenes (report.viewer_mb)", fault)
            page = None
    return HeadReport(content, found.rows, files.pictures, files.tables, page, words[-1])


def say_left_out(what: str, fault: BaseException) -> None:
    """One line on stderr; ``AVFUSION_DEBUG=1`` shows where a fault that nobody foresaw happened."""
    if isinstance(fault, AvfusionError):
        why = str(fault)
    elif isinstance(fault, KeyboardInterrupt):
        why = "stopped by Ctrl-C; the rest of the report goes on, press it again to end that too"
    else:
        why = f"{type(fault).__name__}: {fault}; AVFUSION_DEBUG=1 shows where it happened"
        if os.environ.get("AVFUSION_DEBUG") == "1":
            traceback.print_exception(fault)
    print(f"{what}: {one_line(why)}", file=sys.stderr)
