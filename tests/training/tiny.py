"""A training of seconds: its configuration, as an object and as a command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from avfusion.config import Config, load_config
from avfusion.data.open import open_dataset
from avfusion.distributed import ALONE, World
from avfusion.training.loop import Trainer

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = [
    "--run.device=cpu", "--run.threads=1", "--wandb.mode=disabled", "--data.crop_size=24", "--data.num_mels=20",
    "--data.synthetic.train_scenes=10", "--data.synthetic.val_scenes=10", "--data.synthetic.scene_s=1.2",
    "--data.batch_frames=150", "--model.embed_dim=16", "--model.contrast_dim=8", "--model.visual.channels=[4,8]",
    "--model.audio.channels=[4]", "--train.epochs=2", "--report.bootstrap=20", "--report.figures_per_role=0",
    "--report.offset_accuracy=false", "--report.epoch_figures=0", "--report.inspect=false",
]  # fmt: skip


def tiny_run(*overrides: str, epochs: int = 2) -> Config:
    return load_config(None, [*SETTINGS, f"--train.epochs={epochs}", *overrides])


def trainer_of(config: Config, folder: Path, resume: bool = False, world: World = ALONE) -> Trainer:
    folder.mkdir(exist_ok=True)
    train, val = open_dataset(config.data, "train"), open_dataset(config.data, "val")
    return Trainer(config, folder, train, val, resume=resume, world=world)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def run_train(*arguments: str, processes: int = 1, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """train.py with the tiny settings, by itself or under torchrun."""
    return run_script("train.py", *SETTINGS, *arguments, processes=processes, timeout=timeout)


def run_script(
    script: str, *arguments: str, processes: int = 1, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    command = [*launcher(processes), script, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


def launcher(processes: int) -> list[str]:
    """Python, or torchrun on a free port."""
    if processes == 1:
        return [sys.executable]
    rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    return [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", *rendezvous]
