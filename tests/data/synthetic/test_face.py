"""Synthetic faces: the same from the same seed, within their ranges; blinks shut the lids at the recorded times."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple

import numpy as np
import pytest

from avfusion.data.synthetic.face import HAIR_STYLES, random_face, random_head_movement, wander


def test_same_seed_same_person_and_another_seed_another():
    first, again, other = (random_face(np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert astuple(first) == astuple(again)
    assert first.skin != other.skin
    assert first.texture_seed != other.texture_seed


def test_faces_are_varied_and_women_have_no_beards():
    rng = np.random.default_rng(0)
    faces = [random_face(rng) for _ in range(600)]
    assert set(HAIR_STYLES) == set(Counter(face.hair_style for face in faces))
    women = [face for face in faces if face.masculine < 0.5]
    assert 0.42 < len(women) / 600 < 0.58
    assert not any(face.beard or face.moustache or face.stubble for face in women)
    men = [face for face in faces if face.masculine > 0.5]
    assert 0.17 < np.mean([face.beard > 0 for face in men]) < 0.33
    assert 0.14 < np.mean([face.glasses > 0 for face in faces]) < 0.26
    assert all(95 <= face.skin <= 205 and 0 < face.hair < 255 for face in faces)
    assert all(face.upper_lip > 0.02 < face.lower_lip and 0 <= face.jaw <= 1 for face in faces)
    assert np.mean([face.jaw for face in men]) > np.mean([face.jaw for face in women]) + 0.2


@pytest.mark.parametrize("seed", range(5))
def test_lids_are_shut_at_each_blink_and_open_between(seed: int):
    head = random_head_movement(np.random.default_rng(seed), 250)
    times_s = np.arange(250) / 25
    assert len(head.blinks_s) >= 3
    for blink_s in head.blinks_s[head.blinks_s < 9.9]:
        assert head.lids[np.abs(times_s - blink_s) < 0.045].max() == 1.0
    away_s = np.abs(times_s[:, None] - head.blinks_s).min(axis=1)
    np.testing.assert_array_equal(head.lids[away_s > 0.16], 0.0)


def test_a_head_that_is_not_lively_keeps_its_pose_but_moves_eyes_and_brows():
    head = random_head_movement(np.random.default_rng(1), 100, lively=0.0)
    for pose in (head.shift_u, head.shift_v, head.zoom, head.roll, head.yaw, head.pitch):
        assert np.ptp(pose) == 0.0
    assert np.ptp(head.brows) > 0.005
    assert np.ptp(head.lids) == 1.0
    assert len(np.unique(head.gaze)) > 1


def test_heads_turn_little():
    heads = [random_head_movement(np.random.default_rng(seed), 75) for seed in range(100)]
    assert max(np.abs(head.yaw).max() for head in heads) <= 0.35
    assert max(np.abs(head.pitch).max() for head in heads) <= 0.25
    assert np.std([head.yaw.mean() for head in heads]) > 0.06


def test_wander_keeps_to_its_size_and_is_slow():
    tracks = np.stack([wander(np.random.default_rng(seed), 250, 2.0) for seed in range(50)])
    assert np.abs(tracks).max() <= 2.0 * 1.05
    fastest_per_s = 2.0 * 2 * np.pi * (0.6 * 0.3 + 0.3 * 0.7 + 0.15 * 1.2)
    assert np.abs(np.diff(tracks, axis=1)).max() * 25 <= fastest_per_s
