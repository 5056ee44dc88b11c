"""What a report of a score file records beside its figures: files with their hashes, the command, versions.

And where it goes: a folder is looked at before anything is computed, so that no wrong ``--out`` costs the figures.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import avfusion
from avfusion.errors import AvfusionError, UsageError, one_line
from avfusion.files import sha256_of

RUN_CONFIG = "config.yaml"  # what makes a folder that of a run


def check_out(out: Path | None, names: Iterable[str]) -> None:
    """Refuses a folder that a report cannot or must not be written to.

    Args:
        out: the folder, which need not be there yet; None is fine.
        names: the files that will be written to it.

    Raises:
        UsageError: it is a run's own folder or cannot be made, or one of the files is a folder there.
    """
    if out is None:
        return
    there = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not there.is_dir():
        raise UsageError(f"--out={out}: cannot be made ({there} is a file); give another folder")
    if not os.access(there, os.W_OK):
        raise UsageError(f"--out={out}: cannot be made ({there} may not be written to); give another folder")
    if (out / RUN_CONFIG).exists():
        raise UsageError(
            f"--out={out}: a run's own folder ({RUN_CONFIG} is there), expected another one, so that the run's "
            "report stays: give another folder"
        )
    for name in names:
        if (out / name).is_dir():
            raise UsageError(f"--out={out}: {name} is a folder there, expected a file or nothing: give another folder")


def made_by(command: Sequence[str]) -> dict[str, Any]:
    """The command line and the versions, for ``report.json``."""
    return {
        "command": shlex.join(["python", *command]),
        "versions": {"avfusion": avfusion.__version__, "numpy": np.__version__, "python": platform.python_version()},
    }


def file_record(path: Path, files: Sequence[Path] | None = None) -> dict[str, Any]:
    """Path and SHA-256 of an input.

    Args:
        path: as it was given.
        files: what was read, where the path stands for several files; the hashes then go by their names.

    Raises:
        AvfusionError: a file is a pipe, of which nothing is left to hash.
    """
    hashes = _sha256(path) if files is None else {file.name: _sha256(file) for file in files}
    return {"path": os.fspath(path), "sha256": hashes}


def record_lines(report: Mapping[str, Any]) -> list[str]:
    """Command, files and versions of a report, for ``report.md``."""
    lines = [f"command: `{one_line(report['command'])}`"]
    lines += [f"{name}: {_told(found)}" for name, found in report["files"].items()]
    return [*lines, ", ".join(f"{name} {version}" for name, version in report["versions"].items())]


def _told(found: Mapping[str, Any]) -> str:
    path, hashes = one_line(found["path"]), found["sha256"]
    if isinstance(hashes, str):
        return f"`{path}`, sha256 `{hashes}`"
    all_of_them = hashlib.sha256("".join(f"{name} {one}\n" for name, one in hashes.items()).encode()).hexdigest()
    files = "1 file" if len(hashes) == 1 else f"{len(hashes)} files"
    return f"`{path}`, {files}, sha256 of their names and sha256 `{all_of_them}`"


def _sha256(path: Path) -> str:
    if path.is_fifo():
        raise AvfusionError(f"{path}: a pipe cannot be read twice, expected a file: save it as one")
    return sha256_of(path)
