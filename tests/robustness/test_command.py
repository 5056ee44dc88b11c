"""``eval.py RUN --suite=robustness`` from end to end on a tiny run, and its one line where it cannot be."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from avfusion.checkpoint import load_model, save_checkpoint
from avfusion.config import Config
from avfusion.data.clips import Skipped
from avfusion.data.left_out import keep_skipped
from avfusion.data.open import open_dataset
from avfusion.errors import AvfusionError, run_command
from avfusion.models import build_model
from avfusion.released.export import write
from avfusion.robustness import command, suite
from avfusion.robustness.command import usable_clips
from avfusion.robustness.conditions import FAMILIES
from avfusion.training.run_folder import keep_config
from tests.training.tiny import ROOT, tiny_run

Call = Callable[..., int]
FILES = ("robustness.md", "robustness.json", "robustness.png", "desync.png")


def a_run(folder: Path, *overrides: str) -> Path:
    """A run folder whose model has learned nothing."""
    config = tiny_run("--data.synthetic.val_scenes=13", "--data.synthetic.scene_s=2.0", *overrides)
    folder.mkdir()
    keep_config(config, folder)
    model = build_model(config.model, config.data.num_mels)
    save_checkpoint(folder / "checkpoints" / "best.pt", model, config, {"progress": {"epoch": 2, "step": 9}})
    return folder


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_run(tmp_path_factory.mktemp("robustness") / "run")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    """eval.py with a command line; gives its exit code."""
    spec = importlib.util.spec_from_file_location("eval_command", ROOT / "eval.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def called(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["eval.py", *map(str, arguments)])
        return run_command(module.main)

    return called


def test_one_command_measures_writes_and_tells(run_dir: Path, call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(run_dir, "--suite=robustness") == 0
    out = capsys.readouterr().out
    folder = run_dir / "robustness"
    assert {path.name for path in folder.iterdir()} == {*FILES, ".lock"}
    for name in FILES:
        assert (folder / name).stat().st_size > 2000
        assert str(folder / name) in out
    report = json.loads((folder / "robustness.json").read_text())
    assert report["data"]["root"] is None
    assert report["data"]["synthetic"]["val_scenes"] == 13
    assert report["encoders"] is None
    assert [row["condition"] for row in report["rows"] if row["severity"] is None] == [
        "missing sound",
        "missing picture",
    ]
    assert {row["family"] for row in report["rows"]} == {family.name for family in FAMILIES}
    clean = report["clean"]["average_precision"]
    tracks = open_dataset(tiny_run("--data.synthetic.val_scenes=13", "--data.synthetic.scene_s=2.0").data, "val").tracks
    assert report["counts"]["tracks"] == len(tracks)
    assert report["counts"]["frames"] == 50 * len(tracks)
    for row in report["rows"]:
        assert row["clean_average_precision"] == clean
        assert 0 < row["average_precision"] <= 1
        low, high = row["change_interval"]
        assert low <= high
    assert len(report["desync"]["rows"]) == 14
    assert report["offset_accuracy"][-1]["source"] == "all"
    text = (folder / "robustness.md").read_text()
    said = [
        "sha256 `" + report["checkpoint"]["sha256"],
        "eval.py",
        f"{clean:.4f}",
        "bootstrap 0",
        "torch ",
        "synthetic / val: cross_attention, 4 heads, keys at 100 Hz, ",
        "val_scenes 13",
        "`python eval.py ",
    ]
    said += [row["condition"] for row in [*report["rows"], *report["desync"]["rows"]]]
    for words in said:
        assert words in text, words


def test_weights_alone_give_what_their_run_gives(run_dir: Path, call: Call, tmp_path: Path) -> None:
    weights = tmp_path / "tiny.safetensors"
    write(weights, *load_model(run_dir / "checkpoints" / "best.pt"), {"name": "tiny"})
    assert call(weights, "--suite=robustness", f"--out={tmp_path}") == 0
    assert call(run_dir, "--suite=robustness", f"--out={tmp_path / 'run'}") == 0
    alone, whole = (
        json.loads((folder / "robustness" / "robustness.json").read_text()) for folder in (tmp_path, tmp_path / "run")
    )
    for key in ("clean", "rows", "desync", "counts"):
        assert alone[key] == whole[key]


def test_a_model_that_does_not_listen_has_rows_and_no_offset_accuracy(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path / "run", "--model.modality=video", "--data.synthetic.val_scenes=10")
    some = ("clean", "white noise", "shifted sound", "missing sound")
    whole = command.all_conditions
    monkeypatch.setattr(command, "all_conditions", lambda *a: [one for one in whole(*a) if one.family in some])
    assert call(run, "--suite=robustness", f"--out={tmp_path / 'out'}", "--split=test",
                "--data.synthetic.test_scenes=6") == 0  # fmt: skip
    report = json.loads((tmp_path / "out" / "robustness-test" / "robustness.json").read_text())
    assert report["offset_accuracy"] == []
    assert all(row["change"] == 0 for row in report["rows"])
    assert all(row["false_accept_rate"] == row["own_sound_rate"] for row in report["desync"]["rows"])


def test_a_prepared_dataset_gives_the_same_with_workers_and_without_room(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, small_dataset: Callable[..., Path]
) -> None:
    data = small_dataset(tmp_path / "data", {"train": 2, "val": 5}, frames=31)
    run = a_run(tmp_path / "run", "--data.format=prepared", f"--data.root={data}")
    some = ("clean", "another clip's sound", "blur, 8 % of the side (sigma)", "shifted sound, -1600 ms")
    whole = command.all_conditions
    monkeypatch.setattr(command, "all_conditions", lambda *a: [one for one in whole(*a) if one.name in some])
    reports = []
    for name, options in (("a", []), ("b", ["--data.workers=1", "--data.cache_gb=0"])):
        assert call(run, "--suite=robustness", f"--out={tmp_path / name}", *options) == 0
        report = json.loads((tmp_path / name / "robustness" / "robustness.json").read_text())
        reports.append({key: report[key] for key in ("clean", "rows", "desync", "offset_accuracy", "counts")})
    assert reports[0] == reports[1]
    assert reports[0]["counts"]["in_sync_tracks"] == 5  # no roles: they speak in 16 of 31 frames
    longest, other = reports[0]["desync"]["rows"]
    assert (longest["false_accept_rate"], longest["num_frames"], other["num_frames"]) == (None, 0, 5 * 16)
    assert report["data"]["name"] == "small"


def test_a_moved_dataset_is_the_same_and_another_one_is_not(
    tmp_path: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    small_dataset: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = small_dataset(tmp_path / "data", {"train": 2, "val": 5}, frames=31)
    other = small_dataset(tmp_path / "other", {"train": 2, "val": 6}, frames=31)
    run = a_run(tmp_path / "run", "--data.format=prepared", f"--data.root={data}", "--wandb.mode=disabled")
    whole = command.all_conditions
    monkeypatch.setattr(command, "all_conditions", lambda *a: whole(*a)[:2])
    for asked in (["--suite=robustness"], []):
        for out in ([], [f"--out={run}"]):
            assert call(run, *asked, *out, f"--data.root={other}") == 2
            assert "(other data.root): give --out=FOLDER" in capsys.readouterr().err
    data.rename(tmp_path / "moved")
    assert call(run, "--suite=robustness", f"--data.root={tmp_path / 'moved'}") == 0
    assert json.loads((run / "robustness" / "robustness.json").read_text())["data"]["root"] == str(tmp_path / "moved")


def test_tracks_that_the_run_left_out_stay_out(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, small_dataset: Callable[..., Path]
) -> None:
    data = small_dataset(tmp_path / "data", {"train": 2, "val": 5}, frames=31)
    config = ["--data.format=prepared", f"--data.root={data}", "--data.allow_missing=true"]
    run = a_run(tmp_path / "run", *config)
    left_out = Skipped(frozenset({("val2", "val2:1")}), 5, {"frozen": 1})  # its files are fine: only the run knows
    keep_skipped(run, tiny_run(*config).data, {"val": left_out})
    whole = command.all_conditions
    monkeypatch.setattr(command, "all_conditions", lambda *a: whole(*a)[:2])
    assert call(run, "--suite=robustness") == 0
    report = json.loads((run / "robustness" / "robustness.json").read_text())
    assert report["counts"]["tracks"] == 4
    assert report["notes"][0] == "1 of 5 tracks could not be used"


def test_ctrl_c_says_what_is_kept_and_a_moved_run_goes_on(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path / "run")
    chosen = command.all_conditions
    monkeypatch.setattr(command, "all_conditions", lambda *a: chosen(*a)[:5])
    score, scored = suite.score_tracks, []

    def three(*arguments: Any, label: str, **more: Any) -> Any:
        if len(scored) == 3:
            raise KeyboardInterrupt
        scored.append(label)
        return score(*arguments, label=label, **more)

    monkeypatch.setattr(suite, "score_tracks", three)
    assert call(run, "--suite=robustness") == 130
    err = capsys.readouterr().err
    line = f"3 of 5 conditions are kept; the same command goes on: python eval.py {run} --suite=robustness"
    assert line in err.splitlines()
    moved = run.rename(tmp_path / "elsewhere")
    scored.clear()
    monkeypatch.setattr(
        suite, "score_tracks", lambda *a, label, **k: scored.append(label) or score(*a, label=label, **k)
    )
    assert call(moved, "--suite=robustness") == 0
    assert scored[0] == "clean"
    assert len(scored) == 1 + 2
    assert "finished conditions" not in capsys.readouterr().err


def test_other_settings_begin_anew_and_say_why(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path / "run")
    chosen = command.all_conditions
    monkeypatch.setattr(command, "all_conditions", lambda *a: chosen(*a)[:3])
    write = command.write
    monkeypatch.setattr(command, "write", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
    assert call(run, "--suite=robustness") == 130
    monkeypatch.setattr(command, "write", write)
    capsys.readouterr()
    assert call(run, "--suite=robustness", "--report.bootstrap=7") == 0
    err = capsys.readouterr().err
    partial = run / "robustness" / "partial.json"
    assert f"note: {partial}: 3 finished conditions are of another report.bootstrap: all is measured anew\n" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.synthetic.val_scenes=5"], "not be the run's own figures (other data.synthetic): give --out=FOLDER"),
        (["--checkpoint=last"], "not be the run's own figures (other checkpoint): give --out=FOLDER"),
        (["--model.embed_dim=32"], "model: fixed by the checkpoint"),
        (["--split=valley"], "synthetic talkers have no split 'valley'"),
        (["--data.augment.music_folder=/nowhere/at/all"], "data.augment.music_folder: /nowhere/at/all does not exist"),
    ],
)
def test_wrong_wishes_are_one_line(
    run_dir: Path, call: Call, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    best = run_dir / "checkpoints" / "best.pt"
    (run_dir / "checkpoints" / "last.pt").write_bytes(best.read_bytes())
    assert call(run_dir, "--suite=robustness", *arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_no_run_and_no_single_process(
    tmp_path: Path, run_dir: Path, call: Call, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(tmp_path, "--suite=robustness") == 2
    assert "no config.yaml there; expected a folder that train.py made" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert call(run_dir, "--suite=robustness") == 2
    assert "start it with python, not torchrun" in capsys.readouterr().err


def test_two_at_once_do_not_write_one_folder(tmp_path: Path) -> None:
    with (
        command.held(tmp_path / "robustness"),
        pytest.raises(AvfusionError, match="another process is at work there"),
        command.held(tmp_path / "robustness"),
    ):
        pass


def test_splits_without_labels_or_without_sync_are_refused() -> None:
    config = tiny_run()
    dataset = open_dataset(config.data, "val")
    tracks = list(dataset.tracks)
    dataset.tracks = [replace(track, labelled=False) for track in tracks]
    with pytest.raises(AvfusionError, match=f"synthetic / val: none of {len(tracks)} tracks has labels"):
        usable_clips(dataset, "val", config)
    dataset.tracks = [replace(track, role="shifted") for track in tracks]
    with pytest.raises(AvfusionError, match=f"none of {len(tracks)} labelled tracks is in sync and speaks"):
        usable_clips(dataset, "val", config)
    dataset.tracks = [replace(track, labelled=i % 2 == 0) for i, track in enumerate(tracks)]
    kept = usable_clips(dataset, "val", Config())
    assert [track.entity_id for track in kept.tracks] == [track.entity_id for track in tracks[::2]]
