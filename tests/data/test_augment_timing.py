"""Augmentation of time: out of sync, at another speed, with the sound moved; measured in what comes out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.config import AugmentConfig
from avfusion.config.checks import LEAST_RESYNC_MS
from avfusion.data.augment.draws import Draws
from avfusion.data.augment.timing import LEAST_SHIFT_FRAMES, Timing, draw_timing, out_of_sync
from avfusion.data.clips import Clip

Only = Callable[..., AugmentConfig]


def event_clip(frames: int, event_frame: int) -> Clip:
    """A track in which one frame is white, speaking starts there, and a click stands at the frame's instant."""
    crops = np.zeros((frames, 4, 4), np.uint8)
    crops[event_frame] = 200
    audio = np.zeros(640 * frames, np.float32)
    audio[640 * event_frame] = 1.0
    return Clip(crops, audio, np.arange(frames) >= event_frame)


def play(timing: Timing, track: Clip) -> Clip:
    first, count = timing.source(len(track.crops))
    part = slice(640 * first, 640 * (first + count))
    source = Clip(track.crops[first : first + count], track.audio[part], track.speaking[first : first + count])
    assert len(source.crops) == count  # nothing beyond the track is asked for
    return timing.played(source, first)


def picture_event_s(clip: Clip) -> float:
    """When the picture is white, in seconds; between frames where two show it."""
    level = clip.crops[:, 0, 0].astype(float)
    return float((level * np.arange(len(level))).sum() / level.sum() / 25)


def click_s(clip: Clip) -> float:
    return float(np.argmax(np.abs(clip.audio)) / 16_000)


def test_out_of_sync_turns_the_sound_by_whole_frames_and_far_enough() -> None:
    frames = 20
    sound = np.repeat(np.arange(frames, dtype=np.float32), 640)
    clip = Clip(np.zeros((frames, 16, 16), np.uint8), sound, np.ones(frames, bool))
    shifts = set()
    for seed in range(200):
        moved = out_of_sync(clip, np.random.default_rng(seed))
        heard = moved.audio[::640].astype(int)
        shift = (0 - heard[0]) % frames
        assert heard.tolist() == [(i - shift) % frames for i in range(frames)]
        assert not moved.speaking.any()
        shifts.add(shift)
    assert shifts == set(range(8, 13))  # at least 0.32 s later, and as much earlier
    assert clip.speaking.all()
    assert 40 * LEAST_SHIFT_FRAMES == LEAST_RESYNC_MS  # what the configuration is checked against


def test_a_clip_too_short_to_be_moved_stays() -> None:
    clip = Clip(np.zeros((15, 16, 16), np.uint8), np.zeros(15 * 640, np.float32), np.ones(15, bool))
    assert out_of_sync(clip, np.random.default_rng(0)) is clip


@pytest.mark.parametrize("percent", [80, 90, 93, 107, 110, 150])
def test_speed_moves_click_picture_and_label_together(percent: int) -> None:
    track = event_clip(100, 25)  # all at 1 s
    fast = play(Timing(0, 60, percent), track)
    expected_s = 100 / percent
    assert (len(fast.crops), len(fast.audio), len(fast.speaking)) == (60, 60 * 640, 60)
    assert click_s(fast) == pytest.approx(expected_s, abs=1 / 16_000)
    assert picture_event_s(fast) == pytest.approx(expected_s, abs=0.02)
    assert np.flatnonzero(fast.speaking)[0] / 25 == pytest.approx(expected_s, abs=0.021)


def test_a_tone_at_another_speed_sounds_as_a_tape_would() -> None:
    sound = np.sin(2 * np.pi * 400 * np.arange(100 * 640) / 16_000).astype(np.float32)
    track = Clip(np.zeros((100, 4, 4), np.uint8), sound, np.ones(100, bool))
    faster = play(Timing(10, 50, 110), track).audio
    assert np.argmax(np.abs(np.fft.rfft(faster))) * 16_000 / len(faster) == pytest.approx(440, abs=1)
    assert np.std(faster[640:-640]) == pytest.approx(np.sqrt(0.5), rel=0.01)


def test_pictures_are_blended_by_where_they_fall() -> None:
    crops = np.broadcast_to(10 * np.arange(20, dtype=np.uint8)[:, None, None], (20, 4, 4))
    track = Clip(crops, np.zeros(20 * 640, np.float32), np.arange(20) % 2 == 0)
    half = play(Timing(2, 8, 50), track)
    assert half.crops[:, 0, 0].tolist() == [20, 25, 30, 35, 40, 45, 50, 55]
    assert half.speaking.tolist() == [True, False, False, True, True, False, False, True]


