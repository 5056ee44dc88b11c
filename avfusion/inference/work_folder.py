"""The folder of one video: which stages are done, with what settings, and what they left.

``state.json`` is written after every stage. A stage is kept when it was done with the same settings, after the same
stages with the same results, and its files are byte for byte as it left them; else it is done anew. So a killed run
goes on where it stopped, and another setting costs what depends on it. The files that a stage is to replace are set
aside (``.earlier``) until it has succeeded; where it fails or is killed they come back, and those of later stages are
not touched before: results stay until there are others. The folder of another video is refused, and so is a file that
no stage left where one is to be written.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from avfusion.errors import AvfusionError, UsageError
from avfusion.files import PART, lock, place_of, sha256_of, whole_text_file

STATE, LOCK, EARLIER = "state.json", ".lock", ".earlier"
REPORT = "report.json"  # written after the last stage, and goes with its files
FORMAT_VERSION = 3  # raised when a stage's rule changes: what was done by the old one is done anew


@dataclass
class StageRecord:
    """One finished stage.

    Attributes:
        settings: everything that decides its result, but for the stages before.
        after: what the stages before it had left, as one SHA-256.
        files: what it wrote, relative to the folder, with their SHA-256.
        found: what later stages and the report need to know.
        seconds: it took, by the wall clock.
        cpu_seconds: of all threads.
        kept: whether an earlier run did it.
    """

    settings: dict[str, Any]
    after: str
    files: dict[str, str]
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
        interrupted: stages in which runs failed or were killed: their files may lie there without a record.
    """

    def __init__(self, folder: Path, source: Path) -> None:
        self.folder = folder
        self.stages: dict[str, StageRecord] = {}
        self._source = _identity(source)
        self.interrupted: set[str] = set()
        self._known = self._read(source)  # what lies there, from whatever settings
        self._sweep()

    def do(self, name: str, settings: Mapping[str, Any], work: Work, places: Sequence[str]) -> dict[str, Any]:
        """Keeps a stage, or does it.

        Args:
            name: of the stage; stages come in the same order in every run.
            settings: everything that decides its result, but for the stages before; ready for JSON.
            work: does it, and gives what was found (ready for JSON) and the files that it wrote.
            places: files and folders of the folder that it writes to.

        Returns:
            What was found.

        Raises:
            UsageError: somebody else's file lies at one of the places.
        """
        wanted = json.loads(json.dumps(settings))
        record, after = self._known.get(name), self._left_before()
        if record is not None and (record.settings, record.after) == (wanted, after) and self._is_whole(record):
            record.kept = True
            self.stages[name] = record
            return record.found
        ours = [] if record is None else [*record.files, *(place for place in places if place == REPORT)]
        self._refuse_strangers(name, places, ours)
        with self._set_aside(name, ours):
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            found, files = work()
            self.stages[name] = self._known[name] = StageRecord(
                settings=wanted,
                after=after,
                files={file.relative_to(self.folder).as_posix(): sha256_of(file) for file in files},
                found=json.loads(json.dumps(found)),
                seconds=time.perf_counter() - wall_s,
                cpu_seconds=time.process_time() - cpu_s,
            )
            self.interrupted.discard(name)
            self._write()
        return self.stages[name].found

    def remove_if_nothing_was_done(self) -> None:
        """Takes the folder away where no stage has ever left anything, as of a file that is no video."""
        if not self._known and all(file.name in (STATE, LOCK) for file in self.folder.iterdir()):
            shutil.rmtree(self.folder, ignore_errors=True)

    def _left_before(self) -> str:
        """The film and what the stages of this run left until now, as one SHA-256."""
        left = [FORMAT_VERSION, self._source["size_bytes"], self._source["modified_ns"]]
        left += [[name, stage.settings, stage.files, stage.found] for name, stage in self.stages.items()]
        return sha256(json.dumps(left, sort_keys=True).encode()).hexdigest()

    def _refuse_strangers(self, name: str, places: Sequence[str], ours: Sequence[str]) -> None:
        """What no stage left, at a place that one is to write to, is somebody else's.

        Raises:
            UsageError: there is such a file.
        """
        if name in self.interrupted:
            return
        for place in places:
            at = self.folder / place
            inside = sorted(file for file in at.rglob("*") if not file.is_dir()) if at.is_dir() else [at]
            for file in inside:
                is_there = file.exists() or file.is_symlink()
                if is_there and file.relative_to(self.folder).as_posix() not in ours:
                    raise UsageError(
                        f"{file} was not made by this command and would be replaced; move it away, or choose another"
                        " folder by --out"
                    )

    @contextmanager
    def _set_aside(self, name: str, files: Sequence[str]) -> Iterator[None]:
        """Takes away what a stage is to replace: no file of other settings may look like one of its results.

        Args:
            name: of the stage that is done anew.
            files: that it left before; they come back where it fails now.
        """
        self.interrupted.add(name)
        self._write()  # first: a run that is killed from here on knows where the files are
        for file in files:
            if (self.folder / file).is_file():
                _move(self.folder / file, self.folder / EARLIER / name / file)
        try:
            yield
        except BaseException:
            self._bring_back(name)
            raise
        finally:
            shutil.rmtree(self.folder / EARLIER, ignore_errors=True)

    def _bring_back(self, name: str) -> None:
        aside = self.folder / EARLIER / name
        for file in [file for file in aside.rglob("*") if not file.is_dir()]:
            _move(file, self.folder / file.relative_to(aside))

    def _sweep(self) -> None:
        """Puts back what a killed run had set aside, and removes what it left half written."""
        for name in self.interrupted:
            self._bring_back(name)
        shutil.rmtree(self.folder / EARLIER, ignore_errors=True)
        for file in self.folder.iterdir():
            if PART.search(file.name) and file.is_file():
                file.unlink(missing_ok=True)

    def _is_whole(self, record: StageRecord) -> bool:
        try:
            return all(sha256_of(self.folder / name) == digest for name, digest in record.files.items())
        except OSError:
            return False

    def _read(self, source: Path) -> dict[str, StageRecord]:
        path = self.folder / STATE
        if not path.is_file():
            names = (file.name for file in self.folder.iterdir())
            strangers = sorted(name for name in names if name != LOCK and not PART.search(name))
            if strangers:
                raise UsageError(
                    f"{self.folder} holds files that are no result of this command ({strangers[0]}); choose another"
                    " folder by --out"
                )
            return {}
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            theirs = content["source"]
            if content["format_version"] != FORMAT_VERSION:  # its files are known by name, as ones to be replaced
                for fields in content["stages"].values():
                    fields.update(after="", files=dict.fromkeys(fields["files"], ""))
            stages = {name: _record(fields) for name, fields in content["stages"].items()}
            self.interrupted = {_plain(name) for name in content.get("begun", [])}
            same_name, same_path = theirs["name"] == self._source["name"], theirs["path"] == self._source["path"]
            same_file = all(theirs[key] == self._source[key] for key in ("size_bytes", "modified_ns"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise AvfusionError(f"{path} is damaged; remove {self.folder} and run the same command again") from error
        if not same_name or not (same_path or same_file):
            raise UsageError(
                f"{self.folder} holds the result of another video ({theirs['path']}); choose another folder for"
                f" {source} by --out, or remove this one"
            )
        return stages

    def _write(self) -> None:
        stages = {name: asdict(record) for name, record in self._known.items()}
        for record in stages.values():
            del record["kept"]
        with whole_text_file(self.folder / STATE) as file:
            begun = sorted(self.interrupted)
            content = {"format_version": FORMAT_VERSION, "source": self._source, "stages": stages, "begun": begun}
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
    ours = not folder.exists() or (folder / LOCK).exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark = (folder / LOCK).open("a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror}); give another folder by --out") from error
    with mark:
        if lock(mark) is False:
            raise UsageError(f"{folder}: another run is at work there; wait for its end, or give another by --out")
        try:
            work = WorkFolder(folder, source)
        except AvfusionError:
            if not ours:
                (folder / LOCK).unlink(missing_ok=True)  # nothing of us stays in a folder that was refused
            raise
        try:
            yield work
        except AvfusionError:
            work.remove_if_nothing_was_done()
            raise


def _record(fields: Mapping[str, Any]) -> StageRecord:
    """One stage of a state file.

    Raises:
        ValueError: it is not what this command writes.
    """
    record = StageRecord(**fields)
    numbers = (record.seconds, record.cpu_seconds)
    named = all(isinstance(one, str) for one in (*record.files, *record.files.values()))
    inside = named and all(not Path(file).is_absolute() and ".." not in Path(file).parts for file in record.files)
    if not (inside and isinstance(record.found, dict) and all(isinstance(one, (int, float)) for one in numbers)):
        raise ValueError("not the record of a stage")
    return record


def _plain(name: Any) -> str:
    """A stage's name out of a state file.

    Raises:
        ValueError: it is none: it would lead to another folder.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError("not the name of a stage")
    return name


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)


def _identity(source: Path) -> dict[str, Any]:
    """What tells a file from another that takes its place; names may be no text."""
    state = source.stat()
    return {
        "name": _as_text(source.name),
        "path": _as_text(str(place_of(source))),
        "size_bytes": state.st_size,
        "modified_ns": state.st_mtime_ns,
    }


def _as_text(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()
