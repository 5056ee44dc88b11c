"""The journals of a preparation: ``journal*.jsonl`` in its folder, the settings first, then a line for each piece done.

Each run has a journal of its own and locks it until it ends, however it ends: a second run with the same one is
refused. A line is one write; what a kill cut short is dropped when its own run begins again.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from avfusion.errors import AvfusionError, UsageError
from avfusion.files import lock


class Journal:
    """One run's own journal, and the others' beside it.

    Args:
        path: of this run's journal; its folder is made if absent.
        settings: everything that decides what is written.

    Raises:
        UsageError: the folder was begun with other settings, holds something else, or another run writes this journal.
        AvfusionError: the settings of a journal are damaged.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self._head = json.dumps({"settings": settings}, sort_keys=True).encode() + b"\n"
        folder = path.parent
        files = list(folder.iterdir()) if folder.is_dir() else []
        if not any(map(_is_journal, files)) and any(file.suffix != ".part" for file in files):
            raise UsageError(f"{folder} holds files that are no dataset of this command; choose an empty folder")
        for journal in filter(_is_journal, files):  # refused before anything is written
            self._check_head(journal)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be written to ({error.strerror}); give another folder") from error
        weakref.finalize(self, os.close, self._file)
        if lock(self._file) is False:
            raise UsageError(f"{path}: another run is writing this journal; let it end, or end it")
        content = path.read_bytes()
        os.ftruncate(self._file, content.rfind(b"\n") + 1)
        if b"\n" not in content:
            self.append(self._head)
        self._check_head(path)

    def append(self, line: bytes) -> None:
        """Writes one line, its end included.

        Raises:
            AvfusionError: the disk took a part of it only.
        """
        if os.write(self._file, line) < len(line):
            raise AvfusionError(f"{self.path}: only part of a line could be written; make room on the disk")

    def lines(self) -> Iterator[tuple[Path, int, bytes]]:
        """All whole lines of all journals after their settings: the journal, the line's number from 1, the line."""
        for journal in journals(self.path.parent):
            self._check_head(journal)
            for number, line in enumerate(journal.read_bytes().split(b"\n")[:-1], start=1):
                if number > 1:
                    yield journal, number, line

    def remove_parts(self) -> None:
        """Removes the ``.part`` files that killed runs left in the folder, unless another run is at work."""
        others = [os.open(path, os.O_RDWR) for path in journals(self.path.parent) if path != self.path]
        try:
            if all([lock(file) for file in others]):  # all of them, and held until the parts are gone
                for part in self.path.parent.rglob("*.part"):
                    part.unlink(missing_ok=True)
        finally:
            for file in others:
                os.close(file)

    def _check_head(self, journal: Path) -> None:
        """Refuses a journal of other settings; one whose first line is being written is left alone."""
        with journal.open("rb") as file:
            line = file.readline()
        if line.endswith(b"\n") and line != self._head:
            begun, now = _settings(journal, line), json.loads(self._head)["settings"]
            names = sorted(name for name in begun | now if begun.get(name) != now.get(name))
            differing = ", ".join(f"{name}: {begun.get(name)}, now {now.get(name)}" for name in names)
            raise UsageError(
                f"{journal.parent} was begun with other settings ({differing}); "
                "choose another folder, repeat those settings, or remove the folder"
            )


def begun_settings(folder: Path) -> dict[str, Any]:
    """The settings that a folder was begun with.

    Raises:
        UsageError: nothing was begun there.
        AvfusionError: a journal is damaged.
    """
    for journal in journals(folder):
        with journal.open("rb") as file:
            line = file.readline()
        if line.endswith(b"\n"):
            return _settings(journal, line)
    raise UsageError(f"{folder}: no dataset was begun there (no journal*.jsonl); check the path")


def journals(folder: Path) -> list[Path]:
    """The journals of a folder, in order of their names."""
    return sorted(filter(_is_journal, folder.iterdir())) if folder.is_dir() else []


def _is_journal(path: Path) -> bool:
    return path.name.startswith("journal") and path.suffix == ".jsonl"


def _settings(journal: Path, line: bytes) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads(line)["settings"]
        return dict(settings)
    except (ValueError, KeyError, TypeError) as error:
        raise AvfusionError(
            f"{journal}, line 1: {line[:80]!r}, expected the settings of a dataset; choose another folder, or remove "
            "this one"
        ) from error
