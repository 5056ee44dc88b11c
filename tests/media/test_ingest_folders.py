"""Facts about converting films that the tests make themselves: what a folder holds, after two runs and after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from avfusion.errors import AvfusionError, UsageError
from avfusion.media.ingest import ingest, main, read_ingested


def test_a_folder_that_is_a_file_or_lies_under_one_is_told(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.mkv", duration_s=0.4)
    (tmp_path / "file").touch()
    for folder in ("file", "file/under", "file/far/under"):
        with pytest.raises(UsageError, match=r"/file is a file; expected a folder for the result"):
            ingest(tmp_path / "x.mkv", tmp_path / folder)


@pytest.mark.skipif(os.name == "nt", reason="Windows allows no line ends in file names")
def test_names_of_many_lines_are_shown_on_one(tmp_path: Path, film: Any, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a\nb\x1b[31m.mkv", "gone\n.mkv", "é.mkv"]
    for name in (names[0], names[2]):
        film.write(tmp_path / name, duration_s=0.4)
    with pytest.raises(AvfusionError, match="1 of 3 files failed"):
        main([*(str(tmp_path / name) for name in names), str(tmp_path / "out")])
    shown = capsys.readouterr()
    lines = [line for line in shown.out.splitlines() if not line.startswith("  note: ")]
    assert [line.partition("/out/")[2].partition("/")[0] for line in lines] == ["a\\nb\\x1b[31m.mkv", "é.mkv"]
    assert shown.err == f"error: no video file at {tmp_path}/gone\\n.mkv\n"


def test_a_whole_result_is_kept_and_one_of_other_options_or_content_is_made_anew(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.mkv", duration_s=1.0)
    first = ingest(tmp_path / "x.mkv", tmp_path / "out")
    stamp = first.video.stat().st_mtime_ns
    again = ingest(tmp_path / "x.mkv", tmp_path / "out")
    assert (first.kept, again.kept) == (False, True)
    assert first.video.stat().st_mtime_ns == stamp
    assert again.details == json.loads(json.dumps(first.details))
    assert not ingest(tmp_path / "x.mkv", tmp_path / "out", salvage=True).kept
    film.write(tmp_path / "x.mkv", duration_s=1.2)
    assert ingest(tmp_path / "x.mkv", tmp_path / "out").num_frames == 30
    first.audio.write_bytes(b"cut")  # somebody touched it
    assert read_ingested(tmp_path / "out") is None
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["audio.flac", "ingest.json", "video.mp4"]


def test_files_that_ingest_did_not_make_are_never_overwritten(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.mkv", duration_s=0.4)
    film.write(tmp_path / "video.mp4", duration_s=0.4, tracks=[{"codec": "aac", "format": "fltp"}])
    before = (tmp_path / "video.mp4").read_bytes()
    for source in ("x.mkv", "video.mp4"):
        with pytest.raises(UsageError, match=r"holds a video\.mp4 that ingest did not make"):
            ingest(tmp_path / source, tmp_path)
    assert (tmp_path / "video.mp4").read_bytes() == before
    ingest(tmp_path / "x.mkv", tmp_path / "out")
    film.write(tmp_path / "y.mkv", duration_s=0.4)
    with pytest.raises(UsageError, match=r"holds the result of x\.mkv; expected a folder of its own for y\.mkv"):
        ingest(tmp_path / "y.mkv", tmp_path / "out")
    (tmp_path / "sub").mkdir()
    film.write(tmp_path / "sub" / "x.mkv", duration_s=0.4)
    with pytest.raises(UsageError, match=r"two files are called x\.mkv"):
        main([str(tmp_path / "x.mkv"), str(tmp_path / "sub" / "x.mkv"), str(tmp_path / "both")])


def begun(source: Path, folder: Path) -> subprocess.Popen[bytes]:
    """A conversion in a process of its own that is at work."""
    command = [sys.executable, "-m", "avfusion.media.ingest", str(source), str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    part = folder / "video.mp4.part"
    while process.poll() is None and not (part.exists() and part.stat().st_size > 20_000):
        time.sleep(0.005)
    assert part.exists()
    return process


@pytest.mark.skipif(os.name == "nt", reason="no such file locks there: two runs at once are not noticed")
def test_two_conversions_never_work_in_one_folder(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.mkv", options={"preset": "ultrafast"}, duration_s=40.0)
    expected = ingest(tmp_path / "x.mkv", tmp_path / "alone")
    first = begun(tmp_path / "x.mkv", tmp_path / "out")
    for other in ({}, {"salvage": True}):
        with pytest.raises(AvfusionError, match=r"another conversion is at work in .*out; wait for it, or choose"):
            ingest(tmp_path / "x.mkv", tmp_path / "out", **other)
    assert first.wait() == 0
    result = ingest(tmp_path / "x.mkv", tmp_path / "out")
    assert result.kept
    assert result.video.read_bytes() == expected.video.read_bytes()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["audio.flac", "ingest.json", "video.mp4"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 on this system")
def test_a_killed_conversion_leaves_nothing_that_looks_whole_and_the_rerun_is_the_unbroken_run(
    tmp_path: Path, film: Any
) -> None:
    film.write(tmp_path / "x.mkv", options={"preset": "ultrafast"}, duration_s=40.0)
    expected = ingest(tmp_path / "x.mkv", tmp_path / "unbroken")
    process = begun(tmp_path / "x.mkv", tmp_path / "out")
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not [path.name for path in (tmp_path / "out").iterdir() if not path.name.endswith(".part")]
    assert read_ingested(tmp_path / "out") is None
    result = ingest(tmp_path / "x.mkv", tmp_path / "out")
    assert result.video.read_bytes() == expected.video.read_bytes()
    np.testing.assert_array_equal(soundfile.read(result.audio)[0], soundfile.read(expected.audio)[0])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["audio.flac", "ingest.json", "video.mp4"]
