"""What is wrong with a file of conditions or categories is told with its line."""

from __future__ import annotations

import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.subset_files import read_categories, read_stretches


def write(folder, text):
    path = folder / "more.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("v,1,2,SPEECH", "line 2: label is 'SPEECH', expected one of NO_SPEECH, CLEAN_SPEECH, SPEECH_WITH_MUSIC"),
        ("v,3,2,NO_SPEECH", "line 2: end_s is '2', expected start_s or later"),
        ("v,-1,2,NO_SPEECH", "line 2: start_s is '-1', expected seconds from 0"),
        ("v,1,nan,NO_SPEECH", "line 2: end_s is 'nan', expected seconds from 0"),
        ("v,one,2,NO_SPEECH", "line 2: start_s is 'one', expected seconds from 0"),
        (",1,2,NO_SPEECH", "line 2: video_id is '', expected text"),
        ("v,1,2", "line 2: 3 columns, expected 4: video_id,start_s,end_s,label"),
        ("w,8,9,NO_SPEECH", "line 2: the stretch overlaps the one of line 1"),
        ("w,1,6,NO_SPEECH", "line 1: the stretch overlaps the one of line 2"),
    ],
)
def test_a_wrong_stretch_is_named(tmp_path, row, said):
    path = write(tmp_path, f"w,5,8.5,CLEAN_SPEECH\n{row}\n")
    with pytest.raises(AvfusionError) as caught:
        read_stretches(path)
    assert str(caught.value).startswith(f"{path} {said}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("head", ["", "video_id,start_s,end_s,label\n"])
def test_stretches_come_in_order_whatever_the_file(tmp_path, head):
    path = write(tmp_path, f"{head}w,5,8.5,CLEAN_SPEECH\nNA,0,1,NO_SPEECH\nw,1,5,NO_SPEECH\n")
    found = {video: [column.tolist() for column in columns] for video, columns in read_stretches(path).of_video.items()}
    assert found == {
        "w": [[1000, 5000], [5000, 8500], ["NO_SPEECH", "CLEAN_SPEECH"]],
        "NA": [[0], [1000], ["NO_SPEECH"]],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("v,a\nw,\n", "line 2: category is '', expected text"),
        ("v,a\n,b\n", "line 2: video_id is '', expected text"),
        ("v,a\nw\n", "line 2: 1 columns, expected 2: video_id,category"),
    ],
)
def test_a_wrong_category_is_named(tmp_path, text, said):
    path = write(tmp_path, text)
    with pytest.raises(AvfusionError) as caught:
        read_categories(path)
    assert str(caught.value).startswith(f"{path} {said}")


def test_files_without_rows_are_refused(tmp_path):
    with pytest.raises(AvfusionError, match="no rows, expected video_id,category"):
        read_categories(write(tmp_path, "video_id,category\n"))
    with pytest.raises(AvfusionError, match="no rows, expected video_id,start_s,end_s,label"):
        read_stretches(write(tmp_path, "video_id,start_s,end_s,label\n"))
    with pytest.raises(AvfusionError, match="the file is empty"):
        read_categories(write(tmp_path, ""))
