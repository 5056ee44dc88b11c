"""Where a training stands: what its checkpoints keep beside the weights, so that it goes on as if never stopped.

Every draw of the data comes from (seed, epoch, track), so no worker has a state of its own; what is left are torch's
random states of each process (dropout), the place in the epoch's plan, and the figures not yet written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Progress:
    """Where a training stands. ``*_sums`` add up what steps said, and how many said it, for the next row of figures."""

    epoch: int = 0  # epochs finished
    epoch_steps: int = 0  # steps done of the epoch that is under way
    step: int = 0
    best_ap: float = -1.0
    best_epoch: int = 0
    seconds: float = 0.0
    epoch_sums: dict[str, list[float]] = field(default_factory=dict)
    recent_sums: dict[str, list[float]] = field(default_factory=dict)

    def add(self, numbers: Mapping[str, float]) -> None:
        """Counts one step and what it said."""
        self.step += 1
        self.epoch_steps += 1
        for sums in (self.epoch_sums, self.recent_sums):
            for key, value in numbers.items():
                total, count = sums.get(key, (0.0, 0))
                sums[key] = [total + value, count + 1]

    def take_recent(self) -> dict[str, float]:
        """Means over the steps since the last call."""
        means = {key: total / count for key, (total, count) in self.recent_sums.items()}
        self.recent_sums = {}
        return means

    def take_epoch(self) -> dict[str, float]:
        """Means over the epoch's steps; the next epoch begins."""
        means = {key: total / count for key, (total, count) in self.epoch_sums.items()}
        self.epoch_sums, self.epoch_steps = {}, 0
        self.epoch += 1
        return means


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Torch's random states of this process, CPU tensors by device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_state(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Takes up what :func:`random_state` gave; the state of a device that is not used now is left out."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    elif device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])
