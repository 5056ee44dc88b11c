"""Writes the clip figure of chosen tracks, or of a few of each role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from avfusion.alignment.capture import capture_clip, pick_examples
from avfusion.alignment.pictures.clip import alignment_figure, save_figure
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.data.prepared_writer import safe_name
from avfusion.models import ActiveSpeakerDetector


def draw_clips(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    folder: Path,
    tracks: Sequence[int] = (),
    *,
    words: Sequence[str] = (),
    vector: bool = False,
) -> list[Path]:
    """Draws one figure for each track.

    Args:
        model: on ``device``; without cross-attention there is nothing to draw.
        examples: without augmentation.
        config: of the model; ``report.figures_per_role`` says how many are drawn where no tracks are given.
        device: where to run.
        folder: where the pictures go.
        tracks: which; empty: some of each role.
        words: what is said of each head of the last layer; empty: nothing.
        vector: write SVG and PDF too.

    Returns:
        The paths written.
    """
    if config.model.modality != "audio_visual" or config.model.fusion.kind != "cross_attention":
        return []
    paths: list[Path] = []
    for track in tracks or pick_examples(examples.dataset.tracks, config.report.figures_per_role):
        clip = capture_clip(model, examples, track, config, device)
        entity = examples.dataset.tracks[track].entity_id
        name = safe_name(entity if entity.startswith(clip.role) else f"{clip.role}-{entity}")
        figure = alignment_figure(replace(clip, words=words))
        for suffix in (".png", ".svg", ".pdf") if vector else (".png",):
            paths.append(folder / f"{name}{suffix}")
            save_figure(figure, paths[-1])
    return paths
