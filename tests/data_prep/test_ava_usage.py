"""What ``python -m data_prep.ava`` refuses before any work, in one line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import data_prep.ava as command
from tests.data_prep.ava_command import extract, labels_of
from tests.data_prep.mini_ava import MiniAva


@pytest.mark.parametrize("name", ["list", "extract"])
def test_labels_without_a_row_and_labels_at_a_low_rate_are_refused(
    mini: MiniAva, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = [str(tmp_path / "out")] if name == "extract" else []
    empty = labels_of(tmp_path / "empty.csv", "video_id,frame_timestamp,x1,y1,x2,y2,label,entity_id")
    slow = labels_of(tmp_path / "slow.csv", *(f"NA,{n / 2},0.1,0.2,0.4,0.8,NOT_SPEAKING,NA:1" for n in range(11)))
    for labels, code, message in (
        (empty, 1, "holds no row"),
        (slow, 2, "rows of a face stand 0.50 s apart;"),
    ):
        assert command.main([name, *out, f"--films={mini.films}", "--labels", f"val={labels}"]) == code
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_the_disk_budget_is_told_and_refused_before_work(
    mini: MiniAva, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    assert extract(mini, tmp_path / "out") == 2
    output = capsys.readouterr()
    assert "3 films to extract, 883 annotated boxes, 8 tracks, 826 frames" in output.out
    assert "has 1 MB free, the films left to extract need about 18" in output.err
    assert len(output.err.splitlines()) == 1
    assert not list((tmp_path / "out").rglob("*.mp4"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shard", "0/2"], "expected i/n with i from 1 to n"),
        (["--shard", "3/2"], "expected i/n with i from 1 to n"),
        (["--jobs", "0"], "--jobs=0"),
        (["--crop-size", "47"], "--crop-size=47"),
        (["--max-gap", "-1"], "--max-gap=-1"),
        (["--max-gap", "0"], "--max-gap=0: expected seconds from 0.05 to 60"),
        (["--columns", "lrs"], "invalid choice: 'lrs'"),
        (["--labels", "labels.csv"], "expected SPLIT=FILE_OR_FOLDER"),
        (["--labels", "val=nowhere.csv"], "nothing at nowhere.csv"),
        (["--films", "nowhere"], "no folder of films at nowhere"),
        (["--labels", "train={val}", "val={val}"], "is in the splits 'train' and 'val'"),
    ],
)
def test_wrong_usage_is_one_line(
    mini: MiniAva, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [argument.format(**mini.labels) for argument in arguments]
    assert extract(mini, tmp_path / "out", *given) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_other_settings_and_other_folders_are_refused(
    mini: MiniAva, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert extract(mini, made, "--max-gap", "2") == 2
    assert "was begun with other settings (max_gap_s: 0.2, now 2.0); choose" in capsys.readouterr().err
    assert command.main(["finish", str(tmp_path)]) == 2
    assert "no dataset was begun there" in capsys.readouterr().err
