"""Runs ``data_prep.ava`` in this process, and reads what it made."""

from __future__ import annotations

import hashlib
from pathlib import Path

import av

import data_prep.ava as command
from avfusion.media.audio import read_audio
from avfusion.media.video import read_frames
from tests.data_prep.mini_ava import MiniAva


def extract(mini: MiniAva, out: Path, *more: str, films: Path | None = None, **labels: Path) -> int:
    """Runs ``extract`` here, on all splits or those given, with small crops."""
    given = [f"{split}={path}" for split, path in (labels or mini.labels).items()]
    folder = str(films or mini.films)
    options = ["--crop-size", "48", *([] if "--jobs" in more else ["--jobs", "1"]), *more]
    return command.main(["extract", str(out), "--labels", *given, "--films", folder, *options])


def contents(root: Path) -> dict[str, str]:
    """A hash of every table's bytes and of every media file's decoded content; not the record of the work."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_dir() or path.name == "dataset.json" or path.name.startswith("journal"):
            continue
        if path.suffix == ".mp4":
            with av.open(str(path)) as container:
                content = read_frames(path, 0, container.streams.video[0].frames).tobytes()
        else:
            content = read_audio(path).tobytes() if path.suffix == ".flac" else path.read_bytes()
        found[path.relative_to(root).as_posix()] = hashlib.sha1(content).hexdigest()
    return found


def labels_of(path: Path, *rows: str) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows))
    return path
