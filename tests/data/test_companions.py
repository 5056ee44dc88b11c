"""Who is seen with whom, and scenes of several faces from tracks that come and go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from avfusion.config import DataConfig
from avfusion.data.batching import TrainingSampler, collate, group_by_length
from avfusion.data.clips import Clip
from avfusion.data.companions import Companions
from avfusion.data.examples import Examples, Request
from avfusion.tracks import FaceTrack

# video, start in frames, length
TRACKS = [("v", 0, 50), ("v", 10, 20), ("v", 45, 30), ("w", 0, 50), ("v", 75, 10), ("v", 10, 20)]


class ComingAndGoing:
    """Every picture of a track is of one grey: its number of 40 ms in the video, and 100 for each track before it."""

    name, skipped = "made", None

    def __init__(self) -> None:
        self.tracks = [
            FaceTrack(
                video, f"{video}:{n}", start / 25, np.arange(count) % 2 == 0, np.zeros((count, 4), np.float32), video
            )
            for n, (video, start, count) in enumerate(TRACKS)
        ]

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        start, total = TRACKS[index][1:]
        last = total if num_frames is None else first_frame + num_frames
        at = np.arange(start + first_frame, start + last)
        crops = np.broadcast_to(at.astype(np.uint8)[:, None, None], (len(at), 16, 16)).copy()
        return Clip(crops, np.repeat(at / 1000, 640).astype(np.float32), self.tracks[index].speaking[first_frame:last])


def greys(crops: torch.Tensor) -> NDArray[np.int64]:
    return (crops[:, 0, 0] * 255).round().long().numpy()


def test_companions_share_frames_of_one_video() -> None:
    found = Companions(ComingAndGoing().tracks)
    assert found.seen_with(0, 0, 50) == [1, 5, 2]
    assert found.seen_with(0, 0, 10) == []  # before frame 10
    assert found.seen_with(0, 0, 11) == [1, 5]
    assert found.seen_with(0, 30, 15) == []  # from 30 to 45
    assert found.seen_with(3, 0, 50) == []  # alone in its video
    assert found.seen_with(2, 29, 1) == []  # the last frame is 74, the next track begins at 75
    assert found.same_frames(1) == [5]
    assert found.same_frames(0) == []
    assert (found.offset(0, 2), found.offset(2, 0)) == (-45, 45)


def test_a_scene_shows_each_face_in_its_own_frames() -> None:
    for cache_gb in (0.0, 1.0):
        examples = Examples(ComingAndGoing(), DataConfig(crop_size=16, num_mels=20, cache_gb=cache_gb))
        batch = collate([examples[Request(0, 5, 45, others=(1, 2))], examples[Request(3, 0, 20)]])
        assert batch.crops.shape == (2, 3, 45, 16, 16)
        assert batch.is_padded
        assert greys(batch.crops[0, 0]).tolist() == list(range(5, 50))
        np.testing.assert_array_equal(np.flatnonzero(batch.frame_mask[0, 1]), np.arange(5, 25))  # 10..29 of the video
        assert greys(batch.crops[0, 1])[5:25].tolist() == list(range(10, 30))
        np.testing.assert_array_equal(np.flatnonzero(batch.frame_mask[0, 2]), np.arange(40, 45))
        assert greys(batch.crops[0, 2])[40:].tolist() == list(range(45, 50))
        assert batch.crops[0, 1][~batch.frame_mask[0, 1]].abs().max() == 0
        assert batch.speaking[0, 1, 5:25].tolist() == [n % 2 == 0 for n in range(20)]
        assert not batch.speaking[0][~batch.frame_mask[0]].any()
        np.testing.assert_array_equal(batch.frame_mask.sum(dim=-1), [[45, 20, 5], [20, 0, 0]])
        assert batch.audio_mask.sum(dim=1).tolist() == [180, 80]


def test_speed_and_moved_sound_are_those_of_the_whole_scene() -> None:
    config = DataConfig(crop_size=16, num_mels=20)
    for key in ("flip", "shift", "zoom", "brightness", "noise", "gain_db", "audio_noise"):
        setattr(config.augment, key, 0.0)
    config.augment.speed, config.augment.resync = 0.3, 0.5
    examples = Examples(ComingAndGoing(), config, augment=True)
    moved = 0
    for epoch in range(30):
        example = examples[Request(0, 5, 30, epoch, others=(1,))]
        own, other = greys(example.crops), example.others[0]
        both = other.there.numpy()
        assert np.abs(own - greys(other.crops))[both].max() <= 1  # the same moments, to half a frame
        moved += not example.speaking.any()
        assert example.speaking.any() == other.speaking.any()
    assert 5 < moved < 25


def test_an_epoch_shows_everybody_once_and_at_most_so_many_together() -> None:
    tracks = ComingAndGoing().tracks
    companions = Companions(tracks)
    lengths = [track.num_frames for track in tracks]
    for faces in (1, 2, 3, 8):
        sampler = TrainingSampler(lengths, 60, 200, 0, [0, 1], 1, companions=companions, faces=faces)
        assert all(not request.others for step in sampler.steps(0) for request in step)  # contrast: single faces
        sizes = set()
        for epoch in range(1, 12):
            requests = [request for step in sampler.steps(epoch) for request in step]
            shown = [track for r in requests for track in (r.track, *r.others)]
            assert set(shown) == set(range(6))
            assert len({r.track for r in requests} & {o for r in requests for o in r.others}) <= len(shown) - 6
            sizes |= {r.num_faces for r in requests}
            for step in sampler.steps(epoch):
                pictures = len(step) * max(r.num_faces for r in step) * max(r.num_frames for r in step)
                assert pictures <= 200 or len(step) == 1
        assert max(sizes) == min(faces, 4)


def test_groups_count_the_pictures_of_all_faces() -> None:
    requests = [Request(n, 0, 10, others=tuple(range(100, 100 + n % 3))) for n in range(12)]
    for group in group_by_length(requests, 120):
        assert len(group) * max(r.num_faces for r in group) * 10 <= 120
    assert replace(requests[0], others=(1,)).num_faces == 2
