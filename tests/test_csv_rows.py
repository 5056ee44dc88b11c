"""The quick reader and csv.reader give the same rows, the same numbers to the last bit and the same errors."""

from __future__ import annotations

import csv
import math
import os

import numpy as np
import pytest

from avfusion.csv_rows import read_columns, shortened
from avfusion.errors import AvfusionError

NAMES = ("video_id", "value")


def read(path, names=NAMES, **options):
    parts = list(read_columns(path, names, numeric=("value",), **options))
    lines = [line for chunk, _ in parts for line in chunk.tolist()]
    texts = [text for _, columns in parts for text in columns.texts("video_id")]
    numbers = [number for _, columns in parts for number in columns.numbers("value").tolist()]
    return lines, texts, numbers, {type(columns).__name__ for _, columns in parts}


def write(folder, text):
    path = folder / "table.csv"
    path.write_bytes(text.encode())
    return path


def number_texts(count=3000):
    generator = np.random.default_rng(3)
    shapes = ["{!r}", "{:.6f}", "-{:.3f}", "{:.14f}", "{:.13f}", "{:e}", "+{:.4f}", "{:.0f}.", "{:.20f}"]
    texts = [shapes[generator.integers(len(shapes))].format(float(generator.random())) for _ in range(count)]
    texts += [str(int(generator.integers(10 ** int(generator.integers(1, 19))))) for _ in range(count)]
    texts += [f".{int(generator.integers(1000))}" for _ in range(100)] + ["-0.0", "0", "900.04", "1e-320"]
    return texts


def test_numbers_are_those_of_float_to_the_last_bit(tmp_path):
    texts = number_texts()
    path = write(tmp_path, "".join(f"v{row // 7},{text}\n" for row, text in enumerate(texts)))
    lines, videos, numbers, ways = read(path)
    assert ways == {"_PlainRows"}
    assert numbers == [float(text) for text in texts]
    assert [math.copysign(1, number) for number in numbers] == [math.copysign(1, float(text)) for text in texts]
    assert videos == [f"v{row // 7}" for row in range(len(texts))]
    assert lines == list(range(1, len(texts) + 1))


@pytest.mark.parametrize(
    "odd", [".", "-", "", "1.2.3", "1-2", "--1", "1e", "nan", "1_0", "0x10", "-.", "x" * 300, " 1", "inf"]
)
@pytest.mark.parametrize("quoted", [False, True])
def test_what_is_no_number_is_nan_either_way(tmp_path, odd, quoted):
    head = '"v",1\n' if quoted else "v,1\n"
    _, _, numbers, ways = read(write(tmp_path, f"{head}v,2.5\nv,{odd}\nv,3\n"))
    expected = float(odd) if odd in (" 1", "inf") else float("nan")
    assert numbers == pytest.approx([1, 2.5, expected, 3], nan_ok=True)
    assert ways == ({"_PlainRows"} if odd == " 1" and not quoted else {"_TextRows"})


def test_quotes_and_blank_lines_are_left_to_csv(tmp_path):
    rows = [f"v{row},{row}.5" for row in range(40)]
    rows[25] = '"a,""b""\nc",25.5'  # one row over two lines
    rows[30] = ""
    lines, videos, numbers, ways = read(write(tmp_path, "\n".join(rows)))
    assert ways == {"_TextRows"}
    assert videos[25] == 'a,"b"\nc'
    assert numbers == [row + 0.5 for row in range(40) if row != 30]
    assert lines == [*range(1, 27), *range(28, 32), *range(33, 42)]  # of two lines, the first


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n", "\ufeffvideo_id,value\n", "value , video_id,more\n"])
def test_heads_and_line_ends_do_not_matter(tmp_path, start, end):
    row = "{1},{0},x" if start.startswith("value") else "{0},{1}"
    text = start + "".join(row.format(f"v{n}", n) + "\n" for n in range(5))
    lines, videos, numbers, _ = read(write(tmp_path, text.replace("\n", end)))
    assert videos == [f"v{n}" for n in range(5)]
    assert numbers == list(range(5))
    first = 1 + ("\n" in start)
    assert lines == list(range(first, first + 5))


def test_the_first_row_says_whether_more_columns_follow(tmp_path):
    assert read(write(tmp_path, "a,1,x\nb,2,y\n"), more_columns=1)[1] == ["a", "b"]
    assert read(write(tmp_path, "a,1\nb,2\n"), more_columns=1)[1] == ["a", "b"]
    for text, message in (("a,1,x\nb,2\n", "2 columns, expected 3"), ("a,1\nb,2,y\n", "3 columns, expected 2")):
        with pytest.raises(AvfusionError, match=f"table.csv line 2: {message}: video_id,value"):
            read(write(tmp_path, text), more_columns=1)
    with pytest.raises(AvfusionError, match="line 2: 4 columns, expected 3"):
        read(write(tmp_path, "a,1,x\nb,2,y,z\n"), more_columns=1)


