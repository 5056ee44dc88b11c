"""The videos of a command line, and a folder for each: named by its file, never shared by two."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from avfusion.errors import UsageError
from avfusion.files import place_of
from avfusion.media.container import VIDEO_ENDINGS


def find_videos(inputs: Sequence[Path]) -> list[Path]:
    """The files to work on, each once, in order.

    Args:
        inputs: files, which are taken as they are, and folders, of which those files are taken whose endings are known
            (not of folders inside them, and not hidden ones).

    Raises:
        UsageError: a folder holds no video, or cannot be read.
    """
    found: dict[Path, Path] = {}
    for given in inputs:
        if not given.is_dir():
            found.setdefault(place_of(given), given)
            continue
        try:
            inside = sorted(given.iterdir())
        except OSError as error:
            raise UsageError(f"{given}: the folder cannot be read ({error.strerror})") from error
        videos = [path for path in inside if path.suffix.lower() in VIDEO_ENDINGS and not path.name.startswith(".")]
        if not videos:
            raise UsageError(f"no video in {given}; expected files ending in {', '.join(VIDEO_ENDINGS)}")
        for path in videos:
            found.setdefault(place_of(path), path)
    return list(found.values())


def name_folders(videos: Sequence[Path]) -> dict[Path, str]:
    """A folder name for each video: its name without ending; where two would share that, more of name or path.

    Args:
        videos: different files.

    Returns:
        Names that differ in more than case, which some file systems do not tell apart.
    """
    names = {video: video.name if video.stem in (".", "..") else video.stem for video in videos}
    for rename in (_whole_name, _name_and_place):
        names = _apart(names, rename)
    return names


def _apart(names: dict[Path, str], rename: Callable[[Path], str]) -> dict[Path, str]:
    counts = Counter(name.casefold() for name in names.values())
    return {video: name if counts[name.casefold()] == 1 else rename(video) for video, name in names.items()}


def _whole_name(video: Path) -> str:
    return video.name


def _name_and_place(video: Path) -> str:
    place = str(place_of(video)).encode("utf-8", "surrogateescape")
    return f"{video.name}-{hashlib.sha1(place).hexdigest()[:8]}"
