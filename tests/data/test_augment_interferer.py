"""Whose voice may be mixed into whose clip, and which stretch of it."""

from __future__ import annotations

import time

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


def test_everybody_who_qualifies_is_drawn_alike() -> None:
    """Against a list written down by comparing all pairs; few names, so that tracks share every mix of the three."""
    rng = np.random.default_rng(3)
    tracks = []
    for _ in range(60):
        video, sound, group = (int(number) for number in rng.integers(4, size=3))
        speaking = [] if rng.random() < 0.3 else [0]
        tracks.append(track(f"v{video}", f"s{sound}", f"g{group}" if group else "", speaking=speaking))
    interferers = Interferers(tracks)

    def differ(a: FaceTrack, b: FaceTrack) -> bool:
        return a.video_id != b.video_id and a.audio_id != b.audio_id and not (a.group and a.group == b.group)

    for own in (0, 17, 42):
        expected = [i for i, other in enumerate(tracks) if other.speaking.any() and differ(other, tracks[own])]
        drawn = [(interferers.draw(own, 5, rng) or (-1,))[0] for _ in range(200 * len(expected))]
        assert set(drawn) == set(expected)
        counts = np.array([drawn.count(other) for other in expected])
        assert np.abs(counts - 200).max() < 5 * 200**0.5
    again = [Interferers(tracks).draw(0, 5, np.random.default_rng(seed)) for seed in range(20)]
    assert again == [interferers.draw(0, 5, np.random.default_rng(seed)) for seed in range(20)]


def test_thirty_thousand_tracks_start_and_draw_fast() -> None:
    """One of another video among them; comparing all pairs takes minutes, a list for each draw 6 ms."""
    tracks = [track("one film" if i else "other film", str(i)) for i in range(30_000)]
    began = time.process_time()
    interferers = Interferers(tracks)
    assert interferers.num_alone == 0
    assert time.process_time() - began < 3
    rng = np.random.default_rng(0)
    began = time.process_time()
    assert [interferers.draw(29_999, 5, rng) for _ in range(300)] == [(0, 0, 5)] * 300
    assert all(interferers.draw(0, 5, rng) for _ in range(300))
    assert time.process_time() - began < 0.3  # 600 draws
    alone = Interferers([track("one film", str(i)) for i in range(30_000)])
    assert alone.num_alone == 30_000
