"""``python eval.py --scores --labels`` as a user types it: complete reports, and one line for whatever is wrong."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import json
import sys
import warnings
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
    code, out, err = judge(*options(files, against="bad.csv"), "--report.bootstrap=100")
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
        "resamples": 100,
        "seed": 0,
    }
    for name, file in (("scores", "good.csv"), ("labels", "gt.csv"), ("against", "bad.csv")):
        assert report["files"][name]["sha256"] == hashlib.sha256((files / file).read_bytes()).hexdigest()
    assert report["versions"].keys() == {"avfusion", "numpy", "python"}
    assert "--report.bootstrap=100" in report["command"]
    assert {row["kind"] for row in report["subsets"]} == {"face width", "faces in frame", "track length"}
    assert len(report["comparison"]) == len(report["subsets"]) + 1


def test_with_a_folder_the_same_report_is_written_and_its_tables_printed(judge, files):
    more = options(files, conditions="speech.csv", categories="categories.csv")
    _, out, _ = judge(*more, "--report.bootstrap=100")
    printed = json.loads(out)
    code, out, err = judge(*more, "--report.bootstrap=100", f"--out={files / 'made' / 'here'}")
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
        "6 videos: an interval over so few says little",
        "4 of 6 videos have no category, first '002'",
        "4 of 6 videos have no labelled sound, first '002'",
    ]
    assert report["notes"] == said
    text = (folder / "report.md").read_text()
    for told in (
        *said,
        report["files"]["scores"]["sha256"],
        "100 resamples, seed 0",
        "480 face boxes",
        "`python eval.py --",
    ):
        assert told in text
    assert f"| {report['average_precision']:.4f} |" in text
    for path in folder.iterdir():
        assert str(path) in out
    assert f"{rows['category', 'crowd']['average_precision']:.4f}" in out
    curve = (folder / "precision_recall.csv").read_text().splitlines()
    assert curve[0] == "scores,threshold,recall,precision"
    assert curve[-1].split(",")[::2] == ["these scores", "1.0"]
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


def test_both_files_are_in_the_curves_and_in_the_report(judge, files):
    (files / "_odd 中|$x$.csv").write_text((files / "bad.csv").read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # a letter that the font lacks, a name that the legend hides
        code, _, err = judge(*options(files, against="_odd 中|$x$.csv"), f"--out={files}", "--report.bootstrap=100")
    assert (code, err) == (0, "")
    with (files / "precision_recall.csv").open() as file:
        points = list(csv.DictReader(file))
    for name, path in (("these scores", "good.csv"), ("the others", "bad.csv")):
        labels, scores = labels_of(files / "gt.csv"), scores_of(files / path)
        own = [point for point in points if point["scores"] == name]
        assert len(own) > 50
        for point in own:
            accepted = scores >= float(point["threshold"])
            assert float(point["recall"]) == pytest.approx(labels[accepted].sum() / labels.sum(), abs=1e-12)
            assert float(point["precision"]) == pytest.approx(labels[accepted].mean(), abs=1e-12)
    other = json.loads((files / "report.json").read_text())["against"]
    told = (files / "report.md").read_text()
    assert f"All face boxes, {files}/_odd" in told
    for name in ("average_precision", "equal_error_rate", "expected_calibration_error"):
        assert f"| {other[name]:.4f} | {other[name + '_interval'][0]:.3f}.." in told


def test_too_few_resamples_give_no_interval(judge, files):
    _, out, _ = judge(*options(files, against="bad.csv"), "--report.bootstrap=99")
    report = json.loads(out)
    assert report["average_precision_interval"] is None
    assert report["notes"] == ["99 resamples: no intervals, which take 100 or more"]


def test_boxes_in_pixels_have_no_face_width_by_fractions(judge, files):
    rows = (files / "gt.csv").read_text().splitlines()
    cells = rows[7].split(",")
    rows[7] = ",".join([*cells[:4], "300", *cells[5:]])
    (files / "pixels.csv").write_text("\n".join(rows))
    _, out, _ = judge(*options(files, labels="pixels.csv"), "--report.bootstrap=0")
    report = json.loads(out)
    assert {row["kind"] for row in report["subsets"]} == {"faces in frame", "track length"}
    (note,) = report["notes"]
    assert note.startswith("no subsets by face width: 1 boxes of the labels, first that of '000' at 900.280 s")
    assert "(line 8)" in note
    assert note.endswith("as fractions of the picture (-1..2), not pixels")


def test_a_header_with_what_is_needed_is_enough(judge, files):
    _, whole, _ = judge(*options(files), "--report.bootstrap=0")
    cells = [line.split(",") for line in (files / "good.csv").read_text().splitlines()]
    rows = [",".join([row[8], row[7], row[0], row[1]]) for row in cells]
    (files / "few.csv").write_text("Score,Entity_ID,VIDEO_ID,frame_timestamp\n" + "\n".join(rows) + "\n")
    code, out, err = judge(*options(files, scores="few.csv"), "--report.bootstrap=0")
    assert (code, err) == (0, "")
    whole, few = json.loads(whole), json.loads(out)
    for report in (whole, few):
        report.pop("files"), report.pop("command")
    assert few == whole


def test_folders_of_tables_are_judged_as_one(judge, files):
    _, whole, _ = judge(*options(files), "--report.bootstrap=0")
    for name in ("gt", "good"):
        (files / name).mkdir()
        for video in range(6):
            rows = (files / f"{name}.csv").read_text().splitlines(keepends=True)
            (files / name / f"00{video}.csv").write_text("".join(row for row in rows if row.startswith(f"00{video}")))
    code, out, err = judge(*options(files, scores="good", labels="gt"), "--report.bootstrap=0")
    assert (code, err) == (0, "")
    whole, parts = json.loads(whole), json.loads(out)
    assert len(parts["files"]["labels"]["sha256"]) == 6
    for report in (whole, parts):
        report.pop("files"), report.pop("command")
    assert parts == whole


def test_a_run_keeps_its_own_report(judge, files):
    (files / "config.yaml").write_text("run: {}\n")
    for more in ([], ["--protocol=asw"], ["--protocol=columbia"], ["--diarization"]):
        code, out, err = judge(*options(files), f"--out={files}", *more)
        assert (code, out) == (2, "")
        assert "a run's own folder (config.yaml is there)" in err
    assert not (files / "report.json").exists()


def test_a_folder_named_like_the_report_is_told_before_anything_is_read(judge, files):
    (files / "out" / "report.md").mkdir(parents=True)
    code, _, err = judge(*options(files, scores="absent.csv"), f"--out={files / 'out'}")
    assert code == 2
    assert "report.md is a folder there" in err


def test_rules_of_diarization_need_diarization(judge, files):
    code, _, err = judge(*options(files), "--diarization.onset=0.6")
    assert code == 2
    assert "--diarization.onset=0.6: only with --diarization; add it" in err


def test_categories_may_have_blanks_around_them(judge, files):
    (files / "blanks.csv").write_text("000, loud\n001,loud \n")
    _, out, _ = judge(*options(files, categories="blanks.csv"), "--report.bootstrap=0")
    found = [row for row in json.loads(out)["subsets"] if row["kind"] == "category"]
    assert [(row["name"], row["num_videos"]) for row in found] == [("loud", 2)]


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
