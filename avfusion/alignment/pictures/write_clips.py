"""Writes the clip figure of chosen tracks, or of a few of each role, and small overviews of three clips each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from matplotlib.figure import Figure

from avfusion.alignment.capture import capture_clip, pick_examples
from avfusion.alignment.pictures.clip import CLIP_DPI, ClipAlignment, alignment_figure, save_figure
from avfusion.alignment.pictures.overview import DPI, overview_figure
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.data.prepared_writer import safe_name
from avfusion.models import ActiveSpeakerDetector

OVERVIEW_CLIPS = 3  # more are not legible at the width of a thumbnail


def draw_clips(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    folder: Path,
    tracks: Sequence[int] = (),
    *,
    among: Collection[int] | None = None,
    words: Sequence[str] = (),
    vector: bool = False,
) -> list[Path]:
    """Draws one figure for each track, and ``overview-N``, in which three of them stand side by side.

    Args:
        model: on ``device``; without cross-attention there is nothing to draw.
        examples: without augmentation.
        config: of the model; ``report.figures_per_role`` says how many are drawn where no tracks are given.
        device: where to run.
        folder: where the pictures go.
        tracks: which; empty: some of each role.
        among: those that may be chosen where ``tracks`` is empty; None: all.
        words: what is said of each head of the last layer; empty: nothing.
        vector: write SVG and PDF too.

    Returns:
        The paths written, the overviews first: W&B shows the first pictures small.
    """
    if config.model.modality != "audio_visual" or config.model.fusion.kind != "cross_attention":
        return []
    all_tracks = examples.dataset.tracks
    allowed = range(len(all_tracks)) if among is None else sorted(among)
    some = pick_examples([all_tracks[index] for index in allowed], config.report.figures_per_role)
    suffixes = (".png", ".svg", ".pdf") if vector else (".png",)
    for old in folder.glob("overview-[0-9]*"):
        if old.suffix in (".png", ".svg", ".pdf"):
            old.unlink()  # as many as before need not be made
    paths: list[Path] = []
    overviews: list[Path] = []
    chosen = list(tracks) or [allowed[index] for index in some]
    for first in range(0, len(chosen), OVERVIEW_CLIPS):
        clips: list[ClipAlignment] = []
        for track in chosen[first : first + OVERVIEW_CLIPS]:
            clips.append(capture_clip(model, examples, track, config, device))
            role, entity = clips[-1].role, all_tracks[track].entity_id
            name = safe_name(entity if entity.startswith(role) else f"{role}-{entity}")
            for old_suffix in (".svg", ".pdf"):
                (folder / f"{name}{old_suffix}").unlink(missing_ok=True)
            paths += _save(alignment_figure(replace(clips[-1], words=words)), folder / name, suffixes)
        figure = overview_figure(clips, "sound heard by each head")
        overviews += _save(figure, folder / f"overview-{first // OVERVIEW_CLIPS + 1}", suffixes, DPI)
    return overviews + paths


def _save(figure: Figure, stem: Path, suffixes: Sequence[str], dpi: int = CLIP_DPI) -> list[Path]:
    paths = [stem.with_name(stem.name + suffix) for suffix in suffixes]
    for path in paths:
        save_figure(figure, path, dpi)
    return paths
