"""Losses against hand-worked numbers, and what they leave out."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from avfusion.models.losses import contrastive_loss, speaking_loss


def test_speaking_loss_is_the_mean_over_real_frames() -> None:
    logits = torch.tensor([[[0.0, 2.0, -50.0]]])
    speaking = torch.tensor([[[True, False, True]]])
    mask = torch.tensor([[[True, True, False]]])
    expected = (math.log(2) + math.log(1 + math.exp(2))) / 2
    assert math.isclose(speaking_loss(logits, speaking, mask).item(), expected, rel_tol=1e-6)


def test_speaking_loss_of_nothing_is_zero() -> None:
    nothing = torch.zeros(1, 1, 3, dtype=torch.bool)
    assert speaking_loss(torch.zeros(1, 1, 3), nothing, nothing).item() == 0


def unit(frames: int, dim: int = 4, seed: int = 0) -> torch.Tensor:
    return F.normalize(torch.randn(1, frames, dim, generator=torch.Generator().manual_seed(seed)), dim=-1)


def loop_loss(video: torch.Tensor, audio: torch.Tensor, anchors: list[int], temperature: float) -> float:
    """One clip, written out: softmax over all frames but the direct neighbours, both ways."""
    total = 0.0
    for first, second in ((video, audio), (audio, video)):
        for i in anchors:
            cosines = {j: float(first[i] @ second[j]) / temperature for j in range(len(video)) if abs(i - j) != 1}
            total -= cosines[i] - math.log(sum(math.exp(c) for c in cosines.values()))
    return total / (2 * len(anchors))


def test_contrast_of_one_clip_equals_the_sum_written_out() -> None:
    video, audio = unit(6, seed=1), unit(6, seed=2)
    speaking = torch.tensor([[[True, True, False, False, True, True]]])
    loss = contrastive_loss(video[:, None], audio, speaking, torch.ones_like(speaking), torch.tensor([7]), 0.2)
    assert math.isclose(loss.item(), loop_loss(video[0], audio[0], [0, 1, 4, 5], 0.2), rel_tol=1e-5)


def loop_lag_loss(video: torch.Tensor, audio: torch.Tensor, real: int, lags: range, temperature: float) -> float:
    """One clip, written out: of the sounds at all natural lags together, against those and all but their neighbours."""
    total, kept = [0.0, 0.0], [0, 0]
    for way, (first, second) in enumerate(((video, audio), (audio, video))):
        for i in range(real):
            lag = [(j - i) if way == 0 else (i - j) for j in range(real)]
            left_out = (lags[0] - 1, lags[-1] + 1)
            weight = [math.exp(float(first[i] @ second[j]) / temperature) for j in range(real)]
            fitting = sum(w for w, k in zip(weight, lag, strict=True) if k in lags)
            if fitting:
                every = sum(w for w, k in zip(weight, lag, strict=True) if k not in left_out)
                total[way] -= math.log(fitting / every)
                kept[way] += 1
    return (total[0] / kept[0] + total[1] / kept[1]) / 2


def test_contrast_over_natural_lags_equals_the_sum_written_out_and_ignores_padding() -> None:
    video, audio = unit(9, seed=1), unit(9, seed=2)
    speaking = torch.ones(1, 1, 9, dtype=torch.bool)
    real = torch.tensor([[[True] * 7 + [False] * 2]])
    video.requires_grad_(True)
    loss = contrastive_loss(video[:, None], audio, speaking, real, torch.tensor([7]), 0.2, lag_frames=(1, 3))
    assert math.isclose(loss.item(), loop_lag_loss(video[0].detach(), audio[0], 7, range(1, 4), 0.2), rel_tol=1e-5)
    loss.backward()
    assert video.grad is not None
    assert video.grad.isfinite().all()
    assert not video.grad[:, 7:].any()


def test_contrast_over_natural_lags_falls_for_any_of_them_and_no_other() -> None:
    video = unit(12)
    everything = torch.ones(1, 1, 12, dtype=torch.bool)

    def loss(lag: int) -> float:
        args = (everything, everything, torch.tensor([0]), 0.1)
        return contrastive_loss(video[:, None], video.roll(lag, 1), *args, lag_frames=(-1, 3)).item()

    assert max(loss(lag) for lag in (-1, 0, 2, 3)) < min(loss(lag) for lag in (-5, 6)) - 0.5


def test_contrast_falls_when_streams_agree() -> None:
    video = unit(8)
    everything = torch.ones(1, 1, 8, dtype=torch.bool)
    args = (everything, everything, torch.tensor([0]), 0.1)
    assert (
        contrastive_loss(video[:, None], video, *args) < contrastive_loss(video[:, None], video.roll(3, 1), *args) - 1
    )


def test_padding_is_no_negative() -> None:
    video, audio = unit(6, seed=1), unit(6, seed=2)
    real = torch.tensor([[[True] * 4 + [False] * 2]])
    args = (torch.ones_like(real), real, torch.tensor([0]), 0.1)
    loss = contrastive_loss(video[:, None], audio, *args)
    moved = audio.clone()
    moved[:, 4:] = 9.0
    assert torch.equal(contrastive_loss(video[:, None], moved, *args), loss)
    short = torch.ones(1, 1, 4, dtype=torch.bool)
    torch.testing.assert_close(
        loss, contrastive_loss(video[:, None, :4], audio[:, :4], short, short, torch.tensor([0]), 0.1)
    )


def test_another_face_over_the_same_sound_is_no_negative() -> None:
    """Two rows that hear one sound (a scene with two faces): the copy must not count against the original."""
    video, audio = unit(5, seed=1), unit(5, seed=2)
    two_videos = torch.cat([video, unit(5, seed=3)])[:, None]
    two_sounds = torch.cat([audio, audio])
    speaking = torch.tensor([[[True] * 5], [[False] * 5]])
    real = torch.ones_like(speaking)
    alone = contrastive_loss(video[:, None], audio, speaking[:1], real[:1], torch.tensor([3]), 0.1)
    same = contrastive_loss(two_videos, two_sounds, speaking, real, torch.tensor([3, 3]), 0.1)
    other = contrastive_loss(two_videos, two_sounds, speaking, real, torch.tensor([3, 4]), 0.1)
    torch.testing.assert_close(same, alone)
    assert other > same


def test_nobody_speaks_gives_zero_with_gradients() -> None:
    video = unit(4).requires_grad_(True)
    nothing = torch.zeros(1, 1, 4, dtype=torch.bool)
    loss = contrastive_loss(video[:, None], unit(4, seed=2), nothing, ~nothing, torch.tensor([0]))
    loss.backward()
    assert loss.item() == 0
    assert video.grad is not None
    assert video.grad.abs().max() == 0


def test_negatives_within_the_clip_make_clips_independent() -> None:
    """Two clips with equally many speaking frames: the loss of both is the mean of the loss of each."""
    videos, sounds = (
        torch.cat([unit(5, seed=1), unit(5, seed=3)])[:, None],
        torch.cat([unit(5, seed=2), unit(5, seed=4)]),
    )
    everything = torch.ones(2, 1, 5, dtype=torch.bool)

    def loss(rows: slice, within_clip: bool) -> torch.Tensor:
        ids = torch.arange(2)[rows]
        return contrastive_loss(videos[rows], sounds[rows], everything[rows], everything[rows], ids, 0.1, within_clip)

    alone = [loss(slice(k, k + 1), False) for k in range(2)]
    torch.testing.assert_close(loss(slice(0, 2), True), (alone[0] + alone[1]) / 2)
    assert loss(slice(0, 2), False) > loss(slice(0, 2), True) + 0.1
