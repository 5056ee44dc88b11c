"""Two faces side by side: the scenes of each case, and that a rule that listens tells who is heard."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import UsageError
from benchmarks import side_by_side
from tests.made_clips import Rule, a_clip

CLIPS = [a_clip(f"c{number}", f"made/t{number % 4}", frames=75 - number % 3) for number in range(8)]
SOURCES = {clip.clip_id: side_by_side.source_clip(clip) for clip in CLIPS}


def test_every_case_has_its_sound_and_labels() -> None:
    made = side_by_side.scenes_of(("c0", "c1"), "c2", SOURCES)
    assert {case: len(scenes) for case, scenes in made.items()} == dict(
        zip(side_by_side.CASES, (2, 2, 1, 1, 1), strict=True)
    )
    frames = 74
    one, two, third = (SOURCES[name] for name in ("c0", "c1", "c2"))
    speaking = [one.speaking[:frames], two.speaking[:frames]]
    for case in (side_by_side.STILL, side_by_side.MOVES):
        for heard, scene in enumerate(made[case]):
            source = (one, two)[heard]
            np.testing.assert_allclose(scene.audio, source.audio[: 640 * frames], atol=1e-7)
            np.testing.assert_array_equal(scene.tracks[heard].speaking, speaking[heard])
            assert not scene.tracks[1 - heard].speaking.any()
            assert scene.tracks[1 - heard].crops.endswith("?still") == (case == side_by_side.STILL)
    (both,) = made[side_by_side.BOTH]
    np.testing.assert_allclose(both.audio, (one.audio[: 640 * frames] + two.audio[: 640 * frames]), atol=1e-6)
    for track, expected in zip(both.tracks, speaking, strict=True):
        np.testing.assert_array_equal(track.speaking, expected)
    for case in (side_by_side.NEITHER_STILL, side_by_side.NEITHER_MOVES):
        (scene,) = made[case]
        assert len(scene.audio) == 640 * frames
        assert np.corrcoef(scene.audio, np.resize(third.audio, 640 * frames))[0, 1] > 0.999
        assert [track.clip_id for track in scene.tracks] == ["c0", "c1"]
        assert not any(track.speaking.any() for track in scene.tracks)


def test_a_face_without_a_pause_keeps_still_in_no_scene() -> None:
    restless = a_clip("r", "made/t9")
    restless.decoded.speaking[:] = True
    sources = SOURCES | {"r": side_by_side.source_clip(restless)}
    made = side_by_side.scenes_of(("c0", "r"), "c1", sources)
    assert len(made[side_by_side.STILL]) == 1  # the other way round
    assert side_by_side.NEITHER_STILL not in made
    assert side_by_side.NEITHER_MOVES in made


def test_pairs_are_of_two_talkers_and_share_out_their_number() -> None:
    every = side_by_side.pairs_of(CLIPS, 1000)
    assert len(every) == len(set(every)) == 28 - 4  # of eight clips, less two of one talker each
    talker = {clip.clip_id: clip.talker for clip in CLIPS}
    assert all(talker[one] != talker[two] for one, two in every)
    some = side_by_side.pairs_of(CLIPS, 6)
    assert len({frozenset((talker[one], talker[two])) for one, two in some}) == 6  # each two talkers once
    assert some == side_by_side.pairs_of(CLIPS[::-1], 6)
    assert len(side_by_side.pairs_of(CLIPS, 3)) == 3
    with pytest.raises(UsageError, match="2 talkers; expected three or more"):
        side_by_side.pairs_of([CLIPS[0], CLIPS[1]], 5)


def test_who_listens_tells_who_is_heard() -> None:
    listening = side_by_side.figures(Rule(), CLIPS, 24, 100)
    looking = side_by_side.figures(Rule(listens=False), CLIPS, 24, 100)
    assert list(listening["cases"]) == list(side_by_side.CASES)
    for case in (side_by_side.STILL, side_by_side.MOVES, side_by_side.NEITHER_STILL, side_by_side.NEITHER_MOVES):
        row = listening["cases"][case]
        assert row["average_precision"] > 0.98
        low, high = row["average_precision_interval"]
        assert low <= row["average_precision"] <= high
    for case in (side_by_side.MOVES, side_by_side.NEITHER_MOVES):
        assert listening["cases"][case]["false_accept_rate"] < 0.05
        assert looking["cases"][case]["false_accept_rate"] > 0.25  # whatever moves
        assert looking["cases"][case]["average_precision"] < 0.75
    # Of frames of both faces one in two speaks at most: what one of them says, or nobody.
    assert listening["cases"][side_by_side.MOVES]["prevalence"] < 0.5
    assert listening["cases"][side_by_side.NEITHER_MOVES]["against_one_talks"]
    assert listening["cases"][side_by_side.BOTH]["scenes"] == 24
    text = side_by_side.as_text(listening)
    assert f"| {side_by_side.NEITHER_MOVES} * | 24 | " in text
    assert "24 pairs of 8 clips" in text
