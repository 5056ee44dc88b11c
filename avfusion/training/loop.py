"""The training loop, read from top to bottom.

An epoch: one random stretch of every track, in batches of like length; then the validation split is scored whole and
its AVA AP decides which checkpoint is the best.
"""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from avfusion.config import Config
from avfusion.data.batching import Batch, ClipLoader, TrainingSampler
from avfusion.data.clips import ClipDataset
from avfusion.data.examples import Examples
from avfusion.data.preload import render_ahead
from avfusion.errors import AvfusionError
from avfusion.evaluation.average_precision import average_precision
from avfusion.models import build_model
from avfusion.models.losses import loss_terms
from avfusion.scoring import pick_device, score_tracks
from avfusion.training.checkpoint import load_weights, read_checkpoint, save_checkpoint
from avfusion.training.logger import RunLogger
from avfusion.training.optim import build_optimizer, learning_rate_factor


@dataclass
class Progress:
    """Where a training stands, as kept in its checkpoints."""

    epoch: int = 0  # epochs finished
    step: int = 0
    best_ap: float = -1.0
    seconds: float = 0.0


class Trainer:
    """Trains one model on one dataset in one process.

    Args:
        config: of the run.
        run_dir: its folder.
        train: tracks to learn from.
        val: tracks to score after each epoch.
        resume: go on from ``checkpoints/last.pt`` (from the beginning where there is none yet).
    """

    def __init__(
        self, config: Config, run_dir: Path, train: ClipDataset, val: ClipDataset, *, resume: bool = False
    ) -> None:
        self.config, self.run_dir = config, run_dir
        if config.run.threads:
            torch.set_num_threads(config.run.threads)
        torch.manual_seed(config.run.seed)
        self.device = pick_device(config.run.device)
        self.model = build_model(config.model, config.data.num_mels).to(self.device)
        self.optimizer = build_optimizer(self.model, config.train)
        self.examples = Examples(train, config.data, augment=True, seed=config.run.seed)
        self.val_examples = Examples(val, config.data)
        self.progress = Progress()
        # Sound and picture are contrasted only where the model has both.
        both = config.model.modality == "audio_visual"
        self.contrastive_epochs = config.train.contrastive_epochs if both else 0
        self.epochs = self.contrastive_epochs + config.train.epochs
        self.sampler = self._sampler(train)
        self.batches = ClipLoader(self.examples, self.sampler, config.data.workers)
        self.total_steps = sum(len(self.sampler.batches(epoch)) for epoch in range(self.epochs))
        last = run_dir / "checkpoints" / "last.pt"
        wandb_id = self._restore(read_checkpoint(last)) if resume and last.is_file() else None
        self.logger = RunLogger(config, run_dir, wandb_id)

    def fit(self) -> Path:
        """Trains to the end and returns the path of the best checkpoint."""
        total = self.epochs
        parameters = sum(p.numel() for p in self.model.parameters())
        print(
            f"{parameters / 1e6:.2f} M parameters on {self.device}; {len(self.examples)} training tracks,"
            f" {len(self.val_examples)} validation tracks, {total} epochs, {self.total_steps} steps",
            file=sys.stderr,
        )
        started = time.monotonic() - self.progress.seconds
        for examples in (self.examples, self.val_examples):
            render_ahead(examples)
        for epoch in range(self.progress.epoch, total):
            contrast_only = epoch < self.contrastive_epochs
            numbers = self._train_epoch(epoch, contrast_only)
            numbers["val/ap"] = self._validate()
            self.progress.epoch = epoch + 1
            self.progress.seconds = time.monotonic() - started
            numbers |= {"epoch": epoch + 1, "seconds": self.progress.seconds}
            self.logger.log(numbers, self.progress.step)
            is_best = not contrast_only and numbers["val/ap"] > self.progress.best_ap
            if is_best:
                self.progress.best_ap = numbers["val/ap"]
            self._save(is_best)
            left = self.progress.seconds / (epoch + 1) * (total - epoch - 1)
            shown = " ".join(
                f"{key.removeprefix('train/').removeprefix('loss_')} {numbers[key]:.3f}"
                for key in numbers
                if "loss" in key
            )
            mark = " (best)" if is_best else ""
            print(
                f"epoch {epoch + 1}/{total}{' contrast only' if contrast_only else ''}: {shown}"
                f" | val AP {numbers['val/ap']:.4f}{mark} | {self.progress.seconds:.0f} s, about {left:.0f} s left",
                file=sys.stderr,
            )
        return self.run_dir / "checkpoints" / "best.pt"

    def _sampler(self, train: ClipDataset) -> TrainingSampler:
        """Draws the batches of every epoch; the contrastive epochs take only tracks in which somebody speaks."""
        data, lengths = self.config.data, [track.num_frames for track in train.tracks]
        speaking = [i for i, track in enumerate(train.tracks) if track.speaking.any()]
        if not speaking:
            raise AvfusionError(f"{train.name}: no frame of the {len(lengths)} training tracks is labelled as speaking")
        if not any(track.speaking.any() for track in self.val_examples.dataset.tracks):
            raise AvfusionError(
                f"{train.name}: no frame of the validation split is labelled as speaking: no AP to train by"
            )
        return TrainingSampler(
            lengths, data.clip_frames, data.batch_frames, self.config.run.seed, speaking, self.contrastive_epochs
        )

    def _train_epoch(self, epoch: int, contrast_only: bool) -> dict[str, float]:
        self.model.train()
        sums: dict[str, float] = defaultdict(float)
        self.sampler.set_epoch(epoch)
        began, frames, steps = time.monotonic(), 0, len(self.sampler)
        shown = tqdm(self.batches, desc=f"epoch {epoch + 1}/{self.epochs}", total=steps, leave=False, disable=None)
        for batch in shown:
            for key, value in self._step(batch.to(self.device), contrast_only).items():
                sums[key] += value
            frames += int(batch.frame_mask.sum())
        numbers = {f"train/{key}": value / steps for key, value in sums.items()}
        numbers["train/frames_per_s"] = frames / (time.monotonic() - began)
        return numbers

    def _step(self, batch: Batch, contrast_only: bool) -> dict[str, float]:
        """One optimiser step; returns its loss terms, gradient norm and learning rate as plain numbers."""
        settings = self.config.train
        for group in self.optimizer.param_groups:
            group["lr"] = settings.lr * learning_rate_factor(self.progress.step, self.total_steps, settings.warmup)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
            detection = self.model(batch.crops, batch.log_mel, batch.frame_mask, batch.audio_mask)
        weights = {"contrastive": 1.0} if contrast_only else self._loss_weights()
        terms = loss_terms(detection, batch.speaking, batch.frame_mask, batch.audio_id, settings.loss, set(weights))
        loss = torch.stack([weight * terms[key] for key, weight in weights.items()]).sum()
        if not math.isfinite(loss.item()):
            tracks = sorted({self.examples.dataset.tracks[r.track].entity_id for r in batch.requests})
            raise AvfusionError(
                f"the loss is {loss.item()} at step {self.progress.step}, in a batch of {', '.join(tracks[:5])} .."
            )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.grad_clip or math.inf)
        self.optimizer.step()
        self.progress.step += 1
        numbers = {f"loss_{key}": term.item() for key, term in terms.items()}
        return {"loss": loss.item(), **numbers, "grad_norm": norm.item(), "lr": self.optimizer.param_groups[0]["lr"]}

    def _loss_weights(self) -> dict[str, float]:
        loss = self.config.train.loss
        weights = {"speaking": 1.0, "audio": loss.audio, "video": loss.video, "contrastive": loss.contrastive}
        if self.config.model.modality != "audio_visual":
            # A baseline learns from the one stream it may use; the other stream's terms would train nothing it uses.
            weights = {"speaking": 1.0}
        return {key: weight for key, weight in weights.items() if weight > 0}

    def _validate(self) -> float:
        scores = score_tracks(self.model, self.val_examples, self.config, self.device, label="validation")
        speaking = [track.speaking for track in self.val_examples.dataset.tracks]
        return average_precision(np.concatenate(speaking), np.concatenate(scores))

    def _save(self, is_best: bool) -> None:
        state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "progress": vars(self.progress).copy(),
            "torch_rng": torch.get_rng_state(),
            "wandb_id": self.logger.wandb_id,
        }
        if self.device.type == "cuda":
            state["cuda_rng"] = torch.cuda.get_rng_state(self.device)
        # The best one first: "last" knows the best score, so the best must never be missing beside it.
        for name in ["best.pt"] * is_best + ["last.pt"]:
            save_checkpoint(self.run_dir / "checkpoints" / name, self.model, self.config, state)

    def _restore(self, content: dict[str, Any]) -> str | None:
        """Takes up a checkpoint's state; returns the id of its W&B run."""
        load_weights(self.model, content["model"], self.run_dir / "checkpoints" / "last.pt")
        self.optimizer.load_state_dict(content["optimizer"])
        self.progress = Progress(**content["progress"])
        torch.set_rng_state(content["torch_rng"])
        if self.device.type == "cuda" and "cuda_rng" in content:
            torch.cuda.set_rng_state(content["cuda_rng"], self.device)
        wandb_id = content.get("wandb_id")
        return None if wandb_id is None else str(wandb_id)
