"""With the real W&B, offline: what it writes, and that its death ends nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from avfusion.config import Config, to_flat_dict
from avfusion.data.examples import Examples
from avfusion.data.open import open_dataset
from avfusion.models import build_model
from avfusion.scoring import score_tracks
from avfusion.training.epoch_report import EpochReport
from avfusion.training.logger import RunLogger
from tests.training.tiny import rows_of, run_script, run_train, tiny_run
from tests.training.wandb_file import Logged, read_wandb

BACKWARDS = "less than the current step"


def offline(config: Config) -> Config:
    config.wandb.mode = "offline"
    return config


def assert_same_rows(logged: Logged, folder: Path) -> None:
    """Every scalar of ``log.jsonl`` is at W&B, in the row of its index, with its value."""
    rows = rows_of(folder)
    assert rows
    for index, row in enumerate(rows):
        assert {key: logged.rows[index][key] for key in row} == row
    assert sorted(logged.rows) == list(range(len(rows)))


def texts_of(folder: Path) -> str:
    """All that W&B itself wrote down about the run."""
    return "".join(path.read_text(errors="replace") for path in folder.glob("wandb/*/logs/*.log"))


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_DATA_DIR", "")  # set by the run itself; put back by monkeypatch
    monkeypatch.delenv("WANDB_DATA_DIR")


def epochs(config: Config, folder: Path, logger: RunLogger, numbers: range) -> None:
    """Validates an untrained model after each epoch, as a training does."""
    device = torch.device("cpu")
    torch.manual_seed(0)
    examples = Examples(open_dataset(config.data, "val"), config.data)
    model = build_model(config.model, config.data.num_mels)
    report = EpochReport(config, examples, device)
    for epoch in numbers:
        scores = score_tracks(model, examples, config, device)
        found = report(model, scores, logger, 10 * epoch, epoch, folder / "alignment" / "epochs")
        logger.log({**found, "train/loss": 1 / epoch, "epoch": epoch}, 10 * epoch)


def test_two_epochs_read_back(tmp_path: Path, clean: None, capfd: pytest.CaptureFixture[str]) -> None:
    config = offline(tiny_run("--report.epoch_figures=20"))
    config.wandb.log_dataset = config.wandb.log_model = True
    (tmp_path / "best.pt").write_bytes(b"weights")
    logger = RunLogger(config, tmp_path)
    epochs(config, tmp_path, logger, range(1, 3))
    logger.log_table("final/predictions", ("video_id", "score"), [("v", 0.5), ("w", 0.25)], 20)
    (tmp_path / "viewer.html").write_text("<html><head></head><body>page</body></html>")
    logger.log_page(tmp_path / "viewer.html", "heads/val_viewer", 20)
    logger.log({"final/val_ap": 0.5}, 20)
    logger.log_model(tmp_path / "best.pt", {"epoch": 2})
    logger.summarize({"final/val_ap": 0.5})
    logger.close()

    logged = read_wandb(tmp_path)
    assert_same_rows(logged, tmp_path)
    assert logged.order == [0, 1, 2]
    assert BACKWARDS not in capfd.readouterr().err + texts_of(tmp_path)
    assert logged.metrics["*"] == "step"
    assert logged.config == to_flat_dict(config)
    assert logged.summary["final/val_ap"] == 0.5
    assert {"val/ap", "val_role/ap_solo", "align/head4_lag_ms"} <= rows_of(tmp_path)[0].keys()

    files = next(tmp_path.glob("wandb/offline-run-*/files"))
    for step in (0, 1):
        row = logged.rows[step]
        assert row["align/probe_clips.captions"] == [f"epoch-{step + 1:04d}"]
        (picture,) = row["align/probe_clips.filenames"]
        assert (files / picture).read_bytes() == (tmp_path / f"alignment/epochs/epoch-{step + 1:04d}.png").read_bytes()
        assert 2 <= row["val/pr_curve_table.nrows"] <= 200
    page = (files / logged.rows[2]["heads/val_viewer.path"]).read_bytes()
    assert page == (tmp_path / "viewer.html").read_bytes()  # nothing put in that asks the network
    table = json.loads((files / logged.rows[2]["final/predictions.path"]).read_text())
    assert table["data"] == [["v", 0.5], ["w", 0.25]]

    artifacts = {artifact.type: artifact for artifact in logged.artifacts.values()}
    assert json.loads(artifacts["dataset"].metadata)["format"] == "synthetic"
    assert [entry.path for entry in artifacts["dataset"].manifest.contents] == ["recipe.json"]
    assert [entry.path for entry in artifacts["model"].manifest.contents] == ["best.pt"]
    local = Path(artifacts["model"].manifest.contents[0].local_path)
    assert local.read_bytes() == b"weights"
    assert tmp_path in local.parents  # the run folder has all that `wandb sync` needs


def test_a_resumed_run_is_the_same_run_and_its_last_file_is_complete(tmp_path: Path, clean: None) -> None:
    config = offline(tiny_run("--report.epoch_figures=20"))
    first = RunLogger(config, tmp_path)
    first.log({"train/loss": 1.0}, 1)
    first.log({"train/loss": 0.5}, 2)
    kept = first.log_bytes
    first.log({"train/loss": 0.25}, 3)
    first.close()
    time.sleep(1.1)  # W&B names its folders by the second
    second = RunLogger(config, tmp_path, first.wandb_id, kept)
    second.log({"train/loss": 0.25}, 3)
    second.log({"train/loss": 0.125}, 4)
    second.close()
    logged = read_wandb(tmp_path)
    assert_same_rows(logged, tmp_path)
    assert logged.order == [0, 1, 2, *range(4)]
    assert_same_rows(read_wandb(tmp_path, last_only=True), tmp_path)
    assert logged.run["run_id"] == first.wandb_id
    assert [row["train/loss"] for row in rows_of(tmp_path)] == [1.0, 0.5, 0.25, 0.125]
    assert BACKWARDS not in texts_of(tmp_path)


KILLED = """
import os, signal, sys
from pathlib import Path
from avfusion.config import Config
from avfusion.training.logger import RunLogger

