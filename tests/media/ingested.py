"""The marks of a converted film."""

from __future__ import annotations

from typing import Any

from avfusion.media.audio import read_audio
from avfusion.media.ingest import Ingested
from avfusion.media.video import VideoReader, read_frames


def marks(film: Any, result: Ingested) -> tuple[list[int], Any, Any]:
    """Numbers, flashes and beeps of a result; the sound's length is checked on the way."""
    frames, audio = read_frames(result.video, 0, result.num_frames), read_audio(result.audio)
    assert len(VideoReader(result.video)) == result.num_frames
    assert len(audio) == 640 * result.num_frames
    return film.numbers(frames), film.flashes_s(frames), film.beeps_s(audio)
