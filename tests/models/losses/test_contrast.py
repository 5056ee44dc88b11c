"""The contrast of picture and sound against the sum written out, and what it leaves out."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from avfusion.config import LossConfig
from avfusion.models.losses import Targets, loss_counts, loss_terms, loss_totals
from tests.models.losses.examples import detection_of, random_detection, targets_of, unit


def contrast(video: Tensor, audio: Tensor, targets: Targets, temperature: float, **options: object) -> Tensor:
    """The value for ``(B, T, E)`` pictures of one face a scene."""
    config = LossConfig(temperature=temperature, **options)  # type: ignore[arg-type]
    return loss_terms(detection_of(video[:, None], audio), targets, config, ["contrastive"])["contrastive"]


def everything(scenes: int, frames: int) -> Tensor:
    return torch.ones(scenes, 1, frames, dtype=torch.bool)


def loop_loss(video: Tensor, audio: Tensor, anchors: list[int], temperature: float) -> float:
    """One clip, written out: softmax over all frames but the direct neighbours, both ways."""
    total = 0.0
    for first, second in ((video, audio), (audio, video)):
        for i in anchors:
            cosines = {j: float(first[i] @ second[j]) / temperature for j in range(len(video)) if abs(i - j) != 1}
            total -= cosines[i] - math.log(sum(math.exp(c) for c in cosines.values()))
    return total / (2 * len(anchors))


@pytest.mark.parametrize("negatives", ["batch", "clip"])
def test_one_clip_equals_the_sum_written_out(negatives: str) -> None:
    video, audio = unit(1, 6, 4, seed=1), unit(1, 6, 4, seed=2)
    targets = targets_of(torch.tensor([[[True, True, False, False, True, True]]]))
    loss = contrast(video, audio, targets, 0.2, negatives=negatives)
    assert math.isclose(loss.item(), loop_loss(video[0], audio[0], [0, 1, 4, 5], 0.2), rel_tol=1e-5)


def loop_lag_loss(video: Tensor, audio: Tensor, real: int, lags: range, temperature: float) -> float:
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


@pytest.mark.parametrize("negatives", ["batch", "clip"])
def test_natural_lags_equal_the_sum_written_out_and_ignore_padding(negatives: str) -> None:
    video, audio = unit(1, 9, 4, seed=1), unit(1, 9, 4, seed=2)
    targets = targets_of(everything(1, 9), torch.tensor([[[True] * 7 + [False] * 2]]))
    video.requires_grad_(True)
    loss = contrast(video, audio, targets, 0.2, lag_frames=[1, 3], negatives=negatives)
    assert math.isclose(loss.item(), loop_lag_loss(video[0].detach(), audio[0], 7, range(1, 4), 0.2), rel_tol=1e-5)
    loss.backward()
    assert video.grad is not None
    assert video.grad.isfinite().all()
    assert video.grad[:, :7].any()
    assert not video.grad[:, 7:].any()


def test_it_falls_for_any_of_the_natural_lags_and_no_other() -> None:
    video = unit(1, 12, 4)

    def loss(lag: int) -> float:
        return contrast(video, video.roll(lag, 1), targets_of(everything(1, 12)), 0.1, lag_frames=[-1, 3]).item()

    assert max(loss(lag) for lag in (-1, 0, 2, 3)) < min(loss(lag) for lag in (-5, 6)) - 0.5


def test_it_falls_when_streams_agree() -> None:
    video, targets = unit(1, 8, 4), targets_of(everything(1, 8))
    assert contrast(video, video, targets, 0.1) < contrast(video, video.roll(3, 1), targets, 0.1) - 1


@pytest.mark.parametrize("negatives", ["batch", "clip"])
def test_padding_is_no_negative(negatives: str) -> None:
    video, audio = unit(1, 6, 4, seed=1), unit(1, 6, 4, seed=2)
    targets = targets_of(everything(1, 6), torch.tensor([[[True] * 4 + [False] * 2]]))
    loss = contrast(video, audio, targets, 0.1, negatives=negatives)
    moved = audio.clone()
    moved[:, 4:] = 9.0
    assert torch.equal(contrast(video, moved, targets, 0.1, negatives=negatives), loss)
    short = contrast(video[:, :4], audio[:, :4], targets_of(everything(1, 4)), 0.1, negatives=negatives)
    torch.testing.assert_close(loss, short)


def test_another_face_over_the_same_sound_is_no_negative() -> None:
    """Two rows that hear one sound (a scene with two faces): the copy must not count against the original."""
    video, audio = unit(1, 5, 4, seed=1), unit(1, 5, 4, seed=2)
    two_videos, two_sounds = torch.cat([video, unit(1, 5, 4, seed=3)]), torch.cat([audio, audio])
    speaking = torch.tensor([[[True] * 5], [[False] * 5]])
    alone = contrast(video, audio, targets_of(speaking[:1]), 0.1)
    same = contrast(two_videos, two_sounds, targets_of(speaking, audio_id=torch.tensor([3, 3])), 0.1)
    other = contrast(two_videos, two_sounds, targets_of(speaking, audio_id=torch.tensor([3, 4])), 0.1)
    torch.testing.assert_close(same, alone)
    assert other > same


@pytest.mark.parametrize("negatives", ["batch", "clip"])
def test_nobody_speaks_gives_zero_with_gradients(negatives: str) -> None:
    video = unit(1, 4, 4).requires_grad_(True)
    loss = contrast(video, unit(1, 4, 4, seed=2), targets_of(~everything(1, 4)), 0.07, negatives=negatives)
    loss.backward()
    assert loss.item() == 0
    assert video.grad is not None
    assert video.grad.abs().max() == 0


def test_negatives_within_the_clip_make_clips_independent() -> None:
    """Two clips with equally many speaking frames: the loss of both is the mean of the loss of each."""
    videos, sounds = unit(2, 5, 4, seed=1), unit(2, 5, 4, seed=2)

    def loss(rows: slice, negatives: str) -> Tensor:
        return contrast(videos[rows], sounds[rows], targets_of(everything(2, 5)[rows]), 0.1, negatives=negatives)

    alone = [loss(slice(k, k + 1), "batch") for k in range(2)]
    torch.testing.assert_close(loss(slice(0, 2), "clip"), (alone[0] + alone[1]) / 2)
    assert loss(slice(0, 2), "batch") > loss(slice(0, 2), "clip") + 0.1


def written_out(video: Tensor, sounds: Tensor, targets: Targets, config: LossConfig) -> tuple[list[float], list[int]]:
    """Totals and counts of both directions over frames ``(scene, face, frame)`` and sounds ``(.., which)``, in loops.

    Args:
        video: ``(B, S, T, E)``.
        sounds: ``(B, T, R, E)``.
        targets: labels and masks.
        config: of the losses.
    """
    scenes, faces, frames = targets.speaking.shape
    per_frame = sounds.shape[2]
    first, last = config.lag_frames
    seen, heard = [], []
    for b, s, t in itertools.product(range(scenes), range(faces), range(frames)):
        speaks = bool(targets.speaking[b, s, t])
        if not targets.frame_mask[b, s, t] or (config.contrast_frames == "speaking" and not speaks):
            continue
        seen.append((b, s, t, video[b, s, t], speaks))
        for r in range(per_frame):
            if per_frame == 1 or targets.audio_mask[b, 4 * t + r]:
                heard.append((b, s, t, sounds[b, t, r], speaks))
    totals, counts = [0.0, 0.0], [0, 0]
    for way, (anchors, candidates) in enumerate(((seen, heard), (heard, seen))):
        for b, s, t, vector, speaks in anchors:
            fitting, every = 0.0, 0.0
            for b2, s2, t2, other, _ in candidates:
                lag = t2 - t if way == 0 else t - t2
                weight = math.exp(float(vector @ other) / config.temperature)
                if (b, s) == (b2, s2):
                    if first <= lag <= last:
                        fitting += weight
                    if lag in (first - 1, last + 1):
                        continue
                elif config.negatives == "clip" or targets.audio_id[b] == targets.audio_id[b2]:
                    continue
                every += weight
            if speaks and fitting:
                totals[way] -= math.log(fitting / every)
                counts[way] += 1
    return totals, counts


@pytest.mark.parametrize("negatives", ["batch", "clip"])
@pytest.mark.parametrize("contrast_frames", ["all", "speaking"])
@pytest.mark.parametrize("contrast_hz", [25, 100])
@pytest.mark.parametrize("lags", [[0, 0], [-1, 2], [2, 3], [-9, -8]])
def test_every_option_equals_the_sum_written_out(
    negatives: str, contrast_frames: str, contrast_hz: int, lags: list[int]
) -> None:
    """Three scenes of two faces with padding, two of them with one sound."""
    config = LossConfig(
        temperature=0.3, negatives=negatives, contrast_frames=contrast_frames, contrast_hz=contrast_hz, lag_frames=lags
    )
    scenes, faces, frames = 3, 2, 7
    detection = random_detection(scenes, faces, frames)
    speaking = torch.rand(scenes, faces, frames, generator=torch.Generator().manual_seed(3)) < 0.5
    mask = torch.arange(frames).expand(scenes, faces, frames) < torch.tensor([7, 5, 6])[:, None, None]
    audio_mask = torch.arange(4 * frames) < torch.tensor([28, 18, 24])[:, None]  # of scene 1 half a frame less
    targets = targets_of(speaking, mask, torch.tensor([4, 9, 4]), audio_mask)
    sounds = detection.audio_embedding[:, :, None]
    if contrast_hz == 100:
        assert detection.audio_embedding_100hz is not None
        sounds = detection.audio_embedding_100hz.unflatten(1, (frames, 4))
    totals, counts = written_out(detection.video_embedding.detach(), sounds.detach(), targets, config)
    found = loss_totals(detection, targets, config, ["contrastive"])["contrastive"]
    torch.testing.assert_close(found.detach(), torch.tensor(totals), rtol=1e-5, atol=1e-6)
    assert loss_counts(targets, config, ["contrastive"])["contrastive"].tolist() == counts
    value = loss_terms(detection, targets, config, ["contrastive"])["contrastive"].item()
    by_hand = sum(total / max(count, 1) for total, count in zip(totals, counts, strict=True)) / 2
    assert value == pytest.approx(by_hand, rel=1e-5, abs=1e-7)


def test_single_sounds_leave_out_four_neighbours_on_either_side() -> None:
    """Frame 2 of 5 at 100 Hz: sounds 8..11 fit, 4..7 and 12..15 are neighbours, 0..3 and 16..19 are negatives."""
    video, sounds = unit(1, 5, 4, seed=1), torch.zeros(1, 20, 4)
    speaking = torch.tensor([[[False, False, True, False, False]]])
    config = LossConfig(temperature=1.0, contrast_hz=100)
    detection = detection_of(video[:, None], unit(1, 5, 4), audio_embedding_100hz=sounds)
    video_to_sound = loss_totals(detection, targets_of(speaking), config, ["contrastive"])["contrastive"][0]
    assert math.isclose(video_to_sound.item(), -math.log(4 / 12), rel_tol=1e-6)


def test_speaking_frames_alone_leave_silence_out() -> None:
    """What the silent frames look and sound like counts with all frames and not with the speaking ones."""
    video, audio = unit(1, 8, 4, seed=1), unit(1, 8, 4, seed=2)
    targets = targets_of(torch.tensor([[[True, True, True, True, False, False, False, False]]]))
    moved_video, moved_audio = video.clone(), audio.clone()
    moved_video[:, 4:], moved_audio[:, 4:] = unit(1, 4, 4, seed=5), unit(1, 4, 4, seed=6)
    for frames, same in (("speaking", True), ("all", False)):
        before = contrast(video, audio, targets, 0.1, contrast_frames=frames)
        after = contrast(moved_video, moved_audio, targets, 0.1, contrast_frames=frames)
        assert torch.equal(before, after) == same


def test_very_different_similarities_at_a_low_temperature_stay_exact() -> None:
    """A positive 2000 below a negative: the loss is 2000 and pulls, where a plain softmax would be 0."""
    video = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]]).requires_grad_(True)
    audio = torch.tensor([[[-1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]])
    targets = targets_of(torch.tensor([[[True, False, False]]]))
    loss = contrast(video, audio, targets, 0.001)
    assert loss.item() == pytest.approx(2000)
    loss.backward()
    assert video.grad is not None
    # As an anchor (its negative less its positive) / 0.001, as the positive of its sound minus that / 0.001, halved.
    assert video.grad[0, 0].tolist() == pytest.approx([(2 + 1) / 0.001 / 2, 0.0])


def test_sound_at_100_hz_must_be_there() -> None:
    detection = detection_of(unit(1, 1, 4, 4), unit(1, 4, 4))
    with pytest.raises(ValueError, match="need_audio_100hz=True"):
        loss_terms(detection, targets_of(everything(1, 4)), LossConfig(contrast_hz=100), ["contrastive"])
