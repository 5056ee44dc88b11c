"""A run that is killed goes on and ends with the same bytes; what is kept, what is done anew, what is refused."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from avfusion.errors import AvfusionError, UsageError
from avfusion.faces import extract
from avfusion.inference import pipeline
from avfusion.inference.outputs import write as outputs
from avfusion.inference.pipeline import FaceFinder, run_video
from avfusion.inference.report import Report
from avfusion.inference.settings import Settings
from avfusion.inference.trained import TrainedModel
from avfusion.inference.work_folder import LOCK, REPORT, STATE, open_work_folder
from avfusion.media.ingest_writer import IngestWriter
from tests.inference.painted import PAINTED, Face, RedDetector, Watcher, planted, small, untrained, write_film

QUICK = Settings(overlay=False, viewer=False)
STAGES = ["ingest", "faces", "crops", "scores", "outputs"]
TIMED = {STATE, LOCK, "report.json"}  # they hold seconds


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    faces = [Face(10, flashes=lambda n: n % 5 == 0), Face(100, first=6)]
    return write_film(tmp_path_factory.mktemp("films") / "film.mp4", faces, num_frames=30, tone=(5, 15))


@pytest.fixture(scope="module")
def unbroken(film: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("unbroken") / "film"
    run(film, folder)
    return files_of(folder)


def run(
    film: Path,
    folder: Path,
    settings: Settings = QUICK,
    trained: TrainedModel | None = None,
    finder: FaceFinder = PAINTED,
) -> Report:
    return run_video(film, folder, trained or untrained(small(speaker__layers=1)), finder, settings)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in TIMED
    }


def kept(report: Report) -> list[str]:
    return [name for name, stage in report.stages.items() if stage.kept]


def stop_at(count: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which is cut short by Ctrl-C at the so many-th call."""
    calls = 0

    def stopping(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    return stopping


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_run_goes_on_where_it_stopped_and_ends_with_the_same_bytes(
    stage: str, film: Path, unbroken: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = untrained(small(speaker__layers=1))
    with monkeypatch.context() as patched:
        where, name, count = {
            "ingest": (IngestWriter, "_write_picture", 12),
            "faces": (RedDetector, "__call__", 3),
            "crops": (extract, "crop_square", 25),
            "scores": (trained.model, "forward", 1),
            "outputs": (outputs, "write_segments", 1),
        }[stage]
        patched.setattr(where, name, stop_at(count, getattr(where, name)))
        with pytest.raises(KeyboardInterrupt):
            run(film, tmp_path / "film", trained=trained)
    report = run(film, tmp_path / "film")
    assert kept(report) == STAGES[: STAGES.index(stage)]
    assert files_of(tmp_path / "film") == unbroken


def test_a_finished_run_does_nothing_again(film: Path, tmp_path: Path) -> None:
    first = run(film, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*") if path.name not in TIMED}
    again = run(film, tmp_path / "out")
    assert kept(again) == STAGES
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in before.items())
    assert again.seconds == first.seconds
    assert again.outputs == first.outputs


@pytest.mark.parametrize(
    ("settings", "first_anew"),
    [
        (Settings(overlay=False, viewer=False, salvage=True), "ingest"),
        (Settings(overlay=False, viewer=False, shortest_frames=3), "faces"),
        (Settings(overlay=False, viewer=False, smooth_s=1.0), "outputs"),
        (Settings(overlay=False, viewer=False, threshold=0.1), "outputs"),
        (Settings(overlay=False, viewer=False, threads=1), None),
    ],
)
def test_another_setting_costs_what_depends_on_it(
    settings: Settings, first_anew: str | None, film: Path, tmp_path: Path
) -> None:
    run(film, tmp_path / "other" / "film")
    report = run(film, tmp_path / "other" / "film", settings)
    assert kept(report) == (STAGES if first_anew is None else STAGES[: STAGES.index(first_anew)])
    run(film, tmp_path / "fresh" / "film", settings)
    assert files_of(tmp_path / "other" / "film") == files_of(tmp_path / "fresh" / "film")


def test_another_model_and_another_detector_cost_what_depends_on_them(film: Path, tmp_path: Path) -> None:
    run(film, tmp_path / "out")
    assert kept(run(film, tmp_path / "out", trained=planted(Watcher()))) == ["ingest", "faces", "crops"]
    larger = planted(Watcher())
    larger.config.data.crop_size = 160
    assert kept(run(film, tmp_path / "out", trained=larger)) == ["ingest", "faces"]
    other = RedDetector()
    other.min_confidence = 0.7
    assert kept(run(film, tmp_path / "out", finder=FaceFinder(other))) == ["ingest"]


def test_a_result_that_was_changed_or_removed_is_made_again(film: Path, tmp_path: Path) -> None:
    run(film, tmp_path / "out")
    whole = files_of(tmp_path / "out")
    (tmp_path / "out/scores.csv").write_text("edited")
    assert kept(run(film, tmp_path / "out")) == STAGES[:-1]
    next((tmp_path / "out/dataset/crops").rglob("*.mp4")).unlink()
    assert kept(run(film, tmp_path / "out")) == [*STAGES[:2], *STAGES[3:]]  # the same crops again
    assert files_of(tmp_path / "out") == whole


def test_another_video_in_the_folder_is_refused_and_a_moved_one_is_known(film: Path, tmp_path: Path) -> None:
    run(film, tmp_path / "out")
    before = files_of(tmp_path / "out")
    other = write_film(tmp_path / "film.mp4", [], num_frames=10)  # of the same name
    with pytest.raises(UsageError, match=r"holds the result of another video \(.*film\.mp4\); choose another folder"):
        run(other, tmp_path / "out")
    assert files_of(tmp_path / "out") == before
    moved = tmp_path / "elsewhere" / "film.mp4"
    moved.parent.mkdir()
    moved.write_bytes(film.read_bytes())
    os.utime(moved, ns=(film.stat().st_atime_ns, film.stat().st_mtime_ns))
    assert kept(run(moved, tmp_path / "out")) == STAGES


def test_a_file_that_changed_in_its_place_is_worked_on_anew(tmp_path: Path) -> None:
    source = write_film(tmp_path / "film.mp4", [Face(10), Face(100)], num_frames=20)
    run(source, tmp_path / "out" / "film")
    write_film(source, [Face(60)], num_frames=15)
    report = run(source, tmp_path / "out" / "film")
    assert kept(report) == []
    assert report.num_faces == 1
    run(source, tmp_path / "fresh" / "film")
    assert files_of(tmp_path / "out" / "film") == files_of(tmp_path / "fresh" / "film")


def test_a_strangers_folder_and_a_run_at_work_are_left_alone(film: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match=r"holds files that are no result of this command \(thesis\.txt\)"):
        run(film, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        run(film, tmp_path / "file")
    with open_work_folder(tmp_path / "busy", film), pytest.raises(UsageError, match="another run is at work there"):
        run(film, tmp_path / "busy")


@pytest.mark.parametrize("name", ["overlay.mp4", "viewer.html"])
def test_a_file_of_an_outputs_name_that_this_command_did_not_make_is_left_alone(
    film: Path, tmp_path: Path, name: str
) -> None:
    run(film, tmp_path / "out")
    before = files_of(tmp_path / "out")
    (tmp_path / "out" / name).write_text("years of work")
    other = replace(QUICK, threshold=0.7)
    with pytest.raises(UsageError, match=rf"{name} was not made by this command and would be replaced; move it away"):
        run(film, tmp_path / "out", other)
    assert files_of(tmp_path / "out") == before | {name: b"years of work"}
    (tmp_path / "out" / name).unlink()
    assert kept(run(film, tmp_path / "out", other)) == STAGES[:4]


def test_a_model_that_fails_leaves_the_results_of_the_one_before(film: Path, tmp_path: Path) -> None:
    run(film, tmp_path / "out")
    before = files_of(tmp_path / "out")
    broken = untrained(small(speaker__layers=1))
    with torch.no_grad():
        broken.model.head.bias.fill_(math.nan)
    with pytest.raises(AvfusionError):
        run(film, tmp_path / "out", trained=replace(broken, sha256="other"))
    assert files_of(tmp_path / "out") == before
    assert kept(run(film, tmp_path / "out")) == STAGES


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every file name is text")
def test_a_film_whose_name_is_no_text_is_worked_on(film: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"film\xff.mp4")
    odd.write_bytes(film.read_bytes())
    report = run(odd, tmp_path / os.fsdecode(b"out\xff"))
    assert report.num_faces == 2


def test_a_damaged_state_is_told(film: Path, tmp_path: Path) -> None:
    run(film, tmp_path / "out")
    (tmp_path / "out" / STATE).write_text('{"format_version": 1')
    with pytest.raises(AvfusionError, match=r"state\.json is damaged; remove .* and run the same command again"):
        run(film, tmp_path / "out")


def test_a_stage_of_an_older_rule_is_done_anew(film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(film, tmp_path / "out")
    monkeypatch.setattr("avfusion.inference.work_folder.FORMAT_VERSION", 99)
    assert kept(run(film, tmp_path / "out")) == []


def test_what_the_options_no_longer_ask_for_does_not_stay(
    film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overlay of other scores must not lie beside a table of these."""

    def with_overlay(result: Any, folder: Path, *args: Any, overlay: bool, **kwargs: Any) -> Any:
        files = [folder / "scores.csv", *([folder / "overlay.mp4"] if overlay else [])]
        for file in files:
            file.write_text("x")
        return files, ["the overlay is plain"] if overlay else []

    monkeypatch.setattr("avfusion.inference.outputs.write_outputs", with_overlay)
    drawn = run(film, tmp_path / "out", Settings(viewer=False))
    assert len(drawn.outputs) == 3
    assert "the overlay is plain" in drawn.notes
    assert "the overlay is plain" in json.loads((tmp_path / "out" / REPORT).read_text())["notes"]
    plain = run(film, tmp_path / "out", QUICK)
    assert len(plain.outputs) == 2
    assert "the overlay is plain" not in plain.notes
    assert not (tmp_path / "out" / "overlay.mp4").exists()
    assert pipeline.MEDIA in {path.name for path in (tmp_path / "out").iterdir()}
