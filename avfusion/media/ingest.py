"""Any media file as ``video.mp4`` (constant 25 fps), ``audio.flac`` (16 kHz mono) and ``ingest.json`` on one clock.

    <folder>/video.mp4     H.264 yuv420p, T pictures at i / 25 s, upright, progressive, of even size
    <folder>/audio.flac    16-bit, exactly 640 T samples
    <folder>/ingest.json   where it came from and what was met; written last: where it is, the others are whole

The file is read once, both streams together, in bounded memory. A whole result is kept, a half one is made anew.

    python -m avfusion.media.ingest FILE [FILE ...] FOLDER [--audio-track=N] [--salvage] [--allow-silent]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from avfusion.errors import AvfusionError, CommandParser, UsageError, one_line, run_command
from avfusion.files import lock
from avfusion.media.container import check_file
from avfusion.media.ingest_writer import FILES, PARTS, IngestWriter
from avfusion.media.source import probe
from avfusion.media.written import telling_why

FORMAT_VERSION = 1
MARK = "ingest.part"  # lies there while a conversion is at work, and after one that was killed


@dataclass(frozen=True)
class Ingested:
    """One ingested file.

    Attributes:
        folder: where the result lies.
        num_frames: pictures ``T``.
        sound_starts_frame: first frame with sound.
        sound_ends_frame: first frame behind the sound: from here on the sound is padded with zeros.
        has_sound: whether the source has a sound stream.
        notes: what a user should know, a sentence each.
        details: everything in ``ingest.json``.
        kept: whether it was there already.
    """

    folder: Path
    num_frames: int
    sound_starts_frame: int
    sound_ends_frame: int
    has_sound: bool
    notes: tuple[str, ...]
    details: dict[str, Any]
    kept: bool

    @property
    def video(self) -> Path:
        """The pictures."""
        return self.folder / "video.mp4"

    @property
    def audio(self) -> Path:
        """The sound; zeros where the source has none."""
        return self.folder / "audio.flac"


def ingest(
    source: str | Path,
    folder: str | Path,
    *,
    audio_track: int | None = None,
    salvage: bool = False,
    allow_silent: bool = False,
    threads: int = 0,
) -> Ingested:
    """Converts a media file, or keeps the result that is already there.

    Args:
        source: any file with a picture.
        folder: for the result; made if need be.
        audio_track: number of the sound track; None takes the one flagged default, else the first.
        salvage: keep what can be decoded of a damaged or cut-short file, and say how much.
        allow_silent: take a file without sound stream too, with zeros for its sound.
        threads: of decoding and encoding; 0 lets FFmpeg choose.

    Raises:
        AvfusionError: the file cannot be read, has no picture or no sound, or is damaged. Nothing that looks whole is
            left behind. Another conversion is at work in the folder.
        UsageError: there is no such sound track, or the folder holds the result of another file, or is none.
        OSError: the result cannot be written, as on a full disk.
    """
    source, folder = Path(source), Path(folder)
    check_file(source)
    request = _request(source, audio_track, salvage, allow_silent)
    there = _result_there(folder, request)
    if there is not None:
        return there
    facts = probe(source, audio_track)
    if not facts.has_picture:
        raise AvfusionError(f"{source} has no video stream, only sound; expected a film with faces")
    if facts.audio_track is None and not allow_silent:
        raise AvfusionError(
            f"no audio stream in {source}: nothing says who speaks; to take it with silence pass --allow-silent"
        )
    with _marked(source, folder):
        there = _result_there(folder, request)  # another conversion may have ended just now
        if there is not None:
            return there
        _clear(folder)
        writer = IngestWriter(source, folder, facts, salvage, threads)
        try:
            with telling_why(folder / FILES[0]):
                writer.run()
                details = {"format_version": FORMAT_VERSION, **writer.commit(), "request": request}
                part = folder / "ingest.json.part"
                part.write_text(json.dumps(details, indent=1) + "\n", encoding="utf-8")
                part.replace(folder / "ingest.json")
        except BaseException:
            writer.remove_parts()
            raise
    return _ingested(folder, details, kept=False)


def read_ingested(folder: str | Path) -> Ingested | None:
    """The result in a folder; None where there is none, or only a half one."""
    folder = Path(folder)
    try:
        details = json.loads((folder / "ingest.json").read_text(encoding="utf-8"))
        whole = details["format_version"] == FORMAT_VERSION and all(
            (folder / name).stat().st_size == size for name, size in details["bytes"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return _ingested(folder, details, kept=True) if whole else None


def _request(source: Path, audio_track: int | None, salvage: bool, allow_silent: bool) -> dict[str, Any]:
    """What decides the result; a kept one must have been made from the same."""
    state = source.stat()
    return {
        "source": source.name.encode("utf-8", "backslashreplace").decode(),
        "size_bytes": state.st_size,
        "modified_ns": state.st_mtime_ns,
        "audio_track": audio_track,
        "salvage": salvage,
        "allow_silent": allow_silent,
    }


def _result_there(folder: Path, request: dict[str, Any]) -> Ingested | None:
    nearest = next((place for place in (folder, *folder.absolute().parents) if place.exists()), folder)
    if nearest.exists() and not nearest.is_dir():
        raise UsageError(f"{nearest} is a file; expected a folder for the result")
    there = read_ingested(folder)
    if there is None:
        return None
    found = there.details.get("request", {})
    if found == request:
        return there
    if found.get("source") != request["source"]:
        raise UsageError(
            f"{folder} holds the result of {found.get('source')}; expected a folder of its own for {request['source']}"
        )
    return None  # the file or the options changed: it is made anew


@contextmanager
def _marked(source: Path, folder: Path) -> Iterator[None]:
    """Marks the folder as being worked on, locked against a second conversion for as long as this process lives.

    Raises:
        AvfusionError: another conversion is at work there.
        UsageError: files of these names lie there that no conversion made, the source itself among them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    strangers = [name for name in FILES if (folder / name).exists()]
    if strangers and not (folder / MARK).exists() and not (folder / "ingest.json").exists():
        raise UsageError(f"{folder} holds a {strangers[0]} that ingest did not make; expected a folder of its own")
    if any((folder / name).exists() and source.samefile(folder / name) for name in FILES):
        raise UsageError(f"{source} would be overwritten by its own result; expected another folder than {folder}")
    with (folder / MARK).open("a", encoding="utf-8") as mark:
        # A mark that was removed since it was opened is that of a conversion that has just ended.
        if lock(mark) is False or not _is_there(mark, folder / MARK):
            raise AvfusionError(f"another conversion is at work in {folder}; wait for it, or choose another folder")
        try:
            yield
        finally:
            if os.name == "nt":  # there an open file cannot be removed, and nothing was locked
                mark.close()
            (folder / MARK).unlink(missing_ok=True)


