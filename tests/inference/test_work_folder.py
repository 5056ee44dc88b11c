"""A folder's stages without films: what fails leaves the results that were there, and nobody else's file is taken."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from avfusion.errors import AvfusionError, UsageError
from avfusion.files import whole_file
from avfusion.inference.work_folder import REPORT, STATE, open_work_folder

FIRST, SECOND = "media/film.bin", "result.txt"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "talk.mp4"
    path.write_text("a film")
    return path


@pytest.fixture
def folder(tmp_path: Path, source: Path) -> Path:
    """With two finished stages."""
    folder = tmp_path / "out"
    run(folder, source)
    return folder


def writes(folder: Path, name: str, text: str) -> Callable[[], tuple[Mapping[str, Any], Sequence[Path]]]:
    def work() -> tuple[Mapping[str, Any], Sequence[Path]]:
        with whole_file(folder / name) as part:
            part.write_text(text)
        return {"text": text}, [folder / name]

    return work


def fails(*_: object) -> tuple[Mapping[str, Any], Sequence[Path]]:
    raise AvfusionError("it failed")


def run(
    folder: Path, source: Path, first: int = 1, second: int = 1, at_first: Any = None, at_second: Any = None
) -> str:
    """Both stages; says which were kept."""
    with open_work_folder(folder, source) as work:
        work.do("first", {"n": first}, at_first or writes(folder, FIRST, f"film {first}"), ("media",))
        work.do("second", {"n": second}, at_second or writes(folder, SECOND, f"result {second}"), (SECOND, REPORT))
        return " ".join(name for name, record in work.stages.items() if record.kept)


def texts(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in (FIRST, SECOND) if (folder / name).is_file()}


@pytest.mark.parametrize("stage", ["first", "second"])
@pytest.mark.parametrize("error", [AvfusionError("no"), UsageError("no"), KeyboardInterrupt(), OSError(28, "full")])
def test_a_stage_that_fails_leaves_what_was_there(folder: Path, source: Path, stage: str, error: BaseException) -> None:
    def work() -> tuple[Mapping[str, Any], Sequence[Path]]:
        assert not (folder / {"first": FIRST, "second": SECOND}[stage]).exists()  # no old file for a new one
        raise error

    with pytest.raises(type(error)):
        run(folder, source, **{stage: 2, f"at_{stage}": work})
    assert texts(folder) == {FIRST: "film 1", SECOND: "result 1"}
    assert sorted(file.name for file in folder.iterdir()) == [".lock", "media", SECOND, STATE]
    assert run(folder, source) == "first second"


def test_results_stay_until_there_are_others_though_an_earlier_stage_is_done_anew(folder: Path, source: Path) -> None:
    with pytest.raises(AvfusionError, match="it failed"):
        run(folder, source, first=2, at_second=fails)
    assert texts(folder) == {FIRST: "film 2", SECOND: "result 1"}
    assert run(folder, source, first=2) == "first"  # but they are no results of that
    assert run(folder, source) == ""
    assert run(folder, source) == "first second"


def test_a_stage_that_comes_to_what_it_had_come_to_leaves_the_later_ones_valid(folder: Path, source: Path) -> None:
    (folder / FIRST).unlink()
    assert run(folder, source) == "second"
    run(folder, source, at_first=writes(folder, FIRST, "film 1"))
    with pytest.raises(AvfusionError, match="it failed"):
        run(folder, source, first=2, at_second=fails)
    assert run(folder, source) == "second"
    assert texts(folder) == {FIRST: "film 1", SECOND: "result 1"}


def test_a_source_that_was_replaced_by_something_useless_costs_no_result(folder: Path, source: Path) -> None:
    source.write_text("no film any more")
    with pytest.raises(AvfusionError, match="it failed"):
        run(folder, source, at_first=fails)
    assert texts(folder) == {FIRST: "film 1", SECOND: "result 1"}
    assert run(folder, source) == ""  # another file: nothing is kept now that it can be read
    assert run(folder, source) == "first second"


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_damage_that_keeps_the_size_is_noticed(folder: Path, source: Path, name: str) -> None:
    path = folder / name
    path.write_text(path.read_text().replace("l", "x"))
    assert run(folder, source) == ("second" if name == FIRST else "first")
    assert texts(folder) == {FIRST: "film 1", SECOND: "result 1"}


def test_what_a_killed_run_left_half_written_or_set_aside_is_removed(folder: Path, source: Path) -> None:
    (folder / f"{SECOND}.0123456789ab.part").write_text("half")
    (folder / ".earlier").mkdir()
    (folder / "mine.part").write_text("of somebody")
    assert run(folder, source) == "first second"
    assert sorted(file.name for file in folder.iterdir()) == [".lock", "media", "mine.part", SECOND, STATE]


@pytest.mark.parametrize("stage", ["first", "second"])
@pytest.mark.parametrize("when", ["before it moved a file", "after", "when it had written"])
def test_a_killed_run_leaves_what_was_there(
    folder: Path, source: Path, stage: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk as it is at that instant, in another place, where nothing is tidied up."""
    name = {"first": FIRST, "second": SECOND}[stage]
    killed = folder.parent / "killed"

    def work() -> tuple[Mapping[str, Any], Sequence[Path]]:
        if when == "when it had written":
            (folder / name).write_text("new")
        shutil.copytree(folder, killed)
        raise KeyboardInterrupt

    def no_move(*_: object) -> None:
        shutil.copytree(folder, killed)
        raise KeyboardInterrupt

    if when == "before it moved a file":
        monkeypatch.setattr("avfusion.inference.work_folder._move", no_move)
    with pytest.raises(KeyboardInterrupt):
        run(folder, source, **{stage: 2, f"at_{stage}": work})
    monkeypatch.undo()
    with open_work_folder(killed, source):
        assert texts(killed) == {FIRST: "film 1", SECOND: "result 1"}
    assert sorted(file.name for file in killed.iterdir()) == [".lock", "media", SECOND, STATE]
    assert run(killed, source) == "first second"
    assert run(killed, source, **{stage: 2}) == ("" if stage == "first" else "first")


