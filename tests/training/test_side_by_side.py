"""Runs side by side: the numbers against their own derivation, what is refused, and the whole through eval.py."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from avfusion.checkpoint import save_checkpoint
from avfusion.config import Config
from avfusion.data.clips import Skipped
from avfusion.data.examples import Examples
from avfusion.data.identity import data_record
from avfusion.data.open import open_dataset
from avfusion.errors import AvfusionError, UsageError, run_command
from avfusion.evaluation.average_precision import average_precision
from avfusion.evaluation.join import join
from avfusion.evaluation.paired import paired_rows
from avfusion.evaluation.roles import track_groups
from avfusion.models import build_model
from avfusion.tracks import FaceTrack, LabelTable, ScoreTable, write_scores
from avfusion.training.report import _figures, report_run
from avfusion.training.run_folder import keep_config
from avfusion.training.side_by_side import compare_runs, same_rows
from avfusion.training.side_by_side.measures import telling_subsets
from avfusion.training.side_by_side.picture import DrawnRun, draw_runs
from tests.training.tiny import ROOT, tiny_run

TRACKS: list[FaceTrack] = list(open_dataset(tiny_run().data, "val").tracks)


def scores_of(skill: float, noise: int, tracks: list[FaceTrack] = TRACKS) -> list[np.ndarray]:
    """Higher where the face speaks, the more so the more skill; the noise is the same for the same number."""
    generator = np.random.default_rng(noise)
    return [
        (0.5 * generator.random(track.num_frames) + 0.5 * skill * track.speaking).astype(np.float32) for track in tracks
    ]


def make_run(
    folder: Path, scores: list[np.ndarray], *overrides: str, tracks: list[FaceTrack] = TRACKS, **more: Any
) -> Path:
    """A run folder of the validation split with these scores, without a checkpoint."""
    config = tiny_run(f"--run.dir={folder}", "--report.bootstrap=0", *overrides)
    folder.mkdir(parents=True)
    keep_config(config, folder)
    (folder / "scores").mkdir()
    write_scores(folder / "scores" / "val.csv", ScoreTable.from_tracks(tracks, scores))
    if "data" not in more:
        more["data"] = data_record(config.data)
    report = {
        "dataset": "synthetic",
        "root": None,
        "encoders": None,
        "split": "val",
        "device": "cpu",
        "checkpoint": {"path": f"{folder}/checkpoints/best.pt", "sha256": "ab" * 32, "epoch": 2},
        "command": "train.py",
        "seed": config.run.seed,
        "versions": {"avfusion": "1", "torch": "2"},
        "model": {"parameters": 1234567, "modality": "audio_visual", "fusion": config.model.fusion.kind, "heads": 4},
        "left_out": {},
        "left_out_by_preparation": {},
        **_figures(tracks, scores, config),
        **more,
    }
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def compared(out: Path, *folders: Path, resamples: int = 60) -> dict[str, Any]:
    compare_runs(list(folders), None, out, [f"--report.bootstrap={resamples}"])
    content: dict[str, Any] = json.loads((out / "comparison.json").read_text())
    return content


def change_report(folder: Path, **changes: Any) -> None:
    path = folder / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of little skill, and one of much, of other settings."""
    folder = tmp_path_factory.mktemp("runs")
    weak = make_run(folder / "weak", scores_of(0.2, 1), "--report.bootstrap=20")
    other = ["--report.bootstrap=20", "--model.fusion.kind=concat", "--train.lr=0.004"]
    return weak, make_run(folder / "strong", scores_of(0.9, 2), *other)


