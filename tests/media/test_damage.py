"""Facts about damaged films: what is destroyed is noticed, wherever it lies, and what was met is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.media.damage import ReadReport
from avfusion.media.decode import iterate_retimed, iterate_sound, read_retimed, read_sound

AAC = {"codec": "aac", "format": "fltp"}


def textured(count: int) -> list[NDArray[np.uint8]]:
    """Pictures that cost bytes, so that their packets can be hit behind the headers."""
    noise = np.random.default_rng(0).normal(120, 40, (count, 64, 160, 1)).clip(0, 255).astype(np.uint8)
    return list(noise.repeat(3, axis=3))


def remuxed(source: Path, target: Path, change: Callable[[str, int, Any], bool]) -> Path:
    """Copies a film packet by packet; ``change(kind, number, packet)`` may alter one, and says whether to keep it."""
    counts = {"video": 0, "audio": 0}
    with av.open(str(source)) as film, av.open(str(target), "w") as copy:
        streams = {s.index: copy.add_stream_from_template(s) for s in film.streams}
        for packet in film.demux():
            kind = packet.stream.type
            if packet.dts is not None and change(kind, counts[kind], packet):
                packet.stream = streams[packet.stream.index]
                copy.mux(packet)
            counts[kind] += 1
    return target


def spoil(path: Path, kind: str, numbers: range, keep: int = 12, noise: bool = True) -> Path:
    """Overwrites all but the first bytes of some packets of a stream, counted in the order of the file."""
    rng = np.random.default_rng(0)

    def change(found: str, number: int, packet: Any) -> bool:
        if found == kind and number in numbers and packet.size > keep:
            left = packet.size - keep
            packet.update(bytes(packet)[:keep] + (rng.bytes(left) if noise else bytes(left)))
        return True

    return remuxed(path, path.with_name(f"spoiled{path.suffix}"), change)


@pytest.mark.parametrize("threads", [1, 4])
def test_every_picture_that_the_decoder_had_to_paint_over_counts(tmp_path: Path, film: Any, threads: int) -> None:
    film.write(tmp_path / "x.mp4", pictures=textured(125), duration_s=5.0, options={"bf": "0", "g": "25"}, tracks=[])
    spoiled = spoil(tmp_path / "x.mp4", "video", range(40, 90))
    with pytest.raises(AvfusionError, match=r"spoiled\.mp4 is damaged .*the picture at 1\.60 s .*data are corrupt"):
        list(iterate_retimed(spoiled, threads=threads))
    report = ReadReport()
    assert len(list(iterate_retimed(spoiled, salvage=True, threads=threads, report=report))) == 125
    assert report.num_damaged == 50
    assert report.notes == ["50 packets could not be decoded, the first: the picture at 1.60 s: its data are corrupt"]


@pytest.mark.parametrize(
    ("name", "codec", "keep"),
    [("x.mp4", "libx264", 40), ("x.mkv", "libx264", 12), ("x.mp4", "libx265", 12)],
)
@pytest.mark.parametrize("noise", [True, False])
def test_damage_in_the_middle_is_noticed_in_codecs_that_go_on_over_it(
    tmp_path: Path, film: Any, name: str, codec: str, keep: int, noise: bool
) -> None:
    options = {"g": "25", "x265-params": "log-level=none"} if codec == "libx265" else {"g": "25"}
    film.write(tmp_path / name, video_codec=codec, options=options, pictures=textured(100), tracks=[])
    assert len(read_retimed(tmp_path / name).frames) == 100
    with pytest.raises(AvfusionError, match=r"spoiled\.\w+ is damaged or cut short: the picture at"):
        read_retimed(spoil(tmp_path / name, "video", range(20, 30), keep, noise))


@pytest.mark.parametrize("name", ["x.mp4", "x.mkv"])
def test_damage_at_the_start_is_damage(tmp_path: Path, film: Any, name: str) -> None:
    film.write(tmp_path / name, pictures=textured(125), duration_s=5.0, options={"g": "25"}, tracks=[AAC])
    spoiled = spoil(tmp_path / name, "video", range(75), keep=0, noise=False)
    with pytest.raises(AvfusionError, match=r"is damaged or cut short: the picture at 0\.\d\d s"):
        list(iterate_retimed(spoiled))
    spoiled = spoil(tmp_path / name, "audio", range(140), keep=0)
    with pytest.raises(AvfusionError, match=r"is damaged or cut short: the sound at -?0\.\d\d s"):
        read_sound(spoiled)
    report = ReadReport()
    list(iterate_sound(spoiled, salvage=True, report=report))
    assert report.num_damaged > 130


@pytest.mark.parametrize(("ending", "may_lose"), [("ts", True), ("mkv", False)])
def test_a_stream_cut_between_key_frames(tmp_path: Path, film: Any, ending: str, may_lose: bool) -> None:
    """Without its key frame a picture just does not come: a broadcast may lose up to a second so, and it is told."""
    source = film.write(tmp_path / f"x.{ending}", options={"g": "50", "bf": "0", "sc_threshold": "0"}, tracks=[AAC])
    short, long = (
        remuxed(source, tmp_path / f"{first}.{ending}", lambda kind, n, _, first=first: kind == "audio" or n >= first)
        for first in (30, 12)
    )
    with pytest.raises(AvfusionError, match=r"is damaged .*the first 1\.\d\d s of the picture .*nothing came of their"):
        list(iterate_retimed(long))
    if not may_lose:
        with pytest.raises(AvfusionError, match=r"is damaged .*the first 0\.\d\d s of the picture"):
            list(iterate_retimed(short))
        return
    report = ReadReport()
    numbers = film.numbers(np.stack([frame for _, frame in iterate_retimed(short, report=report)]))
    assert list(dict.fromkeys(numbers)) == list(range(50, 100))
    assert numbers[:51] == [50] * 51  # where it stood, a frame later at most: the sound's coder begins with silence
    assert report.notes[0].startswith("the first 0.8")
    assert report.notes[0].endswith("of the picture could not be decoded: the file begins in mid-stream")
    assert report.notes[1].startswith("the picture starts 2.0")


def test_sound_of_a_broadcast_that_is_destroyed_as_a_whole_is_no_silence(tmp_path: Path, film: Any) -> None:
    source = film.write(tmp_path / "x.ts", tracks=[{"codec": "mp2"}], duration_s=0.8)
    spoiled = spoil(source, "audio", range(1000), keep=0, noise=False)
    with pytest.raises(AvfusionError, match=r"spoiled\.ts is damaged or cut short: the whole sound cannot be decoded"):
        read_sound(spoiled)


def test_pictures_that_are_missing_in_the_middle_are_told(tmp_path: Path, film: Any) -> None:
    """As where whole blocks of the file are destroyed: nothing is left that could not be decoded."""
    source = film.write(tmp_path / "x.mkv", options={"g": "10", "bf": "0", "sc_threshold": "0"}, tracks=[])
    cut = remuxed(source, tmp_path / "cut.mkv", lambda _, n, packet: not 20 <= n < 60)
    report = ReadReport()
    assert len(list(iterate_retimed(cut, report=report))) == 100
    assert len(report.notes) == 1
    assert report.notes[0].startswith("the picture stands still for 1.6")
    assert " s from 0.7" in report.notes[0]
    whole = ReadReport()
    list(iterate_retimed(source, report=whole))
    assert whole.notes == []


def test_what_was_met_is_told_also_by_a_reading_that_is_ended_early(tmp_path: Path, film: Any) -> None:
    track = {"codec": "pcm_s16le", "parts": [(0.0, 1.5), (2.5, 4.0)]}
    film.write(tmp_path / "x.mkv", times_s=[0.6 + n / 25 for n in range(85)], tracks=[track], rate=1000)
    pictures, sound = ReadReport(), ReadReport()
    reading = iterate_retimed(tmp_path / "x.mkv", report=pictures)
    next(reading)
    assert pictures.notes == []
    reading.close()  # type: ignore[attr-defined]
    assert pictures.notes == ["the picture starts 0.60 s after the sound; its first one is shown before"]
    list(iterate_sound(tmp_path / "x.mkv", report=sound))
    assert sound.notes == ["1 gaps in the sound, 1.00 s, were filled with silence"]