def test_a_short_row_and_a_long_one_do_not_make_up_for_each_other(tmp_path):
    with pytest.raises(AvfusionError, match="line 2: 1 columns, expected 2"):
        read(write(tmp_path, "a,1\nb\nc,3,x\n"))


def test_a_header_far_down_counts_and_must_order_columns_alike(tmp_path):
    rows = [f"v{n},{n}" for n in range(30)]
    assert read(write(tmp_path, "\n".join([*rows, "video_id,value", *rows])))[2] == [*range(30), *range(30)]
    with pytest.raises(AvfusionError, match="line 31: a second header with other columns"):
        read(write(tmp_path, "\n".join([*rows, "video_id,more,value", *rows])))


def test_wrong_bytes_are_an_error_in_any_column(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"video_id,value,more\n" + b"a,1,x\n" * 10 + b"a,1,\xff\n")
    with pytest.raises(AvfusionError, match="not UTF-8 text"):
        read(path)


def test_a_field_beyond_the_limit_of_csv_is_refused(tmp_path):
    with pytest.raises(AvfusionError, match="line 2: not readable as CSV"):
        read(write(tmp_path, f'"a",1\n{"x" * (csv.field_size_limit() + 1)},2\n'))


def test_texts_of_numbers_can_be_asked_for_afterwards(tmp_path):
    path = write(tmp_path, "a,1.50,x\nb,2e0,y\n")
    ((lines, columns),) = read_columns(path, NAMES, more_columns=1, numeric=("value",))
    assert type(columns).__name__ == "_PlainRows"
    assert columns.texts("value").tolist() == ["1.50", "2e0"]
    assert lines.tolist() == [1, 2]


@pytest.mark.parametrize("rows_before", [0, 3, 100_000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_wrong_bytes_are_told_with_their_line(tmp_path, rows_before, end):
    path = tmp_path / "table.csv"
    rows = [b"video_id,value", *[b"video,1.5"] * rows_before, b"caf\xe9,2", b"\xff,3"]
    path.write_bytes(end.encode().join(rows))
    with pytest.raises(AvfusionError, match=rf"line {rows_before + 2}: not UTF-8 text .*: save it so"):
        read(path)


@pytest.mark.parametrize("rows_after", [0, 1, 50, 50_000])
@pytest.mark.parametrize("row", ['"a,1', 'a,"1'])
def test_a_quote_that_is_not_closed_is_told_where_its_row_starts(tmp_path, row, rows_after):
    rows = ["video_id,value", '"b",2', row, *["c,3"] * rows_after]
    with pytest.raises(AvfusionError, match=r"line 3: not readable as CSV \(.*a quote") as caught:
        read(write(tmp_path, "\n".join(rows)))
    assert len(str(caught.value)) < 300
    with pytest.raises(AvfusionError, match=r"line 3: .*quote") as caught:  # closed by the next one
        read(write(tmp_path, "\n".join([*rows, '"d",4', "e,5"])))
    assert len(str(caught.value)) < 300


def test_a_quoted_line_end_in_the_wrong_place_is_told_where_its_row_starts(tmp_path):
    with pytest.raises(AvfusionError, match="line 2: 1 columns from here to line 3: is a quote not closed"):
        read(write(tmp_path, 'a,1\n"b,1\nc"\n'))


def test_long_texts_are_shortened():
    assert shortened("x" * 60) == repr("x" * 60)
    assert shortened("x" * 61) == f"{'x' * 60!r}..."


def test_a_pipe_is_told(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AvfusionError, match="a pipe cannot be read twice, expected a CSV file: save it as one"):
        read(tmp_path / "pipe")


def test_columns_of_a_header_may_be_optional_all_or_none(tmp_path):
    def columns(text, quoted=False):
        text = text.replace("a,", '"a",') if quoted else text
        names, optional = ("video_id", "value", "x", "y"), (("x", "y"),)
        ((_, found),) = read_columns(write(tmp_path, text), names, numeric=("value", "x", "y"), optional=optional)
        return found

    for quoted in (False, True):
        found = columns("VIDEO_ID,Value\na,1\n", quoted)
        assert (found.has("value"), found.has("x")) == (True, False)
        assert (found.texts("video_id").tolist(), found.numbers("value").tolist()) == (["a"], [1])
    with pytest.raises(AvfusionError, match="line 1: the header lacks y"):
        columns("video_id,value,x\na,1,2\n")
    with pytest.raises(AvfusionError, match="line 1: the header names value twice"):
        columns("video_id,value,VALUE\na,1,2\n")
    with pytest.raises(AvfusionError, match="line 1: 2 columns, expected 4"):
        columns("a,1\n")
