"""Facts about ``python -m data_prep.verify``: what it prints, what it returns, and that it changes nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

import data_prep.verify as command
from avfusion.data.prepared import PreparedDataset
from avfusion.data.verify.result import skipped_tracks
from avfusion.data.verify.talknet import verify_talknet
from avfusion.media.audio import write_audio
from benchmarks.talknet_layout import tracks_of, write_layout

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, small_dataset: Callable[..., Path]) -> Path:
    return small_dataset(tmp_path_factory.mktemp("clean") / "d")


@pytest.fixture(scope="module")
def clean_talknet(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same tracks in the TalkNet layout."""
    root = tmp_path_factory.mktemp("talknet") / "layout"
    for split in ("train", "val"):
        write_layout(root, split, tracks_of(PreparedDataset(clean, split)), 95)
    return root


def run(*arguments: object) -> int:
    return command.main([str(argument) for argument in arguments])


@pytest.mark.parametrize("options", [(), ("--fast",), ("--jobs", "1")])
def test_a_dataset_without_a_fault_is_described_and_the_command_returns_0(
    clean: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(clean, *options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["train", "8", "0", "8", "0.003", "50.0%", "-26", "dB", "(-26", "..", "-26)"],
        ["val", "4", "0", "4", "0.001", "50.0%", "-26", "dB", "(-26", "..", "-26)"],
    ]
    looked = "headers and a few files" if options == ("--fast",) else "every file"
    assert lines[-1] == f"{clean}: no fault found ({looked} looked at)"


def test_faults_are_a_table_and_the_command_returns_1(
    clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(clean, tmp_path / "d"))
    for number in range(5):
        (root / "audio" / "train" / f"train{number}.flac").unlink()
    (root / "audio" / "val" / "val2.flac").unlink()
    write_audio(root / "audio" / "val" / "val2.flac", np.zeros(640 * 30, np.float32))
    assert run(root) == 1
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].split() == ["problem", "count", "first", "cases", "what", "to", "do"]
    (missing,) = (number for number, line in enumerate(lines) if line.startswith("sound files are missing"))
    assert "5 of 12" in lines[missing]
    assert "audio/train/train0.flac" in lines[missing]
    assert "prepare the dataset again" in lines[missing]
    assert lines[missing + 1].strip() == "audio/train/train1.flac"
    assert lines[missing + 3].strip() == "... and 2 more"
    assert "1 of 7" in next(line for line in lines if line.startswith("tracks are labelled as"))
    assert shown.err.strip() == (
        f"error: {root} has 2 kinds of faults, which make 6 of 12 tracks unusable: mend it, or train with "
        "--data.allow_missing=true, which leaves such tracks out"
    )
    assert run(root, "--split", "val", "--fast") == 1
    assert "sound files are missing" not in capsys.readouterr().out


def test_notes_do_not_make_it_fail(clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(shutil.copytree(clean, tmp_path / "d"))
    (root / "crops" / "train" / "left-over.mp4.77.part").write_bytes(b"half")
    assert run(root, "--fast") == 0
    shown = capsys.readouterr().out
    assert "note: files are named by no" in shown
    assert "1 of 25" in shown
    assert "no fault found" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere"], 2, "no prepared dataset at nowhere: the folder does not exist"),
        (["nowhere", "--format=talknet"], 2, "no TalkNet layout at nowhere"),
        (["ROOT", "--split=test"], 2, "has no split 'test'; its tracks.csv names: train, val"),
        (["ROOT", "--jobs=0"], 2, "--jobs=0: expected at least 1"),
        (["ROOT", "--format=video"], 2, "--format"),
        ([], 2, "ROOT"),
    ],
)
def test_what_a_user_gets_wrong_is_told_in_one_line(
    clean: Path, arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*(clean if argument == "ROOT" else argument for argument in arguments)) == code
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error


def test_ctrl_c_leaves_no_process_and_no_change(tmp_path: Path, small_dataset: Callable[..., Path]) -> None:
    root = small_dataset(tmp_path / "d", {"train": 120}, frames=12)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    arguments = [sys.executable, "-m", "data_prep.verify", str(root), "--jobs", "2"]
    process = subprocess.Popen(
        arguments, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        pytest.skip("needs /proc to see the processes")
    while len(children.read_text().split()) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode in (130, 0)  # 0 where it was done before the interrupt came
    assert "Traceback" not in error, error
    assert "stopped by Ctrl-C" in error or process.returncode == 0
    while alive_in_group(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive_in_group(process.pid) == []
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def alive_in_group(group: int) -> list[str]:
    """The processes of a group, without those that have ended and that nobody has asked about yet."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it has just ended
            continue
        state, _, own_group = text.rpartition(")")[2].split()[:3]
        if int(own_group) == group and state != "Z":
            found.append(text.split(")")[0])
    return found


# --- the TalkNet layout -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--fast",)])
def test_a_talknet_layout_is_known_by_its_tables(
    clean_talknet: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(clean_talknet, *options) == 0, capsys.readouterr()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines if line.startswith(("train ", "val "))] == [
        ["train", "8", "0", "8"],
        ["val", "4", "0", "4"],
    ]


def test_faults_of_a_talknet_layout_are_found_whether_headers_or_content_tell(
    clean_talknet: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(clean_talknet, tmp_path / "layout"))
    sounds = sorted((root / "clips_audios" / "train").rglob("*.wav"))
    pictures = sorted((root / "clips_videos" / "train").glob("*/*"))
    assert len(sounds) == len(pictures) == 8
    sounds[0].unlink()
    length = len(soundfile.read(sounds[1])[0])
    soundfile.write(sounds[1], np.zeros(length, np.float32), 16_000)
    first, *others = sorted(pictures[2].iterdir())
    for path in others:
        shutil.copyfile(first, path)
    broken = sorted(pictures[3].iterdir())[20]
    broken.write_bytes(broken.read_bytes()[:200])
    verification = verify_talknet(root, bar=False)
    found = {fault.what: (len(fault.cases), len(fault.tracks)) for fault in verification.faults}
    assert found == {
        "tracks have no sound file": (1, 1),
        "tracks are labelled as speaking over silent or constant sound": (1, 1),
        "picture folders show one frozen picture although somebody speaks": (1, 1),
        "tracks have a picture or sound that cannot be decoded": (1, 1),
    }
    skipped = skipped_tracks(verification.faults, "train", verification.listed["train"])
    assert sorted(video_id for video_id, _ in skipped.tracks) == ["train0", "train1", "train2", "train3"]


def test_films_that_two_splits_of_a_talknet_layout_share_are_told(clean: Path, tmp_path: Path) -> None:
    tracks = tracks_of(PreparedDataset(clean, "train"))
    root = tmp_path / "layout"
    write_layout(root, "train", tracks, 95)
    write_layout(root, "val", tracks[:2], 95)
    (fault,) = verify_talknet(root, fast=True, bar=False).faults
    assert fault.what == "videos are in more than one split"
    assert list(fault.cases) == ["'train0': train, val", "'train1': train, val"]
