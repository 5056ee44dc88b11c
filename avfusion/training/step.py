"""One optimiser step from the parts of a batch, in one process or as one of several."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from avfusion.checkpoint import load_weights
from avfusion.config import Config
from avfusion.data.batching import Batch
from avfusion.distributed import ALONE, World
from avfusion.models import ActiveSpeakerDetector
from avfusion.training.held_still import hold_still
from avfusion.training.optim import AveragedWeights, build_optimizer, learning_rate_factor, set_learning_rate
from avfusion.training.state import random_state
from avfusion.training.step_loss import StepLoss, leaves_weights_unused, loss_weights, whole_counts

LEAST_SCALE = 1.0  # a gradient that overflows in half precision even so is not finite by itself


class NotFiniteError(Exception):
    """The loss or the gradient of a step is infinite or not a number; the weights are those before the step.

    Attributes:
        terms: each term of the loss, over all processes.
        grad_norm: norm of the gradient.
        parts: loss of each part of this process.
    """

    def __init__(self, terms: dict[str, float], grad_norm: float, parts: list[float]) -> None:
        super().__init__(f"loss terms {terms}, gradient norm {grad_norm}")
        self.terms, self.grad_norm, self.parts = terms, grad_norm, parts


class Stepper:
    """Takes optimiser steps with a model.

    Args:
        model: on ``device``, with the weights to start from (the main process's are taken by all).
        config: of the run.
        device: of this process.
        total_steps: of the whole training, for the learning rate.
        world: the processes that train together.
    """

    def __init__(
        self,
        model: ActiveSpeakerDetector,
        config: Config,
        device: torch.device,
        total_steps: int,
        world: World = ALONE,
    ) -> None:
        self.model, self.config, self.device, self.world = model, config, device, world
        self.total_steps = total_steps
        settings = config.train
        if settings.channels_last:
            model.to(memory_format=torch.channels_last)
        hold_still(model, settings)
        self.optimizer = build_optimizer(model, settings)
        self.scaler = torch.amp.GradScaler(device.type, enabled=settings.precision == "float16")
        self.ema = AveragedWeights(model, settings.ema) if settings.ema else None
        self.random_before = random_state(device)
        self.loss: nn.Module = StepLoss(model, config, device, world)
        self._ddp: DistributedDataParallel | None = None
        if world.size > 1:
            # Kernels of 1 x 1 have no layout of their own, which torch takes for a mismatch and says at every start.
            warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
            self.loss = self._ddp = DistributedDataParallel(
                self.loss,
                device_ids=[device] if device.type == "cuda" else None,
                find_unused_parameters=leaves_weights_unused(config),
            )

    @property
    def scored_model(self) -> ActiveSpeakerDetector:
        """The model to validate: the averaged one where an average is kept."""
        return self.model if self.ema is None else self.ema.model

    def __call__(self, parts: Sequence[Batch], step: int, contrast_only: bool = False) -> dict[str, float]:
        """Learns from the parts of one step.

        Args:
            parts: this process's, on ``device``.
            step: how many steps went before.
            contrast_only: learn from the contrastive loss alone.

        Returns:
            Loss, its terms, gradient norm and learning rate as plain numbers; the same in every process.

        Raises:
            NotFiniteError: in every process, when the loss of any is not finite.
        """
        settings = self.config.train
        self.random_before = random_state(self.device)
        lr = settings.lr * learning_rate_factor(step, self.total_steps, settings.warmup)
        set_learning_rate(self.optimizer, lr)
        weights = loss_weights(self.config, step, contrast_only)
        counts = whole_counts(parts, self.config, list(weights), self.world)
        weighted = torch.tensor(list(weights.values()), device=self.device)
        self.optimizer.zero_grad(set_to_none=True)
        of_parts: list[Tensor] = []
        for index, part in enumerate(parts):
            with self._no_exchange(until_last=index == len(parts) - 1):
                terms = self.loss(part, counts)
                # DistributedDataParallel takes the mean over the processes; each already has its share of the whole.
                self.scaler.scale((weighted * terms).sum() * self.world.size).backward()
            of_parts.append(terms.detach())
        summed = self.world.sum(torch.stack(of_parts).sum(dim=0))
        self.scaler.unscale_(self.optimizer)
        of_gradient = torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.grad_clip or math.inf)
        *terms_found, norm = torch.cat([summed, of_gradient.to(summed)[None]]).tolist()  # a GPU is waited for once
        found = dict(zip(weights, terms_found, strict=True))
        total = sum(weight * found[key] for key, weight in weights.items())
        # Half precision overflows now and then: its scaler leaves such a step out and halves the scale.
        overflow = self.scaler.is_enabled() and not math.isfinite(norm) and self.scaler.get_scale() > LEAST_SCALE
        if not math.isfinite(total) or not (math.isfinite(norm) or overflow):
            raise NotFiniteError(found, norm, [float((weighted * terms).sum()) for terms in of_parts])
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.ema is not None:
            self.ema.update(self.model, step)
        counted = {key for key, count in counts.items() if bool(count.any())}  # a mean over nothing is no figure
        numbers = {"loss": total, **{f"loss_{key}": found[key] for key in weights if key in counted}, "lr": lr}
        if self.scaler.is_enabled():
            numbers |= {"loss_scale": self.scaler.get_scale(), "overflow": float(overflow)}
        return numbers if overflow else numbers | {"grad_norm": norm}

    def _no_exchange(self, *, until_last: bool) -> AbstractContextManager[None]:
        """Gradients travel between processes with the last part of a step only."""
        return nullcontext() if until_last or self._ddp is None else self._ddp.no_sync()

    def state(self) -> dict[str, object]:
        """What a checkpoint keeps."""
        averaged = {} if self.ema is None else {"ema": self.ema.model.state_dict()}
        kept = self.optimizer.state
        by_name = {name: dict(kept[p]) for name, p in self.model.named_parameters() if p in kept}
        return {"optimizer": by_name, "scaler": self.scaler.state_dict(), **averaged}

    def _parameters(self) -> Iterator[nn.Parameter]:
        for group in self.optimizer.param_groups:
            yield from group["params"]

    def restore(self, content: Mapping[str, Any], path: Path) -> None:
        """Takes up what a checkpoint kept; learning rates and decays are those of the configuration now.

        The optimiser's state goes by the names of the parameters, however they are grouped.
        """
        numbers = {parameter: number for number, parameter in enumerate(self._parameters())}
        named = self.model.named_parameters()
        state = {numbers[p]: content["optimizer"][name] for name, p in named if name in content["optimizer"]}
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        if content["scaler"]:  # empty where the run was not in half precision
            self.scaler.load_state_dict(content["scaler"])
        if self.ema is not None:
            load_weights(self.ema.model, content.get("ema") or content["model"], path)
