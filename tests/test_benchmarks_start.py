"""Every benchmark can be started by the command line that its first lines give, from any folder."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
COMMANDS = [file for file in sorted(BENCHMARKS.glob("*.py")) if "__main__" in file.read_text(encoding="utf-8")]
FINDS_ITS_FOLDER = "sys.path.insert(0, str(Path(__file__).resolve().parent.parent))"


def test_there_are_benchmarks() -> None:
    assert len(COMMANDS) > 15


@pytest.mark.parametrize("file", COMMANDS, ids=lambda file: file.stem)
def test_it_finds_the_others_before_it_imports_them(file: Path) -> None:
    """``python benchmarks/X.py`` puts benchmarks/ on the path, and not the folder around it."""
    lines = [(ast.unparse(node), node) for node in ast.parse(file.read_text(encoding="utf-8")).body]
    others = [n for n, (_, node) in enumerate(lines) if isinstance(node, ast.ImportFrom) and _is_own(node)]
    if others:
        places = [n for n, (text, _) in enumerate(lines) if text.replace("'", '"') == FINDS_ITS_FOLDER]
        assert places, f"{file.name} imports from benchmarks and does not say where that is"
        assert places[0] < others[0]


def _is_own(node: ast.ImportFrom) -> bool:
    return (node.module or "").partition(".")[0] == "benchmarks"
