"""The known faults of AVA scoring, from file to figure: generated here, and as they lie in the shared folder."""

from __future__ import annotations

import json
import re

import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.average_precision import average_precision
from avfusion.evaluation.join import join
from avfusion.evaluation.report import evaluate
from avfusion.tracks import LABEL_COLUMNS, SCORE_COLUMNS, read_labels, read_scores

P, N, S = "SPEAKING_AUDIBLE", "NOT_SPEAKING", "SPEAKING_NOT_AUDIBLE"
BOX = "0.4,0.1,0.6,0.5"
# video, seconds (vidA at 25 and vidB at 30 fps: AVA writes 1000.53 for 1000.5333), label, score: 11 rows, AP 7/9
ROWS = [
    ("vidA", 900.00, P, "0.9"),
    ("vidA", 900.04, N, "0.8"),
    ("vidA", 900.08, P, "0.7"),
    ("vidA", 900.12, P, "0.65"),
    ("vidA", 900.16, N, "0.6"),
    ("vidA", 900.20, N, "0.3"),
    ("vidA", 900.24, P, "0.2"),
    ("vidA", 900.28, N, "0.1"),
    ("vidB", 1000.5, P, "0.95"),
    ("vidB", 1000.5 + 1 / 30, S, "0.75"),
    ("vidB", 1000.5 + 2 / 30, N, "0.05"),
]


def labels_text(rows=ROWS):
    return "".join(f"{v},{t:.2f},{BOX},{label},{v}:1\n" for v, t, label, _ in rows)


def scores_text(rows=ROWS, time="{:.2f}", shift_s=0.0, guess=lambda label: P):
    return "".join(f"{v},{time.format(t + shift_s)},{BOX},{guess(lb)},{v}:1,{s}\n" for v, t, lb, s in rows)


def rescored(scores):
    return [(v, t, label, score) for (v, t, label, _), score in zip(ROWS, scores, strict=True)]


def score_files(folder, labels, scores):
    (folder / "gt.csv").write_bytes(labels.encode())
    (folder / "pred.csv").write_bytes(scores.encode())
    return join(read_labels(folder / "gt.csv"), read_scores(folder / "pred.csv"))


@pytest.mark.parametrize(
    "scores",
    [
        pytest.param(scores_text(), id="plain"),
        pytest.param(scores_text(ROWS[::-1]), id="shuffled"),
        pytest.param(scores_text(time="{:.6f}"), id="time_format"),
        pytest.param(scores_text(time="{:.13f}", shift_s=1e-10), id="time_float_noise"),
        pytest.param(",".join(SCORE_COLUMNS) + "\n" + scores_text(), id="header_rows"),
        pytest.param("\ufeff" + scores_text().replace("\n", "\r\n"), id="crlf_bom"),
        pytest.param(scores_text(guess=lambda label: P if label == P else N), id="gt_label_in_pred"),
        pytest.param(
            scores_text(rescored(["8", "6", "4", "3", "2", "-4", "-6", "-8", "9", "5", "-9"])), id="logits_not_probs"
        ),
    ],
)
def test_the_same_predictions_give_the_same_ap(tmp_path, scores):
    joined = score_files(tmp_path, labels_text(), scores)
    assert average_precision(joined.speaking, joined.score) == pytest.approx(7 / 9, abs=1e-12)


def test_header_and_bom_of_the_labels_do_not_matter(tmp_path):
    labels = "\ufeff" + (",".join(LABEL_COLUMNS) + "\n" + labels_text(ROWS[::-1])).replace("\n", "\r\n")
    joined = score_files(tmp_path, labels, scores_text())
    assert average_precision(joined.speaking, joined.score) == pytest.approx(7 / 9, abs=1e-12)


@pytest.mark.parametrize("first", [P, N])
def test_ties_do_not_look_at_row_order(tmp_path, first):
    rows = sorted(rescored(["0.5"] * 11), key=lambda row: (row[2] == P) != (first == P))
    joined = score_files(tmp_path, labels_text(rows), scores_text(rows))
    assert average_precision(joined.speaking, joined.score) == pytest.approx(5 / 11, abs=1e-12)


def test_half_a_frame_off_is_refused(tmp_path):
    with pytest.raises(AvfusionError, match="no score for 11 of 11 label rows"):
        score_files(tmp_path, labels_text(), scores_text(shift_s=0.02))


@pytest.mark.parametrize("wrong", ["nan", "", "inf", "high"])
def test_a_score_that_is_no_number_is_refused(tmp_path, wrong):
    scores = scores_text(rescored([wrong, *[score for *_, score in ROWS[1:]]]))
    with pytest.raises(AvfusionError, match=rf"pred\.csv line 1: score is '{wrong}'"):
        score_files(tmp_path, labels_text(), scores)


def test_odd_video_ids_stay_text(tmp_path):
    # P N P N P by falling score: precisions 1, 2/3, 3/5; AP = (1 + 2/3 + 3/5) / 3
    odd = zip(["-IELREHX_js", "1e5", "007", "NA", "null"], [P, N, P, N, P], "98765", strict=True)
    rows = [(video, 900.0, label, f"0.{score}") for video, label, score in odd]
    joined = score_files(tmp_path, labels_text(rows), scores_text(rows))
    assert average_precision(joined.speaking, joined.score) == pytest.approx(34 / 45, abs=1e-12)


CASES = [
    *("plain", "shuffled", "time_format", "time_float_noise", "time_half_frame_off", "header_rows", "crlf_bom"),
    *("gt_label_in_pred", "ties_pos_first", "ties_pos_last", "score_nan", "score_blank", "score_inf", "score_text"),
    *("logits_not_probs", "odd_video_ids"),
]


@pytest.mark.parametrize("case", CASES)
def test_shared_case(shared, case):
    folder = shared / "cases" / "csv" / case
    expected = json.loads((folder.parent / "expected.json").read_text())[case]
    if "ap" in expected:
        joined = join(read_labels(folder / "gt.csv"), read_scores(folder / "pred.csv"))
        assert evaluate(joined, resamples=0).average_precision == pytest.approx(expected["ap"], abs=1e-9)
    else:
        with pytest.raises(AvfusionError, match=re.escape(str(folder / "pred.csv"))):
            join(read_labels(folder / "gt.csv"), read_scores(folder / "pred.csv"))


def test_no_shared_case_is_left_out(shared):
    assert sorted(json.loads((shared / "cases" / "csv" / "expected.json").read_text())) == sorted(CASES)
