"""Sound in time against sound shifted, written out in loops, and which frames, shifts and clips take part."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from avfusion.config import LossConfig
from avfusion.models.losses import Targets, loss_counts, loss_terms, loss_totals
from tests.models.losses.examples import detection_of, targets_of, unit


def sync(video: Tensor, audio: Tensor, targets: Targets, config: LossConfig) -> tuple[Tensor, list[float]]:
    """Value and count for ``(B, T, E)`` pictures of one face a scene."""
    value = loss_terms(detection_of(video[:, None], audio), targets, config, ["sync"])["sync"]
    return value, loss_counts(targets, config, ["sync"])["sync"].tolist()


def written_out(video: Tensor, audio: Tensor, speaking: list[bool], real: int, config: LossConfig) -> float | None:
    """-ln of the natural lags' share in one clip ``(T, E)``, or None where it does not count."""
    first, last = config.lag_frames
    inside = range(3, real - 3)
    fitting, false = [], []
    for k in range(first - config.sync_shifts, last + config.sync_shifts + 1):
        natural = first <= k <= last
        if not natural and first - 8 <= k <= last + 8:
            continue
        cosines = [float(video[t] @ audio[t + k]) for t in inside if speaking[t] and t + k in inside]
        if len(cosines) >= 8:
            weight = math.exp(sum(cosines) / len(cosines) / config.sync_temperature)
            (fitting if natural else false).append(weight)
    if not fitting or not false:
        return None
    return -math.log(sum(fitting) / (sum(fitting) + sum(false)))


@pytest.mark.parametrize("lags", [[0, 0], [-1, 2], [3, 3], [-25, -20]])
def test_it_equals_the_sum_written_out(lags: list[int]) -> None:
    """Five clips: plain, padded, with pauses, hardly speaking, too short."""
    config = LossConfig(sync_temperature=0.2, sync_shifts=14, lag_frames=lags)
    frames, reals = 44, [44, 37, 44, 44, 18]
    video, audio = unit(5, frames, 6, seed=1), unit(5, frames, 6, seed=2)
    speaking = torch.ones(5, 1, frames, dtype=torch.bool)
    speaking[2, 0, 12:17], speaking[3, 0, 7:] = False, False
    mask = torch.arange(frames) < torch.tensor(reals)[:, None, None]
    by_hand = [written_out(video[i], audio[i], speaking[i, 0].tolist(), reals[i], config) for i in range(5)]
    kept = [loss for loss in by_hand if loss is not None]
    assert len(kept) == 3
    value, count = sync(video, audio, targets_of(speaking, mask), config)
    assert count == [3]
    assert value.item() == pytest.approx(sum(kept) / 3, rel=1e-5)


def test_without_any_knowledge_all_shifts_share_alike() -> None:
    """One natural lag against 9..12 on either side: -ln(1 / 9)."""
    same = F.normalize(torch.ones(1, 60, 4), dim=-1)
    targets = targets_of(torch.ones(1, 1, 60, dtype=torch.bool))
    value, _ = sync(same, same, targets, LossConfig(sync_shifts=12))
    assert value.item() == pytest.approx(math.log(9), rel=1e-5)


def test_sound_in_time_wins_over_sound_that_is_late() -> None:
    video = unit(1, 60, 16)
    targets = targets_of(torch.ones(1, 1, 60, dtype=torch.bool))
    values = {lag: sync(video, video.roll(lag, 1), targets, LossConfig())[0].item() for lag in (0, 5, 12, -20)}
    assert values[0] < 0.01
    assert min(values[12], values[-20]) > 10  # a false shift fits
    assert values[0] < values[5] < values[12]  # neither right nor wrong: no shift fits


def test_the_edges_of_the_clip_have_no_part() -> None:
    """The outermost three real frames of either stream change nothing, the fourth does."""
    video, audio = unit(1, 44, 6, seed=1), unit(1, 44, 6, seed=2)
    mask = torch.arange(44)[None, None] < 40
    targets = targets_of(torch.ones(1, 1, 44, dtype=torch.bool), mask)
    value, _ = sync(video, audio, targets, LossConfig())
    for frame, matters in ((2, False), (3, True), (36, True), (37, False), (41, False)):
        moved = audio.clone()
        moved[:, frame] = unit(1, 6, seed=9)
        assert torch.equal(sync(video, moved, targets, LossConfig())[0], value) != matters
        moved = video.clone()
        moved[:, frame] = unit(1, 6, seed=9)
        assert torch.equal(sync(moved, audio, targets, LossConfig())[0], value) != matters


def test_silent_frames_are_not_compared_but_their_sound_is() -> None:
    video, audio = unit(1, 60, 6, seed=1), unit(1, 60, 6, seed=2)
    targets = targets_of((torch.arange(60) < 30)[None, None])
    value, _ = sync(video, audio, targets, LossConfig())
    moved = video.clone()
    moved[:, 30:] = unit(1, 30, 6, seed=9)
    assert torch.equal(sync(moved, audio, targets, LossConfig())[0], value)
    moved = audio.clone()
    moved[:, 45] = unit(1, 6, seed=9)  # 45 is up to 25 frames after a speaking frame
    assert sync(video, moved, targets, LossConfig())[0] != value


@pytest.mark.parametrize(("speaking", "counts"), [(8, 1), (7, 0)])
def test_a_clip_needs_eight_speaking_frames(speaking: int, counts: int) -> None:
    steps = torch.arange(60)
    targets = targets_of(((steps >= 25) & (steps < 25 + speaking))[None, None])
    detection = detection_of(unit(1, 1, 60, 6).requires_grad_(True), unit(1, 60, 6, seed=2))
    assert loss_counts(targets, LossConfig(), ["sync"])["sync"].tolist() == [counts]
    total = loss_totals(detection, targets, LossConfig(), ["sync"])["sync"]
    assert (total.item() > 0) == bool(counts)
    total.sum().backward()
    assert detection.video_embedding.grad is not None
    assert detection.video_embedding.grad.any() == bool(counts)
