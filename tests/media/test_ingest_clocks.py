"""Facts about converting films that the tests make themselves: one clock for picture and sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from avfusion.media.audio import read_audio
from avfusion.media.decode import iterate_retimed, read_sound
from avfusion.media.ingest import ingest
from avfusion.media.source import probe
from avfusion.media.video import read_frames
from tests.media.ingested import marks


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
