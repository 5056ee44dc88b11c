"""The folder of one video: which stages are done, with what settings, and what they left.

``state.json`` is written after every stage. A stage is kept when it was done with the same settings, its files are as
it left them, and every stage before it was kept; else it and all that follow are done anew. So a killed run goes on
where it stopped, and another setting costs what depends on it. The folder of another video is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from avfusion.errors import AvfusionError, UsageError
from avfusion.files import lock, whole_text_file

STATE, LOCK = "state.json", ".lock"
FORMAT_VERSION = 1  # raised when a stage's rule changes: what was done by the old one is done anew


@dataclass
class StageRecord:
    """One finished stage.

    Attributes:
        settings: everything that decides its result, but for the stages before.
        files: what it wrote, relative to the folder, with their sizes in bytes.
        found: what later stages and the report need to know.
        seconds: it took, by the wall clock.
        cpu_seconds: of all threads.
        kept: whether an earlier run did it.
    """

    settings: dict[str, Any]
    files: dict[str, int]
    found: dict[str, Any]
    seconds: float
    cpu_seconds: float
    kept: bool = field(default=False, compare=False)


Work = Callable[[], tuple[Mapping[str, Any], Sequence[Path]]]


class WorkFolder:
    """The stages of one video; made by :func:`open_work_folder`.

    Attributes:
        folder: where everything lies.
        stages: those that are done or kept in this run, in order.
        renewed: whether what lay there was made from an earlier state of the same file, and is done anew.
    """

    def __init__(self, folder: Path, source: Path) -> None:
        self.folder = folder
        self.stages: dict[str, StageRecord] = {}
        self._source = _identity(source)
        self._before, self.renewed = self._read(source)
        if self.renewed:
            self._forget()

    def do(self, name: str, settings: Mapping[str, Any], work: Work) -> dict[str, Any]:
        """Keeps a stage, or does it.

        Args:
            name: of the stage; stages come in the same order in every run.
            settings: everything that decides its result, but for the stages before; ready for JSON.
            work: does it, and gives what was found (ready for JSON) and the files that it wrote.

        Returns:
            What was found.
        """
        wanted = json.loads(json.dumps(settings))
        record = self._before.get(name)
        if record is not None and record.settings == wanted and self._is_whole(record):
            record.kept = True
            self.stages[name] = record
            return record.found
        self._forget()
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        found, files = work()
        self.stages[name] = StageRecord(
            settings=wanted,
            files={file.relative_to(self.folder).as_posix(): file.stat().st_size for file in files},
            found=json.loads(json.dumps(found)),
            seconds=time.perf_counter() - wall_s,
            cpu_seconds=time.process_time() - cpu_s,
        )
        self._write()
        return self.stages[name].found

    def _forget(self) -> None:
        """Takes away what the stages from here on left: no file of other settings may look like a result of these."""
        gone = [record for name, record in self._before.items() if name not in self.stages]
        self._before = {}
        self._write()  # first: without its record a file is no result
        for record in gone:
            for name in record.files:
                (self.folder / name).unlink(missing_ok=True)

    def _is_whole(self, record: StageRecord) -> bool:
        try:
            return all((self.folder / name).stat().st_size == size for name, size in record.files.items())
        except OSError:
            return False

    def _read(self, source: Path) -> tuple[dict[str, StageRecord], bool]:
        path = self.folder / STATE
        if not path.is_file():
            strangers = sorted(file.name for file in self.folder.iterdir() if file.name != LOCK)
            if strangers:
                raise UsageError(
                    f"{self.folder} holds files that are no result of this command ({strangers[0]}); choose another"
                    " folder by --out"
                )
            return {}, False
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            theirs = content["source"]
            stages = {name: StageRecord(**record) for name, record in content["stages"].items()}
            same_rules = content["format_version"] == FORMAT_VERSION
            same_name, same_path = theirs["name"] == self._source["name"], theirs["path"] == self._source["path"]
            same_file = all(theirs[key] == self._source[key] for key in ("size_bytes", "modified_ns"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise AvfusionError(f"{path} is damaged; remove {self.folder} and run the same command again") from error
        if not same_name or not (same_path or same_file):
            raise UsageError(
                f"{self.folder} holds the result of another video ({theirs['path']}); choose another folder for"
                f" {source} by --out, or remove this one"
            )
        return stages, not (same_file and same_rules)

    def _write(self) -> None:
        stages = {name: asdict(record) for name, record in self.stages.items()}
        for record in stages.values():
            del record["kept"]
        with whole_text_file(self.folder / STATE) as file:
            content = {"format_version": FORMAT_VERSION, "source": self._source, "stages": stages}
            file.write(json.dumps(content, indent=1) + "\n")


@contextmanager
def open_work_folder(folder: Path, source: Path) -> Iterator[WorkFolder]:
    """Makes the folder of a video, or takes the one that was begun, and keeps another run out of it meanwhile.

    Args:
        folder: for everything.
        source: the user's file.

    Raises:
        UsageError: it cannot be made, another run is at work there, or it holds something else.
        AvfusionError: its state is damaged.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark = (folder / LOCK).open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made ({error.strerror}); give another folder by --out") from error
    with mark:
        if lock(mark) is False:
            raise UsageError(f"{folder}: another run is at work there; wait for its end, or give another by --out")
        yield WorkFolder(folder, source)


def _identity(source: Path) -> dict[str, Any]:
    """What tells a file from another that takes its place; names may be no text."""
    state = source.stat()
    return {
        "name": _as_text(source.name),
        "path": _as_text(str(source.resolve())),
        "size_bytes": state.st_size,
        "modified_ns": state.st_mtime_ns,
    }


def _as_text(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()
