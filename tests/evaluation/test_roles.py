"""Figures per role: who is compared with whom, by hand."""

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
TALKERS = ["own_sound", "solo"]


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


def test_a_role_that_speaks_is_measured_against_itself():
    rows = [*ROWS, ("v3", "turn", 1, 0.3), ("v3", "turn", 0, 0.5)]
    own_sound, _, turns = per_role(joined_of(rows), {**ROLES, ("v3", "turn"): "turns"}, TALKERS, resamples=0)
    # P .9, N .7, P .6, N .1: precisions 1, 2/3; AP (1 + 2/3) / 2; pairs won: .9 both, .6 one of two.
    assert (own_sound.role, own_sound.num_frames, own_sound.num_tracks) == ("own_sound", 4, 2)
    assert (own_sound.positives, own_sound.num_positive_frames) == ("own", 2)
    assert own_sound.average_precision == pytest.approx(5 / 6, abs=1e-12)
    assert own_sound.auroc == pytest.approx(3 / 4, abs=1e-12)
    assert own_sound.chance == 0.5
    assert (own_sound.mean_negative_score, own_sound.mean_positive_score) == (pytest.approx(0.4), pytest.approx(0.75))
    # Its only positive is below its only negative, whatever the plain talkers do.
    assert (turns.average_precision, turns.auroc, turns.positives) == (pytest.approx(0.5), 0.0, "own")


def test_a_role_that_never_speaks_is_measured_against_the_plain_talkers():
    rows = [*ROWS, ("v3", "turn", 1, 0.97), ("v3", "turn", 0, 0.5)]
    _, shifted, _ = per_role(joined_of(rows), {**ROLES, ("v3", "turn"): "turns"}, TALKERS, resamples=0)
    # Shifted: N .95, P .9, N .8, {P .6, N .6}, N .2. Thresholds with a positive: 1/2 and 2/5. AP (1/2 + 2/5) / 2.
    # Pairs: .9 wins 3 of 4; .6 wins 1 and ties 1 of 4: (3 + 1.5) / 8. The positive of turns (.97) has no part in it.
    assert (shifted.role, shifted.num_frames, shifted.num_tracks) == ("shifted", 4, 2)
    assert (shifted.positives, shifted.num_positive_frames) == ("own_sound", 2)
    assert shifted.average_precision == pytest.approx(0.45, abs=1e-12)
    assert shifted.auroc == pytest.approx(4.5 / 8, abs=1e-12)
    assert (shifted.chance, shifted.mean_negative_score) == (pytest.approx(2 / 6), pytest.approx(2.55 / 4))
    assert shifted.mean_positive_score is None


def test_without_plain_talkers_every_positive_counts():
    rows = [*ROWS, ("v3", "turn", 1, 0.97), ("v3", "turn", 0, 0.5)]
    _, shifted, _ = per_role(joined_of(rows), {**ROLES, ("v3", "turn"): "turns"}, ["solo", "shifted"], resamples=0)
    assert (shifted.positives, shifted.num_positive_frames) == ("all", 3)
    # As above with .97 on top of all: precisions 1, 2/3, 3/6; it wins 4 of 4.
    assert shifted.average_precision == pytest.approx((1 + 2 / 3 + 1 / 2) / 3, abs=1e-12)
    assert shifted.auroc == pytest.approx(8.5 / 12, abs=1e-12)


def test_a_role_that_always_speaks_has_no_auroc():
    (row,) = per_role(joined_of(ROWS[:2]), ROLES, TALKERS, resamples=20)
    assert (row.average_precision, row.chance, row.auroc, row.auroc_interval) == (1.0, 1.0, None, None)
    assert (row.mean_negative_score, row.mean_positive_score) == (None, pytest.approx(0.75))


