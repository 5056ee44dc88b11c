"""Kinds of negatives: who is compared with whom, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.join import Joined
from avfusion.evaluation.roles import per_role, per_source, track_groups, track_roles, track_sources
from avfusion.tracks import FaceTrack

# video, entity, speaking, score. Track talk speaks and pauses; listen has the same role but never speaks.
ROWS = [
    ("v1", "talk", 1, 0.9),
    ("v1", "talk", 1, 0.6),
    ("v1", "talk", 0, 0.7),
    ("v1", "listen", 0, 0.1),
    ("v2", "shift1", 0, 0.8),
    ("v2", "shift1", 0, 0.6),
    ("v2", "shift2", 0, 0.2),
    ("v2", "shift2", 0, 0.95),
]
ROLES = {
    ("v1", "talk"): "own_sound",
    ("v1", "listen"): "own_sound",
    ("v2", "shift1"): "shifted",
    ("v2", "shift2"): "shifted",
}


def joined_of(rows=ROWS):
    videos, entities, labels, scores = zip(*rows, strict=True)
    return Joined(
        video_id=np.array(videos, dtype=object),
        entity_id=np.array(entities, dtype=object),
        timestamp_ms=np.arange(len(rows)) * 40,
        boxes_xyxy=np.zeros((len(rows), 4), np.float32),
        speaking=np.array(labels, bool),
        score=np.array(scores, np.float64),
    )


def test_kinds_by_hand():
    pauses, own_sound, shifted = per_role(joined_of(), ROLES, resamples=0)
    # Pauses: P .9, N .7, P .6: precisions 1, 2/3; AP (1 + 2/3) / 2; pairs won 1 of 2.
    assert (pauses.role, pauses.num_frames, pauses.num_tracks) == ("pauses", 1, 1)
    assert pauses.average_precision == pytest.approx(5 / 6, abs=1e-12)
    assert pauses.auroc == pytest.approx(0.5, abs=1e-12)
    assert (pauses.chance, pauses.mean_score) == (pytest.approx(2 / 3), pytest.approx(0.7))
    # The track that never speaks keeps its role: .1 is below both positives.
    assert (own_sound.role, own_sound.num_frames, own_sound.num_tracks) == ("own_sound", 1, 1)
    assert (own_sound.average_precision, own_sound.auroc) == (pytest.approx(1.0), pytest.approx(1.0))
    # Shifted: N .95, P .9, N .8, {P .6, N .6}, N .2. Thresholds with a positive: 1/2 and 2/5. AP (1/2 + 2/5) / 2.
    # Pairs: .9 wins 3 of 4; .6 wins 1 and ties 1 of 4: (3 + 1.5) / 8.
    assert (shifted.role, shifted.num_frames, shifted.num_tracks) == ("shifted", 4, 2)
    assert shifted.average_precision == pytest.approx(0.45, abs=1e-12)
    assert shifted.auroc == pytest.approx(4.5 / 8, abs=1e-12)
    assert (shifted.chance, shifted.mean_score) == (pytest.approx(2 / 6), pytest.approx(2.55 / 4))
    assert {row.num_positive_frames for row in (pauses, own_sound, shifted)} == {2}


def test_every_negative_frame_counts_once():
    generator = np.random.default_rng(0)
    rows = [(f"v{i % 3}", f"e{i % 7}", int(generator.random() < 0.2), generator.random()) for i in range(210)]
    roles = {(video, entity): f"role{int(entity[1]) % 3}" for video, entity, _, _ in rows}
    found = per_role(joined_of(rows), roles, resamples=0)
    assert sum(row.num_frames for row in found) == sum(not label for _, _, label, _ in rows)


def test_auroc_does_not_move_with_the_number_of_negatives_but_ap_does():
    again = [("v2", "more1", 0, 0.8), ("v2", "more1", 0, 0.6), ("v2", "more2", 0, 0.2), ("v2", "more2", 0, 0.95)]
    roles = {**ROLES, ("v2", "more1"): "shifted", ("v2", "more2"): "shifted"}
    before, after = per_role(joined_of(), ROLES, 0)[-1], per_role(joined_of(ROWS + again), roles, 0)[-1]
    assert after.auroc == pytest.approx(before.auroc, abs=1e-12)
    assert after.average_precision < before.average_precision
    assert after.chance < before.chance


def test_the_interval_is_over_videos():
    # Positives in v1 and v3; the negatives of v2 lie between them: AUROC is 1 with v1 alone and 0 with v3 alone.
    rows = [("v1", "a", 1, 0.9), ("v2", "b", 0, 0.5), ("v3", "c", 1, 0.1)]
    roles = {("v1", "a"): "own", ("v2", "b"): "shifted", ("v3", "c"): "own"}
    (row,) = per_role(joined_of(rows), roles, resamples=300)
    assert row.auroc == 0.5
    assert row.auroc_interval == (0.0, 1.0)


def test_scenes_of_one_source_are_drawn_together():
    # As above, but twenty scenes of each of the three clips: as sixty scenes they hide that three clips say nothing.
    rows = [
        (f"{clip}-{n}", "e", label, score)
        for clip, label, score in (("a", 1, 0.9), ("b", 0, 0.5), ("c", 1, 0.1))
        for n in range(20)
    ]
    roles = {(video, "e"): "own" if label else "shifted" for video, _, label, _ in rows}
    clips = {(video, "e"): video[0] for video, *_ in rows}
    by_scene, by_clip = (per_role(joined_of(rows), roles, 400, 0, groups)[0] for groups in (None, clips))
    assert by_scene.auroc == by_clip.auroc == 0.5
    assert by_clip.auroc_interval == (0.0, 1.0)
    low, high = by_scene.auroc_interval
    assert low > 0.2
    assert high < 0.8
    # Giving each scene its video's name as group changes nothing.
    (again,) = per_role(joined_of(rows), roles, 400, 0, {key: key[0] for key in roles})
    assert again == by_scene


def test_sources_are_resampled_over_their_groups():
    rows = [(f"v{n}", "e", n % 2, n / 10) for n in range(8)]
    sources = {(video, "e"): "ava" for video, *_ in rows}
    halves = {(video, "e"): "first" if int(video[1]) < 4 else "second" for video, *_ in rows}
    one = dict.fromkeys(halves, "the same")
    (by_half,) = per_source(joined_of(rows), sources, 200, 0, halves)
    # By hand: each half alone has 3 of 4 pairs right, both together 10 of 16.
    assert by_half.auroc_interval == (10 / 16, 3 / 4)
    (by_one,) = per_source(joined_of(rows), sources, 200, 0, one)
    assert by_one.auroc_interval is None


def test_an_empty_role_is_unknown_and_an_absent_one_an_error():
    found = per_role(joined_of(), {**ROLES, ("v2", "shift1"): "", ("v2", "shift2"): ""}, resamples=0)
    assert [row.role for row in found] == ["pauses", "own_sound", "unknown"]
    with pytest.raises(AvfusionError, match="no role for 2 of 4 tracks, first 'shift1' in 'v2'"):
        per_role(joined_of(), {key: role for key, role in ROLES.items() if role != "shifted"})


def test_a_split_without_speech_is_an_error():
    with pytest.raises(AvfusionError, match="none of 5 rows is SPEAKING_AUDIBLE"):
        per_role(joined_of(ROWS[3:]), ROLES)


def test_sources_stand_by_themselves():
    rows = [
        *[("a1", "x", 1, 0.4), ("a1", "x", 0, 0.2), ("a2", "y", 0, 0.3)],
        *[("b1", "z", 1, 0.9), ("b1", "z", 0, 0.95)],
        ("c1", "w", 0, 0.99),
    ]
    sources = {("a1", "x"): "ava", ("a2", "y"): "ava", ("b1", "z"): "own", ("c1", "w"): "radio"}
    ava, own, radio = per_source(joined_of(rows), sources, resamples=100)
    # Pooled, ava's positive is below own's negatives; within its corpus it is first.
    assert (ava.source, ava.average_precision, ava.auroc) == ("ava", 1.0, 1.0)
    assert (ava.num_frames, ava.num_tracks, ava.num_videos) == (3, 2, 2)
    assert ava.chance == pytest.approx(1 / 3)
    assert (own.average_precision, own.auroc, own.auroc_interval) == (pytest.approx(0.5), 0.0, None)
    assert (radio.average_precision, radio.auroc, radio.chance) == (None, None, 0.0)


def test_roles_sources_and_groups_come_from_the_tracks():
    one = np.zeros(1, bool), np.zeros((1, 4), np.float32)
    tracks = [FaceTrack("v", "e", 0.0, *one, "v", role="shifted", source="ava"), FaceTrack("v", "f", 0.0, *one, "v")]
    tracks.append(FaceTrack("w", "g", 0.0, *one, "w", group="clip7"))
    assert track_roles(tracks) == {("v", "e"): "shifted", ("v", "f"): "", ("w", "g"): ""}
    assert track_sources(tracks) == {("v", "e"): "ava", ("v", "f"): "", ("w", "g"): ""}
    assert track_groups(tracks) == {("v", "e"): "v", ("v", "f"): "v", ("w", "g"): "clip7"}
