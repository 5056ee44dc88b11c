"""The sweep files: what they say is right, and the command lines that W&B's agent makes of them run."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from avfusion.config import load_config, to_flat_dict
from avfusion.config.keys import leaves
from avfusion.training.report import _headline

REPOSITORY = Path(__file__).resolve().parent.parent
SWEEPS = sorted((REPOSITORY / "configs" / "sweeps").glob("*.yaml"))
SHORT = [
    "--train.epochs=1", "--data.synthetic.train_scenes=8", "--data.synthetic.val_scenes=8",
    "--data.synthetic.scene_s=1.5", "--report.figures_per_role=0", "--report.bootstrap=0",
    "--report.offset_accuracy=false", "--run.device=cpu", "--run.threads=1",
]  # fmt: skip
KEYS = {"name", "description", "program", "project", "method", "run_cap", "metric", "parameters", "command"}


def draws(sweep: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Values that W&B may choose: all of a grid; of a search both ends of each range and values between them."""
    choices = []
    for parameter in sweep["parameters"].values():
        if "values" in parameter or "value" in parameter:
            choices.append(parameter.get("values", [parameter.get("value")]))
        else:
            low, high = parameter["min"], parameter["max"]
            rng = np.random.default_rng(0)
            if parameter["distribution"] == "log_uniform_values":
                inner = np.exp(rng.uniform(math.log(low), math.log(high), count - 2)).tolist()
            else:
                assert parameter["distribution"] == "uniform"
                inner = rng.uniform(low, high, count - 2).tolist()
            choices.append([low, high, *inner])
    if sweep["method"] == "grid":
        rows = list(itertools.product(*choices))
    else:
        rows = [tuple(values[number % len(values)] for values in choices) for number in range(count)]
    return [dict(zip(sweep["parameters"], row, strict=True)) for row in rows]


def command_line(
    sweep: dict[str, Any], values: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], dict[str, str]]:
    """The command and its environment, made by the agent of W&B itself; nothing is started."""
    from wandb import wandb_agent

    started: dict[str, Any] = {}

    class Process:
        def __init__(self, command: list[str], env: dict[str, str], **_: Any) -> None:
            started.update(command=command, env=env)

    monkeypatch.setattr(wandb_agent, "AgentProcess", Process)
    for name, value in (("WANDB_DIR", str(folder)), ("WANDB_SWEEP_ID", "sweep1"), ("WANDB_MODE", "offline")):
        monkeypatch.setenv(name, value)
    for name in ("WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH"):  # the agent sets them; monkeypatch takes them back
        monkeypatch.setenv(name, "")
    agent = wandb_agent.Agent(api=None, queue=None, sweep_id="sweep1")
    agent._sweep_command = list(sweep["command"])
    arguments = {key: {"value": value} for key, value in values.items()}
    agent._command_run({"type": "run", "run_id": "run1", "program": sweep["program"], "args": arguments})
    return started["command"], started["env"]


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_sweep_says_what_w_and_b_understands(path: Path) -> None:
    sweep = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert sweep.keys() <= KEYS
    assert sweep["method"] in ("grid", "random", "bayes")
    assert (REPOSITORY / sweep["program"]).is_file()
    assert sweep["command"][:3] == ["${env}", "${interpreter}", "${program}"]
    assert sweep["command"][-1] == "${args}"
    assert sweep["parameters"].keys() <= leaves().keys()
    for parameter in sweep["parameters"].values():
        if sweep["method"] == "grid":
            assert parameter.keys() in ({"values"}, {"value"})  # a grid has no ranges
    report = {"all": {"average_precision": 0.5}, "roles": []}
    assert sweep["metric"] == {"name": "final/val_ap", "goal": "maximize"}
    assert sweep["metric"]["name"] in _headline(report, "val")


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_every_command_line_of_the_agent_is_a_configuration(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = yaml.safe_load(path.read_text(encoding="utf-8"))
    rows = draws(sweep, 10)
    seen = set()
    for values in rows:
        command, _ = command_line(sweep, values, tmp_path, monkeypatch)
        assert command[:4] == ["/usr/bin/env", "python", "train.py", "configs/synthetic.yaml"]
        flat = to_flat_dict(load_config(REPOSITORY / command[3], command[4:]))
        assert {key: flat[key] for key in values} == values
        seen.add(tuple(command))
    assert len(seen) == len(rows)


def test_a_line_of_the_grid_really_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortened, offline: it exits 0, W&B's run belongs to the sweep, and it has the sweep's metric."""
    from tests.training.wandb_file import read_wandb

    sweep = yaml.safe_load((REPOSITORY / "configs" / "sweeps" / "heads.yaml").read_text(encoding="utf-8"))
    command, env = command_line(sweep, {"model.fusion.heads": 8, "run.seed": 2}, tmp_path, monkeypatch)
    monkeypatch.undo()
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}", "OMP_NUM_THREADS": "1"}
    run_dir = tmp_path / "run"
    done = subprocess.run(
        [*command, *SHORT, f"--run.dir={run_dir}"],
        cwd=REPOSITORY, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "less than the current step" not in done.stderr
    logged = read_wandb(run_dir)
    assert logged.run["run_id"] == "run1"
    assert (logged.config["model.fusion.heads"], logged.config["run.seed"]) == (8, 2)
    assert 0 < logged.summary[sweep["metric"]["name"]] <= 1


@pytest.mark.parametrize("key", [key for key, leaf in leaves().items() if leaf.type is bool])
def test_every_switch_takes_what_a_sweep_passes(key: str) -> None:
    for text, value in (("True", True), ("true", True), ("False", False), ("false", False)):
        assert to_flat_dict(load_config(None, [f"--{key}={text}"]))[key] is value
