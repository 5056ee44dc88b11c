"""Face tracks and their CSV files: every digit and id survives, every wrong row is named."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.tracks import (
    LABEL_COLUMNS,
    FaceTrack,
    LabelTable,
    ScoreTable,
    read_labels,
    read_scores,
    write_labels,
    write_scores,
)

ROW = ["vidA", "900.04", "0.4", "0.1", "0.6", "0.5", "SPEAKING_AUDIBLE", "vidA:1"]


def make_track(video_id: str = "vidA", entity_id: str = "vidA:1", start_s: float = 900.0, speaking: str = "101"):
    speaks = np.array([letter == "1" for letter in speaking])
    boxes = np.tile(np.array([0.4, 0.1, 0.6, 0.5], np.float32), (len(speaks), 1))
    return FaceTrack(video_id, entity_id, start_s, speaks, boxes, audio_id=video_id)


def write_text(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "table.csv"
    path.write_bytes(text.encode(encoding))
    return path


def changed(column: int, text: str, row: list[str] = ROW) -> str:
    return ",".join([*row[:column], text, *row[column + 1 :]])


def test_timestamps_follow_the_25_hz_clock():
    np.testing.assert_allclose(make_track(start_s=2.0).timestamps_s, [2.0, 2.04, 2.08])


def test_labels_are_written_in_ava_columns_without_header(tmp_path):
    write_labels(tmp_path / "val.csv", [make_track(start_s=900.0, speaking="10")])
    assert (tmp_path / "val.csv").read_text() == (
        "vidA,900.000,0.400000,0.100000,0.600000,0.500000,SPEAKING_AUDIBLE,vidA:1\n"
        "vidA,900.040,0.400000,0.100000,0.600000,0.500000,NOT_SPEAKING,vidA:1\n"
    )


def test_labels_come_back_as_written_with_start_between_frames(tmp_path):
    # 1000.5333 s is a frame of a 30 fps source: 1000.533, 1000.573, 1000.613 on the 25 Hz clock
    tracks = [make_track(), make_track("vidB", "vidB:2", 1000.5333, "011")]
    write_labels(tmp_path / "val.csv", tracks)
    table = read_labels(tmp_path / "val.csv")
    assert table.timestamp_ms.tolist() == [900000, 900040, 900080, 1000533, 1000573, 1000613]
    assert table.speaking.tolist() == [True, False, True, False, True, True]
    assert table.entity_id.tolist() == ["vidA:1"] * 3 + ["vidB:2"] * 3
    np.testing.assert_allclose(table.boxes_xyxy, np.concatenate([t.boxes_xyxy for t in tracks]), atol=5e-7)


def test_in_memory_tables_equal_the_files(tmp_path):
    tracks = [make_track(), make_track("vidB", "vidB:2", 2.0, "01")]
    write_labels(tmp_path / "val.csv", tracks)
    from_file, from_memory = read_labels(tmp_path / "val.csv"), LabelTable.from_tracks(tracks)
    for name in ("video_id", "timestamp_ms", "entity_id", "speaking"):
        assert getattr(from_file, name).tolist() == getattr(from_memory, name).tolist()
    assert from_file.line.tolist() == [1, 2, 3, 4, 5]
    assert from_memory.line.tolist() == [0] * 5


def test_scores_keep_every_digit_and_the_official_header(tmp_path):
    values = np.array([0.1 + 0.2, np.float32(0.9), 1e-17])
    table = ScoreTable.from_tracks([make_track()], [values])
    write_scores(tmp_path / "scores" / "val.csv", table)
    assert read_scores(tmp_path / "scores" / "val.csv").score.tolist() == values.tolist()
    header = (tmp_path / "scores" / "val.csv").read_text().splitlines()[0]
    assert header == (
        "video_id,frame_timestamp,entity_box_x1,entity_box_y1,entity_box_x2,entity_box_y2,label,entity_id,score"
    )


@pytest.mark.parametrize("odd", ["NA", "null", "007", "1e5", "-IELREHX_js", "a,b", 'say "x"', "人脸 é", "nan", "True"])
def test_ids_stay_text(tmp_path, odd):
    track = make_track(odd, f"{odd}_0900:1")
    write_labels(tmp_path / "labels.csv", [track])
    write_scores(tmp_path / "scores.csv", ScoreTable.from_tracks([track], [np.zeros(3)]))
    for table in (read_labels(tmp_path / "labels.csv"), read_scores(tmp_path / "scores.csv")):
        assert set(table.video_id) == {odd}
        assert set(table.entity_id) == {f"{odd}_0900:1"}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("blank", ["", "\n", "\n  \n\n"])
def test_line_ends_bom_and_blank_lines_do_not_matter(tmp_path, end, encoding, blank):
    text = f"\n{','.join(ROW)}\n{changed(1, '900.08')}\n{blank}".replace("\n", end)
    table = read_labels(write_text(tmp_path, text, encoding))
    assert table.video_id.tolist() == ["vidA", "vidA"]
    assert table.timestamp_ms.tolist() == [900040, 900080]
    assert table.line.tolist() == [2, 3]


def test_header_names_the_columns_whatever_their_order(tmp_path):
    # TalkNet's *_orig.csv adds label_id and instance_id; here the order is turned round as well
    names = [*LABEL_COLUMNS, "label_id", "instance_id"][::-1]
    row = [*ROW, "1", "vidA:1:0"][::-1]
    table = read_labels(write_text(tmp_path, f"{','.join(names)}\n{','.join(row)}\n"))
    assert (table.video_id[0], table.entity_id[0], table.timestamp_ms[0]) == ("vidA", "vidA:1", 900040)
    np.testing.assert_allclose(table.boxes_xyxy, [[0.4, 0.1, 0.6, 0.5]])


def test_header_again_in_the_middle_is_no_row(tmp_path):
    header = "video_id,frame_timestamp,x1,y1,x2,y2,label,entity_id"
    text = "\n".join([header, ",".join(ROW), header, changed(1, "900.08")])
    assert read_labels(write_text(tmp_path, text)).timestamp_ms.tolist() == [900040, 900080]


def test_a_second_header_with_other_columns_is_refused(tmp_path):
    text = "\n".join([",".join(ROW), ",".join([*LABEL_COLUMNS[:-2], "entity_id", "label"]), ",".join(ROW)])
    with pytest.raises(AvfusionError, match="line 2: a second header with other columns"):
        read_labels(write_text(tmp_path, text))


def test_header_without_a_needed_column_names_it(tmp_path):
    with pytest.raises(AvfusionError, match=r"table.csv line 1: the header lacks score"):
        read_scores(write_text(tmp_path, ",".join(LABEL_COLUMNS) + "\n" + ",".join(ROW)))


def test_header_only_is_an_empty_table_and_no_bytes_is_an_error(tmp_path):
    write_scores(tmp_path / "none.csv", ScoreTable.from_tracks([], []))
    table = read_scores(tmp_path / "none.csv")
    assert len(table) == 0
    assert table.boxes_xyxy.shape == (0, 4)
    with pytest.raises(AvfusionError, match="the file is empty"):
        read_scores(write_text(tmp_path, ""))


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        (0, "", "video_id is '', expected text"),
        (7, "", "entity_id is '', expected text"),
        (1, "-0.04", "frame_timestamp is '-0.04', expected seconds from 0"),
        (1, "", "frame_timestamp is '', expected seconds"),
        (1, "00:15:00", "frame_timestamp is '00:15:00', expected seconds"),
        (1, "nan", "frame_timestamp is 'nan', expected seconds"),
        (1, "9_00", "frame_timestamp is '9_00', expected seconds"),
        (2, "left", "entity_box_x1 is 'left', expected a fraction"),
        (5, "inf", "entity_box_y2 is 'inf', expected a fraction"),
        (4, "0.2", "box is '0.4,0.1,0.2,0.5', expected x1,y1,x2,y2"),
        (6, "SPEAKING", "label is 'SPEAKING', expected one of NOT_SPEAKING, SPEAKING_AUDIBLE, SPEAKING_NOT_AUDIBLE"),
        (6, "SPEAKING_AUDIBLE,more", "9 columns, expected 8: video_id,frame_timestamp"),
    ],
)
def test_a_wrong_label_row_is_named(tmp_path, column, text, message):
    path = write_text(tmp_path, f"{','.join(ROW)}\n\n{changed(column, text)}\n")
    with pytest.raises(AvfusionError) as caught:
        read_labels(path)
    assert str(caught.value).startswith(f"{path} line 3: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("score", ["nan", "NaN", "inf", "-inf", "1e999", "", " ", "high", "0_5"])
def test_a_wrong_score_is_named(tmp_path, score):
    path = write_text(tmp_path, f"{','.join(ROW)},0.5\n{','.join(ROW)},{score}\n")
    with pytest.raises(AvfusionError) as caught:
        read_scores(path)
    assert str(caught.value).startswith(f"{path} line 2: score is {score!r}, expected a finite number")


def test_a_wrong_row_far_down_is_named_by_its_own_line(tmp_path):
    rows = [",".join(ROW) + ",0.5"] * 9000
    rows[8499] = ",".join(ROW) + ",x"
    with pytest.raises(AvfusionError, match="line 8500: score is 'x'"):
        read_scores(write_text(tmp_path, "\n".join(rows)))


def test_labels_of_a_score_file_do_not_count(tmp_path):
    text = "\n".join(f"{changed(6, label)},0.5" for label in ("NOT_SPEAKING", "guessed", ""))
    assert read_scores(write_text(tmp_path, text)).score.tolist() == [0.5] * 3


def test_unreadable_files_are_one_line_errors(tmp_path):
    with pytest.raises(AvfusionError, match=r"absent.csv: cannot be read \(No such file"):
        read_labels(tmp_path / "absent.csv")
    with pytest.raises(AvfusionError, match=r"cannot be read \(Is a directory"):
        read_labels(tmp_path)
    with pytest.raises(AvfusionError, match="not UTF-8 text"):
        read_labels(write_text(tmp_path, ",".join(ROW), encoding="utf-16"))
    with pytest.raises(AvfusionError, match="line 1: not readable as CSV"):
        read_labels(write_text(tmp_path, '"' + "x" * (csv.field_size_limit() + 10)))


def test_score_lengths_and_values_are_checked(tmp_path):
    with pytest.raises(ValueError, match=r"scores \(2,\) for the 3 frames of 'vidA:1'"):
        ScoreTable.from_tracks([make_track()], [np.zeros(2)])
    with pytest.raises(ValueError, match="0 score arrays for 1 tracks"):
        ScoreTable.from_tracks([make_track()], [])
    with pytest.raises(AvfusionError, match="score nan at frame 1 of 'vidA:1' in 'vidA'"):
        ScoreTable.from_tracks([make_track()], [np.array([0.1, np.nan, np.inf])])


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "val.csv"
    good = ScoreTable.from_tracks([make_track()], [np.zeros(3)])
    write_scores(path, good)
    before = path.read_bytes()
    torn = ScoreTable(
        video_id=good.video_id,
        timestamp_ms=good.timestamp_ms,
        boxes_xyxy=good.boxes_xyxy,
        entity_id=good.entity_id,
        line=good.line,
        score=good.score[:2],  # one score short: writing stops in the middle
    )
    with pytest.raises(ValueError, match="shorter"):
        write_scores(path, torn)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["val.csv"]


def test_a_number_beyond_any_is_told_as_such(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("v,1.0,0.1,0.1,0.3,0.3,SPEAKING_AUDIBLE,e,1e13\n")
    with pytest.raises(AvfusionError, match="line 1: score is '1e13', expected a number up to 1e12"):
        read_scores(path)


def test_scores_need_no_boxes_and_then_have_none(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("score,video_id,frame_timestamp,entity_id\n0.5,v,1.0,e\n")
    table = read_scores(path)
    assert np.isnan(table.boxes_xyxy).all()
    assert (table.score.tolist(), table.timestamp_ms.tolist(), table.entity_id.tolist()) == ([0.5], [1000], ["e"])
