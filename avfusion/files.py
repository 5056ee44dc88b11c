"""Files that appear whole or not at all: written beside their place under a name ending in ``.part``, then renamed.

And what a file is known by: its SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO

PART = re.compile(r"\.[0-9a-f]{12}\.part$")
"""How the names end under which files are written; what still has such a name was left by a killed run."""


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a place to write to; what lies there becomes ``path`` when the block ends well, and is removed otherwise.

    Folders are made. Several runs, on several machines too, may write the same file: the last one's stays.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        yield part
        os.replace(part, target)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno and _is_vague(error.filename):
            error.filename = os.fspath(target)
        part.unlink(missing_ok=True)
        raise


def _is_vague(filename: object) -> bool:
    """A write that finds no room does not say where; FFmpeg says its own address of the part."""
    return filename is None or (isinstance(filename, str) and filename.startswith("file:"))


@contextmanager
def whole_text_file(path: str | os.PathLike[str]) -> Iterator[TextIO]:
    """A UTF-8 text file to write, line ends as given; it appears as :func:`whole_file` says."""
    with whole_file(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        yield file


def place_of(path: Path) -> Path:
    """The absolute path without symbolic links; of links that lead nowhere the path as it was given."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links; up to Python 3.12 it is no OSError
        return path.absolute()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def lock(file: int | IO[Any]) -> bool | None:
    """Locks an open file until it is closed, or the process ends.

    Returns:
        True where it is locked now, False where another process holds it, None where there are no such locks (Windows,
        some file systems).
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True
