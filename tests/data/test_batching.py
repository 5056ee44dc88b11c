"""Batches: what is padded, what is masked, what is drawn, and that workers change nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from avfusion.config import DataConfig
from avfusion.data.batching import ClipLoader, TrainingSampler, collate, group_by_length
from avfusion.data.clips import Clip
from avfusion.data.examples import Examples, Request
from avfusion.errors import AvfusionError
from tests.data.ramp import Ramp


def data_config(**changes: object) -> DataConfig:
    config = DataConfig(crop_size=16, num_mels=20)
    for key, value in changes.items():
        setattr(config, key, value)
    return config


def test_contrastive_epochs_draw_speaking_tracks_in_sync_and_later_ones_all() -> None:
    sampler = TrainingSampler([30, 40, 50], 60, 120, seed=0, speaking=[0, 2], contrastive_epochs=2)
    for epoch, tracks, in_sync in ((0, {0, 2}, True), (1, {0, 2}, True), (2, {0, 1, 2}, False)):
        requests = [request for batch in sampler.steps(epoch) for request in batch]
        assert {r.track for r in requests} == tracks
        assert {r.in_sync for r in requests} == {in_sync}


def test_one_loader_serves_all_epochs_and_its_workers_keep_their_clips() -> None:
    sampler = TrainingSampler([20, 25], 16, 64, seed=1)
    batches = ClipLoader(Examples(Ramp([20, 25]), data_config()), sampler, workers=1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert {r.epoch for batch in batches for r in batch.requests} == {epoch}


def test_collate_pads_with_zeros_and_masks_them() -> None:
    examples = Examples(Ramp([4, 7]), data_config())
    batch = collate([examples[Request(0, 0, 4)], examples[Request(1, 0, 7)]])
    assert batch.frame_mask[:, 0].sum(1).tolist() == [4, 7]
    assert batch.audio_mask.sum(1).tolist() == [16, 28]
    assert batch.crops[0, 0, 4:].abs().max() == 0
    assert batch.log_mel[0, 16:].abs().max() == 0
    assert not batch.speaking[0, 0, 4:].any()
    torch.testing.assert_close(batch.log_mel[0, :16], examples[Request(0, 0, 4)].log_mel)
    assert batch.audio_id[0] != batch.audio_id[1]


def test_a_batch_knows_whether_it_is_padded() -> None:
    examples = Examples(Ramp([8, 8, 12]), data_config())
    whole, padded = (
        [examples[Request(k, 0, n)] for k, n in stretch] for stretch in (((0, 8), (2, 8)), ((0, 8), (2, 9)))
    )
    for batch in (collate(whole), collate(padded), collate([], 16, 20)):
        assert batch.is_padded == (not batch.frame_mask.all())
    assert not collate(whole).is_padded


def test_groups_hold_the_budget_and_lose_nothing() -> None:
    rng = np.random.default_rng(0)
    requests = [Request(i, 0, int(n)) for i, n in enumerate(rng.integers(1, 90, 200))]
    batches = group_by_length(requests, 300)
    assert sorted(r.track for batch in batches for r in batch) == list(range(200))
    assert all(len(batch) * max(r.num_frames for r in batch) <= 300 for batch in batches)
    padding = sum(max(r.num_frames for r in b) - r.num_frames for b in batches for r in b)
    assert padding < 0.1 * sum(r.num_frames for r in requests)


def test_a_clip_longer_than_the_budget_is_a_batch_of_its_own() -> None:
    assert group_by_length([Request(0, 0, 500), Request(1, 0, 10)], 100) == [[Request(0, 0, 500)], [Request(1, 0, 10)]]


def test_an_epoch_visits_each_track_once_and_can_be_repeated() -> None:
    sampler = TrainingSampler([30, 80, 100, 5], clip_frames=60, batch_frames=120, seed=3)
    sampler.set_epoch(4)
    first, again = list(sampler), list(sampler)
    assert first == again
    assert sorted(r.track for batch in first for r in batch) == [0, 1, 2, 3]
    assert {r.track: r.num_frames for batch in first for r in batch} == {0: 30, 1: 60, 2: 60, 3: 5}
    assert all(r.first_frame + r.num_frames <= [30, 80, 100, 5][r.track] for batch in first for r in batch)
    sampler.set_epoch(5)
    assert list(sampler) != first
    assert len(sampler) == len(list(sampler))


def test_every_stretch_of_a_long_track_is_drawn() -> None:
    starts = set()
    for epoch in range(200):
        sampler = TrainingSampler([13], clip_frames=10, batch_frames=100, seed=0)
        sampler.set_epoch(epoch)
        starts.add(next(iter(sampler))[0].first_frame)
    assert starts == {0, 1, 2, 3}


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(workers: int) -> None:
    def epoch(count: int) -> list[torch.Tensor]:
        examples = Examples(Ramp([20, 25, 30, 18]), data_config(), augment=True, seed=1)
        sampler = TrainingSampler([20, 25, 30, 18], 16, 32, seed=1)
        return [t for batch in ClipLoader(examples, sampler, count) for t in (batch.crops, batch.log_mel)]

    for alone, helped in zip(epoch(0), epoch(workers), strict=True):
        assert torch.equal(alone, helped)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_clip_that_cannot_be_read_is_told_in_one_line(workers: int) -> None:
    class Broken(Ramp):
        def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
            raise AvfusionError(f"v{index}.mp4: holds no frames, expected 20; write it again")

    batches = ClipLoader(Examples(Broken([20]), data_config()), [[Request(0, 0, 10)]], workers)
    with pytest.raises(AvfusionError) as error:
        list(batches)
    assert str(error.value) == "v0.mp4: holds no frames, expected 20; write it again"
