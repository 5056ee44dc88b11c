"""Looks at one sound or crop file of a prepared dataset: its header, or all that it holds.

Nothing here raises for a bad file: what is wrong is told in the result. Every function takes a path and can run in a
process of its own. ``F`` video frames of 40 ms: 640 samples of sound, one picture.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME
from avfusion.errors import AvfusionError
from avfusion.media.audio import read_audio
from avfusion.media.crops import read_crops
from avfusion.media.mp4_header import read_mp4_header

FLAT_SOUND = 1.5 / 32768  # peak to peak within a frame: no more than the rounding of 16-bit sound
BLANK_LEVELS = 4  # grey levels between the darkest and the lightest pixel of a picture that shows nothing
FROZEN_LEVELS = 8  # largest change of any pixel that the encoder may cause in a picture that never changes
MIN_FROZEN_FRAMES = 10
_BLOCK_FRAMES = 1500  # a minute of sound is read at once


@dataclass(frozen=True)
class SoundHeader:
    """``state`` is empty, ``missing``, ``unreadable`` or ``cut`` (its last sample cannot be read)."""

    state: str
    num_samples: int = 0  # at the file's own rate
    sample_rate: int = 0
    channels: int = 0
    num_bytes: int = 0
    reason: str = ""

    @property
    def num_samples_16k(self) -> int:
        """Length in samples at 16 kHz."""
        return round(self.num_samples * SAMPLE_RATE / self.sample_rate) if self.sample_rate else 0


@dataclass(frozen=True)
class CropHeader:
    """``state`` is empty, ``missing``, ``unreadable`` or ``cut``."""

    state: str
    num_frames: int = 0
    fps: float = 0.0
    width: int = 0
    height: int = 0
    num_bytes: int = 0
    reason: str = ""


@dataclass(frozen=True)
class SoundContent:
    """What a sound file holds.

    Attributes:
        error: why reading stopped; empty where it did not.
        num_bad: samples that are NaN or infinite.
        flat: ``(F,)`` True where a frame's sound is silence to the last digit, or constant.
        power: ``(F,)`` mean square of each frame.
        digest: of the file's bytes; empty where only a part was looked at.
    """

    error: str
    num_bad: int
    flat: NDArray[np.bool_]
    power: NDArray[np.float32]
    digest: str = ""


@dataclass(frozen=True)
class CropContent:
    """What a crop file holds.

    Attributes:
        error: why decoding stopped; empty where it did not.
        blank: ``(F,)`` True where a picture shows nothing: black, or of one grey level.
        change: ``(F,)`` largest difference of any pixel to the first picture, in grey levels.
        digest: of the file's bytes; empty where only a part was looked at.
    """

    error: str
    blank: NDArray[np.bool_]
    change: NDArray[np.uint8]
    digest: str = ""

    @property
    def is_frozen(self) -> bool:
        """Whether one picture is shown all the time (a very short track may well look so)."""
        return len(self.change) >= MIN_FROZEN_FRAMES and int(self.change.max()) <= FROZEN_LEVELS


def sound_header(path: Path) -> SoundHeader:
    """Reads the header and the last sample: a cut file's header still tells the full length."""
    import soundfile

    try:
        num_bytes = path.stat().st_size
    except FileNotFoundError:
        return SoundHeader("missing")
    except OSError as error:
        return SoundHeader("unreadable", reason=error.strerror or "no file")
    try:
        with soundfile.SoundFile(os.fsencode(path)) as file:
            found = (int(file.frames), int(file.samplerate), int(file.channels))
            if found[0] > 0:
                try:
                    file.seek(found[0] - 1)
                    whole = len(file.read(1, dtype="float32")) == 1
                except soundfile.LibsndfileError:
                    whole = False
                if not whole:
                    return SoundHeader("cut", *found, num_bytes=num_bytes, reason="its end cannot be read")
            return SoundHeader("", *found, num_bytes=num_bytes)
    except (soundfile.LibsndfileError, OSError) as error:
        reason = "empty file" if num_bytes == 0 else str(error).rsplit(": ", 1)[-1]
        return SoundHeader("unreadable", num_bytes=num_bytes, reason=reason)


def crop_header(path: Path) -> CropHeader:
    """Reads the header of a crop file; nothing is decoded."""
    try:
        num_bytes = path.stat().st_size
        plain = read_mp4_header(path)
    except FileNotFoundError:
        return CropHeader("missing")
    except OSError as error:
        return CropHeader("unreadable", reason=error.strerror or "no file")
    if plain is None:
        return _opened_header(path, num_bytes)
    if plain.is_cut:
        return CropHeader("cut", num_bytes=num_bytes, reason="it ends before its data do")
    return CropHeader("", plain.num_frames, plain.fps, plain.width, plain.height, num_bytes)


def _opened_header(path: Path, num_bytes: int) -> CropHeader:
    """The header of a file that is no plain mp4."""
    import av

    try:
        with av.open(f"file:{path}", metadata_errors="replace") as container:
            stream = container.streams.video[0]
            size = (int(stream.width), int(stream.height))
            return CropHeader("", int(stream.frames), float(stream.average_rate or 0), *size, num_bytes)
    except (av.FFmpegError, OSError, IndexError, AttributeError) as error:  # a stream without a decoder has no size
        reason = "empty file" if num_bytes == 0 else getattr(error, "strerror", None) or "no picture"
        return CropHeader("unreadable", num_bytes=num_bytes, reason=reason)


