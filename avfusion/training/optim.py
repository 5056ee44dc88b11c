"""AdamW with weight decay on matrices only, and a learning rate that warms up and falls along a cosine."""

from __future__ import annotations

import math

import torch
from torch import nn

from avfusion.config import TrainConfig


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW over two groups: weight matrices and kernels decay; norms, biases, scales and null keys do not."""
    decay: list[nn.Parameter] = []
    keep: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (decay if parameter.ndim >= 2 and "null_key" not in name else keep).append(parameter)
    groups = [{"params": decay, "weight_decay": config.weight_decay}, {"params": keep, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, 0.98))


def learning_rate_factor(step: int, total_steps: int, warmup: float) -> float:
    """Share of the peak learning rate at ``step`` (from 0): linear over the ``warmup`` share, then a cosine to 1 %."""
    warmup_steps = max(1, round(total_steps * warmup))
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
