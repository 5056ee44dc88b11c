"""RTTM: what is written is read again, odd but right files are read, and what is wrong is named by file and line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.diarization.rttm import Turn, read_rttm, rttm_file_name, write_rttm


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_lines_of_two_turns(tmp_path: Path) -> None:
    write_rttm(tmp_path / "a.rttm", [Turn("v", 1.5, 2.04, "007"), Turn("v", 0.0, 12.0, "v_0900:1")])
    assert (tmp_path / "a.rttm").read_text() == (
        "SPEAKER v 1 0.000 12.000 <NA> <NA> v_0900:1 <NA> <NA>\nSPEAKER v 1 1.500 0.540 <NA> <NA> 007 <NA> <NA>\n"
    )


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    names = ["007", "NA", "1e5", "-x", "MÉO069", "v_0900_0960:1", "a|b", ";;c"]
    turns = [
        Turn(str(rng.choice(names)), start_ms / 1000, (start_ms + length_ms) / 1000, str(rng.choice(names)))
        for start_ms, length_ms in rng.integers(1, 5_000_000, (300, 2))
    ]
    write_rttm(tmp_path / "a.rttm", turns)
    found = read_rttm(tmp_path / "a.rttm")
    assert len(found) == 300
    for a, b in zip(found, sorted(turns, key=lambda t: (t.video_id, t.start_s, t.end_s, t.speaker)), strict=True):
        assert (a.video_id, a.speaker) == (b.video_id, b.speaker)
        assert (a.start_s, a.end_s) == pytest.approx((b.start_s, b.end_s), abs=1e-9)


def test_other_lines_are_skipped_and_a_folder_is_all_its_files(tmp_path: Path) -> None:
    write(
        tmp_path / "a.rttm",
        "\ufeff;; made by hand\r\nSPKR-INFO v 1 <NA> <NA> <NA> unknown A <NA>\r\n\r\n"
        "SPEAKER v 1 0.25\t1e0 <NA> <NA> A <NA>\r\n  SPEAKER v 1 2 .5 <NA> <NA> B\r\n",
    )
    write(tmp_path / "b.rttm", "SPEAKER w 1 3.0 1.0 <NA> <NA> A <NA> <NA>\n")
    write(tmp_path / "c.rttm", "")
    write(tmp_path / "d.txt", "not RTTM\n")
    assert read_rttm(tmp_path) == [Turn("v", 0.25, 1.25, "A"), Turn("v", 2.0, 2.5, "B"), Turn("w", 3.0, 4.0, "A")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("SPEAKER v 1 0.0 1.0 <NA> <NA>", "7 fields, expected 8 to 10: SPEAKER video channel"),
        ("SPEAKER v 1 0.0 1.0 <NA> <NA> John Smith <NA> <NA>", "11 fields, expected 8 to 10: SPEAKER video channel"),
        ("SPEAKER v 1 -0.5 1.0 <NA> <NA> A <NA> <NA>", "start is '-0.5', expected seconds from 0: correct this line"),
        ("SPEAKER v 1 0.0 -1 <NA> <NA> A <NA> <NA>", "duration is '-1', expected seconds above 0: correct this line"),
        ("SPEAKER v 1 0.0 0.000 <NA> <NA> A <NA> <NA>", "duration is '0.000', expected seconds above 0: correct or"),
        ("SPEAKER v 1 nan 1.0 <NA> <NA> A <NA> <NA>", "start is 'nan', expected seconds from 0"),
        ("SPEAKER v 1 1.0 inf <NA> <NA> A <NA> <NA>", "duration is 'inf', expected seconds above 0"),
        ("SPEAKER v 1 1_0 1.0 <NA> <NA> A <NA> <NA>", "start is '1_0', expected seconds from 0"),
        ("SPEAKER my talk 1 1.0 1.0 <NA> <NA> A <NA>", "speaker is '<NA>', expected a name in the eighth field"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "ref.rttm", f";; one\nSPEAKER v 1 0.0 1.0 <NA> <NA> A <NA> <NA>\n{line}\n")
    with pytest.raises(AvfusionError) as caught:
        read_rttm(path)
    assert str(caught.value).startswith(f"{path} line 3: {message}")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        AvfusionError, match=r"none\.rttm: cannot be read \(No such file or directory\), expected an RTTM"
    ):
        read_rttm(tmp_path / "none.rttm")
    with pytest.raises(AvfusionError, match=r"no \.rttm file in this folder, expected one or more"):
        read_rttm(tmp_path)
    (tmp_path / "latin.rttm").write_bytes("SPEAKER v 1 0.0 1.0 <NA> <NA> MÉO <NA> <NA>\n".encode("latin-1"))
    with pytest.raises(AvfusionError, match=r"latin\.rttm: not UTF-8 text"):
        read_rttm(tmp_path / "latin.rttm")


def test_blanks_become_underscores_and_never_make_two_names_one(tmp_path: Path) -> None:
    write_rttm(tmp_path / "a.rttm", [Turn("my talk", 0.0, 1.0, "Ann\tLee"), Turn("other", 0.0, 1.0, "Ann_Lee")])
    assert [(t.video_id, t.speaker) for t in read_rttm(tmp_path / "a.rttm")] == [
        ("my_talk", "Ann_Lee"),
        ("other", "Ann_Lee"),
    ]
    with pytest.raises(
        AvfusionError, match=r"^'a b' and 'a_b' are both 'a_b' in RTTM, which holds no blanks: rename one$"
    ):
        write_rttm(tmp_path / "b.rttm", [Turn("v", 0.0, 1.0, "a b"), Turn("v", 2.0, 3.0, "a_b")])
    with pytest.raises(AvfusionError, match="are both 'v_1' in RTTM"):
        write_rttm(tmp_path / "b.rttm", [Turn("v 1", 0.0, 1.0, "A"), Turn("v_1", 2.0, 3.0, "A")])
    with pytest.raises(ValueError, match="expected at least a millisecond"):
        write_rttm(tmp_path / "b.rttm", [Turn("v", 1.0, 1.0, "A")])
    assert not (tmp_path / "b.rttm").exists()


def test_file_names_keep_ids_apart_and_stay_in_their_folder() -> None:
    ids = ["a:1", "a_1", "a/1", "../a", "a b", "-IELREHX_js", "007", "É", "a%3A1"]
    names = [rttm_file_name(video_id) for video_id in ids]
    assert len(set(names)) == len(ids)
    assert not any(set(name) & set('/\\:*?"<>| ') for name in names)
    assert rttm_file_name("-IELREHX_js") == "-IELREHX_js.rttm"