config = Config()
config.wandb.mode = "offline"
logger = RunLogger(config, Path(sys.argv[1]))
for step in range(4):
    logger.log({"train/loss": 1.0 / (step + 1)}, step)
    if step == 2:
        kept = logger.log_bytes
print(logger.wandb_id, kept, flush=True)
os.killpg(0, signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="kills a process group")
def test_after_a_real_kill_the_last_file_has_every_row(tmp_path: Path, clean: None) -> None:
    """W&B's process dies with the run, before its block of 32 KB is full: its first file ends too early."""
    with (tmp_path / "out").open("w") as out:  # a pipe would be held open
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=out, start_new_session=True, timeout=60
        )
    assert killed.returncode == -signal.SIGKILL
    wandb_id, kept = (tmp_path / "out").read_text().split()
    time.sleep(1.1)  # W&B names its folders by the second
    logger = RunLogger(offline(Config()), tmp_path, wandb_id, int(kept))
    logger.log({"train/loss": 0.25}, 3)
    logger.log({"train/loss": 0.125}, 4)
    logger.close()
    logged = read_wandb(tmp_path, last_only=True)
    assert len(rows_of(tmp_path)) == 5
    assert_same_rows(logged, tmp_path)
    assert logged.order == list(range(5))
    assert logged.run["run_id"] == wandb_id
    assert BACKWARDS not in texts_of(tmp_path)


def test_a_prepared_dataset_is_described_and_not_copied(tmp_path: Path, clean: None, small_dataset: Any) -> None:
    config = offline(tiny_run("--report.epoch_figures=20"))
    config.data.format, config.data.root = "prepared", str(small_dataset(tmp_path / "data set"))
    config.wandb.log_dataset = True
    run = tmp_path / "run"
    run.mkdir()
    (run / "skipped.json").write_text("{}")
    RunLogger(config, run).close()
    (artifact,) = read_wandb(run).artifacts.values()
    assert artifact.name == "data-set"
    names = {entry.path for entry in artifact.manifest.contents}
    assert names == {"dataset.json", "tracks.csv", "labels/train.csv", "labels/val.csv", "skipped.json"}
    assert {f"sha256/{name}" for name in names} <= json.loads(artifact.metadata).keys()


