"""The table, the RTTM and the JSON of a film: what they hold, and that those who read such files read them."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avfusion.errors import run_command
from avfusion.evaluation.diarization.rttm import read_rttm
from avfusion.faces.track_records import BETWEEN, DETECTED, MISSED
from avfusion.inference.outputs.rttm import speaker_names, write_rttm
from avfusion.inference.outputs.segments import write_segments
from avfusion.inference.outputs.speech import SpeechRules, find_speech, speaking_frames
from avfusion.inference.outputs.table import MORE_COLUMNS, write_table
from avfusion.inference.result import Result
from avfusion.tracks import SCORE_COLUMNS, read_scores
from tests.conftest import REPOSITORY
from tests.inference.results import face, result_of

RULES = SpeechRules.at(0.5)


def write_tables(result: Result, folder: Path) -> list[dict[str, str]]:
    """Writes all three; the rows of the table."""
    speech = find_speech(result, RULES)
    write_table(folder / "scores.csv", result, speaking_frames(result, speech))
    write_rttm(folder / "speakers.rttm", result, speech)
    write_segments(folder / "segments.json", result, RULES, speech, ["of the outputs"])
    with (folder / "scores.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run_eval(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """eval.py in this process."""
    spec = importlib.util.spec_from_file_location("eval_command", REPOSITORY / "eval.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["eval.py", *arguments])
    return run_command(module.main)


def test_a_row_by_hand(tmp_path: Path) -> None:
    result = result_of(
        [face("face0", 7, [0.25, 0.9], (16, -8, 176, 32), [MISSED, BETWEEN], [0.5, 1e-7], shot=3)], size=(160, 64)
    )
    first, second = write_tables(result, tmp_path)
    assert list(first) == [*SCORE_COLUMNS, *MORE_COLUMNS]
    assert [*first.values()] == [
        *("talk", "0.280", "0.100000", "-0.125000", "1.100000", "0.500000", "SPEAKING_AUDIBLE", "face0"),
        *("0.25", "0.5", "0", "7", "3", "missed"),
    ]
    assert (second["frame_timestamp"], second["frame"], second["box"]) == ("0.320", "8", "between")
    assert np.float32(second["raw_score"]) == np.float32(1e-7)


def test_times_and_scores_lose_nothing_in_ten_hours(tmp_path: Path) -> None:
    start, count = 10 * 3600 * 25 - 3, 50
    scores = np.random.default_rng(0).random(count).astype(np.float32)
    rows = write_tables(result_of([face("face0", start, scores)], num_frames=start + count), tmp_path)
    assert [float(row["frame_timestamp"]) for row in rows] == [(start + n) / 25 for n in range(count)]
    table = read_scores(tmp_path / "scores.csv")
    np.testing.assert_array_equal(table.score.astype(np.float32), scores)
    np.testing.assert_array_equal(table.timestamp_ms, [40 * (start + n) for n in range(count)])


def test_ids_with_commas_colons_and_quotes_survive(tmp_path: Path) -> None:
    ids = ["a,b", "007", 'say "hi"', "12:30:face 1", "größe"]
    faces = [face(entity_id, 0, [0.9] * 5) for entity_id in ids]
    result = result_of(faces, video_id='talk, part 2: "x"')
    write_tables(result, tmp_path)
    table = read_scores(tmp_path / "scores.csv")
    assert table.entity_id[::5].tolist() == ids
    assert set(table.video_id.tolist()) == {'talk, part 2: "x"'}
    segments = json.loads((tmp_path / "segments.json").read_text(encoding="utf-8"))["segments"]
    assert [one["speaker"] for one in segments] == ids
    turns = read_rttm(tmp_path / "speakers.rttm")
    assert [turn.speaker for turn in turns] == [entity_id.replace(" ", "_") for entity_id in ids]
    assert {turn.video_id for turn in turns} == {'talk,_part_2:_"x"'}


def test_names_that_differ_in_blanks_alone_stay_apart() -> None:
    assert speaker_names(["a b", "a_b", "a\tb", "c"]) == ["a_b", "a_b_", "a_b__", "c"]


def test_eval_judges_the_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of([face("face0", 0, np.linspace(0, 1, 50)), face("face1", 10, np.linspace(1, 0, 40))])
    rows = write_tables(result, tmp_path)
    with (tmp_path / "gt.csv").open("w", encoding="utf-8") as file:
        for row in rows:
            label = "SPEAKING_AUDIBLE" if float(row["score"]) > 0.6 else "NOT_SPEAKING"
            columns = [row[name] for name in SCORE_COLUMNS[:6]]
            file.write(",".join([*columns, label, row["entity_id"]]) + "\n")
    options = [f"--scores={tmp_path / 'scores.csv'}", f"--labels={tmp_path / 'gt.csv'}", "--report.bootstrap=0"]
    assert run_eval(monkeypatch, *options) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["average_precision"] == pytest.approx(1.0)


def test_eval_finds_no_error_between_rttm_and_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyannote.metrics")
    wave = (np.sin(np.arange(200) / 9) + 1) / 2
    result = result_of([face("face0", 0, wave), face("face 1", 20, wave)], num_frames=300, video_id="my talk")
    write_tables(result, tmp_path)
    assert len(read_rttm(tmp_path / "speakers.rttm")) > 5
    options = [f"--scores={tmp_path / 'scores.csv'}", f"--rttm={tmp_path / 'speakers.rttm'}", "--diarization"]
    options += [f"--out={tmp_path / 'out'}", "--report.bootstrap=0", "--diarization.smooth_s=0"]
    assert run_eval(monkeypatch, *options) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert rates(report) == pytest.approx([0.0] * len(rates(report)), abs=1e-9)
    assert len(rates(report)) >= 2


def rates(report: dict[str, Any]) -> list[float]:
    """Every DER and JER of a report, over all videos."""
    found = []
    for key, value in report.items():
        if key in ("der", "jer"):
            found.append(value["value"] if isinstance(value, dict) else value)
        elif isinstance(value, dict):
            found += rates(value)
        elif isinstance(value, list):
            found += [rate for one in value if isinstance(one, dict) for rate in rates(one)]
    return found


def test_pyannote_reads_the_rttm(tmp_path: Path) -> None:
    util = pytest.importorskip("pyannote.database.util")
    result = result_of([face("face 0", 50, [0.9] * 25), face("face1", 60, [0.9] * 50)], video_id="my talk")
    write_tables(result, tmp_path)
    (annotation,) = util.load_rttm(str(tmp_path / "speakers.rttm")).values()
    found = [(segment.start, segment.end, label) for segment, _, label in annotation.itertracks(yield_label=True)]
    assert found == [(2.0, 3.0, "face_0"), (2.4, pytest.approx(4.4), "face1")]


def test_the_json_by_hand(tmp_path: Path) -> None:
    seen = [DETECTED, BETWEEN, MISSED, DETECTED, DETECTED, DETECTED]
    result = result_of([face("face0", 25, [0.8] * 5 + [0.1], seen=seen, shot=2), face("face1", 0, [0.2] * 3)])
    write_tables(result, tmp_path)
    content = json.loads((tmp_path / "segments.json").read_text(encoding="utf-8"))
    assert content["format_version"] == 1
    assert content["film"] == {
        "video_id": "talk", "source": "talk.mp4", "width": 160, "height": 64,
        "fps": 25, "num_frames": 100, "duration_s": 4.0,
    }  # fmt: skip
    assert content["rules"] == {"onset": 0.5, "offset": 0.4, "min_pause_s": 0.3, "min_speech_s": 0.2}
    assert content["segments"] == [{"speaker": "face0", "start_s": 1.0, "end_s": 1.2, "mean_score": 0.8}]
    assert content["faces"][0] == {
        "speaker": "face0", "shot": 2, "start_s": 1.0, "end_s": 1.24, "talking_s": 0.2, "num_segments": 1,
        "mean_score": round(4.1 / 6, 6), "detected_share": 0.6667,
    }  # fmt: skip
    assert content["faces"][1]["talking_s"] == 0
    assert content["notes"] == ["of the outputs"]


def test_a_film_without_a_face(tmp_path: Path) -> None:
    assert write_tables(result_of([]), tmp_path) == []
    assert len(read_scores(tmp_path / "scores.csv")) == 0
    assert (tmp_path / "speakers.rttm").read_text() == ""
    content = json.loads((tmp_path / "segments.json").read_text())
    assert content["faces"] == content["segments"] == []
