"""The numbers of a run reach log.jsonl whatever W&B does, and W&B gets plain numbers on its own step axis."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from avfusion.config import Config
from avfusion.training import wandb_run
from avfusion.training.logger import RunLogger


class FakeRun:
    """Records what it is given; fails from the given call on."""

    id = "abc123"
    url = "https://example.org/run"

    def __init__(self, fail_from: int = 10**9) -> None:
        self.rows: list[dict[str, Any]] = []
        self.steps: list[tuple[int, bool | None]] = []
        self.starting_step = 0
        self.offline = True
        self.metrics: list[tuple[str, str | None]] = []
        self.summary: dict[str, Any] = {}
        self.fail_from = fail_from

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.metrics.append((name, step_metric))

    def log(self, row: dict[str, Any], step: int, commit: bool | None = None) -> None:
        if len(self.rows) >= self.fail_from:
            raise ConnectionError("server is gone")
        self.rows.append(row)
        self.steps.append((step, commit))

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


def fake_wandb(monkeypatch: pytest.MonkeyPatch, run: FakeRun) -> dict[str, Any]:
    """Puts a stand-in for wandb in place; returns what init was called with."""
    asked: dict[str, Any] = {}
    module = types.ModuleType("wandb")
    module.init = lambda **arguments: asked.update(arguments) or run  # type: ignore[attr-defined]
    settings = types.SimpleNamespace(base_url="https://api.wandb.ai")
    module.setup = lambda: types.SimpleNamespace(settings=settings)  # type: ignore[attr-defined]
    module.Settings = lambda **arguments: arguments  # type: ignore[attr-defined]
    module.Table = lambda columns, data: ("table", columns, data)  # type: ignore[attr-defined]
    module.teardown = lambda: None  # type: ignore[attr-defined]
    module.Image = lambda path, caption: ("image", path, caption)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    for name in ("WANDB_MODE", "WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    return asked


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_both_get_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun()
    asked = fake_wandb(monkeypatch, run)
    logger = RunLogger(Config(), tmp_path)
    logger.log({"train/loss": 0.5, "epoch": 1}, step=10)
    logger.log({"val/ap": 0.25}, step=10)
    logger.close()
    assert run.rows == rows_of(tmp_path) == [{"step": 10, "train/loss": 0.5, "epoch": 1}, {"step": 10, "val/ap": 0.25}]
    assert run.steps == [(0, True), (1, True)]  # W&B's own step is the row's index, and each row is sent at once
    assert ("*", "step") in run.metrics
    assert asked["config"]["model.fusion.heads"] == 4
    assert asked["dir"] == str(tmp_path)


@pytest.mark.parametrize("mode", ["auto", "online"])
def test_without_a_login_it_is_offline_and_never_asks(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = fake_wandb(monkeypatch, FakeRun())
    config = Config()
    config.wandb.mode = mode
    RunLogger(config, tmp_path).close()
    assert asked["mode"] == "offline"
    assert "not logged in" in capsys.readouterr().err


def test_with_a_key_auto_is_online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake_wandb(monkeypatch, FakeRun())
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    RunLogger(Config(), tmp_path).close()
    assert asked["mode"] == "online"


def test_resuming_goes_on_with_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake_wandb(monkeypatch, FakeRun())
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    RunLogger(Config(), tmp_path, wandb_id="abc123").close()
    assert (asked["id"], asked["resume"]) == ("abc123", "allow")


@pytest.mark.parametrize("how", ["config", "environment", "not installed", "broken"])
def test_without_wandb_the_numbers_are_kept(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_wandb(monkeypatch, FakeRun())
    config = Config()
    if how == "config":
        config.wandb.mode = "disabled"
    elif how == "environment":
        monkeypatch.setenv("WANDB_MODE", "disabled")
    elif how == "not installed":
        monkeypatch.setitem(sys.modules, "wandb", None)
    else:

        def fails(**_: object) -> None:
            raise OSError("disk full\nand more")

        monkeypatch.setattr(sys.modules["wandb"], "init", fails)
    logger = RunLogger(config, tmp_path)
    logger.log({"a": 1}, step=1)
    logger.close()
    assert rows_of(tmp_path) == [{"step": 1, "a": 1}]
    said = capsys.readouterr().err
    assert said.count("W&B") == 1
    assert "log.jsonl" in said
    assert logger.wandb_id is None


def test_wandb_failing_on_the_way_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_wandb(monkeypatch, FakeRun(fail_from=1))
    logger = RunLogger(Config(), tmp_path)
    for step in range(4):
        logger.log({"a": step}, step)
    logger.log_images([tmp_path / "x.png"], "alignment", 4)
    logger.summarize({"a": 1})
    logger.close()
    assert len(rows_of(tmp_path)) == 4
    assert capsys.readouterr().err.count("server is gone") == 1


@pytest.mark.parametrize("part", ["finish", "summary"])
def test_wandb_failing_at_the_end_ends_nothing(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Fails(FakeRun):
        def finish(self, exit_code: int) -> None:
            raise ConnectionError("server is gone")

    run = Fails()
    if part == "summary":
        run.summary = None  # type: ignore[assignment]
    fake_wandb(monkeypatch, run)
    logger = RunLogger(Config(), tmp_path)
    logger.summarize({"a": 1.0})
    logger.close()
    assert capsys.readouterr().err.count("W&B failed") == 1


def test_a_key_for_a_server_of_ones_own_counts_as_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake_wandb(monkeypatch, FakeRun())
    sys.modules["wandb"].setup().settings.base_url = "https://wandb.example.org"  # type: ignore[attr-defined]
    (tmp_path / "netrc").write_text("machine wandb.example.org login user password " + "x" * 40 + "\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    RunLogger(Config(), tmp_path).close()
    assert asked["mode"] == "online"


def test_without_a_network_an_online_run_goes_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = FakeRun()
    fake_wandb(monkeypatch, run)
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    modes: list[str] = []

    def init(mode: str, **_: object) -> FakeRun:
        modes.append(mode)
        if mode == "online":
            raise TimeoutError("no answer")
        return run

    monkeypatch.setattr(sys.modules["wandb"], "init", init)
    RunLogger(Config(), tmp_path).close()
    assert modes == ["online", "offline"]
    assert "W&B: offline (no answer); later: wandb sync" in capsys.readouterr().err


def test_only_plain_numbers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun()
    fake_wandb(monkeypatch, run)
    logger = RunLogger(Config(), tmp_path)
    with_graph = torch.ones(1, requires_grad=True).sum() * 2
    logger.log({"a": with_graph, "b": np.float32(0.5), "c": np.int64(3), "d": True}, step=1)  # type: ignore[dict-item]
    logger.summarize({"a": with_graph})  # type: ignore[dict-item]
    logger.close()
    (row,) = run.rows
    assert row == {"step": 1, "a": 2.0, "b": 0.5, "c": 3, "d": 1}
    assert [type(value) for value in row.values()] == [int, float, float, int, int]
    assert type(run.summary["a"]) is float


def test_what_is_shown_rides_on_the_row_that_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun()
    fake_wandb(monkeypatch, run)
    logger = RunLogger(Config(), tmp_path)
    logger.log({"a": 1}, step=5)
    logger.log_images([tmp_path / "x.png"], "align/probe_clips", 7)
    logger.log_table("final/predictions", ("video_id", "score"), [("v", 0.5)], 7)
    logger.log({"a": 2}, step=7)
    logger.close()
    assert run.steps == [(0, True), (1, None), (1, None), (1, True)]
    assert run.rows[1] == {"step": 7, "align/probe_clips": [("image", str(tmp_path / "x.png"), "x")]}
    assert run.rows[2]["final/predictions"] == ("table", ["video_id", "score"], [["v", 0.5]])
    assert len(rows_of(tmp_path)) == 2


def logged(folder: Path, names: list[str]) -> list[int]:
    """Writes rows; returns how long the log was after each."""
    logger = RunLogger(Config(), folder)
    sizes = []
    for number, name in enumerate(names):
        logger.log({name: number}, step=number)
        sizes.append(logger.log_bytes)
    logger.close()
    return sizes


def resumed(monkeypatch: pytest.MonkeyPatch, folder: Path, next_step: int, log_bytes: int | None) -> FakeRun:
    """Resumes an online run at which the server has steps up to a number, and logs two rows."""
    run = FakeRun()
    run.starting_step, run.offline = next_step, False
    fake_wandb(monkeypatch, run)
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    logger = RunLogger(Config(), folder, "abc123", log_bytes)
    logger.log_images([folder / "x.png"], "picture", 8)
    logger.log({"new": 8}, step=8)
    logger.log({"new": 9}, step=9)
    logger.close()
    return run


def test_rows_after_the_checkpoint_are_cut_and_not_sent_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_wandb(monkeypatch, FakeRun())
    sizes = logged(tmp_path, ["old"] * 4)
    run = resumed(monkeypatch, tmp_path, next_step=4, log_bytes=sizes[2])
    assert [row.get("old", row.get("new")) for row in rows_of(tmp_path)] == [0, 1, 2, 8, 9]
    assert run.rows == [{"step": 9, "new": 9}]  # the server has steps 0 to 3: the row of step 3 is there
    assert run.steps == [(4, True)]


def test_what_the_server_keeps_though_it_is_different_now_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_wandb(monkeypatch, FakeRun())
    sizes = logged(tmp_path, ["old"] * 6)
    run = resumed(monkeypatch, tmp_path, next_step=6, log_bytes=sizes[2])
    assert run.rows == []
    keeps = [line for line in capsys.readouterr().err.splitlines() if "W&B keeps" in line]
    assert keeps == [
        "W&B keeps its earlier rows up to its step 5, though the training goes on differently from step 3;"
        " log.jsonl has the new ones"
    ]


def test_rows_that_differ_in_clocks_alone_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_wandb(monkeypatch, FakeRun())
    logger = RunLogger(Config(), tmp_path)
    logger.log({"train/loss": 0.1, "seconds": 5.0, "train/peak_memory_mb": 7, "train/frames_per_s": 2}, 1)
    logger.close()
    run = FakeRun()
    run.starting_step, run.offline = 1, False
    fake_wandb(monkeypatch, run)
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    logger = RunLogger(Config(), tmp_path, "abc123", 0)
    logger.log({"train/loss": 0.1, "seconds": 9.0, "train/peak_memory_mb": 8, "train/frames_per_s": 1}, 1)
    logger.close()
    assert (run.rows, rows_of(tmp_path)[0]["seconds"]) == ([], 9.0)
    assert "W&B keeps" not in capsys.readouterr().err


def test_rows_that_w_and_b_missed_are_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_wandb(monkeypatch, FakeRun())
    logged(tmp_path, ["old"] * 4)
    run = resumed(monkeypatch, tmp_path, next_step=2, log_bytes=None)
    assert [step for step, _ in run.steps] == [2, 3, 4, 4, 5]
    assert run.rows[:2] == [{"step": 2, "old": 2}, {"step": 3, "old": 3}]


@pytest.mark.parametrize("server_has", [0, 2, 3])
@pytest.mark.parametrize("final", ["final/val_ap", "final_role/val_ap_solo"])
def test_a_run_made_longer_goes_on_behind_its_first_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server_has: int, final: str
) -> None:
    """Its final row stays, at W&B's step and in the log; also when it is made longer, and evaluated, once more."""
    fake_wandb(monkeypatch, FakeRun())
    sizes = logged(tmp_path, ["old", "old", final])
    run = resumed(monkeypatch, tmp_path, next_step=server_has, log_bytes=sizes[1])
    assert [step for step, _ in run.steps] == [*range(server_has, 3), 3, 3, 4]
    assert [sorted(row.keys() - {"step"}) for row in rows_of(tmp_path)] == [["old"], ["old"], [final], ["new"], ["new"]]
    logged(tmp_path, [final])  # the end of the longer run; then it is made longer again
    again = resumed(monkeypatch, tmp_path, next_step=6, log_bytes=sizes[1])
    assert [step for step, _ in again.steps] == [6, 6, 7]
    assert [next(iter(row.keys() - {"step"})) for row in rows_of(tmp_path)] == [
        "old", "old", final, "new", "new", final, "new", "new",
    ]  # fmt: skip