@pytest.fixture(scope="module")
def made(pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, str]:
    """What comes of them: content of ``comparison.json``, its folder, and what is printed."""
    out, printed = tmp_path_factory.mktemp("out"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(sys, "argv", ["eval.py", "weak", "strong"])
        content = compared(out, *pair)
    return content, out, printed.getvalue()


@pytest.fixture
def copies(pair: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The same, to be damaged."""
    weak, strong = (Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in pair)
    return weak, strong


def test_figures_are_those_of_the_reports_and_differences_those_of_the_scores(
    pair: tuple[Path, Path], made: tuple[dict[str, Any], Path, str]
) -> None:
    content, *_ = made
    labels = np.concatenate([track.speaking for track in TRACKS])
    aps = [average_precision(labels, np.concatenate(scores)) for scores in (scores_of(0.2, 1), scores_of(0.9, 2))]
    assert [run["figures"]["average_precision"] for run in content["runs"]] == pytest.approx(aps, abs=1e-12)
    reports = [json.loads((folder / "report.json").read_text())["all"] for folder in pair]
    assert [run["interval"] for run in content["runs"]] == [report["average_precision_interval"] for report in reports]
    assert [run["figures"]["auroc"] for run in content["runs"]] == [report["auroc"] for report in reports]
    assert (content["first"], list(content["differences"])) == ("weak", ["strong"])
    whole = content["differences"]["strong"][0]
    groups = np.concatenate([[track.group or track.video_id] * track.num_frames for track in TRACKS]).astype(object)
    ours, theirs = np.concatenate(scores_of(0.9, 2)), np.concatenate(scores_of(0.2, 1))
    (expected,) = paired_rows(labels, ours.astype(float), theirs.astype(float), groups, resamples=60)
    assert whole == json.loads(json.dumps(expected.to_dict()))
    assert whole["average_precision"]["difference"] == pytest.approx(aps[1] - aps[0], abs=1e-12)
    assert whole["average_precision"]["interval"][0] > 0
    assert whole["average_precision"]["share_ahead"] == 1
    assert content["counts"]["prevalence"] == pytest.approx(labels.mean())
    assert content["intervals"]["num_drawn"] == len(set(track_groups(TRACKS).values()))


def test_the_other_order_turns_the_sign(
    pair: tuple[Path, Path], made: tuple[dict[str, Any], Path, str], tmp_path: Path
) -> None:
    there = made[0]["differences"]["strong"]
    back = compared(tmp_path, *reversed(pair))["differences"]["weak"]
    for one, other in zip(there, back, strict=True):
        if one["average_precision"] is not None:
            assert one["average_precision"]["difference"] == -other["average_precision"]["difference"]
            ends = one["average_precision"]["interval"]
            turned = None if ends is None else [-ends[1], -ends[0]]
            assert other["average_precision"]["interval"] == (turned if turned is None else pytest.approx(turned))


def test_only_settings_that_differ_are_told(made: tuple[dict[str, Any], Path, str]) -> None:
    content, *_ = made  # run.dir differs too
    assert content["settings"] == {"model.fusion.kind": ["cross_attention", "concat"], "train.lr": [0.002, 0.004]}
    assert content["seeds"] == []


def test_roles_are_measured_as_their_reports_measure_them(
    pair: tuple[Path, Path], made: tuple[dict[str, Any], Path, str]
) -> None:
    content, *_ = made
    reports = [json.loads((folder / "report.json").read_text()) for folder in pair]
    expected = {row["role"]: row for row in reports[1]["roles"]}
    of_first = {row["role"]: row for row in reports[0]["roles"]}
    found = {
        subset["name"]: (subset, row["average_precision"])
        for subset, row in zip(content["subsets"], content["differences"]["strong"][1:], strict=True)
        if subset["kind"] == "role"
    }
    assert found.keys() == expected.keys()
    assert len(found) > 4
    for role, (subset, difference) in found.items():
        assert difference["first"] == pytest.approx(expected[role]["average_precision"], abs=1e-12)
        assert difference["second"] == pytest.approx(of_first[role]["average_precision"], abs=1e-12)
        assert subset["prevalence"] == pytest.approx(expected[role]["chance"])
        assert (subset["num_positive"], subset["positives"]) == (
            expected[role]["num_positive_frames"],
            expected[role]["positives"],
        )
    page = (made[1] / "comparison.md").read_text()
    silent = next(subset for subset, _ in found.values() if subset["positives"] != "own")  # its tracks never speak
    assert f"| {silent['num_positive']} ({silent['positives']}) |" in page
    assert "by its own rows" not in page
    kinds = {subset["kind"] for subset in content["subsets"]}
    assert "corpus" not in kinds  # one corpus: the same rows as the whole
    assert "track length" not in kinds
    held = [row for row in reports[0]["subsets"] if row["kind"] == "faces in frame" and row["num_rows"]]
    shown = [subset for subset in content["subsets"] if subset["kind"] == "faces in frame"]
    assert [(row["name"], row["num_rows"], row["prevalence"]) for row in held] == [
        (row["name"], row["num_rows"], row["prevalence"]) for row in shown
    ]


def test_corpora_are_told_apart_where_there_are_several() -> None:
    tracks = [replace(track, source="ab"[index % 2]) for index, track in enumerate(TRACKS)]
    joined = join(LabelTable.from_tracks(tracks), ScoreTable.from_tracks(tracks, scores_of(0.5, 0)))
    found = {subset.name: subset.kept for subset in telling_subsets(joined, tracks) if subset.kind == "corpus"}
    assert sorted(found) == ["a", "b"]
    assert found["a"].sum() == sum(track.num_frames for track in tracks[::2])
    assert not (found["a"] & found["b"]).any()


def test_seeds_of_one_setting_are_taken_together(tmp_path: Path) -> None:
    ours = [make_run(tmp_path / f"ours{seed}", scores_of(0.3, seed), f"--run.seed={seed}") for seed in range(3)]
    theirs = [
        make_run(tmp_path / f"theirs{seed}", scores_of(0.4, 9 + seed), f"--run.seed={seed}", "--train.lr=0.1")
        for seed in (1, 2)
    ]
    twin = make_run(tmp_path / "twin", scores_of(0.9, 5), "--run.seed=0")
    alone = make_run(tmp_path / "alone", scores_of(0.1, 7), "--train.lr=0.2")
    content = compared(tmp_path / "out", *ours, *theirs, twin, alone, resamples=0)
    assert [row["runs"] for row in content["seeds"]] == [["ours0", "ours1", "ours2"], ["theirs1", "theirs2"]]
    ap = {run["name"]: run["figures"]["average_precision"] for run in content["runs"]}
    of_ours = np.array([ap[f"ours{seed}"] for seed in range(3)])
    mean = content["seeds"][0]["average_precision"]
    assert mean["mean"] == pytest.approx(of_ours.mean())
    assert mean["half_width"] == pytest.approx(4.302653 * of_ours.std(ddof=1) / np.sqrt(3), rel=1e-5)
    ahead = content["seeds"][1]["ahead"]
    pairs = np.array([ap["theirs1"] - ap["ours1"], ap["theirs2"] - ap["ours2"]])
    assert (ahead["mean"], ahead["num_seeds"]) == (pytest.approx(pairs.mean()), 2)
    assert ahead["half_width"] == pytest.approx(12.706205 * abs(pairs[0] - pairs[1]) / 2, rel=1e-5)
    assert any("twin has the settings and the seed of ours0" in note for note in content["notes"])
    assert "| ours0, ours1, ours2 | 3 |" in (tmp_path / "out" / "comparison.md").read_text()


def test_the_page_is_complete_alone(pair: tuple[Path, Path], made: tuple[dict[str, Any], Path, str]) -> None:
    content, out, shown = made
    page = (out / "comparison.md").read_text()
    counts = content["counts"]
    for part in (
        "`python eval.py weak strong`",
        "dataset: synthetic, val; synthetic talkers: ",
        "seed 0",
        f"{counts['num_rows']} face boxes of which {counts['num_positive']} speak",
        "60 resamples, seed 0",
        "20 resamples, seed 0",  # of the reports
        f"checkpoint `{pair[1]}/checkpoints/best.pt`, epoch 2, sha256 `{'ab' * 32}`; seed 0",
        "cross_attention, 4 heads, 1234567 parameters",
        "torch 2",
        "val also chose the best epoch of each run",
        "| train.lr | 0.002 | 0.004 |",
        "(comparison.png)",
    ):
        assert part in page, part
    assert "Settings that differ" in shown
    assert str(out / "comparison.png") in shown
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")
    solo = next(i for i, subset in enumerate(content["subsets"]) if subset["name"] == "solo")
    difference = content["differences"]["strong"][solo + 1]["average_precision"]
    mark = " *" if difference["interval"] and difference["interval"][0] > 0 else ""
    row = next(line for line in page.splitlines() if line.startswith("| role | solo |"))
    ours, theirs, ahead = (difference[name] for name in ("first", "second", "difference"))
    assert row.endswith(f"| {theirs:.4f} | {ours:.4f} ({ahead:+.4f}{mark}) |")
    marked = sum(line.count(" *)") for line in page.splitlines())
    assert any(note.startswith(f"{marked} of ") for note in content["notes"])


def test_folders_of_one_name_are_told_apart(pair: tuple[Path, Path], tmp_path: Path) -> None:
    other = Path(shutil.copytree(pair[0], tmp_path / "weak"))
    content = compared(tmp_path / "out", pair[0], other, resamples=0)
    assert content["differences"][str(other)][0]["average_precision"]["interval"] is None
    assert [run["name"] for run in content["runs"]] == [str(pair[0]), str(other)]
    assert any("settings of all runs are the same" in note for note in content["notes"])


def test_another_split_has_its_own_report(copies: tuple[Path, Path], tmp_path: Path) -> None:
    tracks = list(open_dataset(tiny_run("--data.synthetic.test_scenes=10").data, "test").tracks)
    for skill, folder in enumerate(copies):
        config = tiny_run("--data.synthetic.test_scenes=10")
        keep_config(config, folder)
        scores = scores_of(0.3 + skill / 2, 3, tracks)
        write_scores(folder / "scores" / "test.csv", ScoreTable.from_tracks(tracks, scores))
        change_report(folder, split="test", **_figures(tracks, scores, config))
        (folder / "report.json").rename(folder / "report-test.json")
    compare_runs(list(copies), "test", tmp_path / "out", ["--report.bootstrap=0"])
    content = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert content["counts"]["num_rows"] == sum(track.num_frames for track in tracks)
    assert not any("chose the best epoch" in note for note in content["notes"])
    with pytest.raises(UsageError, match=r"report\.json is not there.*`python eval\.py .*weak --split=val` makes it"):
        compare_runs(list(copies), None)


def test_runs_of_other_rows_are_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    seeded = make_run(tmp_path / "seeded", scores_of(0.5, 3), "--data.synthetic.seed=5")  # its ids are the same
    with pytest.raises(UsageError, match=r"data\.synthetic\.seed is 0 in the first and 5 in"):
        compare_runs([pair[0], seeded], None)
    named = make_run(tmp_path / "named", scores_of(0.5, 3), dataset="ava")
    with pytest.raises(UsageError, match="the dataset is 'synthetic' in the first and 'ava' in"):
        compare_runs([pair[0], named], None)
    fewer = make_run(tmp_path / "fewer", scores_of(0.5, 3)[:-1], tracks=TRACKS[:-1])
    with pytest.raises(
        UsageError, match=rf"num_rows of the report is {sum(t.num_frames for t in TRACKS)} in the first"
    ):
        compare_runs([pair[0], fewer], None)
    split = make_run(tmp_path / "split", scores_of(0.5, 3), "--data.val_split=dev")
    with pytest.raises(UsageError, match=r"split has the validation split 'dev', .*weak has 'val': .* --split=NAME"):
        compare_runs([pair[0], split], None)


def test_runs_that_are_none_or_the_same_are_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="are the same run; name every run once"):
        compare_runs([pair[0], pair[1] / ".." / "weak"], None)
    with pytest.raises(UsageError, match=r"no config\.yaml there; expected a folder that train.py made"):
        compare_runs([pair[0], tmp_path], None)
    with pytest.raises(UsageError, match=r"--data\.root=x: .*only --report\.bootstrap=N counts here"):
        compare_runs(list(pair), None, None, ["--data.root=x"])
    with pytest.raises(UsageError, match=r"has no report of split 'test'; `python eval\.py .*weak --split=test`"):
        compare_runs(list(pair), "test")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be made"):
        compare_runs(list(pair), None, tmp_path / "file", ["--report.bootstrap=0"])


def test_damaged_files_are_named(copies: tuple[Path, Path]) -> None:
    report, scores = copies[1] / "report.json", copies[1] / "scores" / "val.csv"
    whole, rows = report.read_text(), scores.read_text()

    def refused() -> str:
        with pytest.raises(AvfusionError) as caught:
            compare_runs(list(copies), None, None, ["--report.bootstrap=0"])
        report.write_text(whole)
        scores.write_text(rows)
        return str(caught.value)

    report.write_text(whole[:100])
    assert "report.json is damaged (" in (said := refused())
    assert f"`python eval.py {copies[1]} --split=val` makes it again" in said
    change_report(copies[1], all={"num_rows": 3})
    assert "not a whole report of this version of avfusion (no 'average_precision')" in refused()
    change_report(copies[1], all=json.loads(whole)["all"] | {"auroc": "0.9"})
    assert "(found '0.9', expected a number)" in refused()
    report.write_text("[]")
    assert "not a whole report" in refused()
    change_report(copies[1], split="test")
    assert "is of split 'test', expected 'val'" in refused()
    change_report(copies[1], all=None)
    assert "split 'val' has no labels" in refused()
    scores.write_text(rows.rpartition(",")[0] + ",nan\n")
    assert "val.csv" in (said := refused())
    assert "nan" in said
    shutil.copy(copies[0] / "scores" / "val.csv", scores)  # the scores of another scoring
    assert "they do not belong together" in refused()


def test_a_checkpoint_that_has_changed_is_told(copies: tuple[Path, Path], tmp_path: Path) -> None:
    (copies[1] / "checkpoints").mkdir()
    (copies[1] / "checkpoints" / "best.pt").write_bytes(b"trained on")
    notes = compared(tmp_path / "out", *copies, resamples=0)["notes"]
    (note,) = [note for note in notes if "has changed since its report was made" in note]
    assert note.startswith("strong: ")


def test_tracks_without_labels_count_in_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracks = [replace(track, labelled=index != 1) for index, track in enumerate(TRACKS)]
    dataset = SimpleNamespace(name="synthetic", tracks=tracks, skipped=Skipped(frozenset({("v", "e")}), 1))
    monkeypatch.setattr(same_rows, "open_dataset", lambda *_, **__: dataset)
    runs = [make_run(tmp_path / name, scores_of(0.5, seed), tracks=tracks) for seed, name in enumerate("ab")]
    content = compared(tmp_path / "out", *runs, resamples=0)
    assert content["counts"]["num_rows"] == sum(track.num_frames for track in TRACKS) - TRACKS[1].num_frames
    assert "1 tracks have scores but no labels: they count in no figure" in content["notes"]
    assert "1 tracks of val could not be used and are left out" in content["notes"]


def test_labels_come_from_where_the_report_was_made(small_dataset: Callable[..., Path], tmp_path: Path) -> None:
    root = small_dataset(tmp_path / "data", {"train": 1, "val": 2})
    tracks = list(open_dataset(tiny_run("--data.format=prepared", f"--data.root={root}").data, "val").tracks)
    moved = ("--data.format=prepared", f"--data.root={tmp_path / 'gone'}")  # reported with --data.root=... later
    runs = [
        make_run(
            tmp_path / name,
            scores_of(0.5, seed, tracks),
            *moved,
            tracks=tracks,
            dataset="small",
            root=str(root),
            data=data_record(tiny_run("--data.format=prepared", f"--data.root={root}").data),
        )
        for seed, name in enumerate("ab")
    ]
    content = compared(tmp_path / "out", *runs, resamples=0)
    assert (content["root"], content["counts"]["num_positive"]) == (str(root), 2 * 15)
    assert (
        f"dataset: small, val; prepared in `{root}`: name small, scenes"
        in (tmp_path / "out" / "comparison.md").read_text()
    )
    other = json.loads((runs[1] / "report.json").read_text())["data"] | {"scenes": "0123456789"}
    change_report(runs[1], data=other)
    with pytest.raises(UsageError, match=r"the scenes of the dataset is '\w{10}' in the first and '0123456789' in"):
        compare_runs(runs, None)


def test_more_runs_than_colours_are_all_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (figures.append(self), save(self, *a, **k)))
    runs = [DrawnRun(f"run $_{n}", [(0.1, 0.9), (1.0, 0.4)], 0.05 * n, (0.04 * n, 0.06 * n)) for n in range(9)]
    draw_runs(tmp_path / "all.png", runs, 0.25, "made / val")
    curves, points = figures[0].axes
    looks = {(line.get_color(), line.get_linestyle()) for line in curves.lines[:9]}
    assert len(looks) == 9
    assert len({line.get_linestyle() for line in curves.lines[:4]}) == 4  # of the same curve each shows below another
    assert [text.get_text() for text in curves.get_legend().get_texts()][:9] == [run.name for run in runs]
    assert [text.get_text() for text in points.get_yticklabels()] == [run.name for run in runs]
    assert [line.get_xdata()[0] for line in points.lines[1::2]] == [run.average_precision for run in runs]


def scored_run(folder: Path, *overrides: str) -> Config:
    """A run folder as train.py leaves it, but for the training."""
    config = tiny_run(f"--run.dir={folder}", *overrides)
    torch.manual_seed(config.run.seed)
    folder.mkdir(parents=True)
    keep_config(config, folder)
    model = build_model(config.model, config.data.num_mels)
    checkpoint = folder / "checkpoints" / "best.pt"
    save_checkpoint(checkpoint, model, config, {"progress": {"epoch": 1, "step": 1}})
    examples = Examples(open_dataset(config.data, "val"), config.data)
    report_run(checkpoint, config, examples, "val", folder, None, ["train.py"])
    return config


def test_eval_compares_runs_as_they_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scored_run(tmp_path / "one", "--run.seed=1", "--report.bootstrap=0")
    scored_run(tmp_path / "two", "--run.seed=2", "--report.bootstrap=0")
    capsys.readouterr()
    code = run_eval(monkeypatch, [str(tmp_path / "one"), str(tmp_path / "two"), "--report.bootstrap=10"])
    shown = capsys.readouterr()
    assert (code, shown.err) == (0, "")
    for name in ("one", "two"):
        whole = json.loads((tmp_path / name / "report.json").read_text())["all"]
        row = next(line for line in shown.out.splitlines() if line.startswith(f"{name} "))
        assert f"{whole['average_precision']:.4f}" in row
        assert f"{whole['auroc']:.4f}" in row
        assert "cross_attention, 4 heads" in row
    assert "settings of all runs are the same" in shown.out
    assert "one, two  2      " in shown.out
    assert "has changed" not in shown.out
    assert not (tmp_path / "one" / "comparison.json").exists()
    assert run_eval(monkeypatch, [str(tmp_path / "one")] * 2) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def run_eval(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> int:
    """Runs eval.py inside this process and returns its exit code."""
    spec = importlib.util.spec_from_file_location("eval", ROOT / "eval.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["eval.py", *arguments])
    return run_command(module.main)


def test_offset_accuracy_has_its_interval_and_encoders_are_named(tmp_path: Path) -> None:
    row = {"source": "all", "accuracy": 0.5, "accuracy_interval": [0.25, 0.75]}
    encoders = {"path": "pre/best.pt", "sha256": "cd" * 32}
    a = make_run(tmp_path / "a", scores_of(0.2, 1), offset_accuracy=[row], encoders=encoders)
    b = make_run(tmp_path / "b", scores_of(0.2, 2), offset_accuracy=[row | {"accuracy_interval": None}])
    content = compared(tmp_path / "out", a, b, resamples=0)
    assert [run["offset_accuracy_interval"] for run in content["runs"]] == [[0.25, 0.75], None]
    page = (tmp_path / "out" / "comparison.md").read_text()
    assert "| 0.5000 | 0.250..0.750 |" in page
    assert "| 0.5000 | - |" in page
    assert f"encoders trained on from `pre/best.pt`, sha256 `{'cd' * 32}`" in page
    assert [run["encoders"] for run in content["runs"]] == [encoders, None]
