"""A clock that parts the time of a training step: every moment belongs to the innermost part that is under way.

The parts are set up around a real ``Examples``, ``ClipLoader`` and ``Stepper``, which stay as training uses them. Parts
therefore add up to the whole. On CUDA the clock waits for the device wherever one part ends and another begins, so that
work counts where it was asked for; such a step is slower than one that is left alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from avfusion.data.batching import ClipLoader
from avfusion.data.examples import Examples
from avfusion.training.step import Stepper

LOADER = ("read", "augment", "log-mel", "collate", "loader")
STEP = ("transfer", "visual", "audio", "fusion", "temporal", "heads", "losses", "backward", "clip", "optimiser", "ema")
OTHER = "other"
EXPLAINED = {
    "read": "tracks from memory, disk or renderer, cut",
    "augment": "picture and sound",
    "loader": "the rest of it: sampling, torch's DataLoader",
    "transfer": "to the device",
    "heads": "and what is contrasted",
    "losses": "their forward alone",
    "clip": "gradient norm and clipping",
    OTHER: "counts, figures, random state, learning rate",
}


class StepClock:
    """Adds up seconds by part.

    Args:
        device: whose work is waited for.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._open: list[str] = []
        self._since = 0.0
        self.spent: Counter[str] = Counter()

    def now(self) -> float:
        """Seconds, once the device has done all that it was asked."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def enter(self, part: str) -> None:
        """Begins a part; the one around it stands still meanwhile."""
        self._switch()
        self._open.append(part)

    def leave(self) -> None:
        """Ends the innermost part."""
        self._switch()
        self._open.pop()

    def _switch(self) -> None:
        now = self.now()
        if self._open:
            self.spent[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time inside belongs to ``name``."""
        self.enter(name)
        try:
            yield
        finally:
            self.leave()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time counted as ``name``."""

        @wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.part(name):
                return function(*args, **kwargs)

        return wrapped

    def watch(self, name: str, module: nn.Module) -> None:
        """Counts what the module does forward as ``name``."""
        module.register_forward_pre_hook(lambda *_: self.enter(name))
        module.register_forward_hook(lambda *_: self.leave())


class ClockedExamples(Examples):
    """Examples whose making is parted; what is not reading or log-mel is augmentation."""

    clock: StepClock

    def __getitem__(self, request: Any) -> Any:
        """Makes one example."""
        with self.clock.part("augment"):
            return super().__getitem__(request)

    def _clip(self, *args: Any) -> Any:
        with self.clock.part("read"):
            return super()._clip(*args)

    def watched_by(self, clock: StepClock) -> ClockedExamples:
        """The same, with the clock."""
        self.clock = clock
        clock.watch("log-mel", self._log_mel)
        return self


def watch_loader(clock: StepClock, loader: ClipLoader) -> None:
    """Parts the making of a batch, in a loader without workers."""
    loader.collate_fn = clock.timed("collate", loader.collate_fn)


@contextmanager
def watched_step(clock: StepClock, stepper: Stepper) -> Iterator[Callable[..., dict[str, float]]]:
    """The stepper with its parts watched while the context lasts; a compiled detector is one part, ``losses``."""
    model, settings = stepper.model, stepper.config.train
    clock.watch("losses", stepper.loss)
    if not settings.compile:  # a hook inside would cut the compiled graph
        clock.watch("heads", model)
        for name, modules in (
            ("visual", [model.visual]),
            ("audio", [model.audio]),
            ("fusion", model.fusion),
            ("temporal", model.temporal),
        ):
            for module in modules:
                clock.watch(name, module)
    with (
        patch.object(torch.Tensor, "backward", clock.timed("backward", torch.Tensor.backward)),
        patch.object(torch.nn.utils, "clip_grad_norm_", clock.timed("clip", torch.nn.utils.clip_grad_norm_)),
        patch.object(stepper.scaler, "step", clock.timed("optimiser", stepper.scaler.step)),
    ):
        if stepper.ema is None:
            yield clock.timed(OTHER, stepper)
        else:
            with patch.object(stepper.ema, "update", clock.timed("ema", stepper.ema.update)):
                yield clock.timed(OTHER, stepper)
