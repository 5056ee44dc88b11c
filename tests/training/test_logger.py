"""The numbers of a run reach log.jsonl whatever W&B does, and W&B gets plain numbers on its own step axis."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from avfusion.config import Config
from avfusion.training.logger import RunLogger


class FakeRun:
    """Records what it is given; fails from the given call on."""

    id = "abc123"
    url = "https://example.org/run"

    def __init__(self, fail_from: int = 10**9) -> None:
        self.rows: list[dict[str, Any]] = []
        self.metrics: list[tuple[str, str | None]] = []
        self.summary: dict[str, Any] = {}
        self.fail_from = fail_from

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.metrics.append((name, step_metric))

    def log(self, row: dict[str, Any]) -> None:
        if len(self.rows) >= self.fail_from:
            raise ConnectionError("server is gone")
        self.rows.append(row)

    def finish(self) -> None:
        pass


def fake_wandb(monkeypatch: pytest.MonkeyPatch, run: FakeRun) -> dict[str, Any]:
    """Puts a stand-in for wandb in place; returns what init was called with."""
    asked: dict[str, Any] = {}
    module = types.ModuleType("wandb")
    module.init = lambda **arguments: asked.update(arguments) or run  # type: ignore[attr-defined]
    settings = types.SimpleNamespace(base_url="https://api.wandb.ai")
    module.setup = lambda: types.SimpleNamespace(settings=settings)  # type: ignore[attr-defined]
    module.Settings = lambda **arguments: arguments  # type: ignore[attr-defined]
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
        def finish(self) -> None:
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
