"""Pictures of a video file by frame number, read with decord.

Shapes: ``(T, H, W)`` grey or ``(T, H, W, 3)`` RGB uint8. decord is imported at the first read: the package works
without it as long as no video is read. A reader is opened in the process that reads and never survives pickling or a
fork, because a decord reader made before a fork hangs in the child for ever.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError

# Readers that a fork copied into this process: freeing one waits for ever for its threads, which the fork left behind.
_left_by_the_parent: list[Any] = []


class VideoReader:
    """Random access to the frames of one file.

    Args:
        path: the video; nothing is opened before the first read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._reader: Any = None
        self._process_id = 0

    def __len__(self) -> int:
        return len(self._open())

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_reader": None, "_process_id": 0}

    def read(self, start: int, count: int, color: bool = False) -> NDArray[np.uint8]:
        """Reads consecutive frames.

        Args:
            start: first frame.
            count: number of frames ``T``.
            color: RGB instead of grey.

        Returns:
            ``(T, H, W)``, or ``(T, H, W, 3)`` in color.

        Raises:
            AvfusionError: decord is missing, the file cannot be read, or the frames lie outside it.
        """
        reader = self._open()
        if start < 0 or count < 1 or start + count > len(reader):
            raise AvfusionError(
                f"asked for frames {start} .. {start + count - 1} of {self.path}, which has {len(reader)}"
            )
        try:
            frames = _consecutive(reader, start, count)
        except _decord_errors() as error:
            raise _unreadable(self.path, error) from error
        return frames if color else to_grey(frames)

    def _open(self) -> Any:
        """The decord reader of this process."""
        if self._reader is None or self._process_id != os.getpid():
            if self._reader is not None:
                _left_by_the_parent.append(self._reader)
            self._reader = _open_decord(self.path)
            self._process_id = os.getpid()
        return self._reader


def read_frames(path: str | Path, start: int, count: int, color: bool = False) -> NDArray[np.uint8]:
    """Opens a video, reads consecutive frames, closes it.

    Args:
        path: the video.
        start: first frame.
        count: number of frames ``T``.
        color: RGB instead of grey.

    Returns:
        ``(T, H, W)``, or ``(T, H, W, 3)`` in color.

    Raises:
        AvfusionError: see :meth:`VideoReader.read`.
    """
    return VideoReader(path).read(start, count, color)


def to_grey(frames_rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Luma of RGB frames; where the three channels agree it is exactly their value.

    Args:
        frames_rgb: ``(..., 3)`` uint8.

    Returns:
        ``(...)`` uint8.
    """
    red, green, blue = (frames_rgb[..., channel].astype(np.uint16) for channel in range(3))
    return ((77 * red + 150 * green + 29 * blue) >> 8).astype(np.uint8)  # BT.601; 256 * 255 still fits 16 bits


def _open_decord(path: Path) -> Any:
    try:
        import decord
    except ImportError as error:
        raise AvfusionError(
            f"reading {path} needs decord: pip install decord, or eva-decord on Apple silicon"
        ) from error
    if not path.is_file():
        raise AvfusionError(f"no video file at {path}")
    try:
        # One thread: the reading processes are the parallelism, and more threads per reader only crowd the cores.
        return decord.VideoReader(str(path), num_threads=1)
    except _decord_errors() as error:
        raise _unreadable(path, error) from error


def _decord_errors() -> tuple[type[Exception], ...]:
    import decord

    return (decord.DECORDError, RuntimeError, OSError, IndexError, StopIteration)


def _consecutive(reader: Any, start: int, count: int) -> NDArray[np.uint8]:
    """Reads ``(T, H, W, 3)``: as a batch, which is faster, unless decord pads the rows of this size."""
    reader.seek_accurate(start)
    first = reader.next().asnumpy()
    if first.shape[2] == 3 and count > 1:
        batch: NDArray[np.uint8] = reader.get_batch(range(start + 1, start + count)).asnumpy()
        return np.concatenate([first[None], batch])
    return np.stack([_unpadded(first), *(_unpadded(reader.next().asnumpy()) for _ in range(count - 1))])


def _unpadded(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Drops the bytes that pad a row.

    At some widths (48 pixels: rows of 144 bytes, padded to 192) decord counts them as more channels, and its batches
    fail; the rows themselves are whole.
    """
    height, width, channels = frame.shape
    if channels == 3:
        return frame
    rows = frame.reshape(height, width * channels)
    return rows[:, : 3 * width].reshape(height, width, 3)


def _unreadable(path: Path, error: Exception) -> AvfusionError:
    # decord's messages carry a C++ stack after the first line.
    reason = str(error).strip().splitlines()
    return AvfusionError(f"{path} cannot be read as video ({reason[0][:200] if reason else type(error).__name__})")
