"""The trained model that scores: the released one, or a checkpoint of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from avfusion.checkpoint import load_model
from avfusion.config import Config
from avfusion.files import sha256_of
from avfusion.models import ActiveSpeakerDetector
from avfusion.released import load_released, require_released

BEST = Path("checkpoints", "best.pt")  # of a run folder
RELEASED_NAME = "released: small"  # as reports call it: its path differs from one installation to the next


@dataclass(frozen=True)
class TrainedModel:
    """A model ready to score.

    Attributes:
        model: in evaluation mode, on the device.
        config: its configuration.
        device: where it runs.
        name: what reports call it: the checkpoint's path.
        sha256: of the checkpoint.
    """

    model: ActiveSpeakerDetector
    config: Config
    device: torch.device
    name: str
    sha256: str

    def facts(self) -> dict[str, Any]:
        """What the report says of it, ready for JSON."""
        model, data = self.config.model, self.config.data
        return {
            "checkpoint": self.name,
            "sha256": self.sha256,
            "device": self.device.type,
            "kind": model.kind,
            "modality": model.modality,
            "causal": model.causal,
            "crop_size": data.crop_size,
            "region": list(data.region),
            "num_mels": data.num_mels,
            "parameters": sum(weights.numel() for weights in self.model.parameters()),
        }


def open_trained(checkpoint: Path | None, device: torch.device) -> TrainedModel:
    """Loads the model.

    Args:
        checkpoint: a checkpoint of train.py, or its run folder (then ``checkpoints/best.pt``); None takes the released
            model.
        device: where it shall run.

    Raises:
        UsageError: there is no such checkpoint.
        AvfusionError: it is damaged or no checkpoint, or this installation has no released one.
    """
    if checkpoint is None:
        model, config, _ = load_released()
        return TrainedModel(model.to(device), config, device, RELEASED_NAME, sha256_of(require_released()))
    if checkpoint.is_dir() and (checkpoint / BEST).is_file():
        checkpoint = checkpoint / BEST
    model, config, _ = load_model(checkpoint)
    return TrainedModel(model.to(device), config, device, str(checkpoint), sha256_of(checkpoint))
