"""Cells with any name in them stay one cell of one line."""

from __future__ import annotations

import re

from avfusion.evaluation.tables import bullets, markdown_table, text_table

ODD = "a|b\nc\x1b[31m"


def test_a_bar_or_a_line_end_in_a_name_ends_no_cell():
    lines = markdown_table((f"of {ODD}", ["name", "AP"], [[ODD, "0.5"]])).splitlines()
    assert lines[0] == r"## of a|b\nc\x1b[31m"
    assert lines[2:] == ["| name | AP |", "| --- | --- |", r"| a\|b\nc\x1b[31m | 0.5 |"]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in lines[2:])


def test_columns_stand_under_each_other_whatever_the_names():
    title, header, row = text_table(("", ["name", "AP"], [[ODD, "0.5"]])).split("\n")
    assert row == r"a|b\nc\x1b[31m  0.5"
    assert header.index("AP") == row.index("0.5")
    assert title == ""


def test_a_bullet_is_one_line():
    assert bullets(["a\nb"]) == r"- a\nb"
