"""Whose voice may be mixed into whose clip, and which stretch of it."""

from __future__ import annotations

import numpy as np

from avfusion.data.augment.interferer import Interferers
from avfusion.tracks import FaceTrack


def track(video: str, sound: str, group: str = "", speaking: list[int] | None = None, frames: int = 20) -> FaceTrack:
    flags = np.isin(np.arange(frames), [0] if speaking is None else speaking)
    return FaceTrack(video, f"{video}:{sound}", 0.0, flags, np.zeros((frames, 4), np.float32), sound, group=group)


def partners(tracks: list[FaceTrack], own: int) -> set[int]:
    interferers = Interferers(tracks)
    drawn = [interferers.draw(own, 5, np.random.default_rng(seed)) for seed in range(100)]
    return {place[0] for place in drawn if place is not None}


def test_only_another_video_another_sound_and_another_group_qualify() -> None:
    tracks = [
        track("a", "sound a", "anna"),
        track("a", "other wav of the same film", "ben"),
        track("b", "sound a", "carl"),
        track("c", "sound c", "anna"),
        track("d", "sound d", "dora"),
        track("e", "sound e", "ella", speaking=[]),
        track("f", "sound f"),
        track("g", "sound g"),
    ]
    assert partners(tracks, 0) == {4, 6, 7}
    assert partners(tracks, 6) == {0, 1, 2, 3, 4, 7}  # an unknown group is no common group
    assert partners(tracks, 5) == {0, 1, 2, 3, 4, 6, 7}  # a silent face may hear a voice


def test_where_nobody_qualifies_nothing_is_drawn_and_they_are_counted() -> None:
    alone = [track("a", "1"), track("a", "2"), track("b", "1", speaking=[])]
    assert Interferers(alone).draw(0, 5, np.random.default_rng(0)) is None
    assert Interferers(alone).num_alone == 2  # the third hears track 1
    many = [track(f"{i}", f"{i}", "one person") for i in range(20)]
    assert Interferers(many).num_alone == 20
    assert Interferers([*many, track("x", "x")]).num_alone == 0


def test_every_stretch_has_speech_and_mostly_as_much_as_there_is() -> None:
    tracks = [track("a", "a"), track("b", "b", speaking=[*range(30, 50), 70], frames=100)]
    shares, firsts = [], set()
    for seed in range(300):
        other, first, count = Interferers(tracks).draw(0, 20, np.random.default_rng(seed)) or (0, 0, 0)
        assert (other, count) == (1, 20)
        assert 0 <= first <= 80
        shares.append(tracks[1].speaking[first : first + count].mean())
        firsts.add(first)
    assert min(shares) > 0
    assert np.mean(shares) > 0.6  # 0.21 of the track speaks
    assert len(firsts) > 30


def test_a_short_track_is_taken_whole() -> None:
    tracks = [track("a", "a"), track("b", "b", speaking=[3], frames=10)]
    assert Interferers(tracks).draw(0, 60, np.random.default_rng(0)) == (1, 0, 10)
