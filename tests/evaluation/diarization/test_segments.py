"""Scores to stretches of speech, worked by hand: thresholds, averaging, gaps, and the order of filling and dropping."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from avfusion.config import ConfigError, load_config
from avfusion.errors import UsageError
from avfusion.evaluation.diarization.segments import (
    EXACT,
    Segment,
    Segmentation,
    frame_step_s,
    merge_segments,
    segments_of,
)

PLAIN = Segmentation(smooth_s=0.0, onset=0.5, offset=0.4, min_speech_s=0.0, min_pause_s=0.0)


def spans(scores: list[float], rules: Segmentation, times_s: np.ndarray | None = None) -> list[tuple[float, float]]:
    times_s = np.arange(len(scores)) / 25 if times_s is None else times_s
    return [(s.start_s, s.end_s) for s in segments_of(times_s, np.array(scores), rules)]


def test_hysteresis_starts_at_the_onset_and_ends_below_the_offset() -> None:
    #  frame  0    1    2    3     4    5     6    7    8    9
    scores = [0.4, 0.5, 0.4, 0.45, 0.4, 0.39, 0.4, 0.4, 0.6, 0.4]
    # Frame 0 is below the onset. 1 reaches it; 2 to 4 are not below the offset; 5 is. 6 and 7 do not reach the onset.
    # 8 does, and the last frame lasts its 40 ms.
    assert spans(scores, PLAIN) == [(0.04, 0.2), (0.32, 0.4)]


def test_the_mean_score_is_that_of_the_frames_as_scored_filled_pauses_included() -> None:
    scores = np.array([0.9, 0.1, 0.8, 0.0])
    rules = replace(PLAIN, min_pause_s=0.08)
    (segment,) = segments_of(np.arange(4) / 25, scores, rules)
    assert segment == Segment(0.0, 0.12, pytest.approx((0.9 + 0.1 + 0.8) / 3))


def test_the_average_is_centred_and_uses_what_frames_there_are() -> None:
    scores = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.9]
    # 0.12 s: three frames. Averages 0, 0, 1/3, 2/3, 2/3, 1/3, 0, 0.3, and at the end (0 + 0.9) / 2.
    assert spans(scores, replace(PLAIN, smooth_s=0.12)) == [(0.12, 0.2)]
    assert spans(scores, replace(PLAIN, smooth_s=0.12, onset=0.45)) == [(0.12, 0.2), (0.32, 0.36)]
    # 0.16 s is four frames, of which three are centred; 0.2 s is five: 0, 0.2, 0.4, 0.4, 0.4, 0.4, 0.38, ...
    assert spans(scores, replace(PLAIN, smooth_s=0.16)) == [(0.12, 0.2)]
    assert spans(scores, replace(PLAIN, smooth_s=0.2, onset=0.4)) == [(0.08, 0.24)]


@pytest.mark.parametrize("level", [0.1, 0.3, 0.4, 0.55, 0.7])
def test_a_constant_score_reaches_a_threshold_of_its_own_value(level: float) -> None:
    rules = Segmentation(smooth_s=0.28, onset=level, offset=level, min_speech_s=0.0, min_pause_s=0.0)
    assert spans([level] * 50, rules) == [(0.0, 2.0)]


def test_nothing_is_averaged_filled_or_continued_across_a_gap() -> None:
    times_s = np.array([0.0, 0.04, 0.08, 0.2, 0.24, 0.28])  # 0.12 and 0.16 are not there
    rules = replace(PLAIN, smooth_s=0.12, min_pause_s=1.0)
    # Each part on its own: 1, 1, 1 and then 0.45, 0.3, 0. Across the gap 0.9 after 1 would average 0.63.
    assert spans([1.0, 1.0, 1.0, 0.9, 0.0, 0.0], rules, times_s) == [(0.0, 0.12)]
    assert spans([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], rules, times_s) == [(0.0, 0.12), (0.2, 0.32)]


def test_pauses_are_filled_before_short_stretches_are_dropped() -> None:
    # Speech 0.12 s, pause 0.08 s, speech 0.12 s, pause 0.2 s, speech 0.12 s.
    scores = [1.0] * 3 + [0.0] * 2 + [1.0] * 3 + [0.0] * 5 + [1.0] * 3
    rules = replace(PLAIN, min_speech_s=0.2, min_pause_s=0.1)
    # Filled first, the first two are 0.32 s long. Dropped first, nothing would be left.
    assert spans(scores, rules) == [(0.0, 0.32)]


def test_shorter_means_shorter() -> None:
    scores = [1.0] * 5 + [0.0] * 5 + [1.0] * 5
    assert spans(scores, replace(PLAIN, min_pause_s=0.2)) == [(0.0, 0.2), (0.4, 0.6)]
    assert spans(scores, replace(PLAIN, min_pause_s=0.21)) == [(0.0, 0.6)]
    assert len(spans(scores, replace(PLAIN, min_speech_s=0.2))) == 2
    assert spans(scores, replace(PLAIN, min_speech_s=0.21)) == []


@pytest.mark.parametrize("per_second", [5, 12.5, 24, 25, 29.97, 30, 50, 60])
def test_any_constant_rate_is_whole_and_lasts_as_long_as_its_frames(per_second: float) -> None:
    frames = 90
    stamps = np.round(900 + np.arange(frames) / per_second, 2)  # to 10 ms, as AVA's are
    ((start_s, end_s),) = spans([1.0] * frames, EXACT, stamps)
    assert start_s == 900
    assert end_s == pytest.approx(900 + frames / per_second, abs=0.006)


def test_one_missing_frame_is_a_gap_at_any_rate() -> None:
    for per_second in (5, 24, 25, 30, 50):
        stamps = np.delete(np.round(np.arange(60) / per_second, 2), 30)
        assert len(spans([1.0] * 59, EXACT, stamps)) == 2, per_second


def test_the_step_comes_from_all_tracks_of_a_video() -> None:
    track, rare = np.arange(50) / 25, np.array([3.0, 13.0])
    assert frame_step_s([track, rare]) == pytest.approx(0.04)
    found = segments_of(rare, np.ones(2), EXACT, frame_step_s([track, rare]))
    assert [(s.start_s, s.end_s) for s in found] == [(3.0, 3.04), (13.0, 13.04)]
    assert frame_step_s([np.array([1.0])]) == 0.04
    assert segments_of(np.empty(0), np.empty(0), EXACT) == []


def test_moving_the_stamps_moves_the_stretches() -> None:
    scores = np.random.default_rng(4).random(400)
    rules = Segmentation(smooth_s=0.2, onset=0.55, offset=0.45, min_speech_s=0.1, min_pause_s=0.1)
    near, far = (segments_of(start + np.arange(400) / 25, scores, rules) for start in (0, 1000))
    assert len(near) > 3
    for a, b in zip(near, far, strict=True):
        assert (b.start_s - 1000, b.end_s - 1000, b.mean_score) == pytest.approx((a.start_s, a.end_s, a.mean_score))


def test_tracks_of_one_person_are_joined_where_they_overlap_or_touch() -> None:
    # 0..2 at 0.9 and 1..3 at 0.6 overlap, 3..4 at 0.3 touches: (2 * 0.9 + 2 * 0.6 + 0.3) / 5. 4.01 is apart.
    parts = [Segment(3.0, 4.0, 0.3), Segment(1.0, 3.0, 0.6), Segment(4.01, 5.0, 0.5), Segment(0.0, 2.0, 0.9)]
    assert merge_segments(parts) == [Segment(0.0, 4.0, pytest.approx(0.66)), Segment(4.01, 5.0, pytest.approx(0.5))]
    inside = [Segment(0.0, 5.0, 0.5), Segment(1.0, 2.0, 0.5), Segment(4.0, 6.0, 0.5)]
    assert merge_segments(inside) == [Segment(0.0, 6.0, pytest.approx(0.5))]


def test_rules_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^offset: expected at most onset 0\.5, found 0\.6; lower it$"):
        replace(PLAIN, offset=0.6)
    with pytest.raises(UsageError, match=r"^min_pause_s: expected seconds from 0, found -1$"):
        replace(PLAIN, min_pause_s=-1.0)
    with pytest.raises(ConfigError, match=r"diarization\.offset: expected at most diarization\.onset 0\.5, found 0\.6"):
        load_config(None, ["--diarization.offset=0.6"])
    assert load_config(None, ["--diarization.offset=0.5"]).diarization.offset == 0.5


def test_scores_that_are_no_track_are_refused() -> None:
    with pytest.raises(ValueError, match="rising stamps"):
        spans([1.0, 1.0], PLAIN, np.array([0.04, 0.04]))
    with pytest.raises(ValueError, match="finite scores"):
        spans([1.0, np.nan], PLAIN)
    with pytest.raises(ValueError, match=r"stamps \(3,\) and scores \(2,\)"):
        spans([1.0, 1.0], PLAIN, np.arange(3) / 25)