def sound_content(path: Path) -> SoundContent:
    """Reads a whole sound file in blocks (16 kHz mono; another rate is told by the header)."""
    import soundfile

    flats, powers, num_bad, error, read = [], [], 0, "", 0
    try:
        with soundfile.SoundFile(os.fsencode(path)) as file:
            promised = int(file.frames)
            for block in file.blocks(_BLOCK_FRAMES * SAMPLES_PER_VIDEO_FRAME, dtype="float32", always_2d=True):
                read += len(block)
                flat, power, bad = _sound_frames(block.mean(axis=1))
                flats.append(flat)
                powers.append(power)
                num_bad += bad
        if read != promised:
            error = f"{read} samples came where the header promises {promised}"
    except (soundfile.LibsndfileError, OSError) as caught:
        error = f"reading stops after {read / SAMPLE_RATE:.2f} s: {str(caught).rsplit(': ', 1)[-1]}"
    flat = np.concatenate(flats) if flats else np.zeros(0, np.bool_)
    power = np.concatenate(powers) if powers else np.zeros(0, np.float32)
    return SoundContent(error, num_bad, flat, power, _digest(path))


def sound_stretch(path: Path, start_sample: int, num_samples: int) -> SoundContent:
    """Reads a part of a sound file the way training does; frame 0 is the first one read."""
    try:
        return look_at_samples(read_audio(path, start_sample, num_samples))
    except AvfusionError as error:
        return look_at_samples(np.zeros(0, np.float32), str(error))


def look_at_samples(samples: NDArray[np.float32], error: str = "") -> SoundContent:
    """What ``(N,)`` samples hold, or why there are none."""
    flat, power, bad = _sound_frames(samples)
    return SoundContent(error, bad, flat, power)


def crop_content(path: Path) -> CropContent:
    """Decodes a whole crop file, and stops at the first damage instead of painting over it."""
    import av

    first: NDArray[np.int16] | None = None
    blank: list[bool] = []
    change: list[int] = []
    error = ""
    try:
        # The error detection of a stream's own decoder is off by default: damage would come as grey patches.
        options = {"err_detect": "crccheck+bitstream+buffer+explode"}
        with av.open(f"file:{path}", options=options, metadata_errors="replace") as container:
            stream = container.streams.video[0]
            stream.codec_context.options = options
            promised = int(stream.frames)
            for frame in container.decode(stream):
                if frame.is_corrupt:
                    error = f"picture {len(blank)} is damaged"
                    break
                grey = frame.to_ndarray(format="gray").astype(np.int16)
                first = grey if first is None else first
                blank.append(int(grey.max()) - int(grey.min()) <= BLANK_LEVELS)
                change.append(int(np.abs(grey - first).max()))
        if not error and (not blank or len(blank) != promised):
            error = f"{len(blank)} pictures came where the header promises {promised}"
    except (av.FFmpegError, OSError, IndexError, AttributeError) as caught:  # no decoder: no codec_context
        reason = getattr(caught, "strerror", None) or "no picture"
        error = f"decoding stops after {len(blank)} pictures: {reason}"
    return CropContent(error, np.array(blank, np.bool_), np.array(change, np.uint8), _digest(path))


def crop_stretch(path: Path, start: int, count: int) -> CropContent:
    """Decodes a part of a crop file the way training does; picture 0 is the first one read."""
    try:
        return look_at_pictures(read_crops(path, start, count))
    except AvfusionError as error:
        return look_at_pictures(np.zeros((0, 1, 1), np.uint8), str(error))


def look_at_pictures(pictures: NDArray[np.uint8], error: str = "") -> CropContent:
    """What ``(F, H, W)`` pictures hold, or why there are none."""
    grey = pictures.astype(np.int16)
    spread = grey.max(axis=(1, 2)) - grey.min(axis=(1, 2))
    change = np.abs(grey - grey[:1]).max(axis=(1, 2)).astype(np.uint8)
    return CropContent(error, spread <= BLANK_LEVELS, change)


def _sound_frames(samples: NDArray[np.float32]) -> tuple[NDArray[np.bool_], NDArray[np.float32], int]:
    """Flatness ``(F,)`` and power ``(F,)`` of each frame of 640 samples, and how many samples are no number."""
    bad = int((~np.isfinite(samples)).sum())
    whole = np.nan_to_num(samples, nan=0.0, posinf=0.0, neginf=0.0) if bad else samples
    missing = -len(whole) % SAMPLES_PER_VIDEO_FRAME
    frames = np.pad(whole, (0, missing), mode="edge" if len(whole) else "constant").reshape(-1, SAMPLES_PER_VIDEO_FRAME)
    return np.ptp(frames, axis=1) <= FLAT_SOUND, np.square(frames).mean(axis=1), bad


def _digest(path: Path) -> str:
    digest = hashlib.sha1()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()