@pytest.mark.slow
def test_a_whole_run_and_its_evaluations_read_back(tmp_path: Path, clean: None) -> None:
    """train.py for two epochs; eval.py into its folder and into another; then it is made longer."""
    run, other = tmp_path / "run", tmp_path / "other"
    options = ["--wandb.mode=offline", "--wandb.log_model=True", "--report.epoch_figures=1", "--wandb.table_rows=7"]
    trained = run_train(f"--run.dir={run}", *options)
    assert trained.returncode == 0, trained.stderr
    rows = len(rows_of(run))
    for script, *arguments in (
        ("eval.py", str(run)),
        ("eval.py", str(run), "--checkpoint=last", f"--out={other}"),
        ("train.py", "--resume", str(run), "--train.epochs=3"),
    ):
        done = run_script(script, *arguments)
        assert done.returncode == 0, done.stderr
        assert BACKWARDS not in done.stderr + trained.stderr

    # The end of the training, evaluated again, is no new row; it stays where it is when the run is made longer.
    kinds = ["final" if "final/val_ap" in row else "epoch" for row in rows_of(run)]
    assert kinds == ["epoch", "epoch", "final", "epoch", "final"]
    logged = read_wandb(run)
    assert_same_rows(logged, run)
    assert_same_rows(read_wandb(run, last_only=True), run)
    assert logged.order[:rows] == list(range(rows))
    assert BACKWARDS not in texts_of(run)
    assert logged.config["model.fusion.heads"] == 4
    assert not [key for key, value in logged.config.items() if isinstance(value, dict)]
    assert sum("align/probe_clips.filenames" in row for row in logged.rows.values()) == 2  # the last epoch of each
    assert logged.rows[rows - 1]["final/val_predictions.nrows"] == 7
    assert [artifact.type for artifact in logged.artifacts.values()].count("model") == 1
    assert {key.partition("/")[0] for row in rows_of(run) for key in row if "/" in key} == {
        "train", "val", "val_role", "align", "final", "final_role",
    }  # fmt: skip

    alone = read_wandb(other)
    assert_same_rows(alone, other)
    assert (alone.run["job_type"], alone.run["run_group"], alone.run["display_name"]) == ("eval", "run", "other")
    assert alone.run["run_id"] != logged.run["run_id"]
    assert [artifact.type for artifact in alone.artifacts.values()].count("model") == 0


ENDED_ON_THE_WAY = """
import os, signal, sys, time
from pathlib import Path
from avfusion.config import Config
from avfusion.training.logger import RunLogger

def service():
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, name, _, parent, *_ = status.read_text().split()
        except OSError:
            continue
        if name == "(wandb-core)" and int(parent) == os.getpid():
            return int(pid)

config = Config()
config.wandb.wait_s = 2.0
logger = RunLogger(config, Path(sys.argv[1]))
for step in range(6):
    logger.log({"train/loss": 1.0 / (step + 1)}, step)
    if step == 2:
        time.sleep(0.5)
        print("service", service(), flush=True)
        os.kill(service(), getattr(signal, sys.argv[2]))
        time.sleep(0.5)
logger.summarize({"final/val_ap": 1.0})
print("before the end")
logger.close()
print("after the end")
sys.exit(0)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds W&B's process in /proc")
@pytest.mark.parametrize(("signal_name", "said"), [("SIGKILL", "W&B failed ("), ("SIGSTOP", "within 2 s")])
def test_w_and_b_killed_or_hanging_ends_nothing(tmp_path: Path, clean: None, signal_name: str, said: str) -> None:
    """No key, no terminal, no home; then W&B's service is killed, or stopped so that it never answers."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", ENDED_ON_THE_WAY, str(tmp_path), signal_name],
        stdin=subprocess.DEVNULL,
        stdout=(tmp_path / "out").open("w"),  # a file: the service, which hangs, would hold a pipe open
        stderr=(tmp_path / "err").open("w"),
        env={key: value for key, value in os.environ.items() if key != "HOME"} | {"HOME": str(tmp_path / "none")},
    )
    try:
        code = process.wait(timeout=50)
    finally:
        process.kill()
        found = re.search(r"service (\d+)", (tmp_path / "out").read_text())
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(found[1]), signal.SIGKILL)
    out, err = (tmp_path / "out").read_text(), (tmp_path / "err").read_text()
    assert code == 0, err
    assert time.monotonic() - began < 40
    assert out.splitlines()[1:] == ["before the end", "after the end"]
    assert [row["step"] for row in rows_of(tmp_path)] == list(range(6))
    lines = [line for line in err.splitlines() if line != "wandb: ERROR Problem finishing run"]  # W&B's own word
    assert len(lines) == 2, err
    assert lines[0].startswith("W&B: offline (not logged in: wandb login)")
    assert said in lines[1]
