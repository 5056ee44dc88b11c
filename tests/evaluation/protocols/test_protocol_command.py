"""``eval.py --protocol``: what it prints and writes, and its one line when something is wrong."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from avfusion.errors import AvfusionError, UsageError
from avfusion.evaluation.protocols.command import evaluate_protocol
from avfusion.tracks import write_scores
from tests.evaluation.protocols import asw_files, columbia_files
from tests.evaluation.protocols.test_asw import SCORES, VIDEOS
from tests.evaluation.protocols.test_columbia import BELL, BOLL, ROWS

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def asw(tmp_path):
    write_scores(tmp_path / "pred.csv", asw_files.score_table(SCORES))
    return tmp_path / "pred.csv", asw_files.write_videos(tmp_path / "json", VIDEOS)


@pytest.fixture
def columbia(tmp_path):
    write_scores(tmp_path / "pred.csv", columbia_files.score_table(ROWS))
    return tmp_path / "pred.csv", columbia_files.write_labels(tmp_path / "col_labels", {"bell": BELL, "boll": BOLL})


def test_without_a_folder_the_report_is_json_on_stdout(columbia, capsys):
    evaluate_protocol("columbia", *columbia, None, 0, ["eval.py", "--scores", "a b.csv"])
    report = json.loads(capsys.readouterr().out)
    assert report["figures"]["mean_f1"] == pytest.approx(2 / 7)  # boxes went through six digits of text
    assert report["command"] == "python eval.py --scores 'a b.csv'"
    label_file = columbia[1] / "fusion" / "bell.txt"
    assert report["files"]["labels"]["sha256"]["bell.txt"] == hashlib.sha256(label_file.read_bytes()).hexdigest()
    assert report["num_score_rows"] == len(ROWS)


def test_with_a_folder_both_files_are_written_and_the_tables_printed(asw, tmp_path, capsys):
    evaluate_protocol("asw", *asw, tmp_path / "out", 100, ["eval.py"])
    printed = capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    markdown = (tmp_path / "out" / "report.md").read_text()
    assert report["figures"]["average_precision"] == pytest.approx(5 / 6)
    assert report["intervals"]["resamples"] == 100
    for text in ("0.8333", "0.3333", "0.4000"):  # AP and AUROC, EER, chance
        assert text in printed
        assert text in markdown
    assert printed.rstrip().endswith(f"{tmp_path}/out/report.json\n{tmp_path}/out/report.md")
    assert report["files"]["scores"]["sha256"] in markdown


def test_a_columbia_table_holds_every_speaker_and_the_mean(columbia, tmp_path, capsys):
    evaluate_protocol("columbia", *columbia, tmp_path / "out", 0, ["eval.py"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if line[:4] in ("bell", "boll", "mean")] == [
        ["bell", "0.5714"],  # 4 / 7
        ["boll", "0.0000"],
        ["mean", "0.2857"],
    ]


def test_a_folder_that_cannot_be_made_is_a_wrong_command_line(asw):
    with pytest.raises(UsageError, match=r"--out=.*pred\.csv: cannot be made"):
        evaluate_protocol("asw", *asw, asw[0], 0, ["eval.py"])


def test_bad_input_leaves_no_empty_folder(asw, tmp_path):
    with pytest.raises(AvfusionError, match="no such file or folder"):
        evaluate_protocol("asw", asw[0], tmp_path / "absent", tmp_path / "out", 0, ["eval.py"])
    assert not (tmp_path / "out").exists()


def test_a_columbia_report_says_how_many_stretches(columbia, tmp_path):
    evaluate_protocol("columbia", *columbia, tmp_path / "out", 0, ["eval.py"])
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["intervals"]["num_drawn"] == report["figures"]["num_stretches"] == 1
    assert "percentile bootstrap, 1 stretches of 30 s drawn" in (tmp_path / "out" / "report.md").read_text()


def test_columbia_needs_boxes_and_asw_does_not(asw, tmp_path, capsys):
    names = ("video_id", "frame_timestamp", "entity_id", "score")
    with asw[0].open() as file:
        rows = [[row[name] for name in names] for row in csv.DictReader(file)]
    asw[0].write_text("\n".join(",".join(row) for row in [names, *rows]))
    evaluate_protocol("asw", *asw, None, 0, ["eval.py"])
    assert json.loads(capsys.readouterr().out)["figures"]["average_precision"] == pytest.approx(5 / 6)
    asw[0].write_text("\n".join([",".join(names), "col,0.0,a,0.5"]))
    labels = columbia_files.write_labels(tmp_path / "col_labels", {"bell": BELL})
    with pytest.raises(AvfusionError, match=r"no boxes, expected entity_box_x1, .*: by these rules an annotated face"):
        evaluate_protocol("columbia", asw[0], labels, None, 0, ["eval.py"])


def eval_py(*arguments):
    command = [sys.executable, "eval.py", *map(str, arguments)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)


def test_the_command_judges_a_file(asw):
    done = eval_py("--scores", asw[0], "--labels", asw[1], "--protocol=asw", "--report.bootstrap=0")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["figures"]["equal_error_rate"] == pytest.approx(1 / 3)


def test_the_command_tells_a_fault_in_one_line(asw, columbia):
    done = eval_py("--scores", asw[0], "--labels", columbia[1] / "fusion" / "absent.txt", "--protocol=columbia")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith("no such file or folder, expected Columbia's labels: one text file a speaker\n")
    assert done.stderr.count("\n") == 1
