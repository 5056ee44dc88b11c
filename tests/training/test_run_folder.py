"""The run folder: one for each run, also for runs that begin in the same second."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from avfusion.config import Config
from avfusion.errors import UsageError
from avfusion.training import run_folder
from avfusion.training.run_folder import hold_run_folder, keep_config, make_run_folder


class OneSecond(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: object = None) -> OneSecond:
        return cls(2026, 1, 2, 3, 4, 5)


def test_runs_that_begin_in_the_same_second_get_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_folder, "datetime", OneSecond)
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: make_run_folder(Config(), "synthetic"), range(8)))
    names = {str(folder) for folder in folders}
    assert names == {"runs/synthetic-20260102-030405"} | {f"runs/synthetic-20260102-030405-{n}" for n in range(2, 9)}
    assert all(folder.is_dir() and not any(folder.iterdir()) for folder in folders)


def test_a_named_folder_is_taken_again_until_it_holds_a_checkpoint(tmp_path: Path) -> None:
    config = Config()
    config.run.dir = str(tmp_path / "run")
    folder = make_run_folder(config, "x")
    (folder / "log.jsonl").write_text("")
    (folder / "alignment" / "epochs").mkdir(parents=True)
    assert make_run_folder(config, "x") == folder
    keep_config(config, folder)
    with hold_run_folder(folder):
        assert make_run_folder(config, "x") == folder  # who holds it is asked next
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "last.pt").write_bytes(b"")
    with pytest.raises(UsageError, match=r"already exists; go on with it by `python train\.py --resume"):
        make_run_folder(config, "x")


def test_where_no_folder_can_be_made_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(UsageError, match=r"cannot be made \(Not a directory\); choose another by --run.dir"):
        make_run_folder(Config(), "x")
