"""Offset accuracy of a model on a split: how often it finds by how many frames the sound of a clip was moved.

On clips whose sound is their own and undisturbed, each source clip once. Windows, moves and similarities are those of
:func:`avfusion.scoring.offset_trials`, the search that of :mod:`avfusion.evaluation.desync`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.config import Config
from avfusion.data.clips import ClipDataset
from avfusion.evaluation.bootstrap import bootstrap_interval
from avfusion.evaluation.desync import offset_accuracy, offset_from_similarity
from avfusion.models import ActiveSpeakerDetector
from avfusion.scoring import OffsetTrial, offset_trials
from avfusion.tracks import FaceTrack

IN_SYNC_ROLES = {"own_sound", "solo"}
MAX_OFFSET = 12
MAX_PLANTED = 8
OFFSET_CHANCE = 3 / (2 * MAX_PLANTED + 1)  # of always answering 0: three of the 17 planted offsets are within ±1 of it


def in_sync(track: FaceTrack) -> bool:
    """Whether a track's sound is known to be its own and undisturbed: by its role, or else because it mostly speaks."""
    if track.role:
        return track.role in IN_SYNC_ROLES and bool(track.speaking.any())
    return bool(track.speaking.mean() > 0.5)


def offset_rows(
    model: ActiveSpeakerDetector, dataset: ClipDataset, config: Config, device: torch.device
) -> list[dict[str, Any]]:
    """Offset accuracy by corpus and over all, on clips with their own sound really moved; each source clip once.

    Returns:
        A row per corpus, and one named ``all``; the interval of the accuracy is over the clips. None at all where no
        clip is long enough.
    """
    first_of_group: dict[str, int] = {}
    for index, track in enumerate(dataset.tracks):
        if in_sync(track):
            first_of_group.setdefault(track.group or track.entity_id, index)
    trials = offset_trials(model, dataset, list(first_of_group.values()), config, device, max_planted=MAX_PLANTED)
    rows = []
    for source in [*sorted({dataset.tracks[trial.track].source for trial in trials}), None]:
        chosen = [trial for trial in trials if source is None or dataset.tracks[trial.track].source == source]
        if chosen:
            name = "all" if source is None else source or "unknown"
            rows.append(_row(name, chosen, config.report.bootstrap))
    return rows


def _row(source: str, trials: list[OffsetTrial], resamples: int) -> dict[str, Any]:
    found = [offset_from_similarity(trial.similarity, MAX_OFFSET) for trial in trials]
    planted = [trial.planted for trial in trials]
    errors = np.abs(np.array(found) - np.array(planted))
    within = (errors <= 1).astype(np.float64)

    def share(weights: NDArray[np.float64]) -> float:
        return float(weights @ within / weights.sum())

    return {
        "source": source,
        "accuracy": offset_accuracy(found, planted),
        "accuracy_interval": bootstrap_interval(np.arange(len(trials)), share, resamples),
        "chance": OFFSET_CHANCE,
        "median_error_ms": float(np.median(errors)) * 1000 / VIDEO_HZ,
        "num_clips": len(trials),
    }
