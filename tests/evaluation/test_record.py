"""What a report records, and the folders that it is not written to."""

from __future__ import annotations

import hashlib
import os
import shlex

import pytest

from avfusion.errors import AvfusionError, UsageError
from avfusion.evaluation.record import check_out, file_record, made_by, record_lines


def test_a_run_keeps_its_own_report(tmp_path):
    (tmp_path / "config.yaml").write_text("run: {}\n")
    with pytest.raises(UsageError, match=r"a run's own folder \(config.yaml is there\)"):
        check_out(tmp_path, ["report.json"])
    check_out(tmp_path / "beside", ["report.json"])
    assert not (tmp_path / "beside").exists()


def test_a_folder_in_the_place_of_a_file_is_told(tmp_path):
    (tmp_path / "report.md").mkdir()
    with pytest.raises(UsageError, match=r"report\.md is a folder there"):
        check_out(tmp_path, ["report.json", "report.md"])


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "a" / "b"):
        with pytest.raises(UsageError, match=r"cannot be made \(.*/file is a file\)"):
            check_out(out, [])


def test_the_command_can_be_typed_again():
    arguments = ["eval.py", "--scores=a b.csv", "--labels=it's.csv"]
    assert shlex.split(made_by(arguments)["command"]) == ["python", *arguments]


def test_files_go_by_hash_and_name(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(name)
    one = file_record(tmp_path / "a.csv")
    both = file_record(tmp_path, [tmp_path / "a.csv", tmp_path / "b.csv"])
    hashes = {name: hashlib.sha256(name[0].encode()).hexdigest() for name in ("a.csv", "b.csv")}
    assert (one["sha256"], both["sha256"]) == (hashes["a.csv"], hashes)
    lines = record_lines({**made_by(["eval.py"]), "files": {"scores": one, "labels": both}})
    whole = hashlib.sha256("".join(f"{name} {found}\n" for name, found in hashes.items()).encode()).hexdigest()
    assert lines[1] == f"scores: `{tmp_path}/a.csv`, sha256 `{hashes['a.csv']}`"
    assert lines[2] == f"labels: `{tmp_path}`, 2 files, sha256 of their names and sha256 `{whole}`"


def test_a_pipe_is_not_hashed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AvfusionError, match="a pipe cannot be read twice"):
        file_record(tmp_path / "pipe")
