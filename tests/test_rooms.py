"""The rooms of the package import only the rooms above them, and light rooms stay light.

The table is the table of the design, with clock, csv_rows, distributed, errors, files and processes as base rooms,
media beside data in scoring, tracks in training, checkpoint for whoever needs a trained model, weights (the file
format of released ones) below it and released (the model of the package) above.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import avfusion

PACKAGE = Path(avfusion.__file__).parent
BASE = {"clock", "csv_rows", "distributed", "errors", "files", "processes"}  # small tools; every room may use them
ALLOWED = {
    "clock": set(),
    "csv_rows": {"errors"},
    "distributed": {"errors"},
    "errors": set(),
    "files": set(),
    "processes": {"errors"},
    "config": BASE,
    "tracks": BASE,
    "models": BASE | {"config"},
    "media": BASE | {"tracks"},
    "faces": BASE | {"media", "tracks"},
    "data": BASE | {"config", "tracks", "media"},
    "evaluation": BASE | {"tracks"},
    "shortcuts": BASE | {"data", "tracks", "media"},
    "weights": BASE,
    "checkpoint": BASE | {"config", "models", "weights"},
    "released": BASE | {"config", "models", "checkpoint", "weights"},
    "scoring": BASE | {"config", "models", "data", "media", "tracks"},
    "offsets": BASE | {"config", "models", "data", "tracks", "scoring", "evaluation"},
    "robustness": BASE
    | {"config", "models", "checkpoint", "data", "media", "tracks", "scoring", "evaluation", "offsets"},
    "alignment": BASE | {"config", "models", "checkpoint", "data", "tracks", "evaluation", "scoring"},
    "inference": BASE
    | {"config", "models", "checkpoint", "released", "media", "faces", "data", "scoring", "alignment", "tracks"},
    "training": BASE
    | {"config", "models", "checkpoint", "data", "tracks", "scoring", "evaluation", "alignment", "offsets"},
}
# A command that lies in a room and is imported by nothing: what it may use beyond the room.
COMMANDS = {"models/export.py": {"checkpoint", "media"}}


def imported_rooms(file: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return {name.split(".")[1] for name in names if name.startswith("avfusion.")}


def test_rooms_import_only_the_rooms_above_them() -> None:
    faults = []
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        assert room in ALLOWED, f"{room} is no room of the design: add it to the table"
        name = file.relative_to(PACKAGE).as_posix()
        allowed = ALLOWED[room] | COMMANDS.get(name, set())
        faults += [f"{name} imports {other}" for other in imported_rooms(file) - allowed - {room}]
    assert not faults, faults


def test_commands_are_imported_by_nothing() -> None:
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "from avfusion.models.export import" not in text
        assert "import data_prep" not in text
        assert "from data_prep" not in text


def test_importing_models_loads_no_heavy_package() -> None:
    heavy = "['decord', 'wandb', 'matplotlib', 'av', 'torchaudio', 'torchvision', 'soundfile']"
    code = f"import sys, avfusion.models; print([m for m in {heavy} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