def test_rows_after_the_final_ones_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run made longer, killed before the first checkpoint of its second part, goes on as if not killed."""
    fake_wandb(monkeypatch, FakeRun())
    sizes = logged(tmp_path, ["old", "final/val_ap", "lost", "lost"])
    resumed(monkeypatch, tmp_path, next_step=0, log_bytes=sizes[0])
    assert [next(iter(row.keys() - {"step"})) for row in rows_of(tmp_path)] == ["old", "final/val_ap", "new", "new"]


def test_a_final_row_is_known_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was killed while it reported, and is resumed, has nothing to say twice."""
    fake_wandb(monkeypatch, FakeRun())
    numbers = {"final/val_ap": 0.1 + 0.2, "final_role/val_ap_solo": float("nan")}
    logger = RunLogger(Config(), tmp_path)
    assert not logger.has(numbers, 7)
    logger.log({"train/loss": 1.0}, 7)
    kept = logger.log_bytes
    assert not logger.has(numbers, 7)
    logger.log(numbers, 7)
    assert logger.has({key: torch.tensor(value, dtype=torch.float64) for key, value in numbers.items()}, 7)  # type: ignore[misc]
    logger.close()
    resumed_logger = RunLogger(Config(), tmp_path, "abc123", kept)
    assert resumed_logger.has(numbers, 7)
    assert not resumed_logger.has(numbers, 8)
    assert not resumed_logger.has({**numbers, "final/val_ap": 0.3}, 7)
    resumed_logger.close()
    elsewhere = RunLogger(Config(), tmp_path, eval_of="run")
    assert not elsewhere.has(numbers, 7)  # a new W&B run has no row yet
    elsewhere.close()