def test_a_run_that_was_killed_while_it_wrote_its_first_state_can_go_on(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / ".lock").touch()
    (folder / f"{STATE}.0123456789ab.part").write_text("{")
    assert run(folder, source) == ""
    assert run(folder, source) == "first second"


def test_a_killed_run_is_known_by_the_stage_that_it_had_begun(folder: Path, source: Path) -> None:
    with open_work_folder(folder, source) as work:
        assert work.interrupted == set()
    state = json.loads((folder / STATE).read_text())
    (folder / STATE).write_text(json.dumps(state | {"begun": ["second"]}))
    with open_work_folder(folder, source) as work:
        assert work.interrupted == {"second"}


def test_a_strangers_file_where_a_stage_writes_is_refused_before_anything_is_lost(folder: Path, source: Path) -> None:
    mine = folder / "media" / "mine.txt"
    mine.write_text("years of work")
    with pytest.raises(UsageError, match=r"mine\.txt was not made by this command and would be replaced; move it away"):
        run(folder, source, first=2)
    assert texts(folder) == {FIRST: "film 1", SECOND: "result 1"}
    assert run(folder, source) == "first second"
    assert mine.read_text() == "years of work"
    mine.unlink()
    assert run(folder, source, first=2) == ""


def test_a_strangers_file_that_was_refused_is_refused_again(folder: Path, source: Path) -> None:
    (folder / SECOND).rename(folder / "mine")
    state = json.loads((folder / STATE).read_text())
    del state["stages"]["second"]
    (folder / STATE).write_text(json.dumps(state))
    (folder / "mine").rename(folder / SECOND)
    for _ in range(2):  # the first stage is done anew
        with pytest.raises(UsageError, match=r"result\.txt was not made by this command"):
            run(folder, source, first=2)
        assert texts(folder) == {FIRST: "film 2", SECOND: "result 1"}


