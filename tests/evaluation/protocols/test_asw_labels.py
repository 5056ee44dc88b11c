"""ASW's JSON files and split lists: what they say, and what is no such file."""

from __future__ import annotations

import json

import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.protocols.asw_labels import read_asw
from tests.evaluation.protocols.asw_files import asw_row, write_videos

VIDEO = {
    "track_000000": [asw_row(0.2, 0, 0), asw_row(0.4, 1), asw_row(0.6, 0)],
    "track_000001": [asw_row(0.4, 1, box=[-0.1, 0, 0.2, 0.3])],
}


def keys(labels):
    table = labels.evaluated
    return list(zip(table.video_id, table.timestamp_ms.tolist(), table.entity_id, table.speaking.tolist(), strict=True))


def test_only_rows_with_eval_1_are_evaluated(tmp_path):
    labels = read_asw(write_videos(tmp_path, {"007": VIDEO}))
    assert keys(labels) == [
        ("007", 400, "007:track_000000", True),
        ("007", 600, "007:track_000000", False),
        ("007", 400, "007:track_000001", True),
    ]
    assert (labels.num_rows, labels.video_ids) == (4, ["007"])
    assert labels.evaluated.boxes_xyxy[2].tolist() == pytest.approx([-0.1, 0, 0.2, 0.3])


def test_a_split_list_names_the_files_of_the_repository(tmp_path):
    write_videos(tmp_path / "json", {"a": VIDEO, "b": VIDEO, "-c_": VIDEO})
    (tmp_path / "split").mkdir()
    (tmp_path / "split" / "testset.list").write_text("b.json\n-c_.json\n", encoding="utf-8")
    assert read_asw(tmp_path / "split" / "testset.list").video_ids == ["b", "-c_"]
    assert read_asw(tmp_path / "json").video_ids == ["-c_", "a", "b"]
    assert read_asw(tmp_path).video_ids == ["-c_", "a", "b"]  # the repository's root
    assert read_asw(tmp_path / "json" / "a.json").video_ids == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.json\nz.json\n", r"testset\.list line 2: 'z\.json', expected a JSON file in .*json"),
        ("a.json\na.json\n", r"testset\.list line 2: 'a\.json' is there twice"),
        ("\n", r"testset\.list: no line"),
    ],
)
def test_a_wrong_list_is_refused(tmp_path, text, message):
    write_videos(tmp_path / "json", {"a": VIDEO})
    (tmp_path / "split").mkdir()
    (tmp_path / "split" / "testset.list").write_text(text, encoding="utf-8")
    with pytest.raises(AvfusionError, match=message):
        read_asw(tmp_path / "split" / "testset.list")


GOOD = asw_row(0.2, 1)


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({**GOOD, "label": 2}, "'label': 2"),
        ({**GOOD, "label": True}, "'label': True"),
        ({**GOOD, "label": "1"}, "'label': '1'"),
        ({**GOOD, "eval": None}, "'eval': None"),
        ({**GOOD, "time": -0.2}, "'time': -0.2"),
        ({**GOOD, "time": float("nan")}, "'time': nan"),
        ({**GOOD, "time": float("inf")}, "'time': inf"),
        ({**GOOD, "bbox": [0, 0, 1, 10**400]}, "1000"),
        ({**GOOD, "bbox": [0, 0, 1]}, r"'bbox': \[0, 0, 1\]"),
        ({**GOOD, "bbox": [0, 0, 1, float("nan")]}, "nan"),
        ({"time": 0.2, "bbox": [0, 0, 1, 1], "label": 1}, "'label': 1"),
        ([0.2, 1], r"\[0\.2, 1\]"),
    ],
)
def test_a_wrong_row_is_named(tmp_path, row, found):
    write_videos(tmp_path, {"v": {"t": [asw_row(0.0, 0), row]}})
    with pytest.raises(AvfusionError, match=rf"v\.json: row 2 of track 't' is .*{found}.*, expected time in seconds"):
        read_asw(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"v\.json: cannot be read as JSON"),
        ("[]", r"v\.json: a list, expected \{track: \[rows\]\}"),
        ('{"t": {}}', r"v\.json: track 't' is a dict, expected a list"),
        ('{"t": [], "t": []}', r"v\.json: cannot be read as JSON \('t' is there twice in one object\)"),
        (json.dumps({"t": [GOOD, GOOD]}), r"v\.json: track 't' has two rows at 0\.200 s"),
        (json.dumps({"t": [asw_row(0.2, 1, 0)]}), "none of 1 rows has eval 1"),
        ("", r"v\.json: cannot be read as JSON"),
    ],
)
def test_a_file_that_is_no_annotation_is_refused(tmp_path, text, message):
    (tmp_path / "v.json").write_text(text, encoding="utf-8")
    with pytest.raises(AvfusionError, match=message):
        read_asw(tmp_path)


def test_places_without_labels_are_refused(tmp_path):
    with pytest.raises(AvfusionError, match=r"no \.json file"):
        read_asw(tmp_path)
    with pytest.raises(AvfusionError, match="no such file or folder"):
        read_asw(tmp_path / "absent")