@pytest.mark.parametrize("known", ["abc123", None])
def test_offline_all_rows_are_sent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str | None) -> None:
    """Nobody knows how much of the first file was written; after W&B failed there is none of its end in any case."""
    fake_wandb(monkeypatch, FakeRun(fail_from=1))
    sizes = logged(tmp_path, ["old"] * 4)
    run = FakeRun()
    fake_wandb(monkeypatch, run)
    logger = RunLogger(Config(), tmp_path, known, sizes[1])
    logger.log({"old": 2}, step=2)
    logger.close()
    assert run.steps == [(0, True), (1, True), (2, True)]
    assert run.rows == rows_of(tmp_path) == [{"step": step, "old": step} for step in range(3)]


def test_an_evaluation_elsewhere_does_not_send_the_rows_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_wandb(monkeypatch, FakeRun())
    logged(tmp_path, ["final/val_ap"])
    run = FakeRun()
    fake_wandb(monkeypatch, run)
    logger = RunLogger(Config(), tmp_path, eval_of="run")
    logger.log({"final/test_ap": 0.5}, step=2)
    logger.close()
    assert run.steps == [(1, True)]  # its index in the log


def test_an_evaluation_elsewhere_gives_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    for eval_of in (None, "run"):
        run = FakeRun()
        fake_wandb(monkeypatch, run)
        sys.modules["wandb"].Artifact = FakeArtifact  # type: ignore[attr-defined]
        run.log_artifact = lambda artifact, aliases, to=eval_of: given.append(f"{to}: {artifact.type}")  # type: ignore[attr-defined]
        config = Config()
        config.wandb.log_model = True
        (tmp_path / "best.pt").write_bytes(b"weights")
        logger = RunLogger(config, tmp_path, eval_of=eval_of)
        logger.log_model(tmp_path / "best.pt", {"epoch": 1})
        logger.close()
    assert given == ["None: model"]