def test_speed_at_the_end_of_a_track_begins_earlier_and_goes_no_faster_than_it_can(only: Only) -> None:
    percents = set()
    for seed in range(100):
        late = draw_timing(40, 60, 100, only(speed=0.2), Draws(seed), may_shift=True)
        first, count = late.source(100)
        assert first + count <= 100
        assert late.first_frame == min(40, 100 - int(np.ceil(60 * late.percent / 100)))
        percents.add(late.percent)
        whole = draw_timing(0, 60, 60, only(speed=0.2), Draws(seed), may_shift=True)
        assert whole.percent == min(late.percent, 100)
        assert whole.first_frame == 0
    assert min(percents) < 84
    assert max(percents) > 116
    assert 80 <= min(percents) <= max(percents) <= 120


def test_a_track_taken_whole_and_slowed_ends_before_its_own_end() -> None:
    assert picture_event_s(play(Timing(0, 30, 100), event_clip(30, 29))) == 29 / 25
    assert play(Timing(0, 30, 90), event_clip(30, 29)).crops.max() == 0  # frame 29 would come at 32.2
    slow = play(Timing(0, 30, 90), event_clip(30, 26))  # at 28.9
    assert click_s(slow) == pytest.approx(26 / 25 / 0.9, abs=1 / 16_000)
    assert slow.crops[28, 0, 0] == 40  # frame 28 shows 25.2: a fifth of the event ...
    assert slow.crops[29, 0, 0] == 180  # ... and 29 shows 26.1


def noisy_clip(frames: int) -> Clip:
    sound = np.random.default_rng(0).standard_normal(640 * frames).astype(np.float32)
    return Clip(np.zeros((frames, 4, 4), np.uint8), sound, np.arange(frames) >= frames // 2)


def found_shift(moved: NDArray[np.float32], plain: NDArray[np.float32]) -> int:
    """How much later a sound comes, by where its correlation with the other peaks."""
    size = 2 * len(plain)
    spectrum = np.fft.rfft(moved, size) * np.conj(np.fft.rfft(plain, size))
    lag = int(np.argmax(np.fft.irfft(spectrum, size)))
    return lag if lag < size // 2 else lag - size


def test_the_sound_is_moved_by_the_drawn_time_and_all_else_stays(only: Only) -> None:
    track, shifts = noisy_clip(120), []
    plain = play(Timing(30, 60), track)
    for seed in range(100):
        timing = draw_timing(30, 60, 120, only(audio_shift_ms=200), Draws(seed), may_shift=True)
        moved = play(timing, track)
        assert found_shift(moved.audio, plain.audio) == timing.shift_samples
        assert np.array_equal(moved.speaking, plain.speaking)
        # The gap is the track's own sound from beyond the stretch.
        first = 640 * 30 - timing.shift_samples
        assert np.array_equal(moved.audio, track.audio[first : first + 640 * 60])
        shifts.append(timing.shift_samples / 16)
    assert -200 <= min(shifts) < -180
    assert 180 < max(shifts) <= 200
    assert abs(np.mean(shifts)) < 35  # three standard errors


@pytest.mark.parametrize("shift", [3200, -3200, 641, -1])
def test_beyond_the_track_it_is_silent(shift: int) -> None:
    track = noisy_clip(20)
    moved = play(Timing(0, 20, 100, shift), track).audio
    kept = track.audio[max(-shift, 0) : len(track.audio) - max(shift, 0)]
    expected = np.concatenate([np.zeros(max(shift, 0)), kept, np.zeros(max(-shift, 0))])
    assert np.array_equal(moved, expected)


def test_speed_and_shift_together_keep_both() -> None:
    moved = play(Timing(0, 60, 110, 1600), event_clip(100, 25))
    assert click_s(moved) == pytest.approx(1 / 1.1 + 0.1, abs=1 / 16_000)
    assert picture_event_s(moved) == pytest.approx(1 / 1.1, abs=0.02)


def test_what_must_stay_in_sync_is_not_moved(only: Only) -> None:
    assert draw_timing(3, 20, 50, only(audio_shift_ms=200), Draws(0), may_shift=False) == Timing(3, 20)


def test_all_off_hands_the_stretch_on_as_it_is(only: Only) -> None:
    timing = draw_timing(3, 20, 50, only(), Draws(0), may_shift=True)
    assert timing == Timing(3, 20)
    assert timing.source(50) == (3, 20)
    clip = noisy_clip(20)
    assert timing.played(clip, 3) is clip
