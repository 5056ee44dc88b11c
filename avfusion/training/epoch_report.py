"""What an epoch's validation is worth beyond one number: figures per role and per head, a curve, a picture.

Made once, on the main process; called after each epoch with the scores of all validation tracks. The numbers go into
the epoch's row; pictures and curves, which would fill a disk in a week, are made for a bounded number of epochs, spread
evenly over the run (``report.epoch_figures``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from avfusion.alignment.capture import capture_clip
from avfusion.alignment.pictures.clip import ClipAlignment, save_figure
from avfusion.alignment.pictures.overview import DPI, overview_figure
from avfusion.alignment.probe import pick_probes, probe_numbers
from avfusion.alignment.reach import KeyReach
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.evaluation.average_precision import average_precision
from avfusion.evaluation.curve import precision_recall
from avfusion.evaluation.join import Joined
from avfusion.evaluation.ranking import Ranking
from avfusion.evaluation.roles import RoleSelection, role_selections, track_roles
from avfusion.models import ActiveSpeakerDetector
from avfusion.offsets import IN_SYNC_ROLES
from avfusion.tracks import LabelTable
from avfusion.training.logger import RunLogger

PR_POINTS = 200


class EpochReport:
    """Judges every epoch of one run on its validation split.

    Args:
        config: of the run.
        examples: the validation split, without augmentation.
        device: where the probe clips are run.
    """

    def __init__(self, config: Config, examples: Examples, device: torch.device) -> None:
        self._config, self._examples, self._device = config, examples, device
        tracks = examples.dataset.tracks
        self._labelled = [index for index, track in enumerate(tracks) if track.labelled]
        table = LabelTable.from_tracks([tracks[index] for index in self._labelled])
        self._speaking = table.speaking
        self._roles = _named_roles(table, track_roles(tracks)) if table.speaking.any() else []
        model = config.model
        attends = model.modality == "audio_visual" and model.fusion.kind == "cross_attention"
        self._probes = pick_probes(tracks) if attends else []
        contrastive = config.train.contrastive_epochs if model.modality == "audio_visual" else 0
        self._epochs = contrastive + config.train.epochs
        figures = config.report.epoch_figures
        self._every = math.ceil(self._epochs / figures) if figures else 0

    def __call__(
        self,
        model: ActiveSpeakerDetector,
        scores: Sequence[NDArray[np.float32]],
        logger: RunLogger,
        step: int,
        epoch: int,
        folder: Path,
    ) -> dict[str, float]:
        """Reports on one epoch.

        Args:
            model: whose scores these are, without the wrapper of several processes.
            scores: ``(T,)`` probabilities of every validation track, in the dataset's order.
            logger: takes picture and curve; they ride on the next row, which shall hold the numbers.
            step: training steps done.
            epoch: epochs done, from 1.
            folder: where the picture goes, as ``epoch-0001.png``.

        Returns:
            ``val/ap`` over all labelled frames, ``val/auroc``, ``val_role/ap_<role>`` as ``report.json`` defines it,
            and for each head ``k`` of the last fusion layer, on the probe clips, ``align/head<k>_lag_ms``,
            ``_width_ms``, ``_entropy``, ``_null_mass`` and ``_null_mass_silent``.
        """
        pooled = np.concatenate([scores[index] for index in self._labelled])
        ranking = Ranking(self._speaking, pooled)
        numbers = {"val/ap": average_precision(self._speaking, pooled), "val/auroc": ranking.auroc()}
        for role in self._roles:
            of_role = Ranking(self._speaking[role.kept], pooled[role.kept])
            numbers[f"val_role/ap_{role.role}"] = of_role.average_precision()
        clips = [capture_clip(model, self._examples, track, self._config, self._device) for track in self._probes]
        model_config = self._config.model
        reach, null_key = KeyReach.of(model_config), model_config.fusion.null_key
        for name, value in probe_numbers(clips, reach, null_key=null_key).items():
            numbers[f"align/{name}"] = value
        numbers = {key: value for key, value in numbers.items() if math.isfinite(value)}
        if self._every and (self._epochs - epoch) % self._every == 0:  # the last one is among them
            self._show(clips, pooled, numbers["val/ap"], logger, step, epoch, folder)
        return numbers

    def _show(
        self,
        clips: Sequence[ClipAlignment],
        pooled: NDArray[np.float32],
        ap: float,
        logger: RunLogger,
        step: int,
        epoch: int,
        folder: Path,
    ) -> None:
        """Draws the probe clips and the precision-recall curve of one epoch."""
        title = f"epoch {epoch}, step {step}: AP {ap:.3f}"
        points = precision_recall(self._speaking, pooled, PR_POINTS)
        logger.log_curve("val/pr_curve", ("recall", "precision"), points, step, f"precision over recall, {title}")
        if clips:
            path = folder / f"epoch-{epoch:04d}.png"
            save_figure(overview_figure(clips, title), path, dpi=DPI)
            logger.log_images([path], "align/probe_clips", step)


def _named_roles(table: LabelTable, roles: dict[tuple[str, str], str]) -> list[RoleSelection]:
    """The rows that measure each role; none where the tracks have no roles."""
    if not any(roles.values()):
        return []
    unscored = np.zeros(len(table))  # which rows count does not depend on the scores
    joined = Joined(table.video_id, table.entity_id, table.timestamp_ms, table.boxes_xyxy, table.speaking, unscored)
    return role_selections(joined, roles, IN_SYNC_ROLES)
