"""Stretches of speech: worked by hand, the same as those of the scores' file, and never across the end of a track."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from avfusion.evaluation.diarization.diarize import diarize
from avfusion.evaluation.diarization.segments import Segmentation
from avfusion.inference.outputs.speech import SpeechRules, find_speech, speaking_frames, speaking_runs
from avfusion.inference.outputs.table import write_table
from avfusion.tracks import read_scores
from tests.inference.results import face, result_of

RULES = SpeechRules.at(0.5)  # ends below 0.4; pauses from 8 frames, stretches from 5


def runs(text: str) -> list[tuple[int, int]]:
    """Stretches of scores that are written as tenths, one digit a frame."""
    return speaking_runs(np.array([int(digit) for digit in text], np.float32) / 10, RULES)


def test_starts_at_the_onset_and_ends_below_the_offset() -> None:
    assert runs("004445544444441110") == [(5, 14)]  # 0.4 holds what 0.5 began, and begins nothing
    assert runs("4444444444") == []
    assert runs("0099999") == [(2, 7)]  # open at the end of the track


def test_short_pauses_are_filled_and_then_short_stretches_dropped() -> None:
    assert runs("9999900000009999900") == [(0, 17)]  # 7 frames: 0.28 s
    assert runs("99999000000009999900") == [(0, 5), (13, 18)]  # 8 frames: 0.32 s
    assert runs("0999900000000000999990") == [(16, 21)]  # 4 frames: 0.16 s
    assert runs("0990990") == [(1, 6)]  # two short ones become a long enough one


def test_tracks_of_one_frame_and_empty_ones() -> None:
    assert runs("9") == []
    assert speaking_runs(np.zeros(0, np.float32), RULES) == []
    assert speaking_runs(np.ones(1, np.float32), SpeechRules(0.5, 0.4, 0.0, 0.0)) == [(0, 1)]


def test_a_stretch_ends_with_its_track() -> None:
    result = result_of([face("face0", 0, [0.9] * 10), face("face1", 12, [0.9] * 10)])
    found = [(one.face, one.first, one.end) for one in find_speech(result, RULES)]
    assert found == [(0, 0, 10), (1, 12, 22)]  # 80 ms apart, and two faces for all we know


def test_times_means_and_frames_by_hand() -> None:
    result = result_of([face("b", 50, [0.1, 0.6, 0.8, 0.7, 0.9, 0.5, 0.1]), face("a", 40, [0.9] * 6)])
    late, early = sorted(find_speech(result, RULES), key=lambda one: one.face)
    assert [one.face for one in find_speech(result, RULES)] == [1, 0]  # by time
    assert (late.start_s, late.end_s) == (2.04, 2.24)
    assert (early.start_s, early.end_s) == (1.6, 1.84)
    assert late.mean_score == pytest.approx((0.6 + 0.8 + 0.7 + 0.9 + 0.5) / 5, abs=1e-7)
    frames = speaking_frames(result, find_speech(result, RULES))
    assert frames[0].tolist() == [False, True, True, True, True, True, False]
    assert frames[1].all()


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8])
def test_the_score_file_read_by_eval_gives_the_same_stretches(tmp_path: Path, threshold: float) -> None:
    rng = np.random.default_rng(3)
    faces = []
    for number in range(6):
        steps = np.convolve(rng.normal(size=310), np.ones(11) / 3, "valid")
        faces.append(face(f"face{number}", 37 * number, np.round(1 / (1 + np.exp(-steps)), 2)))
    result = result_of(faces, num_frames=600)
    rules = SpeechRules.at(threshold)
    found = find_speech(result, rules)
    assert len(found) > 10
    write_table(tmp_path / "scores.csv", result, speaking_frames(result, found))
    same = Segmentation(0.0, rules.onset, rules.offset, rules.min_speech_s, rules.min_pause_s)
    of_file = diarize(read_scores(tmp_path / "scores.csv"), same)["talk"]
    ours = {(f"face{one.face}", round(one.start_s, 3), round(one.end_s, 3)): one.mean_score for one in found}
    theirs = {(one.speaker, one.start_s, one.end_s): one.mean_score for one in of_file}
    assert ours.keys() == theirs.keys()
    assert ours == pytest.approx(theirs, abs=1e-6)
