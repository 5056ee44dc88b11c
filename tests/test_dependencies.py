"""What the package imports is what pyproject.toml installs: nothing comes only because another package needs it."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # comes with pytest on such Pythons

REPOSITORY = Path(__file__).resolve().parent.parent
# where a module's name is not its package's
DISTRIBUTIONS = {
    "yaml": "pyyaml",
    "silero_vad": "silero-vad",
    "PIL": "pillow",
    "pyannote": "pyannote.metrics",
    "cv2": "opencv-python-headless",
}


def imported_modules(file: Path) -> set[str]:
    """Top names of all absolute imports, also of those inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
    return names - set(sys.stdlib_module_names)


def declared(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower() for requirement in requirements}


def test_every_import_is_declared() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    base = declared(project["dependencies"])
    rooms = {
        "avfusion": base.union(
            *(declared(project["optional-dependencies"][key]) for key in ("diarization", "export", "yunet"))
        ),
        "data_prep": base | declared(project["optional-dependencies"]["prep"]),
    }
    for room, allowed in rooms.items():
        own = {"avfusion", room}
        files = sorted((REPOSITORY / room).rglob("*.py"))
        assert files
        for file in files:
            needed = {DISTRIBUTIONS.get(name, name) for name in imported_modules(file) - own}
            assert needed <= allowed, f"{file.relative_to(REPOSITORY)} imports {sorted(needed - allowed)}"
    for command in ("train.py", "eval.py"):
        assert imported_modules(REPOSITORY / command) - {"avfusion"} <= base
