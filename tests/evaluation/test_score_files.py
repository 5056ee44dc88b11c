"""``eval.py --scores --labels`` as a user types it: complete reports, and one line for whatever is wrong."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from avfusion.errors import run_command
from avfusion.evaluation.average_precision import average_precision
from tests.conftest import REPOSITORY


@pytest.fixture
def judge(monkeypatch, capsys):
    """Runs eval.py in this process: its exit code, what it printed, and its errors."""
    spec = importlib.util.spec_from_file_location("eval_command", REPOSITORY / "eval.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["eval.py", *map(str, arguments)])
        code = run_command(module.main)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def files(tmp_path):
    """Labels and two score files of six videos with two faces each, sound and categories of some videos."""
    generator = np.random.default_rng(0)
    labels, good, bad = [], [], []
    for video in range(6):
        for entity in range(2):
            for frame in range(40):
                speaks = bool(generator.random() < 0.4)
                key = f"00{video},{900 + frame / 25:.2f},0.1,0.1,{0.12 + 0.1 * entity},0.5"
                labels.append(f"{key},{'SPEAKING_AUDIBLE' if speaks else 'NOT_SPEAKING'},00{video}:{entity}\n")
                for scores, skill in ((good, 2), (bad, 1)):
                    score = float(1 / (1 + np.exp(-generator.normal() - skill * speaks)))
                    scores.append(f"{key},SPEAKING_AUDIBLE,00{video}:{entity},{score!r}\n")
    for name, rows in (("gt", labels), ("good", good), ("bad", bad)):
        (tmp_path / f"{name}.csv").write_text("".join(rows))
    (tmp_path / "speech.csv").write_text("000,900,901,CLEAN_SPEECH\n001,900,900.5,NO_SPEECH\n009,0,1,NO_SPEECH\n")
    (tmp_path / "categories.csv").write_text("000,loud\n001,loud\n001,crowd\n009,dark\n")
    return tmp_path


def options(files, **more):
    return [f"--{name}={files / path}" for name, path in {"scores": "good.csv", "labels": "gt.csv", **more}.items()]


def labels_of(path):
    return np.array([line.split(",")[6] == "SPEAKING_AUDIBLE" for line in path.read_text().splitlines()])


def scores_of(path):
    return np.array([float(line.split(",")[8]) for line in path.read_text().splitlines()])


def test_without_a_folder_the_whole_report_is_printed_as_json(judge, files):
    code, out, err = judge(*options(files, against="bad.csv"), "--report.bootstrap=30")
    assert (code, err) == (0, "")
    report = json.loads(out)
    labels, good, bad = labels_of(files / "gt.csv"), scores_of(files / "good.csv"), scores_of(files / "bad.csv")
    assert report["average_precision"] == pytest.approx(average_precision(labels, good), abs=1e-12)
    assert report["against"]["average_precision"] == pytest.approx(average_precision(labels, bad), abs=1e-12)
    assert report["comparison"][0]["average_precision"]["difference"] == pytest.approx(
        average_precision(labels, good) - average_precision(labels, bad), abs=1e-12
    )
    assert (report["num_rows"], report["num_tracks"], report["num_videos"]) == (480, 12, 6)
    assert report["num_positive"] == labels.sum()
    assert report["prevalence"] == labels.mean()
    for name in ("auroc", "equal_error_rate", "fpr_at_95_tpr", "expected_calibration_error"):
        assert 0 < report[name] < 1
    low, high = report["average_precision_interval"]
    assert low < report["average_precision"] < high
    assert report["intervals"] == {
        "kind": "percentile bootstrap",
        "level": 0.95,
        "drawn": "videos",
        "num_drawn": 6,
        "resamples": 30,
        "seed": 0,
    }
    for name, file in (("scores", "good.csv"), ("labels", "gt.csv"), ("against", "bad.csv")):
        assert report["files"][name]["sha256"] == hashlib.sha256((files / file).read_bytes()).hexdigest()
    assert report["versions"].keys() == {"avfusion", "numpy", "python"}
    assert "--report.bootstrap=30" in report["command"]
    assert {row["kind"] for row in report["subsets"]} == {"face width", "faces in frame", "track length"}
    assert len(report["comparison"]) == len(report["subsets"]) + 1


def test_with_a_folder_the_same_report_is_written_and_its_tables_printed(judge, files):
    more = options(files, conditions="speech.csv", categories="categories.csv")
    _, out, _ = judge(*more, "--report.bootstrap=30")
    printed = json.loads(out)
    code, out, err = judge(*more, "--report.bootstrap=30", f"--out={files / 'made' / 'here'}")
    assert (code, err) == (0, "")
    folder = files / "made" / "here"
    assert sorted(path.name for path in folder.iterdir()) == [
        "precision_recall.csv",
        "precision_recall.png",
        "report.json",
        "report.md",
    ]
    report = json.loads((folder / "report.json").read_text())
    assert report.pop("command") != printed.pop("command")
    assert report == printed
    rows = {(row["kind"], row["name"]): row for row in report["subsets"]}
    assert rows["sound", "CLEAN_SPEECH"]["num_rows"] == 2 * 25
    assert rows["sound", "NO_SPEECH"]["num_rows"] == 2 * 13  # 900.00 to 900.48
    assert rows["sound", "not annotated"]["num_rows"] == 480 - 76
    assert rows["category", "loud"]["num_videos"] == 2
    assert rows["category", "crowd"]["num_rows"] == 80
    assert ("category", "dark") not in rows
    said = [
        "4 of 6 videos have no category, first '002'",
        "4 of 6 videos have no labelled sound, first '002'",
    ]
    assert report["notes"] == said
    text = (folder / "report.md").read_text()
    for told in (*said, report["files"]["scores"]["sha256"], "30 resamples, seed 0", "480 face boxes", "`eval.py --"):
        assert told in text
    assert f"| {report['average_precision']:.4f} |" in text
    for path in folder.iterdir():
        assert str(path) in out
    assert f"{rows['category', 'crowd']['average_precision']:.4f}" in out
    curve = (folder / "precision_recall.csv").read_text().splitlines()
    assert curve[0] == "recall,precision"
    assert curve[-1].startswith("1.0,")
    assert (folder / "precision_recall.png").read_bytes().startswith(b"\x89PNG")


def test_no_resamples_no_intervals(judge, files):
    _, out, _ = judge(*options(files, against="bad.csv"), "--report.bootstrap=0")
    report = json.loads(out)
    assert report["average_precision_interval"] is None
    assert {row["average_precision_interval"] for row in report["subsets"]} == {None}
    assert report["comparison"][0]["average_precision"]["interval"] is None


@pytest.mark.parametrize(
    ("name", "text", "code", "said"),
    [
        ("scores", None, 1, "new.csv: cannot be read (No such file"),
        ("labels", None, 1, "new.csv: cannot be read (No such file"),
        ("against", None, 1, "new.csv: cannot be read (No such file"),
        ("conditions", None, 1, "new.csv: cannot be read (No such file"),
        ("categories", None, 1, "new.csv: cannot be read (No such file"),
        ("scores", "a,b\n", 1, "new.csv line 1: 2 columns, expected 9"),
        ("scores", "v,900,0,0,1,1,SPEAKING_AUDIBLE,v:1,0.5\n", 1, "no score for 480 of 480 label rows"),
        ("labels", "v,900,0,0,1,1,SPEAKING_AUDIBLE,v:1\n", 1, "480 of 480 score rows without a label"),
        ("against", "v,900,0,0,1,1,SPEAKING_AUDIBLE,v:1,0.5\n", 1, "new.csv: no score for 480 of 480 label rows"),
        ("conditions", "000,1,2,SPEECH\n", 1, "new.csv line 1: label is 'SPEECH', expected one of NO_SPEECH"),
        ("conditions", "000,2,1,NO_SPEECH\n", 1, "new.csv line 1: end_s is '1', expected start_s or later"),
        ("conditions", "0,1,2,NO_SPEECH\n", 1, "new.csv: none of its 1 videos (first '0') is among the 6 labelled"),
        ("categories", "0,loud\n", 1, "new.csv: none of its 1 videos (first '0') is among the 6 labelled"),
        ("categories", "000,\n", 1, "new.csv line 1: category is '', expected text"),
    ],
)
def test_what_is_wrong_is_told_in_one_line_and_nothing_is_written(judge, files, name, text, code, said):
    if text is not None:
        (files / "new.csv").write_text(text)
    found, out, err = judge(*options(files, **{name: "new.csv"}), f"--out={files / 'made'}")
    assert (found, out) == (code, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert not (files / "made").exists()


def test_a_folder_that_cannot_be_made_is_told(judge, files):
    code, _, err = judge(*options(files), f"--out={files / 'gt.csv'}")
    assert code == 2
    assert "gt.csv: cannot be made" in err


def test_nobody_speaking_is_told(judge, files):
    (files / "mute.csv").write_text((files / "gt.csv").read_text().replace("SPEAKING_AUDIBLE", "NOT_SPEAKING"))
    code, _, err = judge(*options(files, labels="mute.csv"))
    assert code == 1
    assert "none of 480 label rows is SPEAKING_AUDIBLE" in err


@pytest.mark.parametrize("case", ["plain", "odd_video_ids", "ties_pos_first", "time_half_frame_off", "score_nan"])
def test_known_faults_through_the_command(judge, shared: Path, case):
    folder = shared / "cases" / "csv"
    expected = json.loads((folder / "expected.json").read_text())[case]
    code, out, err = judge(f"--scores={folder / case / 'pred.csv'}", f"--labels={folder / case / 'gt.csv'}")
    if "ap" in expected:
        assert code == 0, err
        assert json.loads(out)["average_precision"] == pytest.approx(expected["ap"], abs=1e-9)
    else:
        assert (code, out) == (1, "")
        assert len(err.splitlines()) == 1
