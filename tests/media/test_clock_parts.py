"""Facts about the parts of the clock: where time 0 is, which item an instant shows, where samples land."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.errors import AvfusionError, UsageError
from avfusion.media.container import check_file
from avfusion.media.retime import Retimer
from avfusion.media.sound_clock import SoundClock, mono_of
from avfusion.media.source import probe, timeline_origin


def seconds(value: float) -> Fraction:
    return Fraction(value).limit_denominator(1000)


@pytest.mark.parametrize(
    ("picture_s", "sounds_s", "expected_s"),
    [
        (0.0, [], 0.0),
        (1.4, [(1.38, 0.0)], 1.4),  # less than a frame before: the picture is time 0
        (1.4, [(1.36, 0.0)], 1.36),  # a whole frame before
        (0.08, [(0.016, 0.064)], 0.08),  # the silence that an encoder puts in front is no sound
        (0.5, [(0.0, 0.064)], 0.0),
        (0.0, [(0.5, 0.0)], 0.0),  # sound that starts later moves nothing
        (1.0, [(1.0, 0.0), (0.2, 0.0)], 0.2),  # the earliest of all tracks counts, whichever is read
        (None, [(0.7, 0.0)], 0.7),
        (None, [], 0.0),
    ],
)
def test_time_zero(picture_s: float | None, sounds_s: list[tuple[float, float]], expected_s: float) -> None:
    starts = [(seconds(start), seconds(priming)) for start, priming in sounds_s]
    picture = None if picture_s is None else seconds(picture_s)
    assert timeline_origin(picture, starts) == seconds(expected_s)


@pytest.mark.parametrize(
    ("name", "codec"), [("x.mp4", "aac"), ("x.mkv", "aac"), ("x.mkv", "ac3"), ("x.mkv", "libmp3lame")]
)
def test_silence_that_the_file_takes_away_itself_is_not_taken_away_again(
    tmp_path: Path, film: Any, name: str, codec: str
) -> None:
    track = {"codec": codec, "format": "s16p" if codec == "libmp3lame" else "fltp"}
    found = {}
    for at_s in (0.0, 0.03, 0.05, 0.06, 0.1):
        times_s = [at_s + n / 25 for n in range(10)]
        film.write(tmp_path / name, times_s=times_s, rate=1000, tracks=[track], duration_s=0.5)
        facts = probe(tmp_path / name)
        assert facts.picture_starts_s is not None
        found[at_s] = round(facts.picture_starts_s, 3)
    assert found == {0.0: 0.0, 0.03: 0.0, 0.05: 0.05, 0.06: 0.06, 0.1: 0.1}


def test_the_frame_in_which_sound_starts_is_right_at_every_frame_edge() -> None:
    """0.28 * 25 is less than 7."""
    for frame in range(2000):
        clock = SoundClock()
        clock.starts_s = frame / 25
        assert clock.starts_frame == frame
        clock.starts_s = frame / 25 + 0.03
        assert clock.starts_frame == frame
    clock.starts_s = -0.1
    assert clock.starts_frame == 0


def retime(times_s: list[float], last_duration_s: float = 0.0) -> list[int]:
    retimer: Retimer[int] = Retimer()
    out = [item for number, time_s in enumerate(times_s) for item in retimer.push(time_s, number)]
    out += retimer.finish(last_duration_s)
    assert retimer.emitted == len(out)
    return out


def test_25_a_second_passes_through() -> None:
    assert retime([n / 25 for n in range(7)]) == list(range(7))


def test_every_instant_shows_the_nearest_item_where_items_come_fast() -> None:
    rng = np.random.default_rng(0)
    times_s = np.cumsum(rng.uniform(0.005, 0.04, 200)) - 0.005
    shown = retime(times_s.tolist())
    nearest = [int(np.abs(times_s - n / 25).argmin()) for n in range(len(shown) - 1)]
    assert shown[:-1] == nearest


def test_no_item_is_shown_more_than_half_a_frame_before_its_time_however_long_the_one_before_stood() -> None:
    rng = np.random.default_rng(1)
    times_s = np.append(0.0, np.cumsum(rng.uniform(0.005, 0.9, 200)))
    shown = retime(times_s.tolist())
    early_s = times_s[shown] - np.arange(len(shown)) / 25
    assert early_s[1:].max() <= 0.02 + 1e-9
    next_s = np.append(times_s, np.inf)[np.array(shown) + 1]
    assert (np.arange(len(shown) - 1) / 25 <= next_s[:-1]).all()  # and none stays past the next one's


def test_a_long_hold_is_told() -> None:
    retimer: Retimer[int] = Retimer()
    shown = [item for number, time_s in enumerate([0.0, 0.04, 3.0, 3.04]) for item in retimer.push(time_s, number)]
    assert shown == [0] + [1] * 74 + [2]
    assert (round(retimer.longest_hold_s, 6), retimer.held_at_s) == (2.96, 0.04)


def test_a_late_first_item_is_shown_from_the_start_and_a_last_one_as_long_as_told() -> None:
    assert retime([0.2, 0.24]) == [0, 0, 0, 0, 0, 0, 1]
    assert retime([0.0, 0.04], last_duration_s=0.2) == [0, 1, 1, 1, 1, 1]
    assert retime([0.0, 0.08]) == [0, 0, 1, 1]
    assert retime([0.0]) == [0]
    assert retime([0.0], last_duration_s=0.12) == [0, 0, 0]
    assert retime([]) == []


def test_items_that_are_not_later_are_left_out_and_counted() -> None:
    retimer: Retimer[int] = Retimer()
    out = [item for number, time_s in enumerate([0.0, 0.04, 0.04, 0.02, 0.08]) for item in retimer.push(time_s, number)]
    out += retimer.finish()
    assert out == [0, 1, 4]
    assert retimer.backward == 2


def place(blocks: list[tuple[float | None, NDArray[Any]]], rate_hz: int = 16_000) -> tuple[NDArray[Any], SoundClock]:
    clock = SoundClock()
    out = []
    for time_s, samples in blocks:
        out += clock.push(time_s, np.atleast_2d(samples).astype(np.float32), ["FC"], rate_hz)
    out += clock.finish()
    audio = np.concatenate(out) if out else np.zeros(0)
    assert clock.position == len(audio)
    return audio, clock


def test_blocks_land_where_their_stamps_say() -> None:
    ones, twos = np.full(1600, 0.1), np.full(1600, 0.2)
    audio, clock = place([(0.5, ones), (0.6, twos), (None, ones), (1.0, twos)])
    expected = np.zeros(17_600)
    expected[8000:9600] = expected[11_200:12_800] = 0.1
    expected[9600:11_200] = expected[16_000:17_600] = 0.2
    np.testing.assert_allclose(audio, expected, atol=1e-6)
    assert clock.starts_s == 0.5
    assert clock.gaps_s == [(pytest.approx(0.8), 1.0)]


def test_stamps_rounded_to_a_millisecond_change_nothing() -> None:
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, 160 * 1000)
    blocks = [(round(start / 16_000, 3), samples[start : start + 1024]) for start in range(0, len(samples), 1024)]
    audio, clock = place(blocks)
    np.testing.assert_allclose(audio, samples.astype(np.float32))
    assert (clock.num_gaps, clock.num_overlaps) == (0, 0)


def test_sound_before_time_zero_is_cut_across_blocks() -> None:
    samples = np.linspace(-0.5, 0.5, 4800)
    audio, clock = place([(-0.15, samples[:1600]), (-0.05, samples[1600:3200]), (0.05, samples[3200:])])
    np.testing.assert_allclose(audio, samples[2400:], atol=1e-6)
    assert clock.starts_s == -0.15


def test_a_clock_that_drifts_stays_within_half_a_frame() -> None:
    """Stamps say that the sound runs 1 % faster than its samples: clicks every second, each below 20 ms."""
    audio, clock = place([(1.01 * n / 10, np.full(1600, 0.1)) for n in range(600)])
    assert abs(len(audio) / 16_000 - 60.6) < 0.03
    assert 20 < clock.num_gaps < 40
    assert max(end - start for start, end in clock.gaps_s) < 0.025


@pytest.mark.parametrize("rate_hz", [8000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_every_rate_lands_on_the_same_sample_and_has_the_right_length(rate_hz: int) -> None:
    samples = np.zeros(2 * rate_hz)
    samples[rate_hz] = 0.5
    audio, _ = place([(0.0, samples[:rate_hz]), (1.0, samples[rate_hz:])], rate_hz)
    assert abs(len(audio) - 32_000) <= 1
    assert int(np.abs(audio).argmax()) == 16_000


def test_a_rate_that_changes_halfway_starts_a_new_stretch() -> None:
    clock = SoundClock()
    out = list(clock.push(0.0, np.full((1, 8000), 0.1, np.float32), ["FC"], 8000))
    out += clock.push(1.0, np.full((1, 48_000), 0.2, np.float32), ["FC"], 48_000)
    out += clock.finish()
    audio = np.concatenate(out)
    assert abs(len(audio) - 32_000) <= 1
    np.testing.assert_allclose(audio[100:15_900], 0.1, atol=2e-3)
    np.testing.assert_allclose(audio[16_100:31_900], 0.2, atol=2e-3)


def test_a_gap_of_hours_comes_in_blocks_of_a_second() -> None:
    clock = SoundClock()
    list(clock.push(0.0, np.zeros((1, 1600), np.float32), ["FC"], 16_000))
    sizes = [len(block) for block in clock.push(7200.0, np.zeros((1, 1600), np.float32), ["FC"], 16_000)]
    assert max(sizes) == 16_000
    assert sum(sizes) == 7200 * 16_000


def test_channels_are_mixed_by_their_places() -> None:
    surround = np.eye(6, dtype=np.float32)
    names = ["FL", "FR", "FC", "LFE", "BL", "BR"]
    np.testing.assert_allclose(mono_of(surround, names), [0.5, 0.5, 0.7071, 0.0, 0.3536, 0.3536])
    np.testing.assert_allclose(mono_of(surround[:2], ["FL", "FR"]), [0.5, 0.5, 0, 0, 0, 0])
    np.testing.assert_allclose(mono_of(surround, ["NONE"] * 6), [1 / 6] * 6, atol=1e-6)
    np.testing.assert_array_equal(mono_of(surround[:1], ["FC"]), surround[0])


def test_what_is_no_file_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "link.mp4").symlink_to("nowhere.mp4")
    told = {
        "absent.mp4": "no video file at",
        "empty.mp4": "is empty",
        "link.mp4": "is a link to nowhere.mp4",
        "": "folder",
    }
    for name, words in told.items():
        with pytest.raises(AvfusionError, match=words):
            check_file(tmp_path / name)


def test_facts_of_a_film(tmp_path: Path, film: Any) -> None:
    tracks = [{"language": "eng", "layout": "stereo"}, {"codec": "aac", "format": "fltp", "rate_hz": 44_100}]
    film.write(tmp_path / "x.mkv", tracks=tracks, duration_s=2.0)
    facts = probe(tmp_path / "x.mkv")
    assert (facts.width, facts.height, facts.frame_rate, facts.rotation_degrees) == (160, 64, 25.0, 0)
    assert (facts.video_codec, facts.pixel_format, facts.interlaced) == ("h264", "yuv420p", False)
    assert facts.duration_s == pytest.approx(2.0, abs=0.05)
    first, second = facts.audio_tracks
    assert (first.codec, first.channels, first.layout, first.rate_hz, first.language) == (
        "flac", 2, "stereo", 48_000, "eng",
    )  # fmt: skip
    assert (second.codec, second.channels, second.rate_hz, second.language) == ("aac", 1, 44_100, "")
    assert facts.audio_track == 0
    with pytest.raises(UsageError, match="no audio track 2"):
        probe(tmp_path / "x.mkv", 2)
