"""The sound that is heard with the overlay: the source's own, at its own rate, on the clock of the ingested film.

Blocks stand where their stamps say, as at ingest: silence in front of sound that starts late and in its gaps, nothing
of what lies before time 0 or overlaps. Mono stays mono, any other layout becomes stereo. Where the source is no longer
there, or is another file by now, it is the ingested sound: mono at 16 kHz.

Shapes: blocks ``(C, N)`` float32 in -1..1.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, VIDEO_HZ
from avfusion.errors import AvfusionError
from avfusion.inference.result import Result
from avfusion.media.demux import Decoded, read_frames_once
from avfusion.media.ingest import Ingested, read_ingested
from avfusion.media.sound_clock import STAMP_SLACK_S
from avfusion.media.source import SourceFacts, probe

BROWSER_RATES_HZ = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)  # of AAC, and a whole frame's samples
USUAL_RATE_HZ = 48_000

Blocks = Iterator[NDArray[np.float32]]


class SourceSoundError(AvfusionError):
    """The source's sound cannot be read to its end."""


@dataclass
class FilmSound:
    """Sound from time 0 on.

    Attributes:
        rate_hz: its rate, a whole number of samples in each video frame.
        layout: ``mono`` or ``stereo``.
        blocks: what follows without a break; may end before the film does.
    """

    rate_hz: int
    layout: str
    blocks: Blocks

    def __post_init__(self) -> None:
        self._held = np.zeros((1 if self.layout == "mono" else 2, 0), dtype=np.float32)
        self._ended = False

    def next_frame(self) -> NDArray[np.float32]:
        """``(C, rate_hz / 25)`` the sound of the next video frame; zeros where there is none any more."""
        count = self.rate_hz // VIDEO_HZ
        while self._held.shape[1] < count:
            block = None if self._ended else next(self.blocks, None)
            if block is None:
                self._ended = True
                block = np.zeros((len(self._held), count), dtype=np.float32)
            self._held = np.concatenate([self._held, block], axis=1)
        sound, self._held = self._held[:, :count], self._held[:, count:]
        return sound


def open_sound(result: Result) -> tuple[FilmSound | None, list[str]]:
    """The best sound at hand.

    Returns:
        The sound, None where the film has none; and notes on it.
    """
    ingested = read_ingested(result.video.parent)
    if ingested is not None and not ingested.has_sound:
        return None, []
    why = _not_the_source(result.source, ingested)
    if why is None:
        assert ingested is not None
        try:
            return _sound_of_source(result.source, ingested), []
        except (AvfusionError, OSError) as error:
            why = str(error)
    return ingested_sound(result.audio), [_fallback_note(why)]


def sound_after_failure(result: Result, error: SourceSoundError) -> tuple[FilmSound, list[str]]:
    """The ingested sound, once the source's has turned out unreadable."""
    return ingested_sound(result.audio), [_fallback_note(str(error))]


def ingested_sound(audio: Path) -> FilmSound:
    """The ingested sound, mono at 16 kHz."""
    return FilmSound(SAMPLE_RATE, "mono", _blocks_of_file(audio))


def _fallback_note(why: str) -> str:
    return f"overlay.mp4 has the ingested sound, mono at 16 kHz: {why}"


def _not_the_source(source: Path, ingested: Ingested | None) -> str | None:
    """Why a file may not be what was ingested; None where it is."""
    if ingested is None:
        return "nothing tells how the source was ingested"
    try:
        state = source.stat()
    except OSError:
        return f"{source.name} is no longer there"
    request = ingested.details.get("request", {})
    same = (request.get("size_bytes"), request.get("modified_ns")) == (state.st_size, state.st_mtime_ns)
    return None if same else f"{source.name} was changed since it was ingested"


def _sound_of_source(source: Path, ingested: Ingested) -> FilmSound:
    facts = probe(source, ingested.details["source"]["audio_track"])
    if facts.audio_track is None:
        raise AvfusionError(f"{source.name} has no audio stream")
    track = facts.audio_tracks[facts.audio_track]
    rate_hz = track.rate_hz if track.rate_hz in BROWSER_RATES_HZ else USUAL_RATE_HZ
    layout = "mono" if track.channels == 1 else "stereo"
    salvage = bool(ingested.details.get("request", {}).get("salvage"))
    return FilmSound(rate_hz, layout, _blocks_of_source(source, facts, rate_hz, layout, salvage))


def _blocks_of_source(source: Path, facts: SourceFacts, rate_hz: int, layout: str, salvage: bool) -> Blocks:
    clock = _Clock(rate_hz, layout)
    try:
        for event in read_frames_once(source, facts, picture=False, salvage=salvage):
            yield from clock.push(event)
        yield from clock.flush()
    except (AvfusionError, OSError) as error:
        raise SourceSoundError(str(error)) from error


def _blocks_of_file(audio: Path) -> Blocks:
    import soundfile

    with soundfile.SoundFile(os.fsencode(audio)) as file:
        while len(block := file.read(SAMPLE_RATE, dtype="float32", always_2d=True)):
            yield np.ascontiguousarray(block.T)


class _Clock:
    """Places decoded sound on the film's clock, without mixing it to mono."""

    def __init__(self, rate_hz: int, layout: str) -> None:
        self.rate_hz, self.layout = rate_hz, layout
        self._position = 0  # samples given out
        self._skip = 0  # samples to drop: before time 0, or under what is out already
        self._resampler: Any = None
        self._kind: tuple[Any, ...] = ()  # what the resampler takes
        self._start_s = 0.0  # of the present unbroken stretch, and how many seconds of it have come in
        self._length_s = 0.0

    def push(self, event: Decoded) -> Blocks:
        frame = event.frame
        expected_s = self._start_s + self._length_s
        time_s = expected_s if event.time_s is None else event.time_s
        kind = (frame.sample_rate, frame.format.name, frame.layout.name)
        if kind != self._kind or abs(time_s - expected_s) > STAMP_SLACK_S:
            yield from self.flush()
            yield from self._start(time_s, kind)
        self._length_s += frame.samples / frame.sample_rate
        frame.pts = None  # the resampler shall follow the samples, not the stamps
        yield from self._emit(self._resampler.resample(frame))

    def flush(self) -> Blocks:
        if self._resampler is not None:
            yield from self._emit(self._resampler.resample(None))
        self._resampler, self._kind = None, ()

    def _start(self, time_s: float, kind: tuple[Any, ...]) -> Blocks:
        import av

        self._resampler = av.AudioResampler(format="fltp", layout=self.layout, rate=self.rate_hz)
        self._kind, self._start_s, self._length_s = kind, time_s, 0.0
        missing = round(time_s * self.rate_hz) - self._position
        self._skip = max(-missing, 0)
        channels = 1 if self.layout == "mono" else 2
        while missing > 0:
            count = min(missing, self.rate_hz)
            self._position += count
            missing -= count
            yield np.zeros((channels, count), dtype=np.float32)

    def _emit(self, frames: list[Any]) -> Blocks:
        for frame in frames:
            if frame is None:  # what a resampler with nothing to do holds at the end
                continue
            block: NDArray[np.float32] = frame.to_ndarray()[:, : frame.samples]
            dropped = min(self._skip, block.shape[1])
            self._skip -= dropped
            if block.shape[1] > dropped:
                self._position += block.shape[1] - dropped
                yield np.clip(np.nan_to_num(block[:, dropped:], nan=0.0), -1.0, 1.0)
