"""Columbia's label files: what a line means, and what is no such line."""

from __future__ import annotations

import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.protocols.columbia_labels import read_columbia
from tests.evaluation.protocols.columbia_files import write_labels


def test_a_line_is_frame_corner_side_and_label(tmp_path):
    # The row that issue 52 of TalkNet-ASD shows: frame 25472, a box of 153 px at (226, 40), speaking.
    labels = read_columbia(write_labels(tmp_path, {"boll": [(25472, 226, 40, 153, 1), (25473, 226, 40, 153, 0)]}))
    assert labels.frame.tolist() == [25472, 25473]
    assert (labels.boxes_xyxy[0] * (640, 360, 640, 360)).tolist() == pytest.approx([226, 40, 379, 193])
    assert labels.speaking.tolist() == [True, False]
    assert labels.speaker.tolist() == ["boll", "boll"]


def test_a_file_its_folder_and_the_folder_above_read_the_same(tmp_path):
    root = write_labels(tmp_path, {"sick": [(0, -5, 0, 100, 1)]})
    read = [read_columbia(path) for path in (root, root / "fusion", root / "fusion" / "sick.txt")]
    assert [labels.boxes_xyxy.tolist() for labels in read] == [read[0].boxes_xyxy.tolist()] * 3


def test_line_ends_blank_lines_and_further_columns_do_not_matter(tmp_path):
    (tmp_path / "bell.txt").write_bytes(b"\xef\xbb\xbf7\t1\t2\t30\t1\tmore\r\n\r\n8\t1\t2\t30\t0\r\n")
    labels = read_columbia(tmp_path)
    assert (labels.frame.tolist(), labels.speaking.tolist()) == ([7, 8], [True, False])


GOOD = "7\t1\t2\t30\t1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "8\t1\t2\t30\n", r"bell\.txt line 2: 4 columns, expected 5"),
        (GOOD + "8 1 2 30 1\n", r"bell\.txt line 2: 1 columns, expected 5"),
        (GOOD + "8\t1\t2\t30\tyes\n", r"bell\.txt line 2: .*yes.*, expected frame, x, y, size, label"),
        (GOOD + "8.0\t1\t2\t30\t1\n", r"bell\.txt line 2: .*8\.0.*whole numbers"),
        (GOOD + "8\t1\t2\t3_0\t1\n", r"bell\.txt line 2: .*3_0"),
        (GOOD + "8\t1\t2\t30\t2\n", r"bell\.txt line 2: frame 8, size 30, label 2"),
        (GOOD + "8\t1\t2\t0\t1\n", r"bell\.txt line 2: frame 8, size 0"),
        (GOOD + "-1\t1\t2\t30\t1\n", r"bell\.txt line 2: frame -1"),
        (GOOD + "8\t1\t2\t30\t25\t1\n", r"bell\.txt line 2: .*label 25"),  # width and height in columns of their own
        (GOOD + "8\t700\t2\t30\t1\n", r"bell\.txt line 2: a box centred at \(715, 17\), expected one inside 640x360"),
        (GOOD + GOOD, r"bell\.txt line 2: frame 7 is there twice, first in line 1"),
        ("\n", r"bell\.txt: no line"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, text, message):
    (tmp_path / "bell.txt").write_text(text, encoding="utf-8")
    with pytest.raises(AvfusionError, match=message):
        read_columbia(tmp_path)


def test_files_that_are_not_there_or_of_nobody_are_refused(tmp_path):
    with pytest.raises(AvfusionError, match="no such file or folder"):
        read_columbia(tmp_path / "absent")
    with pytest.raises(AvfusionError, match=r"no \.txt file"):
        read_columbia(tmp_path)
    (tmp_path / "0.txt").write_text(GOOD, encoding="utf-8")
    with pytest.raises(AvfusionError, match=r"'0' is no speaker of Columbia, expected a file named after one of bell"):
        read_columbia(tmp_path)
    (tmp_path / "0.txt").rename(tmp_path / "bell.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AvfusionError, match=r"bell\.txt: cannot be read as text"):
        read_columbia(tmp_path)
