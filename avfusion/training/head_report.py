"""The part of a report that asks of every attention head what it listens to: table, pictures, page of scenes."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from avfusion.alignment.inspect import choose_tracks, inspect_run
from avfusion.alignment.inspection_files import head_words, write_inspection
from avfusion.alignment.table import HeadRow
from avfusion.alignment.viewer.page import write_viewer
from avfusion.alignment.viewer.scenes import build_scenes
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.errors import AvfusionError
from avfusion.models import ActiveSpeakerDetector


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

    What fails here is said and left out: the training is done and the rest of its report is worth having.

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
    except AvfusionError as error:
        print(f"the heads are not in the report: {error}", file=sys.stderr)
        return HeadReport()
    page: Path | None = folder / "viewer.html" if config.report.viewer_mb else None
    if page is not None:
        scenes = build_scenes(model, examples, config, device, words=head_words(found))
        try:
            write_viewer(page, scenes, title=title, max_mb=config.report.viewer_mb)
        except AvfusionError as error:
            print(f"no page of scenes: {error} (report.viewer_mb)", file=sys.stderr)
            page = None
    return HeadReport({"heads": found.summary()}, found.rows, files.pictures, files.tables, page, head_words(found)[-1])
