"""Several processes do what one does: the same steps, the same scores, one run folder; and they fail together."""

from __future__ import annotations

import csv
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from avfusion.checkpoint import read_checkpoint
from tests.training.tiny import ROOT, SETTINGS, launcher, rows_of, run_script, run_train
from tests.training.wandb_file import read_wandb

pytestmark = pytest.mark.slow  # every test starts processes that load torch

# A step has 300 frames whatever the number of processes. Contrast over the whole batch, epochs of contrast alone.
STEP_FRAMES = 300
TRAINING = [
    "--train.contrastive_epochs=1",
    "--model.dropout=0",
    "--wandb.mode=offline",
    "--data.synthetic.train_scenes=13",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The same training by one, two and three processes."""
    folder = tmp_path_factory.mktemp("runs")
    for processes in (1, 2, 3):
        batch = f"--data.batch_frames={STEP_FRAMES // processes}"
        found = run_train(*TRAINING, batch, f"--run.dir={folder / str(processes)}", processes=processes)
        assert found.returncode == 0, found.stderr
    return {processes: folder / str(processes) for processes in (1, 2, 3)}


def numbers(folder: Path) -> list[dict[str, Any]]:
    clocks = ("seconds", "frames_per_s", "data_wait_percent", "memory")
    return [{k: v for k, v in row.items() if not any(word in k for word in clocks)} for row in rows_of(folder)]


@pytest.mark.parametrize("processes", [2, 3])
def test_the_same_losses_and_the_same_ap(runs: dict[int, Path], processes: int) -> None:
    """Losses to six digits: gradients are summed in another order. That order is all that differs."""
    alone, together = numbers(runs[1]), numbers(runs[processes])
    assert len(alone) == len(together) == 4
    for one, several in zip(alone, together, strict=True):
        assert one.keys() == several.keys()
        for key, value in one.items():
            slack = 0.01 if key.endswith("_ms") else 1e-6  # lags are differences of nearly equal sums
            assert several[key] == pytest.approx(value, rel=1e-5, abs=slack), key


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_scoring_shared_by_processes_gives_the_scores_of_one(
    runs: dict[int, Path], tmp_path: Path, processes: int
) -> None:
    """P02: 5 clips; every row once, and equal to the last bit for the same number of threads (torchrun gives one)."""
    settings = ["--run.threads=1", "--data.synthetic.val_scenes=5", "--wandb.mode=disabled"]
    arguments = [str(runs[1]), f"--out={tmp_path}", *settings]
    found = run_script("eval.py", *arguments, processes=processes)
    assert found.returncode == 0, found.stderr
    with (tmp_path / "scores" / "val.csv").open() as file:
        rows = [tuple(row) for row in csv.reader(file)]
    assert len(set(rows)) == len(rows) > 100
    reference = runs[1].parent / "five.csv"
    if not reference.is_file():
        assert processes == 1
        reference.write_bytes((tmp_path / "scores" / "val.csv").read_bytes())
    assert (tmp_path / "scores" / "val.csv").read_bytes() == reference.read_bytes()


@pytest.mark.parametrize("processes", [2, 3])
def test_one_run_folder_one_log_one_wandb_run(runs: dict[int, Path], processes: int) -> None:
    run = runs[processes]
    assert {path.name for path in run.iterdir()} == {path.name for path in runs[1].iterdir()}
    assert len(list(run.glob("wandb/offline-run-*"))) == 1
    assert [row["step"] for row in rows_of(run)] == [row["step"] for row in rows_of(runs[1])]
    logged = read_wandb(run)
    assert len(logged.rows) >= len(rows_of(run))
    assert len(read_checkpoint(run / "checkpoints" / "last.pt")["random"]) == processes


def test_several_processes_go_on_where_they_stopped(runs: dict[int, Path], tmp_path: Path) -> None:
    """Both processes and their launcher are killed; two again go on."""
    run = tmp_path / "run"
    settings = [*TRAINING, "--train.checkpoint_steps=1", f"--data.batch_frames={STEP_FRAMES // 2}", f"--run.dir={run}"]
    process = subprocess.Popen(
        [*launcher(2), "train.py", *SETTINGS, *settings],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    last = run / "checkpoints" / "last.pt"
    deadline = time.monotonic() + 100
    while not last.is_file() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert last.is_file()
    found = run_script("train.py", "--resume", str(run), processes=2)
    assert found.returncode == 0, found.stderr
    whole, resumed = (read_checkpoint(folder / "checkpoints" / "last.pt") for folder in (runs[2], run))
    for name, value in whole["model"].items():
        assert torch.equal(value, resumed["model"][name]), name
    assert numbers(run) == numbers(runs[2])


@pytest.mark.parametrize(
    "flags",
    [
        ["--data.synthetic.train_scenes=1", "--data.batch_frames=1000"],  # P05: fewer clips than processes
        ["--model.modality=video"],
        ["--model.modality=audio", "--train.accumulate=2"],
        ["--model.fusion.kind=concat", "--train.loss.audio=0", "--train.loss.video=0", "--train.loss.contrastive=0"],
        ["--train.loss.null=1", "--train.loss.guided=1", "--train.loss.sync=1", "--train.precision=bfloat16"],
        ["--model.speaker.layers=1"],  # a face alone passes the attention between faces by
    ],
    ids=["one clip", "video", "audio", "speaking loss alone", "all losses", "faces alone"],
)
def test_every_ablation_runs_on_two(tmp_path: Path, flags: list[str]) -> None:
    """P01: no "expected to have finished reduction", whatever the loss leaves out."""
    run = tmp_path / "run"
    found = run_train("--train.epochs=1", *flags, f"--run.dir={run}", processes=2)
    assert found.returncode == 0, found.stderr
    assert rows_of(run)[0]["step"] >= 1
    assert (run / "report.json").is_file()


OTHER_KINDS = {
    "several faces": ["--model.speaker.layers=1", "--data.faces=3", "--data.synthetic.roles=[solo,listener,overlap]"],
    "causal": ["--model.causal=true", "--model.lookahead_frames=3"],
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_faces_that_know_each_other_and_causal_models_take_the_same_steps(kind: str, tmp_path: Path) -> None:
    for processes in (1, 2):
        batch = f"--data.batch_frames={STEP_FRAMES // processes}"
        flags = [*TRAINING, *OTHER_KINDS[kind], "--train.epochs=1", "--wandb.mode=disabled", batch]
        found = run_train(*flags, f"--run.dir={tmp_path / str(processes)}", processes=processes, timeout=600)
        assert found.returncode == 0, found.stderr
    alone, together = numbers(tmp_path / "1"), numbers(tmp_path / "2")
    assert len(alone) == len(together) == 3  # of contrast alone, of everything, final
    for one, several in zip(alone, together, strict=True):
        assert one.keys() == several.keys()
        for key, value in one.items():
            slack = 0.01 if key.endswith("_ms") else 1e-6
            assert several[key] == pytest.approx(value, rel=1e-5, abs=slack), key


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return str(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("raises", "rank 1 on .* failed: clip_7 cannot be read"),
        ("vanishes", "(rank 1 has shown no sign of life|[Cc]onnection (closed|reset))"),
        ("freezes", "rank 1 has shown no sign of life for 4 s"),
    ],
)
def test_when_one_fails_the_other_ends_with_its_cause(how: str, cause: str) -> None:
    """Without a launcher that would end it: within a minute, here with 4 s in place of 40 s of silence."""
    port, script = free_port(), str(Path(__file__).with_name("failing_rank.py"))
    processes = [
        subprocess.Popen(
            [sys.executable, script, how],
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
            | {"MASTER_ADDR": "localhost", "MASTER_PORT": port},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        said, errors = processes[0].communicate(timeout=60)
        other = processes[1].communicate(timeout=20)[1] if how == "raises" else ""
    finally:
        processes[1].kill()
    assert processes[0].returncode == 1, errors
    assert "rank 0 joined" in said
    assert "sum" not in said
    assert re.search(cause, errors), errors
    assert how != "raises" or "error: clip_7 cannot be read" in other


def test_under_torchrun_a_failing_process_ends_the_run_with_its_cause() -> None:
    found = run_script("tests/training/failing_rank.py", "raises", processes=2, timeout=60)
    assert found.returncode != 0
    # Said by whichever comes first: the one that fails, or the one that learns of it and ends before.
    assert "clip_7 cannot be read" in found.stderr
    assert "sum" not in found.stdout


def test_what_every_process_finds_wrong_is_said_once() -> None:
    found = run_train("--model.fusion.haeds=3", processes=2, timeout=60)
    assert found.returncode != 0
    assert found.stderr.count("config error: model.fusion.haeds: no such key") == 1


def test_a_process_without_its_device_ends_the_others() -> None:
    """It fails while the others wait for it to join; its cause reaches them."""
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, "train.py", *SETTINGS, f"--run.device={device}"],
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
            | {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "CUDA_VISIBLE_DEVICES": ""},
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, device in enumerate(("cpu", "cuda"))
    ]
    try:
        _, said = processes[0].communicate(timeout=60)
    finally:
        processes[1].kill()
    assert processes[0].returncode == 1
    assert re.search("since rank 1 on .* failed: run.device=cuda: torch finds no such device", said), said


def test_a_size_without_a_rank_is_told() -> None:
    for size in ("2", "two"):
        found = subprocess.run(
            [sys.executable, "train.py", *SETTINGS],
            env={**os.environ, "WORLD_SIZE": size},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert found.returncode == 2
        assert f"WORLD_SIZE={size} without a RANK: start several processes with torchrun" in found.stderr
