"""A wrong command line is one line on stderr and exit code 2, like every other failure a user can cause."""

from __future__ import annotations

import sys

import pytest

from avfusion.errors import CommandParser, run_command
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