def _is_there(file: TextIO, path: Path) -> bool:
    """Whether an open file still has this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _clear(folder: Path) -> None:
    """Takes away what an earlier conversion left."""
    for name in ("ingest.json", *FILES, *PARTS):  # the first one first: without it nothing there looks whole
        (folder / name).unlink(missing_ok=True)


def _ingested(folder: Path, details: dict[str, Any], kept: bool) -> Ingested:
    return Ingested(
        folder=folder,
        num_frames=details["num_frames"],
        sound_starts_frame=details["sound_starts_frame"],
        sound_ends_frame=details["sound_ends_frame"],
        has_sound=details["has_sound"],
        notes=tuple(details["notes"]),
        details=details,
        kept=kept,
    )


def main(arguments: Sequence[str]) -> None:
    """The command: ingests files one after another; one that fails does not stop the others.

    Raises:
        AvfusionError: one or more files failed; each was told.
    """
    parser = CommandParser(prog="python -m avfusion.media.ingest", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="any media file with a picture")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="for the result; several files get a folder each")
    parser.add_argument("--audio-track", type=int, metavar="N", help="sound track, from 0 (default: as flagged)")
    parser.add_argument("--salvage", action="store_true", help="keep what can be decoded of damaged files")
    parser.add_argument("--allow-silent", action="store_true", help="take files without sound too, as silence")
    options = parser.parse_args(arguments)
    names = [file.name for file in options.files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two files are called {twice}; their results would lie in the same folder")
    failed = 0
    for file in options.files:
        folder = options.folder if len(options.files) == 1 else options.folder / file.name
        try:
            result = ingest(
                file,
                folder,
                audio_track=options.audio_track,
                salvage=options.salvage,
                allow_silent=options.allow_silent,
            )
        except AvfusionError as error:
            if len(options.files) == 1:
                raise
            failed += 1
            print(f"error: {one_line(str(error))}", file=sys.stderr)
            continue
        state = " (kept)" if result.kept else ""
        where = os.fsencode(result.video).decode("utf-8", "backslashreplace")  # a name may be no text
        print(f"{one_line(where)}, {result.audio.name}: {result.num_frames} frames{state}")
        for note in result.notes:
            print(f"  note: {one_line(note)}")
    if failed:
        raise AvfusionError(f"{failed} of {len(options.files)} files failed; see above")


if __name__ == "__main__":
    sys.exit(run_command(lambda: main(sys.argv[1:])))
