"""Facts about converting films that the tests make themselves: every kind of sound, and which track is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avfusion.errors import AvfusionError, UsageError
from avfusion.media.audio import read_audio
from avfusion.media.decode import iterate_sound
from avfusion.media.ingest import ingest
from avfusion.media.source import probe
from tests.media.ingested import marks


@pytest.mark.parametrize(
    ("name", "video_codec", "track"),
    [
        ("flac24.mkv", "libx264", {"codec": "flac", "format": "s32", "rate_hz": 44_100, "layout": "stereo"}),
        ("u8.avi", "mjpeg", {"codec": "pcm_u8", "format": "u8", "rate_hz": 11_025}),
        ("double.mkv", "libx264", {"codec": "pcm_f64le", "format": "dbl", "rate_hz": 8000}),
        ("seven_one.mkv", "libx264", {"codec": "flac", "format": "s16", "layout": "7.1"}),
        ("opus.mkv", "libx264", {"codec": "libopus", "format": "s16", "layout": "stereo"}),
        ("ac3.ts", "libx264", {"codec": "ac3", "format": "fltp", "layout": "5.1"}),
    ],
)
def test_every_sample_format_and_layout_beeps_on_time(
    tmp_path: Path, film: Any, name: str, video_codec: str, track: dict[str, Any]
) -> None:
    pixel_format = "yuvj420p" if video_codec == "mjpeg" else "yuv420p"
    film.write(tmp_path / name, video_codec=video_codec, pixel_format=pixel_format, tracks=[track], duration_s=2.2)
    _, flashes, beeps = marks(film, ingest(tmp_path / name, tmp_path / "out"))
    np.testing.assert_allclose(flashes, [1.0, 2.0])
    np.testing.assert_allclose(beeps, flashes, atol=0.01)


def test_the_default_sound_track_is_taken_and_any_other_on_demand(tmp_path: Path, film: Any) -> None:
    tone = {n: np.full((1, 32_000), level) for n, level in enumerate((0.1, 0.2, 0.3))}
    tracks = [
        {"rate_hz": 16_000, "samples": tone[n], "language": language, "default": n == 1}
        for n, language in enumerate(("fra", "eng", "deu"))
    ]
    film.write(tmp_path / "x.mkv", tracks=tracks, duration_s=2.0)
    facts = probe(tmp_path / "x.mkv")
    assert [track.language for track in facts.audio_tracks] == ["fra", "eng", "deu"]
    result = ingest(tmp_path / "x.mkv", tmp_path / "default")
    np.testing.assert_allclose(read_audio(result.audio), 0.2, atol=0.01)
    assert "sound track 1 of 0 .. 2 was taken; --audio-track=N takes another" in result.notes
    for number in (0, 2):
        result = ingest(tmp_path / "x.mkv", tmp_path / str(number), audio_track=number)
        np.testing.assert_allclose(read_audio(result.audio), 0.1 * (number + 1), atol=0.01)
    with pytest.raises(UsageError, match=r"x\.mkv has no audio track 3; it has 0: flac mono fra, 1: flac mono eng"):
        ingest(tmp_path / "x.mkv", tmp_path / "none", audio_track=3)


def test_a_few_samples_that_are_no_numbers_are_cleaned_and_counted_and_many_are_an_error(
    tmp_path: Path, film: Any
) -> None:
    samples = 0.1 * np.ones((1, 32_000))
    samples[0, [100, 5000, 9000]] = [np.nan, np.inf, 1e30]
    sound = {"codec": "pcm_f32le", "format": "flt", "rate_hz": 16_000}
    film.write(tmp_path / "few.mkv", tracks=[{**sound, "samples": samples}], duration_s=2.0)
    result = ingest(tmp_path / "few.mkv", tmp_path / "few")
    audio = read_audio(result.audio)
    assert np.isfinite(audio).all()
    np.testing.assert_allclose(np.delete(audio, [100, 5000, 9000]), 0.1, atol=1e-4)
    np.testing.assert_allclose(audio[[100, 5000, 9000]], [0.0, 0.0, 1.0], atol=1e-4)
    assert any(
        note.startswith("2 sound samples were NaN or infinite (now 0) and 1 beyond -1.5..1.5") for note in result.notes
    )
    film.write(tmp_path / "many.mkv", tracks=[{**sound, "samples": samples * 32_768}], duration_s=2.0)
    with pytest.raises(AvfusionError, match=r"many\.mkv is damaged: 2 samples are NaN or infinite and 31998 beyond"):
        ingest(tmp_path / "many.mkv", tmp_path / "many")
    assert list((tmp_path / "many").iterdir()) == []
    with pytest.raises(AvfusionError, match=r"many\.mkv is damaged"):
        list(iterate_sound(tmp_path / "many.mkv"))


def test_channels_that_cancel_are_told(tmp_path: Path, film: Any) -> None:
    tone = 0.3 * np.sin(np.arange(32_000) / 5)
    track = {"rate_hz": 16_000, "layout": "stereo", "samples": np.stack([tone, -tone])}
    film.write(tmp_path / "x.mkv", tracks=[track], duration_s=2.0)
    result = ingest(tmp_path / "x.mkv", tmp_path / "out")
    assert any("is digital silence" in note or "cancel each other" in note for note in result.notes)
