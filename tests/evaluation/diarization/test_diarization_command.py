"""``eval.py --scores --diarization`` from files to figures, worked by hand; and what it says of wrong input."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from avfusion.errors import AvfusionError, UsageError, run_command
from avfusion.evaluation.diarization.command import evaluate_diarization
from avfusion.evaluation.diarization.identities import read_identities
from avfusion.evaluation.diarization.rttm import read_rttm
from avfusion.evaluation.diarization.segments import Segmentation

pytest.importorskip("pyannote.metrics")

REPOSITORY = Path(__file__).resolve().parents[3]
PLAIN = Segmentation(smooth_s=0.0, onset=0.5, offset=0.5, min_speech_s=0.0, min_pause_s=0.0)
BOX = "0.1,0.1,0.3,0.3"

Track = tuple[
    str, str, float, float, list[tuple[float, float]]
]  # video, entity, first and last second, where it speaks


def write_table(path: Path, tracks: Iterable[Track], score: bool, shuffled: bool = False) -> Path:
    """Rows at 25 per second; 0.9 and SPEAKING_AUDIBLE where the track speaks, else 0.1 and NOT_SPEAKING."""
    lines = []
    for video_id, entity_id, start_s, end_s, speech in tracks:
        for frame in range(round(start_s * 25), round(end_s * 25)):
            speaks = any(a <= frame / 25 < b for a, b in speech)
            label = "SPEAKING_AUDIBLE" if speaks else "NOT_SPEAKING"
            row = f"{video_id},{frame / 25:.2f},{BOX},{label},{entity_id}"
            lines.append(f"{row},{0.9 if speaks else 0.1}" if score else row)
    if shuffled:
        random.Random(1).shuffle(lines)
    path.write_text("\n".join(lines) + "\n")
    return path


# Two people who overlap in video 1, one of them seen in two tracks; nobody speaks in video 007.
SCORED: list[Track] = [
    ("1", "a", 0, 6, [(1, 5)]),
    ("1", "b", 0, 10, [(4, 8)]),
    ("1", "c", 6, 10, [(9, 10)]),
    ("007", "d", 0, 2, []),
]


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    return write_table(tmp_path / "scores.csv", SCORED, score=True)


@pytest.fixture
def text(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, content: str) -> Path:
        (tmp_path / name).write_text(content)
        return tmp_path / name

    return write


def words(printed: str) -> str:
    """Blanks between columns as one."""
    return "\n".join(" ".join(line.split()) for line in printed.splitlines())


def row(*cells: str) -> str:
    return " ".join(cells)


def lines_of(path: Path) -> list[tuple[str, float, float]]:
    return [(turn.speaker, turn.start_s, round(turn.end_s, 6)) for turn in read_rttm(path)]


def test_rttm_and_json_of_every_video(scores: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    evaluate_diarization(scores, PLAIN, out=out)
    assert sorted(path.name for path in out.rglob("*") if path.is_file()) == [
        "007.rttm",
        "1.rttm",
        "report.json",
        "report.md",
        "segments.json",
    ]
    assert lines_of(out / "rttm" / "1.rttm") == [("a", 1.0, 5.0), ("b", 4.0, 8.0), ("c", 9.0, 10.0)]
    assert lines_of(out / "rttm" / "007.rttm") == []
    assert json.loads((out / "segments.json").read_text())[0] == {
        "video_id": "1",
        "speaker": "a",
        "start_s": 1.0,
        "end_s": 5.0,
        "mean_score": 0.9,
    }


def test_the_order_of_rows_means_nothing(scores: Path, tmp_path: Path) -> None:
    evaluate_diarization(scores, PLAIN, out=tmp_path / "a")
    shuffled = write_table(tmp_path / "shuffled.csv", SCORED, score=True, shuffled=True)
    evaluate_diarization(shuffled, PLAIN, out=tmp_path / "b")
    for name in ("rttm/1.rttm", "rttm/007.rttm", "segments.json"):  # the report names the file
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_map_makes_tracks_persons(scores: Path, tmp_path: Path, text: Callable[[str, str], Path]) -> None:
    # a (1..5) and b (4..8) are one person: one turn 1..8.
    people = text("people.csv", "video_id,entity_id,speaker\n1,a,NA\n1,b,NA\n1,c,Ann Lee\n007,d,NA\n")
    evaluate_diarization(scores, PLAIN, identities=people, out=tmp_path / "out")
    assert lines_of(tmp_path / "out" / "rttm" / "1.rttm") == [("NA", 1.0, 8.0), ("Ann_Lee", 9.0, 10.0)]
    rows = json.loads((tmp_path / "out" / "segments.json").read_text())
    assert [(row["speaker"], row["mean_score"]) for row in rows] == [("NA", 0.9), ("Ann Lee", 0.9)]


def test_der_against_rttm(
    scores: Path, tmp_path: Path, text: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    turns = "SPEAKER 1 1 1 4 <NA> <NA> A <NA> <NA>\nSPEAKER 1 1 5 3 <NA> <NA> B <NA> <NA>\n"
    reference = text("ref.rttm", f"{turns}SPEAKER other 1 0 1 <NA> <NA> A <NA> <NA>\n")
    evaluate_diarization(scores, PLAIN, rttm=reference, out=tmp_path / "out")
    # A 1..5, B 5..8. Found a 1..5, b 4..8, c 9..10: false alarms 4..5 and 9..10 in 7 s. A: 0. B: 1 of 4, 1/4.
    content = json.loads((tmp_path / "out" / "report.json").read_text())
    exact, within = content["videos"]["1"]
    assert (exact["missed_s"], exact["false_alarm_s"], exact["confusion_s"], exact["speech_s"]) == (0, 2, 0, 7)
    assert (exact["der"], exact["jer"]) == pytest.approx((2 / 7, 1 / 8))
    # Left out ±0.25 s at 1, 5 and 8: false alarms 4..4.75 and 9..10 in 3.5 + 2.5 s. B: 0.75 of 3.25.
    assert (within["collar_s"], within["false_alarm_s"], within["speech_s"]) == (0.25, 1.75, 6)
    assert within["jer"] == pytest.approx(0.75 / 3.25 / 2)
    nothing = {"der_interval": None, "jer_interval": None}
    assert content["all"] == [rates | nothing for rates in content["videos"]["1"]]
    assert "one video: no intervals" in content["notes"]
    assert content["rules"]["onset"] == 0.5
    printed = capsys.readouterr().out
    assert row("1", "0", "28.57", "0.00", "2.00", "0.00", "7.00", "12.50", "2") in words(printed)
    assert row("0.25", "29.17", "-", "0.00", "1.75", "0.00", "6.00", "11.54", "-", "2", "1") in words(printed)
    assert "no reference for 1 of 2 scored videos, left out: 007" in printed
    assert "no scores for 1 of 2 reference videos, left out: other" in printed


def test_der_against_labels(scores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # b really speaks from 3.6 s; c's labels are missing, e has labels and no scores; 007 is silent, with labels.
    labelled: list[Track] = [
        ("1", "a", 0, 6, [(1, 5)]),
        ("1", "b", 0, 10, [(3.6, 8)]),
        ("1", "e", 0, 3, [(0, 1)]),
        ("007", "d", 0, 2, []),
    ]
    labels = write_table(tmp_path / "gt.csv", labelled, score=False, shuffled=True)
    evaluate_diarization(scores, PLAIN, labels=labels)
    printed = capsys.readouterr().out
    # Missed 0.4 (b) + 1 (e), false alarm 1 (c), of 4 + 4.4 + 1 s: 2.4 / 9.4. JER (0 + 0.4 / 4.4 + 1) / 3.
    assert row("1", "0", "25.53", "1.40", "1.00", "0.00", "9.40", "36.36", "3") in words(printed)
    assert row("007", "0", "-", "0.00", "0.00", "0.00", "0.00", "-", "0") in words(printed)
    # Drawn twice, 007 has no rate; any other draw has that of video 1.
    rates = ("25.53..25.53", "1.40", "1.00", "0.00", "9.40", "36.36", "36.36..36.36")
    assert row("0", "25.53", *rates, "3", "2") in words(printed)
    assert "2 videos: an interval over so few says little" in printed
    assert "speech off screen is not in the labels" in printed
    assert "1 of 4 scored tracks have no labels: their speech is a false alarm" in printed
    assert "1 of 4 labelled tracks have no scores: their speech is missed" in printed


def test_later_pieces_of_an_entity_are_that_entity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pieces: list[Track] = [("v", "a", 0, 4, [(0, 4)]), ("v", "a#2", 6, 9, [(6, 9)]), ("v", "b#2", 4, 6, [(4, 6)])]
    whole: list[Track] = [("v", "a", 0, 4, [(0, 4)]), ("v", "a", 6, 9, [(6, 9)]), ("v", "b#2", 4, 6, [(4, 6)])]
    found = write_table(tmp_path / "scores.csv", pieces, score=True)
    evaluate_diarization(found, PLAIN, labels=write_table(tmp_path / "gt.csv", whole, score=False))
    expected = row("v", "0", "0.00", "0.00", "0.00", "0.00", "9.00", "0.00", "2")
    assert expected in words(capsys.readouterr().out)


def test_rttm_finds_a_video_with_a_blank_in_its_name(
    tmp_path: Path, text: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = write_table(tmp_path / "scores.csv", [("my talk", "a", 0, 4, [(1, 3)])], score=True)
    reference = text("ref.rttm", "SPEAKER my_talk 1 1.0 2.0 <NA> <NA> A <NA> <NA>\n")
    evaluate_diarization(found, PLAIN, rttm=reference)
    assert row("my talk", "0", "0.00") in words(capsys.readouterr().out)


def test_written_rttm_is_a_reference_that_scores_zero(scores: Path, tmp_path: Path) -> None:
    evaluate_diarization(scores, PLAIN, out=tmp_path / "reference")
    evaluate_diarization(scores, PLAIN, rttm=tmp_path / "reference" / "rttm", out=tmp_path / "out")
    content = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [(rates["der"], rates["jer"], rates["speech_s"]) for rates in content["all"]] == [(0, 0, 9), (0, 0, 6.5)]


def test_eval_takes_the_rules_from_the_command_line(
    scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> int:
        spec = importlib.util.spec_from_file_location("eval_command", REPOSITORY / "eval.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(sys, "argv", ["eval.py", f"--scores={scores}", "--diarization", *arguments])
        return run_command(module.main)

    assert run(f"--out={tmp_path / 'out'}", "--diarization.min_speech_s=2.0", "--diarization.smooth_s=0") == 0
    assert [name for name, _, _ in lines_of(tmp_path / "out" / "rttm" / "1.rttm")] == ["a", "b"]
    capsys.readouterr()
    assert run(f"--out={tmp_path / 'out'}", "--diarization.offset=0.9") == 2
    assert capsys.readouterr().err.startswith("config error: diarization.offset: expected at most diarization.onset")
    assert run() == 2
    assert capsys.readouterr().err == (
        "error: --diarization has nothing to do: give --out=FOLDER for RTTM files, or a reference with --rttm or"
        " --labels\n"
    )


def test_rttm_files_of_the_run_before_do_not_stay(scores: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    evaluate_diarization(scores, PLAIN, out=out)
    (out / "rttm" / "mine.rttm").write_text(";; not made here\n")
    labels = write_table(tmp_path / "gt.csv", SCORED, score=False)
    evaluate_diarization(scores, PLAIN, labels=labels, out=out)
    assert "all" in json.loads((out / "report.json").read_text())
    other = write_table(tmp_path / "other.csv", [("2", "a", 0, 6, [(1, 5)])], score=True)
    evaluate_diarization(other, PLAIN, out=out)
    assert sorted(path.name for path in (out / "rttm").iterdir()) == ["2.rttm", "mine.rttm"]
    assert "all" not in json.loads((out / "report.json").read_text())
    assert "DER" not in (out / "report.md").read_text()


def test_a_reference_is_not_written_over(scores: Path, tmp_path: Path) -> None:
    evaluate_diarization(scores, PLAIN, out=tmp_path)
    for reference in (tmp_path / "rttm", tmp_path / "rttm" / "1.rttm"):
        with pytest.raises(UsageError, match=r"which --out=.* would write over; give another folder for --out"):
            evaluate_diarization(scores, PLAIN, rttm=reference, out=tmp_path)


def test_the_report_is_complete_by_itself(scores: Path, tmp_path: Path, text: Callable[[str, str], Path]) -> None:
    people = text("people.csv", "1,a,Ann|Lee\n1,b,Bob\n1,c,Bob\n007,d,Bob\n")
    labels = write_table(tmp_path / "gt.csv", SCORED, score=False)
    out, command = tmp_path / "out", ["eval.py", f"--scores={scores}", "--diarization"]
    evaluate_diarization(scores, PLAIN, None, labels, people, out, 200, command)
    content = json.loads((out / "report.json").read_text())
    for name, path in (("scores", scores), ("labels", labels), ("identities", people)):
        assert content["files"][name]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert content["rules"] == {"smooth_s": 0, "onset": 0.5, "offset": 0.5, "min_speech_s": 0, "min_pause_s": 0}
    assert [content[f"num_{name}"] for name in ("rows", "tracks", "videos", "stretches")] == [550, 4, 2, 3]
    assert content["intervals"]["resamples"] == 200
    assert content["rttm"] == ["rttm/007.rttm", "rttm/1.rttm"]
    told = (out / "report.md").read_text()
    for part in (
        f"command: `python eval.py --scores={scores} --diarization`",
        content["files"]["identities"]["sha256"],
        "rules: smooth_s 0, onset 0.5",
        "3 stretches of speech from 550 score rows of 4 tracks in 2 videos",
        "collar: seconds on either side",
        "2 videos drawn with replacement, 200 resamples, seed 0",
        "| 1 | 0 | 0.00 | 0.00 | 0.00 | 0.00 | 9.00 | 0.00 | 2 |",
        content["versions"]["numpy"],
    ):
        assert part in told, part


def test_intervals_of_der_draw_videos(tmp_path: Path) -> None:
    # Video v has no error, w misses all of as much speech: DER 0 (vv), 1/2 (vw), 1 (ww).
    truth: list[Track] = [("v", "a", 0, 4, [(0, 4)]), ("w", "a", 0, 4, [(0, 4)])]
    found: list[Track] = [truth[0], ("w", "a", 0, 4, [])]
    paths = [write_table(tmp_path / f"{n}.csv", table, score=n == 0) for n, table in enumerate((found, truth))]
    for resamples, interval in ((400, [0.0, 1.0]), (0, None), (50, None)):
        evaluate_diarization(paths[0], PLAIN, labels=paths[1], out=tmp_path / "out", resamples=resamples)
        content = json.loads((tmp_path / "out" / "report.json").read_text())
        assert content["all"][0]["der"] == 0.5
        assert (content["all"][0]["der_interval"], content["all"][0]["jer_interval"]) == (interval, interval)
        assert ("50 resamples: no intervals, which take 100 or more" in content["notes"]) == (resamples == 50)


def test_labels_may_have_two_more_columns(scores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = write_table(tmp_path / "gt.csv", SCORED, score=False)
    labels.write_text("".join(f"{line},7,0\n" for line in labels.read_text().splitlines()))
    evaluate_diarization(scores, PLAIN, labels=labels)
    assert row("1", "0", "0.00") in words(capsys.readouterr().out)


def test_wrong_input_is_told_in_one_line(scores: Path, tmp_path: Path, text: Callable[[str, str], Path]) -> None:
    def error(**given: Path) -> str:
        with pytest.raises(AvfusionError) as caught:
            evaluate_diarization(**{"scores": scores, "out": tmp_path / "out", **given}, rules=PLAIN)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out").exists()
        return str(caught.value)

    line = f"v,1.00,{BOX},SPEAKING_AUDIBLE,a"
    assert "1 scores outside 0..1, first 3.5 of 'v' at 1.000 s, 'a' (line 1); expected probabilities" in error(
        scores=text("logits.csv", f"{line},3.5\n")
    )
    assert "'v' at 1.000 s, 'a' (line 2) is there twice" in error(scores=text("twice.csv", f"{line},0.5\n{line},0.5\n"))
    stamps = "".join(f"v,{40 * n},{BOX},SPEAKING_AUDIBLE,a,0.5\n" for n in range(9))
    assert "rows of a face in 'v' stand 40 s apart, expected frames at most 1 s apart" in error(
        scores=text("milliseconds.csv", stamps)
    )
    assert "no score rows" in error(scores=text("header.csv", f"video_id,frame_timestamp,{BOX_HEADER},score\n"))
    reference = text("ref.rttm", "SPEAKER w 1 0 1 <NA> <NA> A <NA> <NA>\n")
    assert "(007, 1) is in" in error(rttm=reference)
    assert "ref.rttm (w); expected the same video ids in both" in error(rttm=reference)
    assert "no SPEAKER line, expected the turns of a reference" in error(rttm=text("empty.rttm", ";; nothing\n"))
    people = text("people.csv", "1,a,A\n1,b,B\n")
    assert "no speaker for 2 of 4 tracks, first 'c' of '1'; expected a line 1,c,SPEAKER" in error(identities=people)
    with pytest.raises(UsageError, match="two references; give one"):
        evaluate_diarization(scores, PLAIN, rttm=reference, labels=reference)


BOX_HEADER = "entity_box_x1,entity_box_y1,entity_box_x2,entity_box_y2,label,entity_id"


def test_without_pyannote_rttm_is_written_all_the_same(
    scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyannote.metrics", None)
    evaluate_diarization(scores, PLAIN, out=tmp_path / "out")
    assert (tmp_path / "out" / "rttm" / "1.rttm").is_file()
    with pytest.raises(AvfusionError, match=r"pip install pyannote\.metrics$"):
        evaluate_diarization(tmp_path / "not-even-read.csv", PLAIN, rttm=tmp_path / "ref.rttm")


def test_a_map_of_identities_keeps_ids_as_text(text: Callable[[str, str], Path]) -> None:
    path = text("people.csv", "\ufeffvideo_id,entity_id,speaker\n007,1e5,NA\n\n7,1e5,null\n007,1e5,NA\n")
    assert read_identities(path) == {("007", "1e5"): "NA", ("7", "1e5"): "null"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1,a,A\n1,a,B\n", "line 2: 'a' of '1' is 'B', and was 'A' before, expected one speaker a track"),
        ("1,a\n", "line 1: found '1,a', expected video_id,entity_id,speaker"),
        ("1,a,A\n1,b, \n", "line 2: found '1,b, ', expected video_id,entity_id,speaker"),
        (
            "speaker,video_id,entity_id\n",
            "line 1: found 'speaker,video_id,entity_id', expected video_id,entity_id,speaker",
        ),
        ("video_id,entity_id,speaker\n", "no line of video_id,entity_id,speaker, expected one for each track"),
    ],
)
def test_a_wrong_map_is_told(text: Callable[[str, str], Path], content: str, message: str) -> None:
    with pytest.raises(AvfusionError) as caught:
        read_identities(text("people.csv", content))
    assert message in str(caught.value)
