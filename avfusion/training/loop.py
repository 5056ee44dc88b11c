"""The training loop, read from top to bottom.

An epoch: one random stretch of every track, in batches of like length; then the validation split is scored whole and
its AVA AP decides which checkpoint is the best. Every process runs this loop; the main one alone writes and logs.
A run that was stopped at any instant goes on from its last checkpoint and ends as if it had never been stopped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from avfusion.checkpoint import (
    load_encoders,
    load_weights,
    read_checkpoint,
    read_generation,
    save_checkpoint,
    save_generation,
)
from avfusion.config import Config
from avfusion.data.batching import ClipLoader, TrainingSampler
from avfusion.data.clips import ClipDataset
from avfusion.data.examples import Examples
from avfusion.data.preload import render_ahead
from avfusion.distributed import ALONE, World
from avfusion.errors import AvfusionError, UsageError
from avfusion.files import sha256_of
from avfusion.models import build_model
from avfusion.models.imagenet import load_imagenet
from avfusion.models.memory import step_memory
from avfusion.scoring import pick_device, score_tracks
from avfusion.training.epoch_report import EpochReport
from avfusion.training.logger import RunLogger
from avfusion.training.not_learnt import between_faces_not_learnt
from avfusion.training.optim import parameter_norm
from avfusion.training.replay import save_replay
from avfusion.training.state import Progress, random_state, set_random_state
from avfusion.training.step import NotFiniteError, Stepper
from avfusion.training.throughput import Throughput

RANKS_APART = 1_000_003  # between the seeds of two processes


class Trainer:
    """Trains one model on one dataset, in one process or as one of several.

    Args:
        config: of the run.
        run_dir: its folder.
        train: tracks to learn from.
        val: tracks to score after each epoch.
        resume: go on from ``checkpoints/last.pt`` (from the beginning where there is none yet).
        world: the processes that train together.
    """

    def __init__(
        self,
        config: Config,
        run_dir: Path,
        train: ClipDataset,
        val: ClipDataset,
        *,
        resume: bool = False,
        world: World = ALONE,
    ) -> None:
        self.config, self.run_dir, self.world = config, run_dir, world
        self.checkpoints = run_dir / "checkpoints"
        if config.run.threads:
            torch.set_num_threads(config.run.threads)
        self.device = pick_device(config.run.device, world.local_rank)
        self.examples = Examples(train, config.data, augment=True, seed=config.run.seed)
        self.val_examples = Examples(val, config.data)
        # Sound and picture are contrasted only where the model has both.
        both = config.model.modality == "audio_visual"
        self.contrastive_epochs = config.train.contrastive_epochs if both else 0
        self.epochs = self.contrastive_epochs + config.train.epochs
        self.sampler = self._sampler(train)
        self.batches = ClipLoader(self.examples, self.sampler, config.data.workers)
        self.total_steps = sum(len(self.sampler.steps(epoch)) for epoch in range(self.epochs))

        torch.manual_seed(config.run.seed)
        self.model = build_model(config.model, config.data.num_mels).to(self.device)
        found = world.broadcast(read_generation(self.checkpoints) if resume and world.is_main else None)
        self._encoders: dict[str, str] | None = None  # where training started from, for the record
        if found is not None:
            load_weights(self.model, found[1]["model"], found[0])
            self._encoders = found[1].get("encoders")
        elif config.train.encoders is not None:
            path = Path(config.train.encoders)
            load_encoders(self.model, path, config.data)
            self._encoders = {"path": str(path), "sha256": sha256_of(path)}
        elif config.model.visual.weights is not None:
            load_imagenet(self.model)
        self.stepper = Stepper(self.model, config, self.device, self.total_steps, world)
        self.progress = Progress()
        if world.rank:
            torch.manual_seed(config.run.seed + RANKS_APART * world.rank)
        self._random = random_state(self.device)
        kept: Mapping[str, Any] = {}
        if found is not None:
            self._restore(*found)
            kept = found[1]
        self.logger = (
            RunLogger(config, run_dir, kept.get("wandb_id"), kept.get("log_bytes", 0)) if world.is_main else None
        )

    def fit(self) -> Path:
        """Trains to the end and returns the path of the best checkpoint."""
        parameters = sum(p.numel() for p in self.model.parameters())
        processes = f", {self.world.size} processes" if self.world.size > 1 else ""
        epochs = "1 epoch" if self.epochs == 1 else f"{self.epochs} epochs"
        self._say(
            f"{parameters / 1e6:.2f} M parameters on {self.device}{processes}; {len(self.examples)} training tracks,"
            f" {len(self.val_examples)} validation tracks, {epochs}, {self.total_steps} steps"
        )
        self._say(f"memory of a step, estimated: {step_memory(self.config)}")
        not_learnt = between_faces_not_learnt(self.config, list(self.examples.dataset.tracks))
        if not_learnt is not None:
            self._say(f"warning: {not_learnt}")
        for examples in (self.examples, self.val_examples):
            render_ahead(examples)
        report = EpochReport(self.config, self.val_examples, self.device) if self.world.is_main else None
        started = time.monotonic() - self.progress.seconds
        set_random_state(self._random, self.device)
        while self.progress.epoch < self.epochs and not self._out_of_patience():
            throughput = self._train_epoch(started)
            self._end_epoch(report, throughput, started)
        return self.checkpoints / "best.pt"

    def _sampler(self, train: ClipDataset) -> TrainingSampler:
        """Plans the steps of every epoch; the contrastive epochs take only tracks in which somebody speaks."""
        data, lengths = self.config.data, [track.num_frames for track in train.tracks]
        speaking = [i for i, track in enumerate(train.tracks) if track.speaking.any()]
        if not speaking:
            raise AvfusionError(f"{train.name}: no frame of the {len(lengths)} training tracks is labelled as speaking")
        if not any(track.speaking.any() for track in self.val_examples.dataset.tracks):
            raise AvfusionError(
                f"{train.name}: no frame of the validation split is labelled as speaking: no AP to train by"
            )
        return TrainingSampler(
            lengths,
            data.clip_frames,
            data.batch_frames,
            self.config.run.seed,
            speaking,
            self.contrastive_epochs,
            accumulate=self.config.train.accumulate,
            rank=self.world.rank,
            ranks=self.world.size,
            companions=self.examples.companions,
            faces=data.faces,
        )

    @property
    def _contrast_only(self) -> bool:
        return self.progress.epoch < self.contrastive_epochs

    @property
    def _started_from(self) -> dict[str, Any]:
        """What checkpoints keep of the encoders that training started from."""
        return {} if self._encoders is None else {"encoders": self._encoders}

    def _train_epoch(self, started: float) -> dict[str, float]:
        """The steps of an epoch that are still to do; returns how fast they went."""
        settings, progress = self.config.train, self.progress
        epoch, contrast_only = progress.epoch, self._contrast_only
        steps = len(self.sampler.steps(epoch))
        self.model.train()
        self.sampler.set_epoch(epoch, progress.epoch_steps)
        throughput, frames = Throughput(self.device), 0
        batches = iter(self.batches)
        shown = tqdm(
            range(progress.epoch_steps, steps),
            desc=f"epoch {epoch + 1}/{self.epochs}",
            initial=progress.epoch_steps,
            total=steps,
            leave=False,
            disable=None if self.world.is_main else True,
        )
        for _ in shown:
            with throughput.waiting():
                parts = [batch.to(self.device) for batch in islice(batches, settings.accumulate)]
            frames += sum(request.num_frames for part in parts for request in part.requests)
            progress.add(self._step(parts, contrast_only))
            if settings.log_steps and progress.step % settings.log_steps == 0:
                self._log({f"train_step/{key}": value for key, value in progress.take_recent().items()})
            every = settings.checkpoint_steps
            if every and (progress.epoch_steps % every == 0 or every < progress.epoch_steps == steps):
                progress.seconds = time.monotonic() - started
                self._save()
        list(batches)  # lets the workers' loop come to its end
        return throughput.numbers(float(self.world.sum(torch.tensor(frames))))

    def _step(self, parts: list[Any], contrast_only: bool) -> dict[str, float]:
        try:
            return self.stepper(parts, self.progress.step, contrast_only)
        except NotFiniteError as error:
            step = self.sampler.steps(self.progress.epoch)[self.progress.epoch_steps]
            dealt = [self.sampler.parts(step, rank) for rank in range(self.world.size)]
            raise save_replay(self.run_dir, self.stepper, self.progress, self.examples, dealt, error) from error

    def _end_epoch(self, report: EpochReport | None, throughput: Mapping[str, float], started: float) -> None:
        """Validates, logs, decides on the best checkpoint, and saves."""
        progress, contrast_only = self.progress, self._contrast_only
        model = self.stepper.scored_model
        scores = score_tracks(model, self.val_examples, self.config, self.device, label="validation", world=self.world)
        numbers = {f"train/{key}": value for key, value in {**progress.take_epoch(), **throughput}.items()}
        numbers["train/param_norm"] = float(parameter_norm(self.model))
        if report is not None and self.logger is not None:
            folder = self.run_dir / "alignment" / "epochs"
            numbers |= report(model, scores, self.logger, progress.step, progress.epoch, folder)
        ap = self.world.broadcast(numbers.get("val/ap"))
        progress.seconds = time.monotonic() - started
        is_best = not contrast_only and ap > progress.best_ap
        if is_best:
            progress.best_ap, progress.best_epoch = ap, progress.epoch
        self._log(numbers | {"epoch": progress.epoch, "seconds": progress.seconds})
        if is_best and self.world.is_main:
            # Before the state that knows of it: the best checkpoint must never be missing beside that.
            state = {"progress": vars(progress), "wandb_id": self.logger and self.logger.wandb_id, **self._started_from}
            averaged = {} if self.stepper.ema is None else {"ema": self.stepper.ema.model.state_dict()}
            save_checkpoint(self.checkpoints / "best.pt", self.model, self.config, {**state, **averaged})
        self._save()
        self._tell(numbers, contrast_only, is_best)

    def _out_of_patience(self) -> bool:
        patience, progress = self.config.train.patience, self.progress
        since = progress.epoch - max(progress.best_epoch, self.contrastive_epochs)
        if patience and since >= patience:
            self._say(f"stopped early: no better validation AP for {since} epochs (train.patience={patience})")
            return True
        return False

    def _log(self, numbers: Mapping[str, float]) -> None:
        if self.logger is not None:
            self.logger.log(numbers, self.progress.step)

    def _say(self, line: str) -> None:
        if self.world.is_main:
            print(line, file=sys.stderr)

    def _tell(self, numbers: Mapping[str, float], contrast_only: bool, is_best: bool) -> None:
        """One line an epoch."""
        if not self.world.is_main:
            return
        done, seconds = self.progress.epoch, self.progress.seconds
        left = seconds / done * (self.epochs - done)
        losses = {key.removeprefix("train/"): numbers[key] for key in numbers if key.startswith("train/loss")}
        shown = " ".join(f"{key.removeprefix('loss_')} {value:.3f}" for key, value in losses.items())
        self._say(
            f"epoch {done}/{self.epochs}{' contrast only' if contrast_only else ''}: {shown}"
            f" | val AP {numbers['val/ap']:.4f}{' (best)' if is_best else ''}"
            f" | {numbers['train/frames_per_s']:.0f} frames/s,"
            f" {numbers['train/data_wait_percent']:.0f} % waiting for data"
            f" | {seconds:.0f} s, about {left:.0f} s left"
        )

    def _save(self) -> None:
        """Writes the state of the training; every process gives its random state."""
        states = self.world.collect(random_state(self.device))
        if self.world.is_main and self.logger is not None:
            state = {
                "progress": vars(self.progress).copy(),
                "random": states,
                "step_frames": self.sampler.step_frames,
                "plan": self.sampler.fingerprint(self.progress.epoch),
                "wandb_id": self.logger.wandb_id,
                "log_bytes": self.logger.log_bytes,
                **self._started_from,
                **self.stepper.state(),
            }
            save_generation(self.checkpoints, self.model, self.config, state)

    def _look_for_best(self) -> None:
        """Where the best checkpoint is lost, the best of the epochs to come takes its place."""
        best = self.checkpoints / "best.pt"
        try:
            read_checkpoint(best)
        except AvfusionError as error:
            if self.progress.epoch >= self.epochs:
                raise AvfusionError(
                    f"{error}. The training is done and its best weights are lost; score the last ones with"
                    f" python eval.py {self.run_dir} --checkpoint=last --out=FOLDER, or train on with"
                    f" --train.epochs={self.epochs - self.contrastive_epochs + 1}"
                ) from error
            self._say(f"{error}; the best epoch from here on takes its place")
            self.progress.best_ap, self.progress.best_epoch = -1.0, 0

    def _restore(self, path: Path, content: Mapping[str, Any]) -> None:
        """Takes up a checkpoint's state beside its weights.

        Raises:
            AvfusionError: it holds no such state.
            UsageError: it stands in the middle of an epoch that is planned otherwise now.
        """
        lacks = {"optimizer", "scaler", "random", "step_frames", "plan"} - content.keys()
        if lacks:
            raise AvfusionError(f"{path}: not a whole checkpoint of train.py: it lacks {', '.join(sorted(lacks))}")
        self.progress = Progress(**content["progress"])
        if self.progress.epoch_steps and content["step_frames"] != self.sampler.step_frames:
            raise UsageError(
                f"{path} stands in the middle of an epoch of {content['step_frames']} frames a step, now a step has"
                f" {self.sampler.step_frames} (data.batch_frames x train.accumulate x processes): choose them alike"
            )
        if self.progress.epoch_steps and content["plan"] != self.sampler.fingerprint(self.progress.epoch):
            raise UsageError(
                f"{path} stands in the middle of an epoch that is planned otherwise now: run.seed, data.clip_frames,"
                " train.contrastive_epochs and the training tracks must be as they were"
            )
        self.stepper.restore(content, path)
        if self.progress.best_epoch and self.world.is_main:
            self._look_for_best()
        self.progress = self.world.broadcast(self.progress)
        states = content["random"]
        if len(states) == self.world.size:
            self._random = states[self.world.rank]
        else:
            self._say(
                f"{path} was written by {len(states)} processes, now there are {self.world.size}: the run goes on, but"
                " not bit for bit as the unbroken one"
            )
