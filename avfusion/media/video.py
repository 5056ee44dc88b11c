"""Pictures of a video file by frame number, in grey or color, read with decord, or with PyAV where it has no wheel.

For files of constant rate from a known first frame, such as the ``video.mp4`` that ingest makes: frames are counted as
they are stored. Today ``media/crops.py`` reads crop files of foreign pixel formats with it (our own it reads faster
itself), and the tests whatever was written. Films go through ``media/decode.py``, which goes by time stamps.

Shapes: ``(T, H, W)`` grey or ``(T, H, W, 3)`` RGB uint8. decord is imported at the first read; without it the same
pixels come from ``media/video_pyav.py``, and one line says so. A reader is opened in the process that reads and never
survives pickling or a fork, because a decord reader made before a fork hangs in the child for ever.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.media.container import check_file, codec_name, open_source, picture_stream
from avfusion.media.video_pyav import PyavReader

# Without a wheel for every system: 0.6.0 serves Linux and Windows on x86_64 with any Python, eva-decord 0.6.1 Apple
# silicon up to Python 3.11, decord2 3.4.0 newer Pythons, Apple silicon from macOS 14 and Linux on aarch64.
WHEELS = (
    "pip install decord (Linux, Windows on x86_64), eva-decord (Apple silicon, Python up to 3.11) or decord2 (Apple "
    "silicon with macOS 14, Linux on aarch64)"
)

# Readers that a fork copied into this process: freeing one waits for ever for its threads, which the fork left behind.
_left_by_the_parent: list[Any] = []
_UNKNOWN_TO_DECORD = ("av1", "vvc")  # its FFmpeg is of 2020, without an AV1 decoder


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
            AvfusionError: the file cannot be read, or the frames lie outside it.
        """
        reader = self._open()
        if start < 0 or count < 1 or start + count > len(reader):
            raise AvfusionError(
                f"asked for frames {start} .. {start + count - 1} of {self.path}, which has {len(reader)}"
            )
        frames = reader.consecutive(start, count)
        return frames if color else to_grey(frames)

    def close(self) -> None:
        """Frees the file and the decoder; the next read opens them again."""
        if self._reader is not None and self._process_id != os.getpid():
            _left_by_the_parent.append(self._reader)
        elif isinstance(self._reader, PyavReader):
            self._reader.close()
        self._reader = None  # decord's closes its file when nothing holds it any more

    def _open(self) -> Any:
        """The reader of this process."""
        if self._reader is None or self._process_id != os.getpid():
            if self._reader is not None:
                _left_by_the_parent.append(self._reader)
            self._reader = _open_reader(self.path)
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
    reader = VideoReader(path)
    try:
        return reader.read(start, count, color)
    finally:
        reader.close()


def to_grey(frames_rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Luma of RGB frames; where the three channels agree it is exactly their value.

    Args:
        frames_rgb: ``(..., 3)`` uint8.

    Returns:
        ``(...)`` uint8.
    """
    red, green, blue = (frames_rgb[..., channel].astype(np.uint16) for channel in range(3))
    return ((77 * red + 150 * green + 29 * blue) >> 8).astype(np.uint8)  # BT.601; 256 * 255 still fits 16 bits


def _open_reader(path: Path) -> DecordReader | PyavReader:
    check_file(path)
    try:
        import decord  # noqa: F401
    except ImportError:
        if multiprocessing.parent_process() is None:  # once, not in every worker
            warnings.warn(
                f"decord is not installed: videos are read with PyAV instead (the same pixels). {WHEELS}", stacklevel=2
            )
        return PyavReader(path)
    return DecordReader(path)


class DecordReader:
    """Consecutive frames of one file with decord.

    Args:
        path: the video.

    Raises:
        AvfusionError: it cannot be opened, or is cut with an edit list.
    """

    def __init__(self, path: Path) -> None:
        import decord

        self.path = path
        decord.logging.set_level(decord.logging.QUIET)  # what is wrong is told in one line, by the error
        try:
            # One thread: the reading processes are the parallelism, and more per reader only crowd the cores.
            self._reader = decord.VideoReader(str(path), num_threads=1)
            first_s, first_ends_s = (float(value) for value in self._reader.get_frame_timestamp(0))
        except _decord_errors() as error:
            raise _unreadable(path, error) from error
        if first_s < -0.5 * (first_ends_s - first_s):
            raise AvfusionError(
                f"{path} hides its first {-first_s:.2f} s by an edit list, which decord does not follow; convert it "
                "first: python -m avfusion.media.ingest"
            )

    def __len__(self) -> int:
        return len(self._reader)

    def consecutive(self, start: int, count: int) -> NDArray[np.uint8]:
        """Reads frames that lie inside the file, as ``(T, H, W, 3)``.

        Args:
            start: first frame.
            count: number of frames ``T``.

        Raises:
            AvfusionError: they cannot be decoded.
        """
        try:
            return _consecutive(self._reader, start, count)
        except _decord_errors() as error:
            raise _unreadable(self.path, error) from error


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
    try:
        with open_source(path) as container:
            stream = picture_stream(container)
            if stream is None:
                return AvfusionError(f"{path} has no video stream")
            codec = codec_name(stream)
    except AvfusionError as opened:
        return opened
    # decord's messages carry a C++ stack after the first line, and say "stream" where a decoder is missing.
    reason = str(error).strip().splitlines()
    told = reason[0][:200] if reason else type(error).__name__
    if codec in _UNKNOWN_TO_DECORD:
        return AvfusionError(
            f"codec {codec} of {path} is not supported by decord; re-encode it: python -m avfusion.media.ingest"
        )
    return AvfusionError(f"{path} ({codec or 'unknown codec'}) cannot be read as video ({told})")
