"""What one part of a step adds to each term of the loss, as a module that holds the detector.

A term is a sum over all frames (or clips) of a step, divided by their number. That number is known from the labels, so
each part adds its own sum over the common count: however a step's clips are dealt out to processes and parts, the loss
and its gradient are those of the whole. (A contrast with negatives from the whole batch sees those of all processes,
but only those of its own part where gradients are accumulated.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from avfusion.config import Config
from avfusion.data.batching import Batch
from avfusion.distributed import World
from avfusion.models import ActiveSpeakerDetector
from avfusion.models.losses import (
    Targets,
    loss_counts,
    loss_totals,
    needs_alignment,
    needs_audio_100hz,
    term_value,
    terms_on,
)
from avfusion.training.held_still import RememberedEmbeddings, can_remember

AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class StepLoss(nn.Module):
    """The detector and its losses in one: so DistributedDataParallel sees which weights a step's loss depends on.

    Args:
        model: the detector.
        config: of the run.
        device: of this process.
        world: the processes that train together.
    """

    def __init__(self, model: ActiveSpeakerDetector, config: Config, device: torch.device, world: World) -> None:
        super().__init__()
        self.model = model
        self._settings, self._device = config.train, device
        self._detect = torch.compile(model) if config.train.compile else model
        self._remembered = RememberedEmbeddings(model, config.data.cache_gb) if can_remember(config) else None
        self._everyone = world if world.size > 1 and config.train.loss.negatives == "batch" else None

    def forward(self, part: Batch, counts: Mapping[str, Tensor]) -> Tensor:
        """What a part adds to each term of ``counts``, in their order: ``(len(counts),)``."""
        wanted, loss, precision = set(counts), self._settings.loss, self._settings.precision
        # Where all frames are real the masks say nothing: filling by them takes time for every map of the encoders.
        masks = (part.frame_mask, part.audio_mask) if part.is_padded else (None, None)
        with torch.autocast(self._device.type, AUTOCAST.get(precision), enabled=precision in AUTOCAST):
            alignment, audio_100hz = needs_alignment(wanted), needs_audio_100hz(wanted, loss)
            # Without a gradient nothing is learnt: a step is looked into, from the encoders on.
            if self._remembered is None or not torch.is_grad_enabled():
                detection = self._detect(
                    part.crops, part.log_mel, *masks, need_alignment=alignment, need_audio_100hz=audio_100hz
                )
            else:
                seen, heard = self._remembered(part, *masks)
                detection = self.model.decide(seen, heard, masks[0], masks[1], alignment, audio_100hz)
        totals = loss_totals(detection, _targets(part), loss, wanted, self._everyone)
        return torch.stack([term_value(totals[key], count) for key, count in counts.items()])


def loss_weights(config: Config, step: int, contrast_only: bool = False) -> dict[str, float]:
    """The terms that count at a step, with their weights."""
    if contrast_only:
        return {"contrastive": 1.0}
    # A baseline learns from the one stream it may use; the other stream's terms would train nothing it uses.
    weights = terms_on(config.train.loss) if config.model.modality == "audio_visual" else {"speaking": 1.0}
    if step >= config.train.loss.guided_steps:
        weights.pop("guided", None)
    return weights


def leaves_weights_unused(config: Config) -> bool:
    """Whether some step's loss does not depend on all weights of the model."""
    loss = config.train.loss
    always = min(loss.audio, loss.video, loss.contrastive) > 0 and not config.train.contrastive_epochs
    passed_by = config.model.speaker.layers > 0  # the attention between faces, by a part whose faces are all alone
    return config.model.modality != "audio_visual" or not always or passed_by


def whole_counts(parts: Sequence[Batch], config: Config, wanted: Sequence[str], world: World) -> dict[str, Tensor]:
    """How many frames (or clips) each term sums over, in all parts of all processes: ``(P,)`` each."""
    of_parts = [loss_counts(_targets(part), config.train.loss, set(wanted)) for part in parts]
    own = {key: torch.stack([counts[key] for counts in of_parts]).sum(dim=0) for key in wanted}
    whole = world.sum(torch.cat([own[key].double() for key in wanted]))
    device = parts[0].crops.device
    sizes = [len(own[key]) for key in wanted]
    split: tuple[Tensor, ...] = torch.split(whole.to(device, torch.float32), sizes)
    return dict(zip(wanted, split, strict=True))


def _targets(part: Batch) -> Targets:
    return Targets(part.speaking, part.frame_mask, part.audio_mask, part.audio_id, part.matched)