class FakeArtifact:
    def __init__(self, name: str, type: str, metadata: dict[str, Any]) -> None:
        self.type = type

    def add_file(self, path: str, name: str) -> None:
        assert Path(path).is_file()


@pytest.mark.parametrize("mode", ["auto", "offline"])
def test_a_mode_that_is_none_is_named(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = fake_wandb(monkeypatch, FakeRun())
    monkeypatch.setenv("WANDB_MODE", "bogus")
    config = Config()
    config.wandb.mode = mode
    RunLogger(config, tmp_path).close()
    assert capsys.readouterr().err == (
        "W&B: off, for WANDB_MODE=bogus is no mode (expected online, offline or disabled);"
        " the numbers are in log.jsonl\n"
    )
    assert asked == {}


def test_the_older_name_of_offline_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake_wandb(monkeypatch, FakeRun())
    monkeypatch.setenv("WANDB_MODE", "dryrun")
    RunLogger(Config(), tmp_path).close()
    assert asked["mode"] == "offline"


def test_a_last_line_cut_short_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_wandb(monkeypatch, FakeRun())
    sizes = logged(tmp_path, ["old"] * 2)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 2, "ol')
    logged(tmp_path, ["old"])
    assert [row["old"] for row in rows_of(tmp_path)] == [0, 1, 0]
    assert "rows are lost" not in capsys.readouterr().err
    RunLogger(Config(), tmp_path, None, 10 * sizes[1]).close()
    assert "rows are lost" in capsys.readouterr().err
    assert len(rows_of(tmp_path)) == 3


def test_w_and_b_hanging_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Hangs(FakeRun):
        def log(self, row: dict[str, Any], step: int, commit: bool | None = None) -> None:
            time.sleep(30)

    fake_wandb(monkeypatch, Hangs())
    monkeypatch.setattr(wandb_run, "TELL_S", 0.2)
    logger = RunLogger(Config(), tmp_path)
    began = time.monotonic()
    for step in range(3):
        logger.log({"a": step}, step)
    logger.close()
    assert time.monotonic() - began < 5
    assert len(rows_of(tmp_path)) == 3
    assert capsys.readouterr().err.count("no answer for 0 s") == 1
    assert logger.wandb_id == "abc123"  # a resumed run goes on with it


def test_uploads_that_do_not_end_are_left_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Uploads(FakeRun):
        def finish(self, exit_code: int) -> None:
            time.sleep(30)

    fake_wandb(monkeypatch, Uploads())
    config = Config()
    config.wandb.wait_s = 0.2
    RunLogger(config, tmp_path).close()
    assert f"later: wandb sync {tmp_path}/wandb/offline-run-*" in capsys.readouterr().err.splitlines()[-1]


def test_an_artifact_that_fails_is_said_and_w_and_b_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = FakeRun()
    fake_wandb(monkeypatch, run)

    def refuses(*_: object, **__: object) -> None:
        raise OSError("disk full")

    sys.modules["wandb"].Artifact = refuses  # type: ignore[attr-defined]
    config = Config()
    config.wandb.log_dataset = True
    logger = RunLogger(config, tmp_path)
    logger.log({"a": 1}, step=1)
    logger.close()
    assert len(run.rows) == 1
    assert "W&B: no dataset artifact (disk full)" in capsys.readouterr().err


def test_a_run_that_ends_by_an_error_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun()
    fake_wandb(monkeypatch, run)
    RunLogger(Config(), tmp_path).close()
    assert run.exit_code == 0
    with pytest.raises(ZeroDivisionError), contextlib.closing(RunLogger(Config(), tmp_path)):
        _ = 1 / 0
    assert run.exit_code == 1


def test_an_evaluation_elsewhere_is_a_run_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fake_wandb(monkeypatch, FakeRun())
    RunLogger(Config(), tmp_path).close()
    assert (asked["job_type"], asked["group"], asked["name"]) == ("train", None, tmp_path.name)
    config = Config()
    config.wandb.name = "wide"
    RunLogger(config, tmp_path, eval_of="wide").close()
    assert (asked["job_type"], asked["group"], asked["name"]) == ("eval", "wide", tmp_path.name)
