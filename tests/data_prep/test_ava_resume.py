"""``python -m data_prep.ava`` goes on: killed, in shards, or with other films, it ends as one unbroken run."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

import data_prep.ava as command
import data_prep.film_dataset as film_dataset
from tests.data_prep import mini_ava
from tests.data_prep.ava_command import contents, extract
from tests.data_prep.mini_ava import MiniAva


@pytest.fixture(scope="module")
def short(mini: MiniAva, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path]:
    """Labels of the two films that are quickly decoded, and their dataset made without a break."""
    folder = tmp_path_factory.mktemp("short")
    (folder / "val.csv").write_text(mini_ava.csv_text(mini_ava.rows_of(mini_ava.FILMS[1])))
    labels = {"train": mini.labels["train"], "val": folder / "val.csv"}
    assert extract(mini, folder / "dataset", **labels) == 0
    return labels, folder / "dataset"


@pytest.mark.parametrize(
    "more", [("--jobs", "1"), ("--jobs", "2"), ("--shard", "1/1")], ids=["alone", "workers", "shard"]
)
def test_three_kills_at_random_and_a_rerun_give_the_same_dataset(
    short: tuple[dict[str, Path], Path], mini: MiniAva, tmp_path: Path, more: tuple[str, str]
) -> None:
    labels, whole = short
    out = tmp_path / "dataset"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["data_prep.ava"])
    rng = random.Random(7)
    interrupted = 0
    for files in sorted(rng.sample(range(4, 12), 3)):
        process = context.Process(target=_extract_in_child, args=(mini, out, labels, *more))
        process.start()
        while process.is_alive() and (not out.is_dir() or sum(p.is_file() for p in out.rglob("*")) < files):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.05))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        interrupted += not (out / "dataset.json").exists()
        _wait_for_workers(out)
    assert interrupted == 3
    assert extract(mini, out, *more, **labels) == 0
    if more[0] == "--shard":
        assert command.main(["finish", str(out)]) == 0
    assert contents(out) == contents(whole)


def _extract_in_child(mini: MiniAva, out: Path, labels: dict[str, Path], *more: str) -> None:
    extract(mini, out, *more, **labels)


def _wait_for_workers(out: Path) -> None:
    """Workers end when their parent does: after a moment nothing changes any more."""
    before, deadline = None, time.monotonic() + 60
    while before != (now := sorted((path, path.stat().st_size) for path in out.rglob("*.part"))) or now:
        assert time.monotonic() < deadline
        if before == now:
            return  # parts that nobody writes
        before = now
        time.sleep(0.5)


def test_shards_and_finish_make_the_unsharded_dataset(
    made: Path, mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "dataset"
    assert extract(mini, out, "--shard", "1/2") == 0
    assert not (out / "dataset.json").exists()
    capsys.readouterr()
    assert command.main(["finish", str(out)]) == 1
    assert "1 of 3 films are not extracted yet (val/NA)" in capsys.readouterr().err
    assert extract(mini, out, "--shard", "2/2") == 0
    assert command.main(["finish", str(out)]) == 0
    assert contents(out) == contents(made)
    capsys.readouterr()
    assert extract(mini, out) == 0
    assert "is finished already: 3 films" in capsys.readouterr().out


def test_a_film_added_later_is_in_the_tables_even_if_the_run_stops_just_before_they_are_written(
    mini: MiniAva, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    films, out = Path(shutil.copytree(mini.films, tmp_path / "films")), tmp_path / "dataset"
    shutil.move(films / "NA.mp4", tmp_path / "NA.mp4")
    assert extract(mini, out, "--allow-missing", films=films) == 0
    before = contents(out)
    shutil.move(tmp_path / "NA.mp4", films / "NA.mp4")

    def stops(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(film_dataset, "finish_films", stops)
        assert extract(mini, out, films=films) == 130
    added = {name for name in contents(out) if "/NA" in name} - {"sources/val/NA-1.json"}
    assert {name: text for name, text in contents(out).items() if name in before} == before  # still whole, and usable
    assert added
    capsys.readouterr()
    assert extract(mini, out, films=films) == 0
    assert "finished already" not in capsys.readouterr().out
    assert contents(out) == contents(made)


def test_a_film_that_takes_the_place_of_another_leaves_nothing_of_it(
    mini: MiniAva, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    films, out = Path(shutil.copytree(mini.films, tmp_path / "films")), tmp_path / "dataset"
    first = mini_ava.FILMS[0]
    short = dataclasses.replace(
        first,
        picture_times=first.picture_times[:130],
        faces=tuple(dataclasses.replace(f, tone_hz=999) for f in first.faces),
    )
    mini_ava.write_film(films / "-x.mkv", short)  # another cut: 5.2 s of picture, other sound
    assert extract(mini, out, films=films) == 1
    assert "it is another cut of the film" in capsys.readouterr().err
    assert list(out.glob("audio/train/*.flac"))  # begun with the wrong film ...
    shutil.copy2(mini.films / "-x.mkv", films / "-x.mkv")
    assert extract(mini, out, films=films) == 0
    assert contents(out) == contents(made)  # ... and nothing is left of it

    os.utime(films / "-x.mkv", (1, 1))
    capsys.readouterr()
    assert extract(mini, out, films=films) == 0
    assert "1 films are other files than those extracted before (train/-x)" in capsys.readouterr().err
