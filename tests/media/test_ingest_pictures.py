"""Facts about converting films that the tests make themselves: every kind of picture keeps its levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.media.decode import read_retimed
from avfusion.media.ingest import ingest
from avfusion.media.source import probe
from avfusion.media.video import read_frames
from tests.media.ingested import marks


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
