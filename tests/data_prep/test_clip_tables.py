"""Facts about the tables of clips: what is read from them, and how each fault in them is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from avfusion.errors import AvfusionError, UsageError
from data_prep.clip_tables import read_boxes, read_clip_rows, read_word_times
from data_prep.source_clips import list_clips

CLIPS = "path,corpus,talker,split,fps\na/1.mkv,c,ann,train,25\na/2.mkv,c,ann,train,25\nb/1.mkv,c,ben,val,30\n"
BOXES = "path,frame,x1,y1,x2,y2,confidence\na/1.mkv,0,10,20,30,40,9\na/1.mkv,5,11,20,31,40,9\nb/1.mkv,0,1,2,3,4,9\n"


def test_rows_boxes_and_word_times_are_read(tmp_path: Path) -> None:
    (tmp_path / "clips.csv").write_bytes(b"\xef\xbb\xbf" + CLIPS.replace("\n", "\r\n").encode() + b"\r\n")
    rows = read_clip_rows(tmp_path / "clips.csv")
    assert [(row["path"], row["talker"], row["split"]) for row in rows] == [
        ("a/1.mkv", "ann", "train"),
        ("a/2.mkv", "ann", "train"),
        ("b/1.mkv", "ben", "val"),
    ]
    (tmp_path / "boxes.csv").write_text(BOXES)
    boxes = read_boxes(tmp_path / "boxes.csv")
    assert boxes == {"a/1.mkv": {0: (10, 20, 30, 40), 5: (11, 20, 31, 40)}, "b/1.mkv": {0: (1, 2, 3, 4)}}
    (tmp_path / "x.align").write_text("0 15000 sil\n15000 30000 bin\n30000 35000 blue\n35000 50000 sil\n")
    assert read_word_times(tmp_path / "x.align") == [(0.6, 1.2), (1.2, 1.4)]


@pytest.mark.parametrize(
    ("found", "spoilt", "message"),
    [
        ("b/1.mkv,0,1,2,3,4,9\n", "b/1.mkv,0,1,2", "line 4: 4 cells ('b/1.mkv,0,1,2'), expected the 7 of line 1"),
        ("1.mkv,5,11,20,31", "1.mkv,5,31,20,31", "line 3: box is 31,20,31,40, expected x1 < x2 and y1 < y2"),
        ("11,20,31,40", "11,20,nan,40", "line 3: box is 11,20,nan,40, expected x1 < x2"),
        ("1.mkv,5", "1.mkv,five", "line 3: invalid literal for int() with base 10: 'five'; expected path,frame,"),
        ("1.mkv,5", "1.mkv,-5", "line 3: frame is -5, expected a number from 0"),
        ("1.mkv,5", "1.mkv,0", "line 3: a second box for frame 0 of a/1.mkv, expected one face"),
        ("1.mkv,5", "1.mkv,", "line 3: no frame, expected path,frame,"),
        ("frame,x1", "index,x1", "line 1: lacks the columns frame; expected path,frame,"),
    ],
)
def test_a_wrong_row_of_boxes_is_told_with_its_line(tmp_path: Path, found: str, spoilt: str, message: str) -> None:
    assert_told(tmp_path / "boxes.csv", BOXES.replace(found, spoilt), message)


@pytest.mark.parametrize(
    ("found", "spoilt", "message"),
    [
        ("ben,val", "ben,dev", "line 4: split is 'dev', expected one of train, val, test"),
        ("a/2.mkv,c,ann,train,25", "a/2.mkv,c", "line 3: 2 cells ('a/2.mkv,c'), expected the 5 of line 1"),
        ("a/2.mkv", "a,2.mkv", "line 3: 6 cells ('a,2.mkv,c,ann,train,25'), expected the 5 of line 1"),
        ("2.mkv,c,ann,train", "2.mkv,c,ann,test", "line 3: puts talker c/ann into two splits"),
        ("c,ben", "c,", "line 4: no talker, expected path,corpus,talker,split"),
        ("path,corpus", "file,corpus", "line 1: lacks the columns path; expected path,corpus,talker,split"),
        (CLIPS, "", "line 1: lacks the columns path, corpus, talker, split"),
    ],
)
def test_a_wrong_row_of_clips_is_told_with_its_line(tmp_path: Path, found: str, spoilt: str, message: str) -> None:
    assert_told(tmp_path / "clips.csv", CLIPS.replace(found, spoilt), message)


def assert_told(path: Path, text: str, message: str) -> None:
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        (read_boxes if path.name == "boxes.csv" else read_clip_rows)(path)
    assert str(caught.value).startswith(f"{path}, {message}")
    assert "\n" not in str(caught.value)


def test_what_is_no_text_is_told_with_its_place(tmp_path: Path) -> None:
    for name, text, read in (("boxes.csv", BOXES, read_boxes), ("clips.csv", CLIPS, read_clip_rows)):
        (tmp_path / name).write_bytes(text.replace("b/1", "b/\xe9").encode("latin-1"))
        with pytest.raises(UsageError, match=f"{name}: no UTF-8 text .* at byte .*; expected a table of path,"):
            read(tmp_path / name)
    (tmp_path / "x.align").write_bytes(b"0 15000 caf\xe9\n")
    with pytest.raises(AvfusionError, match=r"x.align: no UTF-8 text .* at byte 11.*; expected START END WORD"):
        read_word_times(tmp_path / "x.align")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UsageError, match=r"folder.csv: cannot be read"):
        read_boxes(tmp_path / "folder.csv")


def test_a_clip_listed_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "boxes.csv").write_text(BOXES.replace("b/1.mkv", "a/1.mp4"))
    (tmp_path / "clips.csv").write_text(CLIPS.replace("a/2.mkv", "a/1.mp4"))
    with pytest.raises(UsageError, match=r"a/1.mkv and .*a/1.mp4 would both be clip a/1"):
        list_clips(tmp_path)
