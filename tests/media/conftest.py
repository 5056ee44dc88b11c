"""Films made by the tests themselves, and the reading of their marks: index bits on top, flash below, beep.

The pictures follow the known faults' own: picture ``n`` shows ``n`` as ten columns in its top half, bright where the
bit is set; the bottom half flashes and a 1 kHz tone sounds for 0.1 s at 1, 2, 3 .. s of the film's own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

HEIGHT, WIDTH = 64, 160
DARK, BRIGHT = 30, 220


def picture(number: int, flash: bool) -> NDArray[np.uint8]:
    """``(64, 160, 3)`` RGB."""
    rgb = np.full((HEIGHT, WIDTH, 3), DARK, dtype=np.uint8)
    for bit in range(10):
        if number >> bit & 1:
            rgb[: HEIGHT // 2, WIDTH // 10 * bit : WIDTH // 10 * (bit + 1)] = BRIGHT
    if flash:
        rgb[HEIGHT // 2 :] = 250
    return rgb


def sound(start_s: float, end_s: float, rate_hz: int) -> NDArray[np.float64]:
    """A beep at every whole second from 1 s on."""
    times_s = np.arange(round(start_s * rate_hz), round(end_s * rate_hz)) / rate_hz
    return np.where((times_s % 1 < 0.1) & (times_s >= 1), 0.4 * np.sin(2 * np.pi * 1000 * times_s), 0.0)


def _stored(samples: NDArray[np.float64], sample_format: str) -> NDArray[Any]:
    """Samples in -1..1 as FFmpeg's sample format stores them."""
    if sample_format == "u8":
        return np.rint(samples * 127 + 128).astype(np.uint8)
    if sample_format[:3] in ("s16", "s32"):
        bits = int(sample_format[1:3])
        return np.rint(samples * (2.0 ** (bits - 1) - 129)).astype(f"int{bits}")
    return samples.astype(np.float64 if sample_format.startswith("dbl") else np.float32)


class Film:
    """Writes films and reads their marks."""

    picture = staticmethod(picture)
    sound = staticmethod(sound)

    def write(
        self,
        path: Path,
        *,
        times_s: Sequence[float] | None = None,
        video_codec: str = "libx264",
        pixel_format: str = "yuv420p",
        options: dict[str, str] | None = None,
        tracks: Sequence[dict[str, Any]] = ({},),
        pictures: Sequence[NDArray[np.uint8]] | None = None,
        duration_s: float = 4.0,
        rate: int = 25,
        container_options: dict[str, str] | None = None,
    ) -> Path:
        """Writes a film.

        Args:
            path: its ending decides the container.
            times_s: time of every picture; None is 25 a second for ``duration_s``.
            video_codec: None of it: no picture.
            pixel_format: of the encoder.
            options: of the encoder.
            tracks: of the sound: ``codec``, ``format``, ``layout``, ``rate_hz``, ``parts`` (start and end in s),
                ``samples`` (``(C, N)`` float, instead of the beeps), ``language``, ``default``.
            pictures: instead of the numbered ones.
            duration_s: of everything without times of its own.
            rate: ticks a second of the pictures' clock.
            container_options: of the muxer.
        """
        import av
        from av.stream import Disposition

        times = [n / 25 for n in range(round(25 * duration_s))] if times_s is None else list(times_s)
        with av.open(str(path), "w", options=container_options or {}) as container:
            video = None
            if video_codec:
                video = container.add_stream(video_codec, rate=rate, options=options or {})
                shape = (HEIGHT, WIDTH) if pictures is None else pictures[0].shape[:2]
                video.height, video.width, video.pix_fmt = *shape, pixel_format
                video.codec_context.time_base = Fraction(1, rate)
            streams = []
            for track in tracks:
                rate_hz, layout = track.get("rate_hz", 48_000), track.get("layout", "mono")
                stream = container.add_stream(track.get("codec", "flac"), rate=rate_hz, layout=layout)
                if "language" in track:
                    stream.metadata["language"] = track["language"]
                if "default" in track:
                    stream.disposition = Disposition.default if track["default"] else Disposition(0)
                streams.append(stream)
            if video is not None:
                for number, time_s in enumerate(times):
                    flash = time_s >= 0.99 and (time_s + 0.01) % 1 < 0.11
                    rgb = picture(number, flash) if pictures is None else pictures[number]
                    frame = av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format=pixel_format)
                    frame.pts, frame.time_base = round(time_s * rate), Fraction(1, rate)
                    container.mux(video.encode(frame))
                container.mux(video.encode(None))
            for stream, track in zip(streams, tracks, strict=True):
                self._write_sound(container, stream, track, duration_s)
        return path

    def _write_sound(self, container: Any, stream: Any, track: dict[str, Any], duration_s: float) -> None:
        import av

        rate_hz, layout = track.get("rate_hz", 48_000), track.get("layout", "mono")
        sample_format = track.get("format", "s16")
        channels = av.AudioLayout(layout).nb_channels
        for start_s, end_s in track.get("parts", [(0.0, duration_s)]):
            samples = np.repeat(sound(start_s, end_s, rate_hz)[None], channels, axis=0)
            samples = track.get("samples", samples)
            for first in range(0, samples.shape[1], 1024):
                array = np.ascontiguousarray(_stored(samples[:, first : first + 1024], sample_format))
                if not sample_format.endswith("p"):
                    array = np.ascontiguousarray(array.T).reshape(1, -1)
                frame = av.AudioFrame.from_ndarray(array, format=sample_format, layout=layout)
                frame.sample_rate, frame.time_base = rate_hz, Fraction(1, rate_hz)
                frame.pts = round(start_s * rate_hz) + first
                container.mux(stream.encode(frame))
        container.mux(stream.encode(None))

    def numbers(self, frames: NDArray[np.uint8]) -> list[int]:
        """The index bits of ``(T, H, W)`` grey pictures."""
        height, width = frames.shape[1:]
        columns = frames[:, height // 8 : 3 * height // 8, : width - width % 10]
        bright = columns.reshape(len(frames), columns.shape[1], 10, -1).mean(axis=(1, 3)) > 140
        return [int(number) for number in bright @ (1 << np.arange(10))]

    def flashes_s(self, frames: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Times at which the bottom half turns bright."""
        height = frames.shape[1]
        bright = frames[:, 5 * height // 8 : 7 * height // 8].mean(axis=(1, 2)) > 140
        return (np.flatnonzero(bright[1:] & ~bright[:-1]) + 1) / 25

    def beeps_s(self, audio: NDArray[np.float32]) -> NDArray[np.float64]:
        """Times at which the sound sets in after at least 0.2 s of silence."""
        loud = np.flatnonzero(np.abs(audio) > 0.05)
        if len(loud) == 0:
            return np.zeros(0)
        return loud[np.concatenate([[True], np.diff(loud) > 3200])] / 16_000


@pytest.fixture(scope="session")
def film() -> Film:
    return Film()
