"""A run that was stopped anywhere and resumed is, bit for bit, the run that was never stopped."""

from __future__ import annotations

import contextlib
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from avfusion.checkpoint import read_checkpoint, save_checkpoint
from avfusion.config import Config
from avfusion.errors import AvfusionError, UsageError
from avfusion.training import loop
from avfusion.training.loop import Trainer
from benchmarks.kill_and_resume import rows, same, timeless
from tests.training.tiny import rows_of, run_script, run_train, tiny_run, trainer_of

# Everything that has a state: dropout, averaged weights, a scaler, epochs of two kinds, rows within epochs.
SETTINGS = (
    "--model.dropout=0.2", "--train.ema=0.9", "--train.contrastive_epochs=1", "--train.checkpoint_steps=1",
    "--train.log_steps=2", "--data.augment.resync=0.3", "--data.batch_frames=45", "--train.precision=float16",
    "--train.accumulate=2",
)  # fmt: skip


class StopError(Exception):
    """Stands for a kill."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    trainer_of(tiny_run(*SETTINGS), folder).fit()
    return folder


def same_run(first: Path, second: Path) -> list[str]:
    found = []
    for name in ("last.pt", "best.pt"):
        one, two = (timeless(read_checkpoint(folder / "checkpoints" / name)) for folder in (first, second))
        found += [f"{name}: {key}" for key in one.keys() | two.keys() if not same(one.get(key), two.get(key))]
    return found + ["log.jsonl"] * (rows(first / "log.jsonl") != rows(second / "log.jsonl"))


def go_on(config: Config, folder: Path) -> None:
    torch.manual_seed(12345)  # whatever happened in between must not matter
    trainer_of(config, folder, resume=True).fit()


@pytest.mark.parametrize("saves", [1, 5, 9])
def test_stopped_right_after_a_save(whole: Path, tmp_path: Path, saves: int) -> None:
    config = tiny_run(*SETTINGS)
    broken = trainer_of(config, tmp_path)
    save, done = broken._save, 0

    def save_then_stop() -> None:
        nonlocal done
        save()
        done += 1
        if done == saves:
            raise StopError

    broken._save = save_then_stop  # type: ignore[method-assign]
    with pytest.raises(StopError):
        broken.fit()
    broken.logger.log({"train/loss": 0.0}, 99)  # type: ignore[union-attr]  # a row after the checkpoint is written again
    go_on(config, tmp_path)
    assert same_run(whole, tmp_path) == []


@pytest.mark.parametrize("place", ["while writing", "before the rename", "between the two renames"])
def test_stopped_in_the_middle_of_a_save(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    config = tiny_run(*SETTINGS)
    done, writes = 0, 5

    def save_and_stop(path: Path, *arguments: Any) -> None:
        nonlocal done
        done += 1
        if done == writes and place == "while writing":
            path.with_name(path.name + ".part").write_bytes(b"half")
            raise StopError
        save_checkpoint(path, *arguments)
        if done == writes and place == "before the rename":
            raise StopError
        if done == writes and path.name == "next.pt":
            (path.parent / "last.pt").replace(path.parent / "previous.pt")
            raise StopError

    monkeypatch.setattr("avfusion.checkpoint.save_checkpoint", save_and_stop)
    monkeypatch.setattr(loop, "save_checkpoint", save_and_stop)
    with contextlib.suppress(StopError):
        trainer_of(config, tmp_path).fit()
    monkeypatch.undo()
    go_on(config, tmp_path)
    assert same_run(whole, tmp_path) == []


@pytest.mark.parametrize("epochs_done", [1, 2])
def test_stopped_while_validating_or_logging(whole: Path, tmp_path: Path, epochs_done: int) -> None:
    config = tiny_run(*SETTINGS)
    broken = trainer_of(config, tmp_path)
    log = broken._log

    def log_then_stop(numbers: dict[str, float]) -> None:
        log(numbers)
        if numbers.get("epoch") == epochs_done:
            raise StopError

    broken._log = log_then_stop  # type: ignore[method-assign, assignment]
    with pytest.raises(StopError):
        broken.fit()
    go_on(config, tmp_path)
    assert same_run(whole, tmp_path) == []


def test_workers_have_no_state(whole: Path, tmp_path: Path) -> None:
    """Begun with two workers, stopped within an epoch, ended with none: the same."""
    half_way(tmp_path, tiny_run(*SETTINGS, "--data.workers=2"))
    go_on(tiny_run(*SETTINGS), tmp_path)
    assert [name for name in same_run(whole, tmp_path) if "config" not in name] == []


def test_resuming_a_finished_run_changes_nothing(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    go_on(tiny_run(*SETTINGS), tmp_path / "run")
    assert same_run(whole, tmp_path / "run") == []


@pytest.mark.slow
def test_killed_for_real() -> None:
    """SIGKILL at random moments; benchmarks/kill_and_resume.py does it twenty times."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        found = run_script("benchmarks/kill_and_resume.py", folder, "--kills", "2", "--seed", "3", timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "2 of 2 resumed runs end identical" in found.stdout


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "cut short":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    else:  # one bit of a tensor: torch alone would read it without a word
        with zipfile.ZipFile(path) as archive:
            tensors = [entry for entry in archive.infolist() if "/data/" in entry.filename]
            largest = max(tensors, key=lambda entry: entry.file_size)
        middle = largest.header_offset + 200 + largest.file_size // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        torch.load(path, weights_only=True)