def test_what_a_killed_stage_left_is_no_strangers_however_long_ago(folder: Path, source: Path) -> None:
    """Killed in the second stage, then in the first: what the second had begun is still known as ours."""
    state = json.loads((folder / STATE).read_text())
    (folder / STATE).write_text(json.dumps(state | {"stages": {}, "begun": ["second"]}))
    (folder / FIRST).unlink()
    begun = []

    def looks() -> tuple[Mapping[str, Any], Sequence[Path]]:
        begun.extend(json.loads((folder / STATE).read_text())["begun"])
        raise AvfusionError("killed")

    with pytest.raises(AvfusionError, match="killed"):
        run(folder, source, at_first=looks)
    assert begun == ["first", "second"]
    assert run(folder, source) == ""
    assert texts(folder) == {FIRST: "film 1", SECOND: "result 1"}
    assert json.loads((folder / STATE).read_text())["begun"] == []


def test_a_report_goes_with_the_results_it_tells_of(folder: Path, source: Path) -> None:
    report = folder / REPORT
    report.write_text("{}")
    with pytest.raises(AvfusionError, match="it failed"):
        run(folder, source, second=2, at_second=fails)
    assert report.read_text() == "{}"
    run(folder, source, second=2)
    assert not report.exists()


def test_a_folder_that_is_refused_stays_as_it_was(tmp_path: Path, source: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="holds files that are no result"):
        run(mine, source)
    assert [file.name for file in mine.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": "x"},
        {"found": []},
        {"files": {"../victim.txt": "0"}},
        {"files": {"/victim.txt": "0"}},
        {"files": {SECOND: 5}},
        {"files": 3},
    ],
)
def test_a_state_of_odd_values_is_told_and_touches_nothing(
    folder: Path, source: Path, change: dict[str, object]
) -> None:
    victim = folder.parent / "victim.txt"
    victim.write_text("keep me")
    state = json.loads((folder / STATE).read_text())
    state["stages"]["second"] |= change
    (folder / STATE).write_text(json.dumps(state))
    with pytest.raises(AvfusionError, match=r"state\.json is damaged; remove .* and run the same command again"):
        run(folder, source, second=2)
    assert victim.read_text() == "keep me"
    assert texts(folder) == {FIRST: "film 1", SECOND: "result 1"}


@pytest.mark.parametrize("name", ["../victims", "..", "/tmp", 5, ""])
def test_a_state_that_names_a_stage_by_a_path_is_told(folder: Path, source: Path, name: object) -> None:
    state = json.loads((folder / STATE).read_text())
    (folder / STATE).write_text(json.dumps(state | {"begun": [name]}))
    with pytest.raises(AvfusionError, match=r"state\.json is damaged; remove .* and run the same command again"):
        run(folder, source)
    assert texts(folder) == {FIRST: "film 1", SECOND: "result 1"}


def test_a_film_that_cannot_be_read_leaves_no_folder_but_one_with_something_in_it_stays(
    tmp_path: Path, source: Path
) -> None:
    out = tmp_path / "runs" / "talk"
    with pytest.raises(AvfusionError, match="it failed"):
        run(out, source, at_first=fails)
    assert not out.exists()
    with pytest.raises(AvfusionError, match="it failed"):
        run(out, source, at_second=fails)
    assert texts(out) == {FIRST: "film 1"}
    assert run(out, source) == "first"

    def half(*_: object) -> tuple[Mapping[str, Any], Sequence[Path]]:
        (tmp_path / "half" / "media").mkdir()
        (tmp_path / "half" / FIRST).write_text("some pictures")
        raise AvfusionError("it failed")

    with pytest.raises(AvfusionError, match="it failed"):
        run(tmp_path / "half", source, at_first=half)
    assert (tmp_path / "half" / FIRST).exists()
    assert run(tmp_path / "half", source) == ""
