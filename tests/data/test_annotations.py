"""Facts about annotations: every corpus's form gives the same entities; wrong rows are named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from avfusion.data.annotations import read_annotations, write_source_labels
from avfusion.errors import AvfusionError
from avfusion.tracks import read_labels

ROWS = [
    ("NA", "1.04", "0.1,0.2,0.3,0.4", "SPEAKING_AUDIBLE", "NA_0:1"),
    ("NA", "1.00", "0.1,0.2,0.3,0.4", "NOT_SPEAKING", "NA_0:1"),
    ("-x", "900.03", "-0.1,0.2,0.3,1.4", "SPEAKING_NOT_AUDIBLE", "1e5"),
    ("NA", "1.00", "0.5,0.2,0.7,0.4", "NOT_SPEAKING", "007"),
]
HEADER = "video_id,frame_timestamp,entity_box_x1,entity_box_y1,entity_box_x2,entity_box_y2,label,entity_id"


def lines(more: str = "") -> list[str]:
    return [",".join(row) + more for row in ROWS]


def as_expected(path: Path, columns: str) -> None:
    found = read_annotations(path, columns)
    assert [(a.video_id, a.entity_id) for a in found] == [("-x", "1e5"), ("NA", "007"), ("NA", "NA_0:1")]
    assert [a.timestamp_ms.tolist() for a in found] == [[900_030], [1000], [1000, 1040]]
    assert [a.speaking.tolist() for a in found if a.speaking is not None] == [[False], [False], [False, True]]
    np.testing.assert_allclose(found[0].boxes_xyxy, [[-0.1, 0.2, 0.3, 1.4]], rtol=1e-6)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("head", ["", HEADER, "\ufeff", "\ufeff" + HEADER])
def test_ava_rows_in_any_dress(tmp_path: Path, head: str, line_end: str) -> None:
    text = line_end.join([head, *lines()]) if head.strip("\ufeff") else head + line_end.join(lines())
    (tmp_path / "labels.csv").write_bytes(text.encode())
    as_expected(tmp_path / "labels.csv", "ava")


def test_a_folder_of_one_file_a_film(tmp_path: Path) -> None:
    (tmp_path / "-x-activespeaker.csv").write_text(lines()[2] + "\n")
    (tmp_path / "NA-activespeaker.csv").write_text("\n".join([lines()[0], lines()[1], lines()[3]]))
    (tmp_path / "notes.txt").write_text("no rows")
    as_expected(tmp_path, "ava")


@pytest.mark.parametrize("columns", ["unitalk", "wasd"])
@pytest.mark.parametrize("head", ["", HEADER + ",label_id,instance_id", "," + HEADER + ",label_id,instance_id"])
def test_ten_columns_with_and_without_a_header(tmp_path: Path, columns: str, head: str) -> None:
    rows = lines(",1,NA_0:1:0")
    if head.startswith(","):  # a pandas index in front, as UniTalk's script for its subsets writes
        rows = [f"{number},{row}" for number, row in enumerate(rows)]
    (tmp_path / "val_orig.csv").write_text("\n".join([head, *rows] if head else rows))
    as_expected(tmp_path / "val_orig.csv", columns)


def test_body_boxes_of_wasd_are_refused(tmp_path: Path) -> None:
    (tmp_path / "val_body_orig.csv").write_text("\n".join(lines(",1,NA_0:1:0")))
    with pytest.raises(AvfusionError, match="boxes of bodies"):
        read_annotations(tmp_path / "val_body_orig.csv", "wasd")


def asw_row(time_s: float, label: int = 0, counts: int = 1) -> dict[str, object]:
    return {"time": time_s, "bbox": [-0.01, 0.1, 0.2, 0.4], "label": label, "eval": counts}


def test_asw_tracks_are_named_after_their_film_and_unscored_rows_are_known(tmp_path: Path) -> None:
    (tmp_path / "04kJtp6pVXI.json").write_text(
        json.dumps(
            {"track_000000": [asw_row(0.2, 0, 0), asw_row(0.4, 1), asw_row(0.6)], "track_000001": [asw_row(9.0)]}
        )
    )
    (tmp_path / "NA.json").write_text(json.dumps({"track_000000": [asw_row(1.0)]}))
    first, second, third = read_annotations(tmp_path, "asw")
    assert [a.entity_id for a in (first, second)] == ["04kJtp6pVXI:track_000000", "04kJtp6pVXI:track_000001"]
    assert (third.video_id, third.entity_id) == ("NA", "NA:track_000000")
    assert first.timestamp_ms.tolist() == [200, 400, 600]
    assert first.speaking is not None
    assert first.speaking.tolist() == [False, True, False]
    assert write_source_labels(tmp_path / "val.csv", [first, second, third]) == 4
    assert read_labels(tmp_path / "val.csv").timestamp_ms.tolist() == [400, 600, 9000, 1000]


def test_boxes_without_labels(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("NA,1.00,0.1,0.2,0.3,0.4,a\nNA,1.04,0.1,0.2,0.3,0.4,a\n")
    (found,) = read_annotations(tmp_path / "own.csv", "boxes")
    assert found.speaking is None
    assert found.timestamp_ms.tolist() == [1000, 1040]


def test_source_labels_are_the_rows_as_they_came(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("\n".join(lines()))
    before = read_annotations(tmp_path / "labels.csv")
    write_source_labels(tmp_path / "deep" / "source.csv", before)
    after = read_annotations(tmp_path / "deep" / "source.csv")
    for old, new in zip(before, after, strict=True):
        assert (old.video_id, old.entity_id) == (new.video_id, new.entity_id)
        for name in ("timestamp_ms", "boxes_xyxy", "speaking"):
            np.testing.assert_array_equal(getattr(old, name), getattr(new, name))


def test_source_labels_keep_times_and_boxes_to_the_letter(tmp_path: Path) -> None:
    texts = ["0.033367,0.057389,0.0277778,0.394167,0.7", "1e-1,.1234567891,0.2,0.30,0.4", "900,0.1,0.2,0.3,0.4"]
    (tmp_path / "labels.csv").write_text("".join(f"v,{text},NOT_SPEAKING,a\n" for text in texts))
    write_source_labels(tmp_path / "source.csv", read_annotations(tmp_path / "labels.csv"))
    assert (tmp_path / "source.csv").read_text() == (tmp_path / "labels.csv").read_text()
    (tmp_path / "v.json").write_text(json.dumps({"t": [asw_row(0.2), asw_row(0.123456)]}))
    write_source_labels(tmp_path / "source.csv", read_annotations(tmp_path / "v.json", "asw"))
    assert "v,0.123456,-0.01,0.1,0.2,0.4,NOT_SPEAKING,v:t\n" in (tmp_path / "source.csv").read_text()


@pytest.mark.parametrize("columns", ["ava", "unitalk", "boxes", "asw"])
def test_a_file_without_rows_is_fine_beside_others_only(tmp_path: Path, columns: str) -> None:
    ending, header = (".json", "{}") if columns == "asw" else (".csv", HEADER + "\n")
    (tmp_path / f"a{ending}").write_text(header)
    for path in (tmp_path, tmp_path / f"a{ending}"):
        with pytest.raises(AvfusionError, match=r"holds? no row \(a header at most\)"):
            read_annotations(path, columns)
    more = {"ava": ROWS[0], "unitalk": ROWS[0], "boxes": (*ROWS[0][:3], ROWS[0][4])}
    text = json.dumps({"t": [asw_row(0.2)]}) if columns == "asw" else ",".join(more[columns])
    (tmp_path / f"b{ending}").write_text(text)
    assert len(read_annotations(tmp_path, columns)) == 1


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("NA,1.00,0.1,0.2,0.3,0.4,NOT_SPEAKING,a\n" * 2, "ava", "'NA' at 1.000 s, 'a' (line 2) is there twice"),
        ("NA,1.00,10,20,130,240,NOT_SPEAKING,a\n", "ava", "expected fractions of the picture (-1..2), not pixels"),
        ("NA,1.00,0.1,0.2,2.1,0.4,NOT_SPEAKING,a\n", "ava", "expected fractions of the picture (-1..2), not pixels"),
        ("NA,1.00,-1.1,0.2,0.1,0.4,NOT_SPEAKING,a\n", "ava", "expected fractions of the picture (-1..2), not pixels"),
        ("NA,1.00,0.1,0.2,0.3,0.4,NOT_SPEAKING,a,1,b\n", "ava", "10 columns, expected 8"),
        ("NA,1.00,0.1,0.2,0.3,0.4,NOT_SPEAKING,a,1\n", "unitalk", "9 columns, expected 8"),
        ("NA,1.00,0.1,0.2,0.3,0.4,NOT_SPEAKING,a\n", "boxes", "8 columns, expected 7"),
        ("[1]", "asw", "expected {track: [rows]}"),
        ('{"t": [{"time": 1.0, "bbox": [0, 0, 1, 1], "label": 1}]}', "asw", "expected time in seconds, bbox"),
        ('{"t": [{"time": 1.0, "bbox": [0, 0, 1, 1], "label": 2, "eval": 1}]}', "asw", "label and eval 0 or 1"),
        ('{"t": 7}', "asw", "expected a list of rows"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, columns: str, message: str) -> None:
    path = tmp_path / ("film.json" if columns == "asw" else "labels.csv")
    path.write_text(text)
    with pytest.raises(AvfusionError) as error:
        read_annotations(path, columns)
    assert message in str(error.value)
    assert path.name in str(error.value)


def test_an_entity_in_two_files_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AvfusionError, match=r"no \.csv file"):
        read_annotations(tmp_path)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(lines()[0])
    with pytest.raises(AvfusionError, match="is in an earlier file too"):
        read_annotations(tmp_path)
