"""Kills a short training at random moments and checks that each ends, resumed, exactly as the unbroken one.

python benchmarks/kill_and_resume.py OUT [--kills 20] [--twice 0.3] [--section.key=value ...]

Each run is killed with SIGKILL, some twice, and resumed to its end: at any moment of its life, at a moment between its
first checkpoint and its end, or while a checkpoint is being written, as drawn. Compared bit for bit: weights, averaged
weights, optimiser, scaler, random states, progress and best score of ``last.pt`` and ``best.pt``; every row of
``log.jsonl`` but for clocks and memory; ``scores/val.csv``; the figures of ``report.json``. Exit code 1 if any differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from avfusion.checkpoint import read_checkpoint
from avfusion.errors import AvfusionError, CommandParser, run_command, split_overrides
from avfusion.training.log_rows import CLOCKS

ROOT = Path(__file__).resolve().parents[1]
SHORT = [
    "--run.device=cpu", "--run.threads=1", "--wandb.mode=offline", "--data.crop_size=24", "--data.num_mels=20",
    "--data.synthetic.train_scenes=26", "--data.synthetic.val_scenes=13", "--data.synthetic.scene_s=1.2",
    "--data.batch_frames=150", "--model.embed_dim=16", "--model.contrast_dim=8", "--model.dropout=0.1",
    "--model.visual.channels=[4,8]", "--model.audio.channels=[4]", "--train.epochs=3", "--train.contrastive_epochs=1",
    "--train.ema=0.9", "--train.checkpoint_steps=1", "--train.log_steps=2", "--report.bootstrap=20",
    "--report.inspect=false",
]  # fmt: skip


def main() -> None:
    """Reads the command line, kills, resumes, compares."""
    parser = CommandParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the runs")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--twice", type=float, default=0.3, help="share of the runs that are killed twice")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    overrides, rest = split_overrides(sys.argv[1:])
    options = parser.parse_args(rest)
    settings = [*SHORT, *overrides]
    whole = options.out / "whole"
    began = time.monotonic()
    process = train(settings, whole)
    wait_for_checkpoint(process, whole)
    until_first_s = time.monotonic() - began
    finish(process)
    whole_s = time.monotonic() - began
    print(f"unbroken: {whole_s:.1f} s, the first checkpoint after {until_first_s:.1f} s; {state_of(whole)}")
    rng, differing = np.random.default_rng(options.seed), 0
    for number in range(options.kills):
        run = options.out / f"killed-{number}"
        moments = []
        for _ in range(1 + int(rng.random() < options.twice)):
            process = train(settings, run) if not moments else resume(run)
            how = str(rng.choice(["any time", "in training", "in a save"], p=[0.2, 0.5, 0.3]))
            if how == "any time":
                pause_s = float(rng.uniform(0, whole_s))
            else:
                wait_for_checkpoint(process, run)
                pause_s = float(rng.uniform(0, whole_s - until_first_s))
            moments.append(f"{how}: {kill_after(process, pause_s, run, in_save=how == 'in a save')}")
        finish(resume(run) if (run / "config.yaml").is_file() else train(settings, run))
        found = differences(whole, run)
        differing += bool(found)
        print(f"{number + 1:3d}  {'; '.join(moments):90s}  {'DIFFERS: ' + ', '.join(found) if found else 'identical'}")
    print(f"{options.kills - differing} of {options.kills} resumed runs end identical to the unbroken one")
    if differing:
        raise AvfusionError(f"{differing} of {options.kills} runs differ")


def train(settings: list[str], run: Path) -> subprocess.Popen[bytes]:
    """Starts a training."""
    return start(*settings, f"--run.dir={run}")


def resume(run: Path) -> subprocess.Popen[bytes]:
    """Goes on with one."""
    return start("--resume", str(run))


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Starts train.py in a process group of its own, quietly."""
    command = [sys.executable, str(ROOT / "train.py"), *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    """Waits for the end, which must be a good one."""
    _, said = process.communicate()
    if process.returncode:
        raise AvfusionError(f"train.py ended with {process.returncode}: {said.decode(errors='replace')[-2000:]}")


def wait_for_checkpoint(process: subprocess.Popen[bytes], run: Path) -> None:
    """Waits until a run has something to go on from, or the process has ended."""
    while process.poll() is None and not has_checkpoint(run):
        time.sleep(0.002)


def has_checkpoint(run: Path) -> bool:
    """Whether a run has something to go on from."""
    return any((run / "checkpoints" / name).is_file() for name in ("last.pt", "previous.pt"))


def kill_after(process: subprocess.Popen[bytes], seconds: float, run: Path, *, in_save: bool) -> str:
    """Kills a training with all its children after a while, on demand once a save has begun; says where it stood."""

    def saving() -> bool:
        return any((run / "checkpoints").glob("*.part"))

    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    while in_save and process.poll() is None and not saving():
        time.sleep(0.0005)
    over, half = process.poll() is not None, saving()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return "at its end" if over else f"{state_of(run)}{' + a save begun' if half or saving() else ''}"


def state_of(run: Path) -> str:
    """Epochs and steps of the last whole checkpoint."""
    for name in ("last.pt", "previous.pt"):
        path = run / "checkpoints" / name
        if path.is_file():
            progress = read_checkpoint(path)["progress"]
            return f"epoch {progress['epoch']} + {progress['epoch_steps']} steps"
    return "no checkpoint yet"


def differences(whole: Path, run: Path) -> list[str]:
    """What is not the same in two runs."""
    found = []
    for name in ("last.pt", "best.pt"):
        first, second = (timeless(read_checkpoint(folder / "checkpoints" / name)) for folder in (whole, run))
        found += [f"{name}: {key}" for key in first.keys() | second.keys() if not same(first.get(key), second.get(key))]
    for name, read in (("log.jsonl", rows), ("scores/val.csv", Path.read_bytes), ("report.json", figures)):
        if read(whole / name) != read(run / name):
            found.append(name)
    return found


def timeless(content: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint without what names the run and what clocks say."""
    progress = {key: value for key, value in content["progress"].items() if key != "seconds"}
    config = {**content["config"], "run": {**content["config"]["run"], "dir": None}}
    kept = {key: value for key, value in content.items() if key not in ("wandb_id", "log_bytes")}
    return {**kept, "progress": progress, "config": config}


def same(first: Any, second: Any) -> bool:
    """Equal to the last bit, tensors included."""
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))
    return bool(first == second)


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a log without what clocks and memory say."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in row.items() if not any(word in key for word in CLOCKS)} for row in lines]


def figures(path: Path) -> dict[str, Any]:
    """The figures of a report, without the command, the checkpoint's place, and the clocks of the heads' part."""
    report = json.loads(path.read_text(encoding="utf-8"))
    heads = {key: value for key, value in (report.get("heads") or {}).items() if key != "seconds"}
    return {key: value for key, value in report.items() if key not in ("command", "checkpoint")} | {"heads": heads}


if __name__ == "__main__":
    sys.exit(run_command(main))
