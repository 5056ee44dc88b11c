"""A folder of CSV files is the table of all their rows; every message names the file."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation import table_files
from avfusion.evaluation.join import join
from avfusion.evaluation.table_files import read_both, read_label_files, read_score_files, table_record
from avfusion.tracks import read_labels, read_scores

ROWS = [f"{video},{frame / 25:.2f},0.1,0.1,0.3,0.3,SPEAKING_AUDIBLE,e\n" for video in "ab" for frame in range(3)]


@pytest.fixture
def folder(tmp_path):
    labels = tmp_path / "labels"
    labels.mkdir()
    (labels / "b.csv").write_text("".join(ROWS[3:]))
    (labels / "a.CSV").write_text("".join(ROWS[:3]))
    (labels / "notes.txt").write_text("no table")
    return labels


def test_a_folder_is_one_table(folder, tmp_path):
    (tmp_path / "one.csv").write_text("".join(ROWS))
    one, found = read_labels(tmp_path / "one.csv"), read_label_files(folder)
    for name in ("video_id", "timestamp_ms", "entity_id", "boxes_xyxy", "speaking"):
        np.testing.assert_array_equal(getattr(found, name), getattr(one, name))
    assert found.line.tolist() == [1, 2, 3, 1, 2, 3]
    assert list(table_record(folder)["sha256"]) == ["a.CSV", "b.csv"]


def test_messages_name_the_file(folder, tmp_path):
    scores = tmp_path / "scores"
    scores.mkdir()
    for video in "ab":
        rows = [f"{row.strip()},0.5\n" for row in ROWS if row.startswith(video)]
        (scores / f"{video}.csv").write_text("".join(rows[: 3 if video == "a" else 2]))
    with pytest.raises(AvfusionError, match=r"no score for 1 of 6 label rows: 'b' at 0.080 s, 'e' \(b.csv line 3\)"):
        join(read_label_files(folder), read_score_files(scores))
    (folder / "b.csv").write_text(ROWS[3] + "b,x" + ROWS[4][6:])
    with pytest.raises(AvfusionError, match=r"labels/b\.csv line 2: frame_timestamp is 'x'"):
        read_label_files(folder)


def test_a_folder_without_tables_is_told(tmp_path):
    with pytest.raises(AvfusionError, match=r"no \.csv file in this folder"):
        read_label_files(tmp_path)


@pytest.mark.parametrize("cores", [1, 2])
def test_large_files_are_read_side_by_side_to_the_same_tables(folder, tmp_path, monkeypatch, cores):
    monkeypatch.setattr(table_files, "APART_BYTES", 1)
    monkeypatch.setattr(table_files, "available_cores", lambda: cores)
    scores = tmp_path / "scores.csv"
    scores.write_text("".join(f"{row.strip()},{index / 10}\n" for index, row in enumerate(ROWS)))
    truth, predicted = read_both(folder, scores)
    for found, one in ((truth, read_label_files(folder)), (predicted, read_scores(scores))):
        for name in ("video_id", "timestamp_ms", "entity_id", "boxes_xyxy", "line"):
            np.testing.assert_array_equal(getattr(found, name), getattr(one, name))
    assert predicted.score.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    scores.write_text(f"{ROWS[0].strip()},high\n")
    with pytest.raises(AvfusionError, match=r"scores\.csv line 1: score is 'high'"):
        read_both(folder, scores)
    (folder / "b.csv").write_text("no row\n")
    with pytest.raises(AvfusionError, match=r"b\.csv line 1"):
        read_both(folder, scores)
