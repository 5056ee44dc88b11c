"""Opens a media file with PyAV, chooses its picture, and names what cannot be opened or decoded, in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from avfusion.errors import AvfusionError

VIDEO_ENDINGS: tuple[str, ...]  # of files that are taken for videos where a folder is given
VIDEO_ENDINGS = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".m2ts", ".mts", ".mpg", ".mpeg", ".vob")
VIDEO_ENDINGS += (".ogv", ".flv", ".wmv", ".asf", ".3gp", ".3g2", ".mxf")

_NO_FILM = ("attached_pic", "timed_thumbnails", "still_image")


def open_source(path: Path) -> Any:
    """Opens a media file for reading; only the file itself is read, whatever playlist or link it may hold.

    Raises:
        AvfusionError: the file is missing, empty, a folder, or no media.
    """
    import av

    check_file(path)
    try:
        return _open(path)
    except (av.FFmpegError, OSError, ValueError) as error:
        if _is_text(path):
            raise AvfusionError(
                f"{path} cannot be opened as video or sound: no media file (its first bytes are text)"
            ) from error
        reason = _reason(path) or getattr(error, "strerror", None) or str(error)
        raise AvfusionError(
            f"{path} cannot be opened as video or sound ({reason}); expected a whole media file"
        ) from error


def _open(path: Path) -> Any:
    import av

    # Named as a file, so that no part of a name ("12:30.mp4", "-x.mp4") is taken for a protocol or an option.
    name = f"file:{os.fspath(path)}"
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:  # such a name reaches FFmpeg only as an open file
        return av.open(path.open("rb"), metadata_errors="replace")
    return av.open(name, options={"protocol_whitelist": "file"}, metadata_errors="replace")


def _reason(path: Path) -> str:
    """What FFmpeg's log says about a file that cannot be opened (``moov atom not found``); may be empty."""
    import av

    with _log(av.logging.ERROR) as messages, suppress(av.FFmpegError, OSError, ValueError):
        _open(path).close()
    told = [text.strip() for _, _, text in messages if text.strip()]
    return told[-1].splitlines()[0][:120] if told else ""


def _is_text(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.read(512)
    try:
        text = first.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(first) - 3:  # else a letter is cut by the end
            return False
        text = first[: error.start].decode("utf-8")
    return bool(text) and all(letter.isprintable() or letter in "\t\r\n\f\ufeff" for letter in text)


def check_file(path: Path) -> None:
    """Tells apart what is no file that can be read.

    Raises:
        AvfusionError: there is no file, a folder, a link to nothing, or an empty file.
    """
    if path.is_dir():
        raise AvfusionError(f"{path} is a folder; expected a media file")
    if path.is_symlink() and not path.exists():
        raise AvfusionError(f"{path} is a link to {os.readlink(path)}, which does not exist")
    if not path.exists() and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(path)):
        raise AvfusionError(f"{path} is an address; only files are read: download it first")
    if not path.is_file():
        raise AvfusionError(f"no video file at {path}")
    if path.stat().st_size == 0:
        raise AvfusionError(f"{path} is empty (0 bytes); expected a media file")


def picture_stream(container: Any) -> Any:
    """The film: the first video stream, one flagged default first; never cover art. None where there is none."""
    films = [s for s in container.streams.video if not any(has_flag(s, name) for name in _NO_FILM)]
    return next((s for s in films if has_flag(s, "default")), films[0] if films else None)


def require_decoder(path: Path, stream: Any) -> None:
    """Raises a message that names the codec where the bundled FFmpeg cannot decode a stream.

    Raises:
        AvfusionError: there is no decoder.
    """
    if stream.codec_context is None:
        kind = "picture" if stream.type == "video" else "sound"
        raise AvfusionError(
            f"codec {_unknown_codec(path, stream.index)} of {path} ({kind}) has no decoder here; re-encode it with a "
            "program that knows it, e.g. ffmpeg -i IN -c:v libx264 -c:a aac OUT.mp4"
        )


def codec_name(stream: Any) -> str:
    """Name of a codec as users know it (``av1``, not the library that decodes it); empty without a decoder."""
    if stream.codec_context is None:
        return ""
    return str(stream.codec_context.codec.canonical_name)


def frame_rate(stream: Any) -> Fraction | None:
    """Pictures a second as declared, or guessed where only the bit stream is there."""
    rate: Fraction | None = stream.average_rate or stream.guessed_rate or stream.base_rate
    return rate


def has_flag(stream: Any, name: str) -> bool:
    """Whether a stream is flagged so in the file (``default``, ``attached_pic``)."""
    return name in {flag.name for flag in type(stream.disposition) if flag & stream.disposition}


def _unknown_codec(path: Path, index: int) -> str:
    """What FFmpeg's log calls a codec it cannot decode: its name, or the four letters in the file."""
    import av

    with _log(av.logging.WARNING) as messages, _open(path):
        log = " ".join(text for _, _, text in messages)
    found = re.search(rf"stream {index} \(\w+: (\S+?)(?: \((\S+) / \w+\))?[, ]", log)
    if not found:
        return "(unknown)"
    return found.group(2) or "(unknown)" if found.group(1) == "none" else found.group(1)


@contextmanager
def _log(level: int) -> Iterator[list[tuple[int, str, str]]]:
    """FFmpeg's messages of this thread while inside, also repeated ones; its settings are put back afterwards."""
    import av

    before, skipped = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(level)
    av.logging.set_skip_repeated(False)
    try:
        with av.logging.Capture() as messages:
            yield messages
    finally:
        av.logging.set_level(before)
        av.logging.set_skip_repeated(skipped)
