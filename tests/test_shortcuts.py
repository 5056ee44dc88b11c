"""Scores without a model: measures by hand, and mouths made to follow, or not to follow, the sound."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.data.clips import Clip
from avfusion.shortcuts import (
    LAGS_S,
    SHORTCUTS,
    envelope_correlation,
    loudness_db,
    loudness_gate,
    mouth_energy,
    mouth_energy_loudness,
    mouth_opening,
    score_shortcuts,
    windowed_correlation,
)
from avfusion.tracks import FaceTrack

FRAMES = 150


def envelope_of(seed):
    """(FRAMES,) in 0..1, changing about as fast as speech."""
    rough = np.random.default_rng(seed).normal(size=FRAMES + 4)
    smooth = np.convolve(rough, np.ones(5) / 5, mode="valid")
    return (smooth - smooth.min()) / np.ptp(smooth)


def tone(amplitude):
    """A 250 Hz tone (ten periods a frame) of the given amplitude in each frame."""
    times_s = np.arange(640) / 16_000
    return np.outer(amplitude, np.sin(2 * np.pi * 250 * times_s)).astype(np.float32).reshape(-1)


def mouth_square(opening):
    """Grey faces with a black rectangle in the mouth region, as high as the mouth is open."""
    crops = np.full((len(opening), 100, 100), 160, np.uint8)
    for crop, rows in zip(crops, np.round(15 * opening).astype(int), strict=True):
        crop[62 : 62 + rows, 40:60] = 20
    return crops


def clip_of(crops, audio):
    return Clip(crops, audio, np.zeros(len(crops), bool))


def test_mouth_energy_by_hand():
    crops = np.full((3, 50, 50), 100, np.uint8)
    crops[1:, 30:44, 18:32] = 110  # exactly the region: x 0.36..0.64, y 0.60..0.88
    crops[2, :20] = 0  # the eyes do not count
    assert mouth_energy(crops).tolist() == [10.0, 5.0, 0.0]
    assert mouth_energy(crops[:1]).tolist() == [0.0]


def test_mouth_opening_by_hand():
    crops = np.full((2, 50, 50), 100, np.uint8)
    crops[1, 30:34, 18:32] = 40  # 4 of the region's 14 rows are 60 % darker than its median
    assert mouth_opening(crops) == pytest.approx([0.0, 4 / 14 * 0.6**2])


def test_loudness_by_hand():
    level_db = loudness_db(tone([1.0, 0.1, 0.0]))
    assert level_db == pytest.approx([-3.0103, -23.0103, -60.0], abs=1e-3)  # a sine's rms is 1 / sqrt 2
    # The clip's loud parts: quantile 0.9 lies 4/5 of the way from -23.01 to -3.01, at -7.01.
    assert loudness_gate(level_db) == pytest.approx([1.0, (25 - 16) / 13, 0.0], abs=1e-3)
    # Four frames of silence between loud ones are a dip, five are silence; at the ends of the clip there is no dip.
    assert loudness_gate(loudness_db(tone([1, 0, 0, 0, 0, 1]))).tolist() == [1.0] * 6
    assert loudness_gate(loudness_db(tone([0, 1, 0, 0, 0, 0, 0, 1, 0]))).tolist() == [0, 1, 0, 0, 0, 0, 0, 1, 0]
    assert loudness_gate(loudness_db(tone(np.zeros(4)))).tolist() == [0.0] * 4


def test_windowed_correlation_equals_pearson_of_each_window():
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=40) + 1e4, generator.normal(size=40)
    found = windowed_correlation(first, second, np.array([-2, 0, 3]), half_window=6)
    for row, lag in enumerate((-2, 0, 3)):
        for t in (0, 3, 20, 38):
            frames = [i for i in range(max(t - 6, 0), min(t + 7, 40)) if 0 <= i + lag < 40]
            expected = np.corrcoef(first[frames], second[[i + lag for i in frames]])[0, 1]
            assert found[row, t] == pytest.approx(expected, abs=1e-6)


def test_a_signal_that_stands_still_is_uncorrelated():
    second = np.random.default_rng(0).normal(size=30)
    assert windowed_correlation(np.full(30, 0.1), second, np.zeros(1, np.int64), 5).tolist() == [[0.0] * 30]


@pytest.mark.parametrize("lag_frames", [-1, 0, 3, 5])
def test_a_mouth_that_follows_the_sound_is_found_at_any_natural_lag(lag_frames):
    opening = envelope_of(0)
    crops, heard = mouth_square(opening), np.roll(0.15 + 0.35 * opening, lag_frames)
    score = envelope_correlation(clip_of(crops, tone(heard)))
    away_from_the_seam = score[10:-10]
    assert away_from_the_seam.min() > 0.95
    assert round(LAGS_S[0] * 25) <= lag_frames <= round(LAGS_S[1] * 25)


def test_a_mouth_that_follows_another_sound_is_not():
    scores = [
        envelope_correlation(clip_of(mouth_square(envelope_of(n)), tone(0.05 + 0.4 * envelope_of(n + 100)))).mean()
        for n in range(12)
    ]
    assert abs(np.mean(scores)) < 0.2  # chance picks the best of seven lags
    assert max(scores) < 0.5


def test_sound_far_too_late_is_not():
    opening = envelope_of(3)
    late = envelope_correlation(clip_of(mouth_square(opening), tone(np.roll(0.05 + 0.4 * opening, 15))))
    assert late.mean() < 0.3


def test_motion_that_goes_with_loudness_is_found():
    loud, other = envelope_of(1), envelope_of(2)
    sound = tone(10 ** ((30 * loud - 35) / 20))
    flicker = np.where(np.arange(FRAMES) % 2, 1, -1)

    def face(strength):
        return np.broadcast_to((128 + 30 * flicker * strength).astype(np.uint8)[:, None, None], (FRAMES, 30, 30))

    together = mouth_energy_loudness(clip_of(face(loud), sound))
    apart = mouth_energy_loudness(clip_of(face(other), sound))
    assert np.median(together) > 0.8
    assert abs(np.median(apart)) < 0.35


@pytest.mark.parametrize("shortcut", [mouth_energy_loudness, envelope_correlation])
def test_silent_frames_score_lowest(shortcut):
    opening = envelope_of(4)
    amplitude = 0.1 + 0.4 * opening
    amplitude[60:90] = 0.0
    score = shortcut(clip_of(mouth_square(opening), tone(amplitude)))
    assert (score[60:90] == -1).all()
    assert score[np.r_[0:60, 90:FRAMES]].min() > -1


def test_every_track_is_read_once_and_scored_with_every_shortcut():
    clips = [clip_of(mouth_square(envelope_of(n)), tone(envelope_of(n + 5))) for n in range(2)]

    class Two:
        name, reads = "two", []
        tracks = [  # noqa: RUF012
            FaceTrack(str(n), str(n), 0.0, np.zeros(FRAMES, bool), np.zeros((FRAMES, 4), np.float32), str(n))
            for n in range(2)
        ]

        def read(self, index, first_frame=0, num_frames=None):
            self.reads.append(index)
            return clips[index]

    dataset = Two()
    scores = score_shortcuts(dataset)
    assert dataset.reads == [0, 1]
    assert set(scores) == set(SHORTCUTS)
    for name, shortcut in SHORTCUTS.items():
        for found, clip in zip(scores[name], clips, strict=True):
            assert found.tolist() == shortcut(clip).tolist()
            assert np.isfinite(found).all()
