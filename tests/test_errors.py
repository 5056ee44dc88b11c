"""A wrong command line is one line on stderr and exit code 2, like every other failure a user can cause."""

from __future__ import annotations

import errno
import io
import re
import sys
from pathlib import Path

import pytest

from avfusion.errors import AvfusionError, CommandParser, run_command
from avfusion.models import cost


def run(arguments: list[str]) -> int:
    def body() -> None:
        parser = CommandParser(prog="command", allow_abbrev=False)
        parser.add_argument("--resume")
        parser.add_argument("--checkpoint", choices=["best", "last"])
        parser.parse_args(arguments)

    return run_command(body)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--resume"], "error: argument --resume: expected one argument; see --help\n"),
        (["--checkpoint=foo"], "error: argument --checkpoint: invalid choice: 'foo' (choose from "),
        (["a\nb"], "error: unrecognized arguments: a b; see --help\n"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(said)
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(["--help"])
    assert stopped.value.code == 0
    assert "--checkpoint {best,last}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--help=3"], "error: argument -h/--help: "),
        (["nothing.yaml"], "config error: nothing.yaml: no such file"),
        (["--model.fusion.haeds=3"], "config error: model.fusion.haeds: no such key"),
    ],
)
def test_the_cost_command_tells_in_one_line(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cost", *arguments])
    assert cost.main() == 2
    error = capsys.readouterr().err
    assert error.startswith(said)
    assert error.count("\n") == 1


def test_names_are_shown_on_one_line_whatever_is_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    def body() -> None:
        raise AvfusionError("no video file at a\nb\x1b[31m é 人\u2028\udcff.mp4")

    assert run_command(body) == 1
    assert capsys.readouterr().err == "error: no video file at a\\nb\\x1b[31m é 人\\u2028\\udcff.mp4\n"


def test_a_name_that_the_terminal_cannot_show_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    assert run_command(lambda: print("é.mp4: 3 frames")) == 0
    assert written.getvalue() == b"\\xe9.mp4: 3 frames\n"


@pytest.mark.parametrize(("number", "told"), [(errno.ENOSPC, ""), (errno.EDQUOT, r" \(a quota\)")])
def test_a_full_disk_is_told_with_the_place_and_what_is_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int, told: str
) -> None:
    def body() -> None:
        raise OSError(number, "No space left on device", str(tmp_path / "new" / "x.mp4"))

    assert run_command(body) == 1
    said = rf"error: disk full at .*x\.mp4{told}, \d+ bytes free; make room and run the same command again\n"
    assert re.fullmatch(said, capsys.readouterr().err)
