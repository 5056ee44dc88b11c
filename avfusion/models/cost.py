"""What a model costs: parameters, and multiply-adds per face-frame, counted while the real modules run.

``python -m avfusion.models.cost configs/small.yaml`` prints one line a part. The run is on torch's ``meta`` device:
every matrix product and convolution is counted by its shapes (norms, activations and softmax are not, as is usual),
over a track of 10 s so that windows are full and edges weigh little.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME
from avfusion.config import Config, load_config
from avfusion.errors import CommandParser, run_command
from avfusion.models.detector import build_model

TRACK_FRAMES = 250


@dataclass(frozen=True)
class Cost:
    """Parameters and multiply-adds per face-frame, of the whole model and by part."""

    parameters: int
    multiply_adds: float
    by_part: dict[str, tuple[int, float]]


def measure_cost(config: Config) -> Cost:
    """Counts parameters and multiply-adds per face-frame of the configured model (one face a scene)."""
    with torch.device("meta"):
        model = build_model(config.model, config.data.num_mels).eval()
        side = config.data.crop_size
        crops = torch.empty(1, 1, TRACK_FRAMES, side, side)
        log_mel = torch.empty(1, TRACK_FRAMES * AUDIO_FRAMES_PER_VIDEO_FRAME, config.data.num_mels)
        counter = FlopCounterMode(display=False, depth=2)
        with counter, torch.no_grad():
            model(crops, log_mel)
    counts = counter.get_flop_counts()
    name = type(model).__name__
    by_part = {}
    for part, module in model.named_children():
        # A list of layers is never called itself; its layers are.
        called = [f"{part}.{i}" for i in range(len(module))] if isinstance(module, torch.nn.ModuleList) else [part]
        flops = sum(sum(counts[f"{name}.{key}"].values()) for key in called if f"{name}.{key}" in counts)
        by_part[part] = (sum(p.numel() for p in module.parameters()), flops / 2 / TRACK_FRAMES)
    return Cost(sum(p.numel() for p in model.parameters()), counter.get_total_flops() / 2 / TRACK_FRAMES, by_part)


def main() -> int:
    """The command; returns its exit code."""

    def body() -> None:
        parser = CommandParser(prog="python -m avfusion.models.cost", description=__doc__.split("\n\n")[0])
        parser.add_argument("config", type=Path, nargs="?", help="a YAML of configs/; without it the defaults")
        known, overrides = parser.parse_known_args()
        cost = measure_cost(load_config(known.config, overrides))
        print(f"{'part':16} {'parameters':>12} {'multiply-adds per face-frame':>30}")
        for part, (parameters, multiply_adds) in cost.by_part.items():
            print(f"{part:16} {parameters:12,d} {multiply_adds / 1e6:28.3f} M")
        print(f"{'all':16} {cost.parameters:12,d} {cost.multiply_adds / 1e6:28.3f} M")

    return run_command(body)


if __name__ == "__main__":
    sys.exit(main())
