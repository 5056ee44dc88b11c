"""Facts about converting films that the tests make themselves: clocks, formats, damage, and what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from avfusion.errors import AvfusionError, UsageError
from avfusion.media.audio import read_audio
from avfusion.media.damage import ReadReport
from avfusion.media.decode import iterate_retimed, iterate_sound, read_retimed, read_sound
from avfusion.media.ingest import Ingested, ingest, main, read_ingested
from avfusion.media.source import probe
from avfusion.media.video import VideoReader, read_frames

LOSSLESS = {"qp": "0", "preset": "ultrafast"}


def marks(film: Any, result: Ingested) -> tuple[list[int], Any, Any]:
    """Numbers, flashes and beeps of a result; the sound's length is checked on the way."""
    frames, audio = read_frames(result.video, 0, result.num_frames), read_audio(result.audio)
    assert len(VideoReader(result.video)) == result.num_frames
    assert len(audio) == 640 * result.num_frames
    return film.numbers(frames), film.flashes_s(frames), film.beeps_s(audio)


# -- clocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift_s", [0.0, 1.4, 2**33 / 90_000 - 2], ids=["from 0", "from 1.4 s", "over the wrap"])
def test_a_transport_stream_starts_at_zero_wherever_its_clock_stands(tmp_path: Path, film: Any, shift_s: float) -> None:
    ticks = {"output_ts_offset": str(shift_s)}
    film.write(tmp_path / "x.ts", tracks=[{"codec": "aac", "format": "fltp"}], container_options=ticks)
    numbers, flashes, beeps = marks(film, ingest(tmp_path / "x.ts", tmp_path / "out"))
    assert numbers == list(range(100))
    np.testing.assert_allclose(flashes, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(beeps, flashes, atol=0.01)


def test_joined_transport_streams_go_on_where_the_first_ended(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.ts", tracks=[{"codec": "aac", "format": "fltp"}], duration_s=2.0)
    (tmp_path / "two.ts").write_bytes((tmp_path / "x.ts").read_bytes() * 2)
    result = ingest(tmp_path / "two.ts", tmp_path / "out")
    numbers, flashes, beeps = marks(film, result)
    assert numbers == [*range(50), *range(50)]
    np.testing.assert_allclose(flashes, [1.0, 3.0])
    np.testing.assert_allclose(beeps, flashes, atol=0.02)
    assert "the stamps jumped 1 times; the parts were joined without a break" in result.notes
    # Read alone, either stream joins at the same place.
    alone = read_sound(tmp_path / "two.ts")
    assert alone is not None
    np.testing.assert_allclose(film.beeps_s(alone), beeps, atol=0.001)
    assert film.numbers(np.stack([frame for _, frame in iterate_retimed(tmp_path / "two.ts")])) == numbers


@pytest.mark.parametrize("name", ["x.mp4", "x.mkv", "x.mov"])
def test_a_picture_that_starts_later_than_the_sound(tmp_path: Path, film: Any, name: str) -> None:
    film.write(tmp_path / name, times_s=[0.6 + n / 25 for n in range(85)], tracks=[{"codec": "aac", "format": "fltp"}])
    result = ingest(tmp_path / name, tmp_path / "out")
    numbers, flashes, beeps = marks(film, result)
    assert numbers == [0] * 15 + list(range(85))
    np.testing.assert_allclose(flashes, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(beeps, flashes, atol=0.04)
    assert any(note.startswith("the picture starts 0.") for note in result.notes)


def test_a_start_within_a_frame_shifts_no_picture(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.mkv", times_s=[0.03 + n / 25 for n in range(100)], rate=1000)
    facts = probe(tmp_path / "x.mkv")
    assert (facts.picture_starts_s, facts.sound_starts_s) == (0.0, pytest.approx(-0.03))
    result = ingest(tmp_path / "x.mkv", tmp_path / "out")
    numbers, _, beeps = marks(film, result)
    assert numbers == list(range(100))
    np.testing.assert_allclose(beeps, [0.97, 1.97, 2.97], atol=0.002)


def test_a_gap_in_the_sound_is_silence_of_its_length(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.mkv", tracks=[{"codec": "pcm_s16le", "parts": [(0.0, 1.5), (2.5, 4.0)]}])
    result = ingest(tmp_path / "x.mkv", tmp_path / "out")
    _, _, beeps = marks(film, result)
    np.testing.assert_allclose(beeps, [1.0, 3.0], atol=0.002)
    np.testing.assert_allclose(result.details["sound_gaps_s"], [[1.5, 2.5]], atol=0.002)
    assert not read_audio(result.audio)[24_100:39_900].any()


def test_sound_that_overlaps_itself_is_cut(tmp_path: Path, film: Any) -> None:
    """A second stretch whose stamps begin half a second before the first one ends."""
    with av.open(str(tmp_path / "x.mkv"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=16_000, layout="mono")
        for start, level in ((0, 8000), (8000, 16_000)):
            frame = av.AudioFrame.from_ndarray(np.full((1, 16_000), level, np.int16), format="s16", layout="mono")
            frame.sample_rate, frame.pts = 16_000, start
            for packet in stream.encode(frame):
                container.mux(packet)
    (audio,) = (read_sound(tmp_path / "x.mkv"),)
    assert audio is not None
    assert len(audio) == 24_000
    assert (np.unique(audio[:15_900]) * 32_768).tolist() == [8000]
    assert (np.unique(audio[16_100:]) * 32_768).tolist() == [16_000]


def test_a_freeze_of_two_seconds_stays_two_seconds(tmp_path: Path, film: Any) -> None:
    times = [n / 25 for n in range(30)] + [3.2 + n / 25 for n in range(20)]
    film.write(tmp_path / "x.mkv", times_s=times, rate=1000)
    numbers, _, _ = marks(film, ingest(tmp_path / "x.mkv", tmp_path / "out"))
    assert numbers == [*range(30), *[29] * 50, *range(30, 50)]


def test_stamps_that_run_backward_show_no_new_picture(tmp_path: Path, film: Any) -> None:
    """Two blocks of a Matroska file get the stamps of earlier ones, as broken recorders write them."""
    one_thread = {"threads": "1"}  # several put the pictures off, and the blocks into other clusters
    film.write(
        tmp_path / "x.mkv",
        tracks=[],
        video_codec="mjpeg",
        pixel_format="yuvj420p",
        options=one_thread,
        duration_s=1.0,
        rate=1000,
    )
    data = bytearray((tmp_path / "x.mkv").read_bytes())
    cluster = data.index(b"\x1f\x43\xb6\x75")
    for time_ms, false_ms in ((400, 80), (440, 120)):
        where = data.index(bytes([0x81, time_ms >> 8, time_ms & 255, 0x80]), cluster)
        data[where + 1 : where + 3] = false_ms.to_bytes(2, "big")
    (tmp_path / "back.mkv").write_bytes(data)
    result = ingest(tmp_path / "back.mkv", tmp_path / "out", allow_silent=True)
    numbers = film.numbers(read_frames(result.video, 0, result.num_frames))
    assert numbers == [*range(10), 9, 9, *range(12, 25)]
    assert "2 pictures were left out: their stamps run backward or repeat" in result.notes


def test_a_bare_bit_stream_without_stamps_follows_its_frame_rate(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.h264", tracks=[], duration_s=2.0, options={"bf": "2"})
    result = ingest(tmp_path / "x.h264", tmp_path / "out", allow_silent=True)
    assert film.numbers(read_frames(result.video, 0, result.num_frames)) == list(range(50))
    assert any("50 stamps were missing" in note for note in result.notes)


def test_one_picture_lasts_as_long_as_the_file_says(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.mp4", tracks=[], duration_s=0.04)
    assert ingest(tmp_path / "x.mp4", tmp_path / "out", allow_silent=True).num_frames == 1


# -- pictures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "codec", "pixel_format", "options"),
    [
        ("ten_bit.mkv", "libx265", "yuv420p10le", {"x265-params": "log-level=none"}),
        ("prores.mov", "prores", "yuv422p10le", {}),
        ("rgb.mkv", "libx264rgb", "rgb24", {}),
        ("full_range.mkv", "libx264", "yuvj420p", {}),
        ("vp9.webm", "libvpx-vp9", "yuv420p", {"deadline": "realtime", "cpu-used": "8"}),
        ("mpeg2.mpg", "mpeg2video", "yuv420p", {"b": "4000000"}),
    ],
)
def test_every_pixel_format_keeps_its_levels(
    tmp_path: Path, film: Any, name: str, codec: str, pixel_format: str, options: dict[str, str]
) -> None:
    sound = {"codec": "libopus"} if name.endswith("webm") else {"codec": "mp2" if name.endswith("mpg") else "pcm_s16le"}
    film.write(
        tmp_path / name, video_codec=codec, pixel_format=pixel_format, options=options, tracks=[sound], duration_s=1.2
    )
    result = ingest(tmp_path / name, tmp_path / "out")
    numbers, flashes, _ = marks(film, result)
    assert numbers == list(range(30))
    np.testing.assert_allclose(flashes, [1.0])
    frame = read_frames(result.video, 5, 1)[0]
    assert abs(frame[8:24, 4:12].mean() - 220) < 4  # bit 0 of 5 is set
    assert abs(frame[8:24, 20:28].mean() - 30) < 4  # bit 1 is not


def test_combed_pictures_are_deinterlaced(tmp_path: Path, film: Any) -> None:
    """A bright bar that jumps 24 pixels between the two fields of a picture tears it into a comb."""
    pictures = []
    for n in range(12):
        rgb = np.full((64, 160, 3), 30, np.uint8)
        for field in (0, 1):
            left = 8 + 8 * n + 4 * field
            rgb[field::2, left : left + 32] = 220
        pictures.append(rgb)
    options = {"flags": "+ildct+ilme", "b": "8000000"}
    film.write(
        tmp_path / "x.mpg", video_codec="mpeg2video", options=options, pictures=pictures, duration_s=0.48,
        tracks=[{"codec": "mp2"}],
    )  # fmt: skip
    assert probe(tmp_path / "x.mpg").interlaced

    def comb(frames: Any) -> float:
        rows = frames[3:-2].astype(float)
        return float(np.abs(rows[:, 1:-1] - (rows[:, :-2] + rows[:, 2:]) / 2).mean())

    result = ingest(tmp_path / "x.mpg", tmp_path / "out")
    assert result.num_frames == 12
    assert "interlaced pictures were deinterlaced (bwdif)" in result.notes
    grey = np.stack(pictures)[..., 0]
    assert comb(grey) > 5
    assert comb(read_frames(result.video, 0, 12)) < 0.3 * comb(grey)
    assert comb(read_retimed(tmp_path / "x.mpg").frames) < 0.3 * comb(grey)


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_pictures_are_turned_once_whatever_the_angle(tmp_path: Path, film: Any, degrees: int) -> None:
    film.write(tmp_path / "flat.mp4", tracks=[{"codec": "aac", "format": "fltp"}], duration_s=0.4)
    with av.open(str(tmp_path / "flat.mp4")) as source, av.open(str(tmp_path / "x.mp4"), "w") as turned:
        streams = {s.index: turned.add_stream_from_template(s) for s in source.streams}
        streams[source.streams.video[0].index].set_display_rotation(degrees)
        for packet in source.demux():
            if packet.dts is not None:
                packet.stream = streams[packet.stream.index]
                turned.mux(packet)
    facts = probe(tmp_path / "x.mp4")
    angle = facts.rotation_degrees
    assert angle in (degrees, 360 - degrees)
    expected = (64, 160) if degrees % 180 else (160, 64)
    assert (facts.width, facts.height) == expected
    result = ingest(tmp_path / "x.mp4", tmp_path / "out")
    frames = read_frames(result.video, 0, 10)
    assert film.numbers(np.rot90(frames, -angle // 90, axes=(1, 2))) == list(range(10))
    assert np.abs(frames.astype(int) - read_retimed(tmp_path / "x.mp4").frames).mean() < 2


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (15, 9), (17, 16)])
def test_tiny_and_odd_sizes_become_even(tmp_path: Path, film: Any, size: tuple[int, int]) -> None:
    pictures = [np.full((*size, 3), level, np.uint8) for level in (60, 120, 180)]
    film.write(
        tmp_path / "x.mkv", video_codec="ffv1", pixel_format="bgr0", pictures=pictures, duration_s=0.12, tracks=[{}]
    )
    result = ingest(tmp_path / "x.mkv", tmp_path / "out")
    frames = read_frames(result.video, 0, 3)
    assert frames.shape[1:] == (size[0] + size[0] % 2, size[1] + size[1] % 2)
    np.testing.assert_allclose(frames.mean(axis=(1, 2)), [60, 120, 180], atol=3)
    assert any("repeated" in note for note in result.notes)


def test_pictures_that_change_size_are_scaled_to_the_first(tmp_path: Path, film: Any) -> None:
    for name, size in (("a", (64, 160)), ("b", (32, 80))):
        pictures = [np.full((*size, 3), 60 if name == "a" else 180, np.uint8)] * 25
        film.write(
            tmp_path / f"{name}.ts", video_codec="mpeg2video", pictures=pictures, duration_s=1.0,
            tracks=[{"codec": "mp2"}],
        )  # fmt: skip
    (tmp_path / "x.ts").write_bytes((tmp_path / "a.ts").read_bytes() + (tmp_path / "b.ts").read_bytes())
    result = ingest(tmp_path / "x.ts", tmp_path / "out", salvage=True)
    frames = read_frames(result.video, 0, result.num_frames)
    assert frames.shape[1:] == (64, 160)
    assert abs(frames[5].mean() - 60) < 3
    assert abs(frames[40].mean() - 180) < 3
    assert any("scaled to the first's 160x64" in note for note in result.notes)


def test_a_cover_picture_is_no_film(tmp_path: Path, film: Any) -> None:
    for name, with_film in (("song.m4a", False), ("film.mp4", True)):
        with av.open(str(tmp_path / name), "w", format="mp4") as container:
            from av.stream import Disposition

            cover = container.add_stream("mjpeg", rate=25)
            cover.width, cover.height, cover.pix_fmt = 160, 64, "yuvj420p"
            cover.disposition = Disposition.attached_pic
            sound = container.add_stream("aac", rate=16_000, layout="mono")
            stream = None
            if with_film:
                stream = container.add_stream("libx264", rate=25)
                stream.width, stream.height, stream.pix_fmt = 160, 64, "yuv420p"
            container.mux(cover.encode(av.VideoFrame.from_ndarray(film.picture(1023, True), format="rgb24")))
            if stream is not None:
                for n in range(10):
                    container.mux(stream.encode(av.VideoFrame.from_ndarray(film.picture(n, False), format="rgb24")))
                container.mux(stream.encode(None))
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 6400), np.float32), format="fltp", layout="mono")
            frame.sample_rate = 16_000
            container.mux(sound.encode(frame))
            container.mux(sound.encode(None))
    with pytest.raises(AvfusionError, match=r"song\.m4a has no video stream"):
        ingest(tmp_path / "song.m4a", tmp_path / "song")
    result = ingest(tmp_path / "film.mp4", tmp_path / "film")
    assert film.numbers(read_frames(result.video, 0, result.num_frames)) == list(range(10))


# -- sound -------------------------------------------------------------------------------------------------------------


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


# -- damage, kills, folders --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["mkv", "webm", "avi", "flv"])
def test_a_cut_off_end_is_noticed_in_every_container_that_declares_its_length(
    tmp_path: Path, film: Any, ending: str
) -> None:
    codec = {"webm": "libvpx", "flv": "flv1"}.get(ending, "mpeg4")
    sound = {"webm": {"codec": "libopus"}, "flv": {"codec": "mp3", "rate_hz": 44_100, "format": "s16p"}}
    track = sound.get(ending, {"codec": "pcm_s16le"})
    film.write(tmp_path / f"x.{ending}", video_codec=codec, options={"b": "2000000"}, tracks=[track])
    data = (tmp_path / f"x.{ending}").read_bytes()
    (tmp_path / f"cut.{ending}").write_bytes(data[: len(data) // 2])
    with pytest.raises(AvfusionError, match=rf"cut\.{ending} is (damaged or )?cut short.*--salvage"):
        ingest(tmp_path / f"cut.{ending}", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(AvfusionError, match=rf"cut\.{ending} is (damaged or )?cut short"):
        list(iterate_retimed(tmp_path / f"cut.{ending}"))
    result = ingest(tmp_path / f"cut.{ending}", tmp_path / "out", salvage=True)
    numbers, _, beeps = marks(film, result)
    assert 20 < len(numbers) < 90
    assert numbers[:20] == list(range(20))
    np.testing.assert_allclose(beeps[:1], [1.0], atol=0.03)
    report = ReadReport()
    assert len(list(iterate_retimed(tmp_path / f"cut.{ending}", salvage=True, report=report))) == len(numbers)
    assert report.cut_short


def test_damage_in_the_middle_is_an_error_and_salvage_goes_on_after_it(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.mkv", options={"g": "10", "bf": "0"}, tracks=[{"codec": "pcm_s16le"}])
    with av.open(str(tmp_path / "x.mkv")) as container:
        places = [(p.pos, p.size) for p in container.demux(video=0) if p.size and 1.2 < p.pts * p.time_base < 1.5]
    data = bytearray((tmp_path / "x.mkv").read_bytes())
    for position, size in places:
        data[position + 12 : position + size] = b"\xff" * (size - 12)
    (tmp_path / "bad.mkv").write_bytes(data)
    with pytest.raises(AvfusionError, match=r"bad\.mkv is damaged or cut short: the picture at 1\.\d\d s"):
        ingest(tmp_path / "bad.mkv", tmp_path / "out")
    result = ingest(tmp_path / "bad.mkv", tmp_path / "out", salvage=True)
    numbers, _, beeps = marks(film, result)
    assert numbers[:30] == list(range(30))
    assert numbers[45:] == list(range(45, 100))
    np.testing.assert_allclose(beeps, [1.0, 2.0, 3.0], atol=0.002)
    assert any("packets could not be decoded, the first: the picture at 1." in note for note in result.notes)


def test_a_codec_without_decoder_is_named(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.avi", video_codec="mjpeg", pixel_format="yuvj420p", tracks=[{"codec": "pcm_s16le"}])
    (tmp_path / "unknown.avi").write_bytes((tmp_path / "x.avi").read_bytes().replace(b"MJPG", b"XYZQ"))
    with pytest.raises(AvfusionError, match=r"codec XYZQ of .*unknown\.avi \(picture\) has no decoder here; re-encode"):
        ingest(tmp_path / "unknown.avi", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_playlist_does_not_fetch_anything(tmp_path: Path) -> None:
    (tmp_path / "x.mp4").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nhttp://127.0.0.1:9/x.ts\n")
    with pytest.raises(AvfusionError, match=r"x\.mp4 cannot be opened"):
        ingest(tmp_path / "x.mp4", tmp_path / "out")


def test_text_and_addresses_are_told_apart_from_damaged_films(tmp_path: Path) -> None:
    (tmp_path / "x.mp4").write_text("é" * 256 + "\n")  # the 512 bytes that are looked at
    (tmp_path / "y.mp4").write_text("x" + "é" * 256 + "\n")  # likewise, ended within a letter
    (tmp_path / "z.mp4").write_bytes(b"\0\0\0\x20ftypisom" + bytes(100))
    for name, told in (("x", "first bytes are text"), ("y", "first bytes are text"), ("z", "expected a whole media")):
        with pytest.raises(AvfusionError, match=rf"{name}\.mp4 cannot be opened as video or sound.*{told}"):
            ingest(tmp_path / f"{name}.mp4", tmp_path / "out")
    for address in ("http://127.0.0.1:9/x.mp4", "rtsp://127.0.0.1:9/x"):
        with pytest.raises(AvfusionError, match="is an address; only files are read"):
            ingest(address, tmp_path / "out")


def test_a_folder_that_is_a_file_or_lies_under_one_is_told(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.mkv", duration_s=0.4)
    (tmp_path / "file").touch()
    for folder in ("file", "file/under", "file/far/under"):
        with pytest.raises(UsageError, match=r"/file is a file; expected a folder for the result"):
            ingest(tmp_path / "x.mkv", tmp_path / folder)


@pytest.mark.skipif(os.name == "nt", reason="Windows allows no line ends in file names")
def test_names_of_many_lines_are_shown_on_one(tmp_path: Path, film: Any, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a\nb\x1b[31m.mkv", "gone\n.mkv", "é.mkv"]
    for name in (names[0], names[2]):
        film.write(tmp_path / name, duration_s=0.4)
    with pytest.raises(AvfusionError, match="1 of 3 files failed"):
        main([*(str(tmp_path / name) for name in names), str(tmp_path / "out")])
    shown = capsys.readouterr()
    lines = [line for line in shown.out.splitlines() if not line.startswith("  note: ")]
    assert [line.partition("/out/")[2].partition("/")[0] for line in lines] == ["a\\nb\\x1b[31m.mkv", "é.mkv"]
    assert shown.err == f"error: no video file at {tmp_path}/gone\\n.mkv\n"


def test_a_whole_result_is_kept_and_one_of_other_options_or_content_is_made_anew(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.mkv", duration_s=1.0)
    first = ingest(tmp_path / "x.mkv", tmp_path / "out")
    stamp = first.video.stat().st_mtime_ns
    again = ingest(tmp_path / "x.mkv", tmp_path / "out")
    assert (first.kept, again.kept) == (False, True)
    assert first.video.stat().st_mtime_ns == stamp
    assert again.details == json.loads(json.dumps(first.details))
    assert not ingest(tmp_path / "x.mkv", tmp_path / "out", salvage=True).kept
    film.write(tmp_path / "x.mkv", duration_s=1.2)
    assert ingest(tmp_path / "x.mkv", tmp_path / "out").num_frames == 30
    first.audio.write_bytes(b"cut")  # somebody touched it
    assert read_ingested(tmp_path / "out") is None
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["audio.flac", "ingest.json", "video.mp4"]


def test_files_that_ingest_did_not_make_are_never_overwritten(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.mkv", duration_s=0.4)
    film.write(tmp_path / "video.mp4", duration_s=0.4, tracks=[{"codec": "aac", "format": "fltp"}])
    before = (tmp_path / "video.mp4").read_bytes()
    for source in ("x.mkv", "video.mp4"):
        with pytest.raises(UsageError, match=r"holds a video\.mp4 that ingest did not make"):
            ingest(tmp_path / source, tmp_path)
    assert (tmp_path / "video.mp4").read_bytes() == before
    ingest(tmp_path / "x.mkv", tmp_path / "out")
    film.write(tmp_path / "y.mkv", duration_s=0.4)
    with pytest.raises(UsageError, match=r"holds the result of x\.mkv; expected a folder of its own for y\.mkv"):
        ingest(tmp_path / "y.mkv", tmp_path / "out")
    (tmp_path / "sub").mkdir()
    film.write(tmp_path / "sub" / "x.mkv", duration_s=0.4)
    with pytest.raises(UsageError, match=r"two files are called x\.mkv"):
        main([str(tmp_path / "x.mkv"), str(tmp_path / "sub" / "x.mkv"), str(tmp_path / "both")])


def begun(source: Path, folder: Path) -> subprocess.Popen[bytes]:
    """A conversion in a process of its own that is at work."""
    command = [sys.executable, "-m", "avfusion.media.ingest", str(source), str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    part = folder / "video.mp4.part"
    while process.poll() is None and not (part.exists() and part.stat().st_size > 20_000):
        time.sleep(0.005)
    assert part.exists()
    return process


@pytest.mark.skipif(os.name == "nt", reason="no such file locks there: two runs at once are not noticed")
def test_two_conversions_never_work_in_one_folder(tmp_path: Path, film: Any) -> None:
    film.write(tmp_path / "x.mkv", options={"preset": "ultrafast"}, duration_s=40.0)
    expected = ingest(tmp_path / "x.mkv", tmp_path / "alone")
    first = begun(tmp_path / "x.mkv", tmp_path / "out")
    for other in ({}, {"salvage": True}):
        with pytest.raises(AvfusionError, match=r"another conversion is at work in .*out; wait for it, or choose"):
            ingest(tmp_path / "x.mkv", tmp_path / "out", **other)
    assert first.wait() == 0
    result = ingest(tmp_path / "x.mkv", tmp_path / "out")
    assert result.kept
    assert result.video.read_bytes() == expected.video.read_bytes()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["audio.flac", "ingest.json", "video.mp4"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 on this system")
def test_a_killed_conversion_leaves_nothing_that_looks_whole_and_the_rerun_is_the_unbroken_run(
    tmp_path: Path, film: Any
) -> None:
    film.write(tmp_path / "x.mkv", options={"preset": "ultrafast"}, duration_s=40.0)
    expected = ingest(tmp_path / "x.mkv", tmp_path / "unbroken")
    process = begun(tmp_path / "x.mkv", tmp_path / "out")
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not [path.name for path in (tmp_path / "out").iterdir() if not path.name.endswith(".part")]
    assert read_ingested(tmp_path / "out") is None
    result = ingest(tmp_path / "x.mkv", tmp_path / "out")
    assert result.video.read_bytes() == expected.video.read_bytes()
    np.testing.assert_array_equal(soundfile.read(result.audio)[0], soundfile.read(expected.audio)[0])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["audio.flac", "ingest.json", "video.mp4"]