def test_every_frame_belongs_to_one_role():
    generator = np.random.default_rng(0)
    rows = [(f"v{i % 3}", f"e{i % 7}", int(generator.random() < 0.2), generator.random()) for i in range(210)]
    roles = {(video, entity): f"role{int(entity[1]) % 3}" for video, entity, _, _ in rows}
    found = per_role(joined_of(rows), roles, TALKERS, resamples=0)
    assert [row.num_frames for row in found] == [90, 60, 60]  # entities 0 3 6, 1 4, 2 5; 30 rows each
    assert sum(row.num_tracks for row in found) == 21


def test_auroc_does_not_move_with_the_number_of_negatives_but_ap_does():
    again = [("v2", "more1", 0, 0.8), ("v2", "more1", 0, 0.6), ("v2", "more2", 0, 0.2), ("v2", "more2", 0, 0.95)]
    roles = {**ROLES, ("v2", "more1"): "shifted", ("v2", "more2"): "shifted"}
    before, after = (
        per_role(joined_of(rows), known, TALKERS, 0)[-1] for rows, known in ((ROWS, ROLES), (ROWS + again, roles))
    )
    assert after.auroc == pytest.approx(before.auroc, abs=1e-12)
    assert after.average_precision < before.average_precision
    assert after.chance < before.chance


def test_the_interval_is_over_videos():
    # Positives in v1 and v3; the negatives of v2 lie between them: AUROC is 1 with v1 alone and 0 with v3 alone.
    rows = [("v1", "a", 1, 0.9), ("v2", "b", 0, 0.5), ("v3", "c", 1, 0.1)]
    roles = {("v1", "a"): "own", ("v2", "b"): "shifted", ("v3", "c"): "own"}
    _, row = per_role(joined_of(rows), roles, ["own"], resamples=300)
    assert row.auroc == 0.5
    assert row.auroc_interval == (0.0, 1.0)
    # AP: P .9, N .5, P .1 is (1 + 2/3) / 2. A set with v2 but not v3 gives 1; one without v1, with v2 twice and v3
    # once, gives 1/3. Sets without v2 have no negative and do not count.
    assert row.average_precision == pytest.approx(5 / 6)
    assert row.average_precision_interval == (pytest.approx(1 / 3), 1.0)


def test_scenes_of_one_source_are_drawn_together():
    # As above, but twenty scenes of each of the three clips: as sixty scenes they hide that three clips say nothing.
    rows = [
        (f"{clip}-{n}", "e", label, score)
        for clip, label, score in (("a", 1, 0.9), ("b", 0, 0.5), ("c", 1, 0.1))
        for n in range(20)
    ]
    roles = {(video, "e"): "own" if label else "shifted" for video, _, label, _ in rows}
    clips = {(video, "e"): video[0] for video, *_ in rows}
    by_scene, by_clip = (per_role(joined_of(rows), roles, ["own"], 400, 0, groups)[1] for groups in (None, clips))
    assert by_scene.auroc == by_clip.auroc == 0.5
    assert by_clip.auroc_interval == (0.0, 1.0)
    low, high = by_scene.auroc_interval
    assert low > 0.2
    assert high < 0.8
    # Giving each scene its video's name as group changes nothing.
    _, again = per_role(joined_of(rows), roles, ["own"], 400, 0, {key: key[0] for key in roles})
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
    found = per_role(joined_of(), {**ROLES, ("v2", "shift1"): "", ("v2", "shift2"): ""}, TALKERS, resamples=0)
    assert [(row.role, row.positives) for row in found] == [("own_sound", "own"), ("unknown", "own_sound")]
    with pytest.raises(AvfusionError, match="no role for 2 of 4 tracks, first 'shift1' in 'v2'"):
        per_role(joined_of(), {key: role for key, role in ROLES.items() if role != "shifted"}, TALKERS)


def test_a_split_without_speech_is_an_error():
    with pytest.raises(AvfusionError, match="none of 5 rows is SPEAKING_AUDIBLE"):
        per_role(joined_of(ROWS[3:]), ROLES, TALKERS)


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
