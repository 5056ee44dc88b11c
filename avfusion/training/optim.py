"""AdamW over groups of parameters, a learning rate that warms up and falls along a cosine, and averaged weights.

A group is what shares a learning rate and a weight decay: by part of the model (``visual``, ``audio``, ``fusion``,
``speaker``, ``temporal``, ``heads``), by depth where lower layers learn more slowly, and by kind, since only matrices
decay.
"""

from __future__ import annotations

import copy
import math
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from avfusion.config import TrainConfig

PARTS = ("visual", "audio", "fusion", "speaker", "temporal")  # everything else belongs to the heads

Net = TypeVar("Net", bound=nn.Module)


def part_of(name: str) -> str:
    """Which part of the model a parameter belongs to."""
    first = name.partition(".")[0]
    return first if first in PARTS else "heads"


def depths(model: nn.Module) -> dict[str, int]:
    """How many layers lie between each parameter and the output: 0 for the heads.

    A temporal block, a layer between faces, a fusion layer, a stage of an encoder and what an encoder does after its
    stages count as one layer each; the two encoders lie side by side.
    """
    layers = {part: _layers_of(model, part) for part in PARTS}
    below = {"temporal": 1, "speaker": 1 + len(layers["temporal"])}
    below["fusion"] = below["speaker"] + len(layers["speaker"])
    below["visual"] = below["audio"] = below["fusion"] + len(layers["fusion"])
    found = {}
    for name, _ in model.named_parameters():
        part = part_of(name)
        if part == "heads":
            found[name] = 0
        else:
            place = layers[part].index(_layer_of(name))
            found[name] = below[part] + len(layers[part]) - 1 - place
    return found


def _layers_of(model: nn.Module, part: str) -> list[str]:
    """The layers of a part from the input on."""
    names = [_layer_of(name) for name, _ in model.named_parameters() if part_of(name) == part]
    inner = [layer for layer in dict.fromkeys(names) if layer != f"{part}.after"]
    return inner + [f"{part}.after"] * (f"{part}.after" in names)


def _layer_of(name: str) -> str:
    """``visual.stages.1.norm1.weight`` belongs to ``visual.stages.1``, ``visual.norm.weight`` to ``visual.after``."""
    part, second, *rest = name.split(".")
    if part in ("fusion", "speaker", "temporal"):
        return f"{part}.{second}"
    if second == "stem":
        return f"{part}.stem"
    numbered = rest and rest[0].isdigit() and second in ("stages", "convolutions")
    return f"{part}.{second}.{rest[0]}" if numbered else f"{part}.after"


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW; each group keeps its multiple of the learning rate as ``scale``.

    Weight matrices and kernels decay; norms, biases, scales and null keys do not.
    """
    depth = depths(model)
    groups: dict[tuple[bool, float, float], list[nn.Parameter]] = {}
    named = list(model.named_parameters())
    for decays in (True, False):
        for name, parameter in named:
            if (parameter.ndim >= 2 and not name.endswith(("null_key", "off_screen_key"))) != decays:
                continue
            scale = getattr(config.lr_scale, part_of(name)) * config.layer_decay ** depth[name]
            own = getattr(config.decay_of, part_of(name))
            decay = (config.weight_decay if own is None else own) if decays else 0.0
            groups.setdefault((decays, scale, decay), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "scale": scale, "weight_decay": decay}
            for (_, scale, decay), parameters in groups.items()
        ],
        lr=config.lr,
        betas=(0.9, 0.98),
        fused=True,  # one pass over each parameter instead of a dozen
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Gives every group its multiple of ``lr``."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["scale"]


def learning_rate_factor(step: int, total_steps: int, warmup: float) -> float:
    """Share of the peak learning rate at ``step`` (from 0): linear over the ``warmup`` share, then a cosine to 1 %."""
    warmup_steps = max(1, round(total_steps * warmup))
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def parameter_norm(model: nn.Module) -> Tensor:
    """Euclidean norm over all parameters, a scalar."""
    norms: list[Tensor] = [parameter.detach().float().norm() for parameter in model.parameters()]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


class AveragedWeights(Generic[Net]):
    """An exponential moving average of a model's weights.

    The average begins at the weights themselves and takes up ``1 - decay`` of them at every step; in the first steps
    more, ``min(decay, (1 + n) / (10 + n))`` after ``n`` steps, so that the untrained beginning is soon forgotten.

    Args:
        model: whose weights; kept apart from the average.
        decay: 0..1.

    Source: Polyak and Juditsky 1992; the warm-up as in TensorFlow's ``ExponentialMovingAverage``.
    """

    def __init__(self, model: Net, decay: float) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module, steps: int) -> None:
        """Takes up the weights after ``steps`` steps."""
        decay = min(self.decay, (1 + steps) / (10 + steps))
        for mean, new in zip(self.model.state_dict().values(), model.state_dict().values(), strict=True):
            if mean.is_floating_point():
                mean.lerp_(new, 1 - decay)
            else:
                mean.copy_(new)
