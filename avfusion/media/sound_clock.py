"""Decoded sound of any rate, layout and sample format in, 16 kHz mono on the file's clock out, block by block.

A block stands where its stamp says. Stamps are followed to within 20 ms, half a video frame: rounded stamps leave the
sound as it is, a larger gap is filled with silence, a larger overlap is cut. Samples come out in -1..1 and finite.

Shapes: in ``(C, N)`` float32 at any rate, out ``(N',)`` float32 at 16 kHz.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME

STAMP_SLACK_S = 0.02
OVER_RANGE = 1.5  # lossy decoders overshoot 1 a little; beyond this no decoder meant it
SILENT_PEAK = 1e-4  # below the last bit but one of 16
_SILENCE = np.zeros(SAMPLE_RATE, dtype=np.float32)
# ITU-R BS.775 to stereo, then the mean of the two sides: speech sits in the center. Low-frequency effects are left out.
_WEIGHTS = {"FL": 0.5, "FR": 0.5, "FC": 0.7071, "LFE": 0.0, "LFE2": 0.0}
_OTHER_WEIGHT = 0.3536


class SoundClock:
    """Places decoded sound on the clock.

    Attributes:
        position: samples at 16 kHz given out so far.
        starts_s: time of the first sample that came in (negative: it was cut); None before.
        gaps_s: ``(start, end)`` of the stretches filled with silence behind the start of the sound, at most 1000.
        num_gaps: how many there were.
        num_overlaps: how often a stamp lay before the end of what had come.
        num_samples: samples that came in, over all channels.
        num_not_finite: how many of them were NaN or infinite; they became 0.
        num_over_range: how many were beyond ``OVER_RANGE``; they were clipped.
        peak: largest magnitude given out.
    """

    def __init__(self) -> None:
        self.position = 0
        self.starts_s: float | None = None
        self.gaps_s: list[tuple[float, float]] = []
        self.num_gaps = self.num_overlaps = 0
        self.num_samples = self.num_not_finite = self.num_over_range = 0
        self.peak = 0.0
        self._resampler: Any = None
        self._rate_hz = 0
        self._start_s = 0.0  # where the present unbroken stretch began, and how many samples of it have come
        self._count = 0
        self._skip = 0  # samples at 16 kHz to drop: they lie before time 0 or under what is already out
        self._mono_energy = self._channel_energy = 0.0

    def push(
        self, time_s: float | None, samples: NDArray[np.float32], channels: Sequence[str], rate_hz: int
    ) -> Iterator[NDArray[np.float32]]:
        """Takes a decoded block.

        Args:
            time_s: time of its first sample; None continues where the last one ended.
            samples: ``(C, N)``.
            channels: FFmpeg's names of the channels.
            rate_hz: their rate.

        Yields:
            Blocks of at most a second that follow each other without a break from time 0.
        """
        expected_s = self._start_s + self._count / self._rate_hz if self._rate_hz else max(time_s or 0.0, 0.0)
        time_s = expected_s if time_s is None else time_s
        if self._resampler is None or rate_hz != self._rate_hz or abs(time_s - expected_s) > STAMP_SLACK_S:
            yield from self._flush()
            if self.starts_s is None:
                self.starts_s = time_s
            elif time_s - expected_s > STAMP_SLACK_S:
                self.num_gaps += 1
                if len(self.gaps_s) < 1000:
                    self.gaps_s.append((max(expected_s, 0.0), time_s))
            elif expected_s - time_s > STAMP_SLACK_S:
                self.num_overlaps += 1
            yield from self._start(time_s, rate_hz)
        mono = self._mono(samples, channels)
        self._count += len(mono)
        yield from self._emit(self._resample(mono))

    def finish(self) -> Iterator[NDArray[np.float32]]:
        """Yields what the resampler still holds."""
        yield from self._flush()

    @property
    def bad_share(self) -> float:
        """Share of the samples that were no numbers in -1.5..1.5."""
        return (self.num_not_finite + self.num_over_range) / max(self.num_samples, 1)

    @property
    def channels_cancel(self) -> bool:
        """Whether the channels, played together, are 20 dB fainter than the loudest (one is turned upside down)."""
        return self._channel_energy > 1e-6 * max(self.num_samples, 1) and (
            self._mono_energy < 0.01 * self._channel_energy
        )

    @property
    def starts_frame(self) -> int:
        """The video frame in which the sound starts."""
        # In samples, as the sound is placed: 0.28 * 25 is less than 7.
        return max(round((self.starts_s or 0.0) * SAMPLE_RATE), 0) // SAMPLES_PER_VIDEO_FRAME

    def notes(self) -> Iterator[str]:
        """What a user should know about the sound, a sentence each."""
        if self.starts_frame:
            yield f"the sound starts at {self.starts_s:.2f} s: silence before (frames 0 .. {self.starts_frame - 1})"
        if self.num_gaps:
            total_s = sum(end - start for start, end in self.gaps_s)
            yield f"{self.num_gaps} gaps in the sound, {total_s:.2f} s, were filled with silence"
        if self.num_overlaps:
            yield f"{self.num_overlaps} overlaps in the sound were cut"
        if self.num_not_finite or self.num_over_range:
            yield (
                f"{self.num_not_finite} sound samples were NaN or infinite (now 0) and {self.num_over_range} beyond "
                f"-1.5..1.5 (now clipped), of {self.num_samples}"
            )
        if self.num_samples and self.peak < SILENT_PEAK:
            yield "the sound is digital silence from start to end"
        elif self.channels_cancel:
            yield "the sound channels cancel each other when mixed (one is turned upside down): the sound is faint"

    def _start(self, time_s: float, rate_hz: int) -> Iterator[NDArray[np.float32]]:
        import av

        self._resampler = av.AudioResampler(format="fltp", layout="mono", rate=SAMPLE_RATE)
        self._rate_hz, self._start_s, self._count = rate_hz, time_s, 0
        missing = round(time_s * SAMPLE_RATE) - self.position
        self._skip = max(-missing, 0)
        while missing > 0:
            block = _SILENCE[: min(missing, SAMPLE_RATE)]
            self.position += len(block)
            missing -= len(block)
            yield block.copy()

    def _resample(self, mono: NDArray[np.float32]) -> list[Any]:
        import av

        if len(mono) == 0:
            return []
        frame = av.AudioFrame.from_ndarray(mono[None], format="fltp", layout="mono")
        frame.sample_rate = self._rate_hz
        return list(self._resampler.resample(frame))

    def _flush(self) -> Iterator[NDArray[np.float32]]:
        if self._resampler is not None and self._count:
            yield from self._emit(self._resampler.resample(None))
        self._resampler = None

    def _emit(self, frames: Sequence[Any]) -> Iterator[NDArray[np.float32]]:
        for frame in frames:
            if frame is None:  # what a resampler with nothing to do holds at the end
                continue
            block: NDArray[np.float32] = frame.to_ndarray()[0][: frame.samples]
            dropped = min(self._skip, len(block))
            self._skip -= dropped
            if len(block) > dropped:
                block = np.clip(block[dropped:], -1.0, 1.0)
                self.position += len(block)
                self.peak = max(self.peak, float(np.abs(block).max()))
                yield block

    def _mono(self, samples: NDArray[np.float32], channels: Sequence[str]) -> NDArray[np.float32]:
        bad = ~np.isfinite(samples)
        over = np.abs(np.where(bad, 0.0, samples)) > OVER_RANGE
        self.num_samples += samples.size
        if bad.any() or over.any():
            self.num_not_finite += int(bad.sum())
            self.num_over_range += int(over.sum())
            samples = np.clip(np.where(bad, 0.0, samples), -1.0, 1.0).astype(np.float32)
        mono = mono_of(samples, channels)
        if len(samples) > 1:
            self._mono_energy += float(np.square(mono, dtype=np.float64).sum())
            self._channel_energy += float(np.square(samples, dtype=np.float64).sum(axis=1).max())
        return mono


def mono_of(samples: NDArray[np.float32], channels: Sequence[str]) -> NDArray[np.float32]:
    """Mixes channels to one: the mean of one or two and of unnamed ones, the weights above for surround.

    Args:
        samples: ``(C, N)``.
        channels: ``C`` names.

    Returns:
        ``(N,)`` float32.
    """
    if len(samples) == 1:
        only: NDArray[np.float32] = samples[0]
        return only
    if len(samples) == 2 or not {"FL", "FR"} <= set(channels):
        weights = np.full(len(samples), 1 / len(samples), dtype=np.float32)
    else:
        weights = np.array([_WEIGHTS.get(name, _OTHER_WEIGHT) for name in channels], dtype=np.float32)
    mono: NDArray[np.float32] = weights @ samples
    return mono


def samples_of(frame: Any) -> NDArray[np.float32]:
    """The samples of a decoder's frame as ``(C, N)`` float32, whatever their format; full scale is 1."""
    array = frame.to_ndarray()
    if not frame.format.is_planar:
        array = array.reshape(-1, frame.layout.nb_channels).T
    array = array[:, : frame.samples]
    if array.dtype == np.uint8:
        array = (array.astype(np.float32) - 128.0) / 128.0
    elif np.issubdtype(array.dtype, np.integer):
        array = array / float(-int(np.iinfo(array.dtype).min))
    with np.errstate(over="ignore"):  # a double beyond float32 becomes infinite, and is counted as such
        samples: NDArray[np.float32] = np.ascontiguousarray(array, dtype=np.float32)
    return samples
