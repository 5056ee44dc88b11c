"""Facts about several journals in one folder: runs side by side lose nothing, and anyone can write the tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from avfusion.data.prepared import PreparedDataset, TrackRow
from avfusion.data.prepared_writer import PreparedWriter, SceneRecord, begun_settings
from avfusion.errors import UsageError


def writer_of(root: Path, journal: str = "journal.jsonl", seed: int = 0) -> PreparedWriter:
    return PreparedWriter(root, "tiny", "python -m test", 16, {"seed": seed}, journal)


def add(writer: PreparedWriter, video_id: str) -> None:
    frames = np.zeros((3, 16, 16), dtype=np.uint8)
    crops, audio = writer.crops("val", video_id, frames), writer.audio("val", video_id, np.ones(1920, dtype=np.float32))
    row = TrackRow("val", video_id, f"{video_id}:1", 0.0, 3, crops, audio)
    boxes = np.tile(np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32), (3, 1))
    writer.add_scene(f"val/{video_id}", SceneRecord([row], [np.array([True, False, True])], [boxes], {}))


def test_two_runs_fill_one_folder_and_a_third_writes_the_tables(tmp_path: Path) -> None:
    first, second = writer_of(tmp_path, "journal-1-of-2.jsonl"), writer_of(tmp_path, "journal-2-of-2.jsonl")
    add(first, "a")
    add(second, "b")
    add(first, "c")
    assert list(writer_of(tmp_path, "journal-2-of-2.jsonl").scenes) == ["val/a", "val/c", "val/b"]
    writer_of(tmp_path).finish()
    assert [track.video_id for track in PreparedDataset(tmp_path, "val").tracks] == ["a", "b", "c"]
    assert begun_settings(tmp_path) == {"seed": 0}


def test_a_line_that_another_run_is_writing_is_left_to_it(tmp_path: Path) -> None:
    other = writer_of(tmp_path, "journal-1-of-2.jsonl")
    add(other, "a")
    journal = tmp_path / "journal-1-of-2.jsonl"
    with journal.open("a") as file:
        file.write('{"scene": "val/half')
    half_written = journal.read_bytes()
    assert list(writer_of(tmp_path, "journal-2-of-2.jsonl").scenes) == ["val/a"]
    assert journal.read_bytes() == half_written
    assert list(writer_of(tmp_path, "journal-1-of-2.jsonl").scenes) == ["val/a"]  # its own run, which was killed
    assert journal.read_bytes().endswith(b"}\n")


def test_other_settings_than_those_of_any_journal_are_refused(tmp_path: Path) -> None:
    writer_of(tmp_path, "journal-1-of-2.jsonl")
    with pytest.raises(UsageError, match="begun with other settings"):
        writer_of(tmp_path, "journal-2-of-2.jsonl", seed=1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no dataset was begun there"):
        begun_settings(tmp_path / "empty")
