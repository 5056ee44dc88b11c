"""Frames, rate and size of the picture in an mp4, read from its boxes alone: ten times faster than opening a decoder.

Made for looking at many small crop files. Whatever this does not understand gives None, and is to be opened properly.

Source of the layout: ISO/IEC 14496-12, boxes moov / trak / mdia / minf / stbl.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LARGEST_MOOV = 1 << 26  # bytes


@dataclass(frozen=True)
class Mp4Header:
    """The first picture stream of a file.

    Attributes:
        num_frames: pictures that the header lists.
        fps: their mean rate.
        width: in pixels, as encoded.
        height: in pixels, as encoded.
        is_cut: a box reaches beyond the end of the file.
    """

    num_frames: int
    fps: float
    width: int
    height: int
    is_cut: bool


def read_mp4_header(path: Path) -> Mp4Header | None:
    """Reads the header; None where the file is no plain mp4 with a picture. One whose header itself is cut tells so.

    Raises:
        OSError: the file cannot be read.
    """
    moov, is_cut = b"", False
    try:
        moov, is_cut = _find_moov(path)
        for kind, track in _boxes(moov):
            if kind == b"trak" and (found := _picture(track, is_cut)) is not None:
                return found
    except (struct.error, KeyError, IndexError, ZeroDivisionError):
        pass
    return Mp4Header(0, 0.0, 0, 0, is_cut) if moov and is_cut else None


def _find_moov(path: Path) -> tuple[bytes, bool]:
    """The content of the ``moov`` box, and whether the boxes of the file reach beyond its end."""
    moov, position = b"", 0
    size = path.stat().st_size
    with path.open("rb") as file:
        while position + 8 <= size:
            file.seek(position)
            length, kind = struct.unpack(">I4s", file.read(8))
            head = 8
            if length == 1:
                (length,) = struct.unpack(">Q", file.read(8))
                head = 16
            elif length == 0:
                length = size - position
            if length < head:
                break
            if kind == b"moov" and length <= _LARGEST_MOOV:
                moov = file.read(length - head)
            position += length
    return moov, position > size


def _boxes(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of each box, one after the other."""
    position = 0
    while position + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, position)
        if length < 8:
            return
        yield kind, content[position + 8 : position + length]
        position += length


def _picture(track: bytes, is_cut: bool) -> Mp4Header | None:
    media = dict(_boxes(dict(_boxes(track))[b"mdia"]))
    if media[b"hdlr"][8:12] != b"vide":
        return None
    table = dict(_boxes(dict(_boxes(media[b"minf"]))[b"stbl"]))
    long_times = media[b"mdhd"][0] == 1
    (timescale,) = struct.unpack_from(">I", media[b"mdhd"], 20 if long_times else 12)
    (num_frames,) = struct.unpack_from(">I", table[b"stsz"], 8)
    width, height = struct.unpack_from(">HH", table[b"stsd"], 8 + 8 + 24)
    (entries,) = struct.unpack_from(">I", table[b"stts"], 4)
    times = struct.unpack_from(f">{2 * entries}I", table[b"stts"], 8)
    ticks = sum(count * delta for count, delta in zip(times[::2], times[1::2], strict=True))
    return Mp4Header(num_frames, num_frames * timescale / ticks, width, height, is_cut)
