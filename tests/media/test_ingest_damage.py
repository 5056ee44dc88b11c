"""Facts about converting films that the tests make themselves: damage, and files that are no films, are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.media.damage import ReadReport
from avfusion.media.decode import iterate_retimed
from avfusion.media.ingest import ingest
from tests.media.ingested import marks


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
