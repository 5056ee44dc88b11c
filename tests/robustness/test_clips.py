"""A changed stretch is that stretch of the changed whole, and a track is read no more often than there is need."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np

from avfusion.data.clips import Clip
from avfusion.robustness.clips import ChangedClips, KeptClips, draws_of, unchanged
from avfusion.robustness.conditions import all_conditions
from tests.robustness.planted import Planted, a_track


def same(one: Clip, other: Clip) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("crops", "audio", "speaking"))


def test_a_stretch_is_part_of_the_changed_whole_under_every_condition() -> None:
    clips = Planted(4, frames=40)
    for condition in all_conditions(clips):
        whole = ChangedClips(clips, condition.change, [1, 3]).read(1)
        elsewhere = pickle.loads(pickle.dumps(ChangedClips(clips, condition.change, [1, 3])))  # as a worker has it
        part = elsewhere.read(1, 7, 20)
        assert len(whole.speaking) == 40, condition.name
        assert same(part, Clip(whole.crops[7:27], whole.audio[7 * 640 : 27 * 640], whole.speaking[7:27])), (
            condition.name
        )
        assert whole.crops.dtype == np.uint8
        assert whole.audio.dtype == np.float32
        assert np.array_equal(whole.speaking, clips.clips[3].speaking)


def test_every_condition_but_the_clean_one_changes_exactly_one_stream() -> None:
    clips = Planted(4, frames=45)
    rng = np.random.default_rng(0)
    clips.clips[1] = replace(clips.clips[1], crops=rng.integers(0, 256, (45, 112, 112)).astype(np.uint8))
    for condition in all_conditions(clips):
        changed, own = condition.change(clips.clips[1], 1), clips.clips[1]
        differs = [not np.array_equal(changed.crops, own.crops), not np.array_equal(changed.audio, own.audio)]
        assert sum(differs) == (condition.name != "clean"), condition.name


def test_the_same_track_gets_the_same_damage_at_every_reading() -> None:
    for one, other in zip(all_conditions(Planted(4)), all_conditions(Planted(4)), strict=True):
        clips = Planted(4)
        assert same(one.change(clips.clips[2], 2), other.change(clips.clips[2], 2)), one.name
        assert same(one.change(clips.clips[2], 2), one.change(clips.clips[2], 2)), one.name


def test_draws_are_named_by_both_ids_as_texts() -> None:
    speaking = np.ones(3, bool)
    numbers = {draws_of(a_track(name, speaking)).of("x").random() for name in ("7", "007", "NA", "1e5")}
    assert len(numbers) == 4


def test_kept_clips_are_read_once_and_the_rest_when_wanted() -> None:
    planted = Planted(4)
    bytes_each = planted.clips[0].crops.nbytes + planted.clips[0].audio.nbytes
    kept = KeptClips(planted, [3, 1, 0], cache_gb=2.5 * bytes_each / 1e9)
    kept.read_all()
    assert planted.reads == 3  # the third found no room
    assert same(kept.read(0, 4, 10), planted.read(3, 4, 10))
    assert same(kept.read(2), planted.read(0))
    assert [track.video_id for track in kept.tracks] == ["v3", "v1", "v0"]
    before = planted.reads
    kept.read(0)
    kept.read(1)
    assert planted.reads == before
    kept.read(2)
    assert planted.reads == before + 1
    assert same(pickle.loads(pickle.dumps(kept)).read(1), kept.read(1))
    assert len(pickle.dumps(kept)) < len(pickle.dumps(planted)) + 5000  # the copies in memory stay here


def test_a_changed_clip_is_changed_once_for_the_stretches_that_follow() -> None:
    asked = []

    def change(clip: Clip, track: int) -> Clip:
        asked.append(track)
        return unchanged(clip, track)

    changed = ChangedClips(Planted(4), change, [2, 0])
    changed.read(0, 0, 5)
    changed.read(0, 5, 5)
    changed.read(1)
    assert asked == [2, 0]
