"""Facts about several journals in one folder: runs side by side lose nothing, and anyone can write the tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from avfusion.data.journal import begun_settings
from avfusion.data.prepared import PreparedDataset
from avfusion.data.prepared_tables import TrackRow
from avfusion.data.prepared_writer import PreparedWriter, SceneRecord
from avfusion.errors import AvfusionError, UsageError
from avfusion.tracks import read_labels, read_unlabeled


def writer_of(root: Path, journal: str = "journal.jsonl", seed: int = 0) -> PreparedWriter:
    return PreparedWriter(root, "tiny", "python -m test", 16, {"seed": seed}, journal)


def add(writer: PreparedWriter, video_id: str, labelled: bool = True) -> None:
    frames = np.zeros((3, 16, 16), dtype=np.uint8)
    crops, audio = writer.crops("val", video_id, frames), writer.audio("val", video_id, np.ones(1920, dtype=np.float32))
    row = TrackRow("val", video_id, f"{video_id}:1", 0.0, 3, crops, audio, labelled=labelled)
    boxes = np.tile(np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32), (3, 1))
    writer.add_scene(f"val/{video_id}", SceneRecord([row], [np.array([True, False, True])], [boxes], {}))


def test_two_runs_fill_one_folder_and_a_third_writes_the_tables(tmp_path: Path) -> None:
    first, second = writer_of(tmp_path, "journal-1-of-2.jsonl"), writer_of(tmp_path, "journal-2-of-2.jsonl")
    add(first, "a")
    add(second, "b")
    add(first, "c")
    del second
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
    del other
    assert list(writer_of(tmp_path, "journal-1-of-2.jsonl").scenes) == ["val/a"]  # its own run, which was killed
    assert journal.read_bytes().endswith(b"}\n")


def test_other_settings_than_those_of_any_journal_are_refused(tmp_path: Path) -> None:
    writer_of(tmp_path, "journal-1-of-2.jsonl")
    with pytest.raises(UsageError, match="begun with other settings"):
        writer_of(tmp_path, "journal-2-of-2.jsonl", seed=1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no dataset was begun there"):
        begun_settings(tmp_path / "empty")


def test_a_dataset_is_finished_only_while_its_tables_hold_what_its_journals_hold(tmp_path: Path) -> None:
    first = writer_of(tmp_path, "journal-1-of-2.jsonl")
    add(first, "a")
    last = writer_of(tmp_path)
    last.finish()
    assert last.is_finished
    add(first, "b")  # and is killed before the tables are written
    del last
    again = writer_of(tmp_path)
    assert not again.is_finished
    again.finish()
    assert again.is_finished
    assert [track.video_id for track in PreparedDataset(tmp_path, "val").tracks] == ["a", "b"]


def test_two_runs_with_one_journal_are_not_let_in_at_once(tmp_path: Path) -> None:
    first = writer_of(tmp_path)
    with pytest.raises(UsageError, match=r"journal\.jsonl: another run is writing this journal"):
        writer_of(tmp_path)
    add(first, "a")
    del first  # however a run ends, its lock ends with it
    assert list(writer_of(tmp_path).scenes) == ["val/a"]


def test_what_running_shards_write_is_theirs_and_what_killed_ones_left_is_removed(tmp_path: Path) -> None:
    first = writer_of(tmp_path, "journal-1-of-2.jsonl")
    add(first, "a")
    part = tmp_path / "crops" / "val" / "b.mp4.77.part"
    part.write_bytes(b"half")
    writer_of(tmp_path).finish()
    assert part.exists()
    del first
    writer_of(tmp_path).finish()
    assert not part.exists()


def test_a_shard_that_begins_beside_another_is_let_in_whatever_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "dataset"
    root.mkdir()
    listed = Path.iterdir

    def another_begins(folder: Path) -> Iterator[Path]:
        monkeypatch.setattr(Path, "iterdir", listed)
        found = list(folder.iterdir())
        writers.append(writer_of(root, "journal-1-of-2.jsonl"))
        return iter(found)

    writers: list[PreparedWriter] = []
    monkeypatch.setattr(Path, "iterdir", another_begins)
    writers.append(writer_of(root, "journal-2-of-2.jsonl"))
    assert len(writers) == 2
    (root / "journal-3-of-3.jsonl").touch()  # a third that has not written its first line yet
    del writers[:]
    writer_of(root, "journal-2-of-2.jsonl")


@pytest.mark.parametrize(
    "line", ['{"scene": "val/x", "rows": [{"scene": "val/y"', "7", '{"scene": "val/x", "rows": [{}]}']
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    add(writer_of(tmp_path), "a")
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(AvfusionError, match=r"journal\.jsonl, line 3: .* is no whole scene") as error:
        writer_of(tmp_path)
    assert len(str(error.value).splitlines()) == 1
    (tmp_path / "journal.jsonl").write_text("rubbish\n")
    for attempt in (lambda: writer_of(tmp_path), lambda: begun_settings(tmp_path)):
        with pytest.raises(AvfusionError, match=r"journal\.jsonl, line 1: .*expected the settings"):
            attempt()


def test_unlabelled_tracks_have_boxes_and_no_labels(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    add(writer, "a")
    add(writer, "b", labelled=False)
    writer.finish()
    assert set(read_labels(tmp_path / "labels" / "val.csv").video_id) == {"a"}
    boxes = read_unlabeled(tmp_path / "boxes" / "val.csv")
    assert boxes.timestamp_ms.tolist() == [0, 40, 80]
    tracks = PreparedDataset(tmp_path, "val").tracks
    assert [(track.video_id, track.labelled, track.speaking.tolist()) for track in tracks] == [
        ("a", True, [True, False, True]),
        ("b", False, [False, False, False]),
    ]
    np.testing.assert_array_equal(tracks[1].boxes_xyxy, boxes.boxes_xyxy)
    (tmp_path / "boxes" / "val.csv").write_text("c,0.000,0.1,0.2,0.3,0.4,c:1\n")
    with pytest.raises(AvfusionError, match=r"boxes/val\.csv: 1 of 1 tracks are not in tracks\.csv"):
        PreparedDataset(tmp_path, "val")
