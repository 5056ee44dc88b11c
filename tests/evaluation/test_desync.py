"""Offsets planted in similarity matrices are found, with their sign, and padded edges do not fake synchrony."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.evaluation.desync import (
    false_accept_rate,
    offset_accuracy,
    offset_from_similarity,
    threshold_at_miss_rate,
)


def similarity_of(video, audio):
    unit = [frames / np.linalg.norm(frames, axis=1, keepdims=True) for frames in (video, audio)]
    return unit[0] @ unit[1].T


def shifted_later(frames, offset):
    """The sound of frame i at frame i + offset; silence comes in where nothing is left."""
    moved = np.random.default_rng(99).normal(size=frames.shape)
    for i, frame in enumerate(frames):
        if 0 <= i + offset < len(frames):
            moved[i + offset] = frame
    return moved


@pytest.mark.parametrize("planted", [-12, -7, -1, 0, 1, 5, 12])
@pytest.mark.parametrize("num_frames", [25, 50])
def test_planted_offsets_are_found_with_their_sign(planted, num_frames):
    generator = np.random.default_rng(planted + 100)
    video = generator.normal(size=(num_frames, 32))
    audio = shifted_later(video, planted) + 0.5 * generator.normal(size=video.shape)
    assert offset_from_similarity(similarity_of(video, audio)) == planted


def test_mean_of_a_diagonal_by_hand():
    # Ones on the diagonal +2 and a single, higher 3 on diagonal -1: means 1 and 3 / (number of pairs, > 3).
    similarity = np.diag(np.ones(28), 2)
    similarity[11, 10] = 3.0
    assert offset_from_similarity(similarity) == 2


def test_padded_edges_do_not_fake_synchrony():
    # Sound 5 frames late, seen weakly (0.3); both networks pad 3 frames at each end, and padding matches padding (2).
    num_frames, planted = 30, 5
    similarity = np.diag(np.full(num_frames - planted, 0.3), planted)
    padded = np.r_[0:3, num_frames - 3 : num_frames]
    similarity[np.ix_(padded, padded)] = np.where(np.eye(6, dtype=bool), 2.0, similarity[np.ix_(padded, padded)])
    assert offset_from_similarity(similarity, edge=0) == 0  # the trap: 6 * 2 / 30 = 0.4 beats 0.3
    assert offset_from_similarity(similarity, edge=3) == planted


def test_a_matrix_without_information_is_not_synchronous():
    assert offset_from_similarity(np.ones((40, 40))) == -12


def test_too_short_windows_are_refused():
    # 2 * 3 edge frames + offset 12 + 5 pairs = 23 frames
    assert offset_from_similarity(np.diag(np.ones(23))) == 0
    with pytest.raises(ValueError, match=r"22 frames leave 4 pairs at offset 12.*take 23 frames or more"):
        offset_from_similarity(np.diag(np.ones(22)))
    assert offset_from_similarity(np.diag(np.ones(22)), max_offset=11) == 0


def test_wrong_matrices_are_refused():
    with pytest.raises(ValueError, match=r"expected \(T, T\)"):
        offset_from_similarity(np.zeros((30, 31)))
    with pytest.raises(ValueError, match="NaN or infinite"):
        offset_from_similarity(np.full((30, 30), np.nan))
    with pytest.raises(ValueError, match="expected 0 or more"):
        offset_from_similarity(np.zeros((30, 30)), edge=-1)


def test_offset_accuracy_by_hand():
    # Differences 0, 1, -1, 2, -12: three of five within one frame, one of five exact, four within two.
    found, planted = [0, 6, -4, 3, -12], [0, 5, -3, 1, 0]
    assert offset_accuracy(found, planted) == pytest.approx(3 / 5)
    assert offset_accuracy(found, planted, tolerance=0) == pytest.approx(1 / 5)
    assert offset_accuracy(found, planted, tolerance=2) == pytest.approx(4 / 5)


def test_offset_accuracy_needs_pairs():
    with pytest.raises(ValueError, match="expected equally many"):
        offset_accuracy([1], [1, 2])
    with pytest.raises(ValueError, match="at least one"):
        offset_accuracy([], [])


def test_threshold_and_false_accepts_by_hand():
    # Speaking scores 0.01 .. 0.20: one of twenty is 5 %, so 0.02 is the threshold and only 0.01 is missed.
    threshold = threshold_at_miss_rate(np.arange(1, 21) / 100)
    assert threshold == 0.02
    # Scores at the threshold are accepted: 0.02 and 0.5 of four.
    assert false_accept_rate(np.array([0.01, 0.02, 0.5, 0.0]), threshold) == 0.5


def test_threshold_never_misses_more_than_asked():
    # Nineteen frames: none may be missed (1/19 > 5 %). Ties at the threshold are all accepted.
    assert threshold_at_miss_rate(np.arange(1.0, 20)) == 1.0
    # 29 % of a hundred are 29 frames, though 0.29 * 100 is 28.999999999999996 in floating point.
    assert threshold_at_miss_rate(np.arange(100.0), miss_rate=0.29) == 29.0
    assert threshold_at_miss_rate(np.array([0.3] * 10 + [0.9] * 10), miss_rate=0.4) == 0.3


def test_empty_or_undefined_scores_have_no_rate():
    for wrong in (np.array([]), np.array([np.nan])):
        with pytest.raises(ValueError, match="finite"):
            threshold_at_miss_rate(wrong)
        with pytest.raises(ValueError, match="finite"):
            false_accept_rate(wrong, 0.5)