@pytest.mark.parametrize("how", ["cut short", "empty", "one bit flipped", "missing"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    last = run / "checkpoints" / "last.pt"
    if how == "missing":
        last.unlink()
    else:
        damage(last, how)
    go_on(tiny_run(*SETTINGS), run)
    assert same_run(whole, run) == []
    said = capsys.readouterr().err
    assert ("last.pt: cannot be read as a checkpoint" in said) == (how != "missing")
    if how == "missing":
        return
    assert f"going on from {run / 'checkpoints' / 'previous.pt'}" in said
    assert (run / "checkpoints" / "last.pt.damaged").is_file()
    read_checkpoint(run / "checkpoints" / "previous.pt")  # the damaged one has not taken its place
    damage(last, how)
    damage(run / "checkpoints" / "previous.pt", how)
    with pytest.raises(
        AvfusionError,
        match=r"last\.pt: cannot be read as a checkpoint.*previous\.pt: cannot be read.*best\.pt may still",
    ):
        trainer_of(tiny_run(*SETTINGS), run, resume=True)


def test_the_learning_rate_goes_on_where_it_was(whole: Path) -> None:
    """C03: the logged rates of a run are those of its schedule; test_stopped_* compare them with a resumed run's."""
    rates = [row["train_step/lr"] for row in rows_of(whole) if "train_step/lr" in row]
    assert len(rates) == len(set(rates)) > 3


def half_way(folder: Path, config: Config) -> Trainer:
    """A run stopped in the middle of its first epoch."""
    broken = trainer_of(config, folder)
    save = broken._save

    def save_then_stop() -> None:
        save()
        raise StopError

    broken._save = save_then_stop  # type: ignore[method-assign]
    with pytest.raises(StopError):
        broken.fit()
    return broken


def test_another_plan_in_the_middle_of_an_epoch_is_refused(tmp_path: Path) -> None:
    half_way(tmp_path, tiny_run(*SETTINGS))
    with pytest.raises(UsageError, match="in the middle of an epoch of 90 frames a step, now a step has 45"):
        trainer_of(tiny_run(*SETTINGS, "--train.accumulate=1"), tmp_path, resume=True)


@pytest.mark.parametrize(
    "override",
    ["--run.seed=7", "--data.clip_frames=10", "--data.synthetic.train_scenes=4", "--train.contrastive_epochs=0"],
)
def test_another_order_in_the_middle_of_an_epoch_is_refused(tmp_path: Path, override: str) -> None:
    """Clips would be lost, repeated, or an epoch of one kind end as one of another."""
    half_way(tmp_path, tiny_run(*SETTINGS))
    with pytest.raises(UsageError, match="in the middle of an epoch that is planned otherwise now"):
        trainer_of(tiny_run(*SETTINGS, override), tmp_path, resume=True)


def test_settings_of_the_optimiser_are_those_of_now_and_its_state_goes_by_name(tmp_path: Path) -> None:
    """Also where two groupings have groups of equal sizes: nothing may be taken for another's state."""
    before = half_way(tmp_path, tiny_run(*SETTINGS, "--train.decay_of.audio=0.5"))
    now = tiny_run(*SETTINGS, "--train.decay_of.temporal=0.5", "--train.lr_scale.visual=0", "--train.weight_decay=0.3")
    after = trainer_of(now, tmp_path, resume=True)
    decays = {group["scale"]: set() for group in after.stepper.optimizer.param_groups}
    for group in after.stepper.optimizer.param_groups:
        decays[group["scale"]].add(group["weight_decay"])
    assert decays == {1.0: {0.0, 0.3, 0.5}, 0.0: {0.0, 0.3}}
    old, new = before.stepper.optimizer.state, after.stepper.optimizer.state
    names = dict(before.model.named_parameters())
    moved = 0
    for name, parameter in after.model.named_parameters():
        if names[name] in old:
            assert torch.equal(new[parameter]["exp_avg"], old[names[name]]["exp_avg"]), name
            moved += 1
    assert moved > 20
    after.fit()


def test_refused_settings_leave_no_trace(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert run_train("--train.epochs=1", f"--run.dir={run}").returncode == 0
    kept = (run / "config.yaml").read_bytes()
    found = run_script("train.py", "--resume", str(run), "--model.embed_dim=32", "--train.epochs=2")
    assert found.returncode == 1
    assert "weights do not fit the model" in found.stderr
    assert (run / "config.yaml").read_bytes() == kept
    assert run_script("train.py", "--resume", str(run), "--train.epochs=2").returncode == 0


def test_rows_of_a_run_without_a_checkpoint_are_not_kept(tmp_path: Path) -> None:
    config = tiny_run(*SETTINGS, "--train.checkpoint_steps=0", "--train.log_steps=1")
    broken = trainer_of(config, tmp_path)
    log = broken._log

    def log_then_stop(numbers: dict[str, float]) -> None:
        log(numbers)
        raise StopError

    broken._log = log_then_stop  # type: ignore[method-assign, assignment]
    with pytest.raises(StopError):
        broken.fit()
    go_on(config, tmp_path)
    steps = [row["step"] for row in rows_of(tmp_path) if "train_step/loss" in row]
    assert steps == list(range(1, len(steps) + 1))


def test_a_lost_best_checkpoint_is_told_and_the_next_best_takes_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_run("--train.contrastive_epochs=1")
    trainer_of(config, tmp_path).fit()
    best, log = tmp_path / "checkpoints" / "best.pt", tmp_path / "log.jsonl"
    best.write_bytes(best.read_bytes()[:1000])
    before = log.read_bytes()
    with pytest.raises(AvfusionError, match=r"best\.pt: cannot be read.*--checkpoint=last.*--train\.epochs=3"):
        trainer_of(config, tmp_path, resume=True)
    assert log.read_bytes() == before
    trainer_of(tiny_run("--train.contrastive_epochs=1", epochs=3), tmp_path, resume=True).fit()
    assert "the best epoch from here on takes its place" in capsys.readouterr().err
    assert read_checkpoint(best)["progress"]["epoch"] == 4


def test_a_best_checkpoint_is_nothing_to_go_on_from(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    shutil.copy(whole / "checkpoints" / "best.pt", tmp_path / "checkpoints" / "last.pt")
    with pytest.raises(AvfusionError, match=r"not a whole checkpoint of train\.py: it lacks optimizer, plan, random"):
        trainer_of(tiny_run(*SETTINGS), tmp_path, resume=True)


def test_all_the_differences_are_seen(whole: Path, tmp_path: Path) -> None:
    """The comparison itself can fail: another seed differs in weights, states and rows."""
    trainer_of(tiny_run(*SETTINGS, "--run.seed=1"), tmp_path).fit()
    found = same_run(whole, tmp_path)
    assert {"last.pt: model", "last.pt: optimizer", "last.pt: random", "last.pt: ema", "log.jsonl"} <= set(found)
