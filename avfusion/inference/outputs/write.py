"""Writes all outputs of one film into one folder.

    <folder>/scores.csv       every face in every frame: AVA's columns, score, and more
    <folder>/speakers.rttm    who speaks when, for programs
    <folder>/overlay.mp4      the film with boxes and sound, for a player or a browser
    <folder>/viewer.html      what each head listened to, in the film's most telling stretches
    <folder>/segments.json    who speaks when, talking time, notes and facts; written last

Each appears whole or not at all.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from avfusion.config import Config
from avfusion.inference.outputs.rttm import write_rttm
from avfusion.inference.outputs.segments import write_segments
from avfusion.inference.outputs.speech import SpeechRules, find_speech, speaking_frames
from avfusion.inference.outputs.table import write_table
from avfusion.inference.result import Result

TABLE, RTTM, OVERLAY, VIEWER, SEGMENTS = "scores.csv", "speakers.rttm", "overlay.mp4", "viewer.html", "segments.json"
OUTPUTS = (TABLE, SEGMENTS, RTTM, OVERLAY, VIEWER)


def write_outputs(
    result: Result,
    folder: Path,
    model: nn.Module,
    config: Config,
    device: torch.device,
    *,
    dataset_root: Path,
    overlay: bool = True,
    viewer: bool = True,
) -> tuple[list[Path], list[str]]:
    """Writes the outputs; those of an earlier run that this one does not write are removed.

    Args:
        result: what was found.
        folder: for the files; made if need be.
        model: that scored it, on ``device``.
        config: of the model.
        device: where to run it for the viewer.
        dataset_root: the prepared dataset with the film's crops, split ``own``; only the viewer reads it.
        overlay: whether to draw ``overlay.mp4``.
        viewer: whether to make ``viewer.html``.

    Returns:
        The files that were written, the overlay and the viewer last; and what a user should know of them.

    Raises:
        AvfusionError: the film or the dataset cannot be read.
        OSError: a file cannot be written, as on a full disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rules = SpeechRules.at(result.threshold)
    speech = find_speech(result, rules)
    speaking = speaking_frames(result, speech)
    for name in (SEGMENTS, OVERLAY, VIEWER):  # what is there when this ends was made from this result
        (folder / name).unlink(missing_ok=True)
    write_table(folder / TABLE, result, speaking)
    write_rttm(folder / RTTM, result, speech)
    notes: list[str] = []
    if overlay:
        from avfusion.inference.outputs.overlay import write_overlay

        notes += write_overlay(folder / OVERLAY, result, speaking)
    if viewer:
        from avfusion.inference.outputs.viewer import write_film_viewer

        notes += write_film_viewer(folder / VIEWER, result, speech, model, config, device, dataset_root)
    write_segments(folder / SEGMENTS, result, rules, speech, notes)
    return [folder / name for name in OUTPUTS if (folder / name).exists()], notes
