"""A tiny trained run through ``python -m avfusion.alignment`` and through the report, from end to end."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from avfusion.alignment import __main__ as command
from avfusion.alignment import inspect, inspection
from avfusion.alignment.inspect import choose_tracks
from avfusion.alignment.pictures import write_clips
from avfusion.checkpoint import save_checkpoint
from avfusion.config import Config, load_config
from avfusion.data.examples import Examples
from avfusion.data.open import open_dataset
from avfusion.errors import run_command
from avfusion.models import build_model
from avfusion.tracks import FaceTrack
from avfusion.training import head_report, report
from tests.training.tiny import tiny_run, trainer_of

LAYERS, HEADS = 2, 2
MODELS = ["trained", "untrained", "other_sound", "silence", "reversed_sound", "frozen_picture"]
SIZE = [
    f"--model.fusion.layers={LAYERS}", f"--model.fusion.heads={HEADS}", "--data.synthetic.scene_s=3.0",
    "--data.synthetic.val_scenes=8", "--data.synthetic.train_scenes=6", "--model.fusion.window_s=0.2",
]  # fmt: skip

DRAWN = ["--report.figures_per_role=1"]


def a_run(folder: Path, *overrides: str) -> Config:
    """A run folder with a model that was trained for one epoch."""
    config = tiny_run(*SIZE, *overrides, epochs=1)
    trainer = trainer_of(config, folder)
    trainer.fit()
    assert trainer.logger is not None
    trainer.logger.close()
    from avfusion.training.run_folder import keep_config

    keep_config(config, folder)
    return config


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect") / "run"
    a_run(folder)
    return folder


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["python -m avfusion.alignment", *map(str, arguments)])
    return run_command(command.main)


def test_files_rows_and_words(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (inspect, inspection):  # few scenes make a fast test
        monkeypatch.setattr(module, "MIN_GROUPS", 2)
    assert call(monkeypatch, run_dir, "--shifts", "-80,0,80", "--vector", "--clip=val_00000:0") == 0
    shown = capsys.readouterr()
    folder = run_dir / "alignment"
    pictures = ["summary", "slopes", "ablation", "history"]
    names = ["heads.csv", "heads.json", "heads.md", "viewer.html"]
    names += [f"{name}.{suffix}" for name in pictures for suffix in ("png", "svg", "pdf")]
    for name in names:
        assert (folder / name).stat().st_size > 300, name
        assert str(folder / name) in shown.out
    assert len(list(folder.glob("*val_00000_0*.png"))) == 1  # the clip that was asked for, and no other
    assert "14/14 control: frozen picture" in shown.err

    rows = list(csv.DictReader((folder / "heads.csv").open(encoding="utf-8")))
    assert [(r["model"], int(r["layer"]), int(r["head"])) for r in rows] == [
        (model, layer, head) for model in MODELS for layer in (1, 2) for head in (1, 2)
    ]
    for row in rows:
        if row["model"] != "trained":
            assert row["words"].startswith("untrained: " if row["model"] == "untrained" else "control: ")
            assert "follows" not in row["words"]
    for row in rows[: 2 * LAYERS * HEADS]:
        for name in ("slope", "slope_r2", "delta_ap_zero", "lag_ms", "width_ms", "null_speaking", "event_mae_ms"):
            assert np.isfinite(float(row[name])), (row["model"], name)
            assert float(row[f"{name}_low"]) <= float(row[f"{name}_high"])
    whole = json.loads((folder / "heads.json").read_text())
    assert len(whole["rows"]) == len(rows)
    assert whole["models"]["trained"]["shifts"]["shifts_ms"] == [-80.0, 0.0, 80.0]
    assert whole["models"]["trained"]["roles"].keys() >= {"solo"}
    assert [note for note in whole["notes"] if not note.startswith("overlapping voices: fewer than 3")] == []


def test_fewer_tracks_another_folder_and_no_viewer(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["--tracks=3", f"--out={out}", "--no-viewer", "--shifts=-80,80", "--report.bootstrap=0"]
    assert call(monkeypatch, run_dir, *arguments) == 0
    assert not (out / "viewer.html").exists()
    assert re.search(r"\n3 of \d+ labelled tracks, \d groups\n", capsys.readouterr().out)
    rows = list(csv.DictReader((out / "heads.csv").open(encoding="utf-8")))
    assert {row["slope_low"] for row in rows} == {""}  # no intervals were asked for
    assert not any("follows" in row["words"] or "positional" in row["words"] for row in rows)


def test_a_page_that_does_not_fit_loses_nothing_and_old_files_do_not_stay(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("viewer.html", "summary.svg", "ablation.pdf", "overview-7.png", "mine.svg"):
        (tmp_path / name).write_text("old")
    drawn: list[int] = []
    real = write_clips.capture_clip

    def draw(model: Any, examples: Any, track: int, *rest: Any) -> Any:
        drawn.append(track)
        return real(model, examples, track, *rest)

    monkeypatch.setattr(write_clips, "capture_clip", draw)
    arguments = ["--tracks=2", f"--out={tmp_path}", "--shifts=-80,80", "--report.bootstrap=0", "--viewer-mb=0.06"]
    assert call(monkeypatch, run_dir, *arguments, *DRAWN) == 0
    shown = capsys.readouterr()
    assert "no page of scenes: " in shown.err.splitlines()[-1]
    assert "at most 0.06 MB are allowed" in shown.err
    assert "trained" in shown.out
    assert str(tmp_path / "heads.csv") in shown.out
    assert "viewer.html" not in shown.out
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == ["mine.svg"]
    assert not {"viewer.html", "ablation.pdf", "overview-7.png"} & {path.name for path in tmp_path.iterdir()}
    assert str(tmp_path / "overview-1.png") in shown.out
    config = load_config(run_dir / "config.yaml")
    measured = choose_tracks(open_dataset(config.data, "val").tracks, 2)
    assert measured is not None
    assert drawn
    assert set(drawn) <= set(measured)


def no_room(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def out_of_memory(*_: Any, **__: Any) -> None:
    raise MemoryError


def ctrl_c(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("module", "step", "fault", "said"),
    [
        (head_report, "inspect_run", ctrl_c, "the heads are not in the report: stopped by Ctrl-C"),
        (
            head_report,
            "write_inspection",
            no_room,
            "the heads are not in the report: OSError: [Errno 28] No space left",
        ),
        (head_report, "build_scenes", out_of_memory, "no page of scenes (report.viewer_mb): MemoryError"),
        (report, "draw_clips", out_of_memory, "the clips are not drawn: MemoryError"),
    ],
)
def test_no_fault_of_the_inspection_costs_the_report(
    run_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    module: ModuleType,
    step: str,
    fault: Callable[..., None],
    said: str,
) -> None:
    written: list[bool] = []

    def fail(*_: Any, **__: Any) -> None:
        written.append("all" in json.loads((tmp_path / "report.json").read_text()))
        fault()

    monkeypatch.setattr(module, step, fail)
    more = ["--report.inspect=true", "--report.inspect_tracks=2", "--report.offset_accuracy=false"]
    config = load_config(run_dir / "config.yaml", [*more, "--report.bootstrap=0", "--report.viewer_mb=1"])
    examples = Examples(open_dataset(config.data, "val"), config.data)
    report.report_run(run_dir / "checkpoints" / "best.pt", config, examples, "val", tmp_path, None, ["test"])
    assert written == [True]  # before anything was asked of a head
    assert said in capsys.readouterr().err
    found, text = json.loads((tmp_path / "report.json").read_text()), (tmp_path / "report.md").read_text()
    heads_fail = step in ("inspect_run", "write_inspection")
    assert ("heads" in found) != heads_fail
    assert ("(<alignment/heads.csv>)" in text) != heads_fail
    assert ("viewer.html" in text) == (step == "draw_clips")


def test_the_report_holds_the_table(run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--report.inspect=true", "--report.inspect_tracks=4"]
    config = load_config(run_dir / "config.yaml", more)
    examples = Examples(open_dataset(config.data, "val"), config.data)
    report.report_run(run_dir / "checkpoints" / "best.pt", config, examples, "val", tmp_path, None, ["test"])
    found = json.loads((tmp_path / "report.json").read_text())
    assert len(found["heads"]["rows"]) == len(MODELS) * LAYERS * HEADS
    assert found["heads"]["tracks"] == 4
    text = (tmp_path / "report.md").read_text()
    assert "## Attention heads" in text
    assert "## The same heads under controls" in text
    assert "(alignment/summary.png)" in text
    assert "| trained | 1.1 |" in text
    shown = capsys.readouterr().out
    for name in ("viewer.html", "heads.csv"):
        assert f"[{name}](<alignment/{name}>)" in text
        assert str(tmp_path / "alignment" / name) in shown


@pytest.mark.parametrize(
    ("override", "said"),
    [("--model.fusion.kind=concat", "no cross-attention"), ("--model.modality=video", "no cross-attention")],
)
def test_a_model_without_heads_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], override: str, said: str
) -> None:
    from avfusion.training.run_folder import keep_config

    config = tiny_run(override)
    keep_config(config, tmp_path)
    model = build_model(config.model, config.data.num_mels)
    save_checkpoint(tmp_path / "checkpoints" / "best.pt", model, config, {"progress": {}})
    assert call(monkeypatch, tmp_path) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--clip=val_00000:9"], "did you mean 'val_00000:0'?"),
        (["--shifts=0,late"], "expected two or more different numbers of ms"),
        (["--shifts", "80"], "expected two or more"),
        (["--shifts=nan,0,100"], "expected two or more different numbers of ms"),
        (["--shifts=0,100,nan"], "expected two or more different numbers of ms"),
        (["--shifts=-inf,0"], "expected two or more different numbers of ms"),
        (["--tracks=0"], "expected 1 or more"),
        (["--viewer-mb=-1"], "--viewer-mb=-1: expected a size in MB above 0, or 0 for no page"),
        (["--viewer-mb=nan"], "expected a size in MB above 0"),
        (["--viewer-mb=inf"], "expected a size in MB above 0"),
        (["--split=vall"], "no split 'vall'"),
        (["--model.embed_dim=32"], "model: fixed by the checkpoint"),
        (["--nonsense"], "see --help"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    run_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    assert call(monkeypatch, run_dir, *arguments) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


def test_no_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, tmp_path / "none") == 2
    assert "no config.yaml there" in capsys.readouterr().err


def test_tracks_are_chosen_evenly_from_every_role() -> None:
    def track(number: int, role: str, labelled: bool = True) -> FaceTrack:
        frames = np.zeros(10, bool)
        return FaceTrack(f"v{number}", f"{number}", 0.0, frames, np.zeros((10, 4)), "a", role, labelled=labelled)

    tracks = [*(track(n, "solo") for n in range(10)), *(track(n, "off") for n in range(10, 12)), track(12, "x", False)]
    assert choose_tracks(tracks, None) is None
    assert choose_tracks(tracks, 12) is None
    assert choose_tracks(tracks, 6) == [0, 2, 5, 7, 10, 11]  # both of the rare role, four of ten spread evenly
    assert choose_tracks(tracks, 1) == [0]


def test_few_tracks_are_of_roles_that_speak() -> None:
    def track(number: int, role: str, speaks: bool) -> FaceTrack:
        return FaceTrack(f"v{number}", f"{number}", 0.0, np.full(10, speaks), np.zeros((10, 4)), "a", role)

    roles = [
        ("chewing", False),
        ("change", True),
        ("overlap", False),
        ("overlap", True),
        ("solo", True),
        ("solo", True),
    ]
    tracks = [track(number, role, speaks) for number, (role, speaks) in enumerate(roles)]
    assert choose_tracks(tracks, 1) == [4]
    assert choose_tracks(tracks, 2) == [3, 4]  # of the two overlaps the one that speaks
    assert choose_tracks(tracks, 3) == [1, 3, 4]
    assert choose_tracks(tracks, 4) == [0, 1, 3, 4]
