"""Any video file as constant 25 fps pictures and 16 kHz mono sound on one clock, read with PyAV.

Time 0 is the first picture. Picture ``i`` is the source picture whose time stamp is nearest to ``i / 25`` s, whatever
the file's frame rate, so variable rates stay in sync. Sound that starts later than the picture gets silence in front,
earlier sound is cut; its end is cut or padded to the picture's.

Shapes: pictures ``(H, W)`` grey or ``(H, W, 3)`` RGB uint8, sound ``(640 T,)`` float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, VIDEO_HZ
from avfusion.errors import AvfusionError
from avfusion.media.audio import fit_to_frames


@dataclass(frozen=True)
class RetimedVideo:
    """A whole short video in memory.

    Attributes:
        frames: ``(T, H, W)`` grey or ``(T, H, W, 3)`` RGB uint8.
        source_index: ``(T,)`` number of the source picture shown at each frame (for boxes counted in source frames).
        audio: ``(640 T,)`` float32, zeros where the file has no sound stream.
        has_audio: whether it has one.
    """

    frames: NDArray[np.uint8]
    source_index: NDArray[np.int64]
    audio: NDArray[np.float32]
    has_audio: bool


def read_retimed(path: str | Path, color: bool = False) -> RetimedVideo:
    """Decodes a short video whole.

    Args:
        path: the video.
        color: RGB instead of grey.

    Raises:
        AvfusionError: the file is missing, cannot be decoded, or has no picture.
    """
    indexed = list(iterate_retimed(path, color))
    frames = np.stack([frame for _, frame in indexed])
    audio = read_sound(path)
    fitted = fit_to_frames(np.zeros(0, dtype=np.float32) if audio is None else audio, len(frames))
    return RetimedVideo(frames, np.array([index for index, _ in indexed]), fitted, audio is not None)


def iterate_retimed(path: str | Path, color: bool = False) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yields the pictures at ``i / 25`` s one by one, holding two at a time.

    Args:
        path: the video.
        color: RGB instead of grey.

    Yields:
        ``(number of the source picture, picture)``.

    Raises:
        AvfusionError: the file is missing, cannot be decoded, or has no picture.
    """
    emitted = 0
    previous: tuple[float, int, NDArray[np.uint8]] | None = None
    last_step = 1 / VIDEO_HZ
    for current in _source_pictures(Path(path), color):
        if previous is not None:
            last_step = current[0] - previous[0]
            while emitted / VIDEO_HZ < (previous[0] + current[0]) / 2:  # nearer to the previous picture
                yield previous[1], previous[2]
                emitted += 1
        previous = current
    if previous is None:
        raise AvfusionError(f"{path} has no picture that can be decoded")
    # The last picture stays on screen for its own duration.
    while emitted / VIDEO_HZ < previous[0] + last_step - 0.5 / VIDEO_HZ or emitted == 0:
        yield previous[1], previous[2]
        emitted += 1


def read_sound(path: str | Path) -> NDArray[np.float32] | None:
    """Decodes the sound, mixed to mono at 16 kHz, with sample 0 at the time of the first picture.

    Args:
        path: the video.

    Returns:
        ``(N,)`` float32, or None where the file has no sound stream.

    Raises:
        AvfusionError: the file is missing or cannot be decoded.
    """
    import av

    path = Path(path)
    origin_s = next((time for time, _, _ in _source_pictures(path, color=False, absolute=True)), 0.0)
    with _open(path) as container:
        if not container.streams.audio:
            return None
        stream = container.streams.audio[0]
        resampler = av.AudioResampler(format="fltp", layout="mono", rate=SAMPLE_RATE)
        parts: list[NDArray[np.float32]] = []
        start_s: float | None = None
        try:
            for frame in container.decode(stream):
                if start_s is None:
                    start_s = float(frame.time or 0.0)
                parts += [part.to_ndarray()[0] for part in resampler.resample(frame)]
            parts += [part.to_ndarray()[0] for part in resampler.resample(None)]
        except av.FFmpegError as error:
            raise AvfusionError(f"the sound of {path} cannot be decoded ({error})") from error
    if start_s is None:
        return None
    audio = np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)
    lead = round((start_s - origin_s) * SAMPLE_RATE)
    return np.pad(audio, (lead, 0)) if lead >= 0 else audio[-lead:]


def _source_pictures(path: Path, color: bool, absolute: bool = False) -> Iterator[tuple[float, int, NDArray[np.uint8]]]:
    """Yields ``(time_s since the first picture, number, picture)`` of every source picture, in order of time."""
    import av

    with _open(path) as container:
        if not container.streams.video:
            raise AvfusionError(f"{path} has no video stream")
        stream = container.streams.video[0]
        stream.thread_count = 1
        origin_s: float | None = None
        last_s = -1.0
        try:
            for number, frame in enumerate(container.decode(stream)):
                time_s = float(frame.time) if frame.time is not None else last_s + 1 / VIDEO_HZ
                origin_s = time_s if origin_s is None else origin_s
                since_s = time_s - (0.0 if absolute else origin_s)
                if since_s <= last_s and not absolute:
                    continue  # a stamp that runs backward shows no new instant
                last_s = since_s
                yield since_s, number, _picture(frame, color)
        except av.FFmpegError as error:
            raise AvfusionError(f"the picture of {path} cannot be decoded ({error})") from error


def _picture(frame: Any, color: bool) -> NDArray[np.uint8]:
    picture: NDArray[np.uint8] = frame.to_ndarray(format="rgb24" if color else "gray")
    quarter_turns = round(frame.rotation / 90)  # phones store sideways pictures and say so
    return np.rot90(picture, quarter_turns) if quarter_turns % 4 else picture


def _open(path: Path) -> Any:
    import av

    if not path.is_file():
        raise AvfusionError(f"no video file at {path}")
    try:
        return av.open(str(path))
    except (av.FFmpegError, OSError) as error:
        raise AvfusionError(f"{path} cannot be opened as video ({error})") from error
