"""A batch in parts: totals and counts add up to the whole, padding changes nothing, an empty part is harmless."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from avfusion.config import LossConfig
from avfusion.models.detector import Detection
from avfusion.models.losses import Targets, loss_counts, loss_terms, loss_totals, term_value
from tests.models.losses.examples import EVERY, random_detection, rows, target_rows, targets_of, tensors_of

SCENES, FACES, FRAMES = 5, 2, 40
REAL = [40, 33, 40, 29, 22]
PARTS = (slice(0, 2), slice(2, 3), slice(3, 5))


def options(**more: object) -> LossConfig:
    return LossConfig(lag_frames=[-1, 2], **more)  # type: ignore[arg-type]


CONFIGS = {
    "clip": options(negatives="clip"),
    "clip, speaking": options(negatives="clip", contrast_frames="speaking"),
    "clip, 100 Hz": options(negatives="clip", contrast_hz=100),
    "not speaking": options(negatives="clip", null_frames="not_speaking", guided_heads=1),
}
SHARED = {
    "batch": options(),
    "batch, speaking": options(contrast_frames="speaking"),
    "batch, 100 Hz": options(contrast_hz=100),
}


def whole_batch() -> tuple[Detection, Targets]:
    """Scene 2 has nobody speaking; scenes 0 and 3 hear one sound."""
    speaking = torch.rand(SCENES, FACES, FRAMES, generator=torch.Generator().manual_seed(7)) < 0.7
    speaking[2] = False
    mask = (torch.arange(FRAMES) < torch.tensor(REAL)[:, None, None]).expand(SCENES, FACES, FRAMES)
    targets = targets_of(speaking, mask, torch.tensor([1, 2, 3, 1, 5]))
    detection = random_detection(SCENES, FACES, FRAMES)
    assert detection.alignment is not None
    # No attention falls on padded sound.
    heard = detection.alignment.detach() * targets.audio_mask[:, None, None, None, None]
    return replace(detection, alignment=heard.requires_grad_(True)), targets


def gradients(detection: Detection, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of the sum of the values, by name of the detection's tensor; zero where it has no part."""
    tensors = tensors_of(detection)
    together = torch.stack(list(values.values())).sum()
    found = torch.autograd.grad(
        together, list(tensors.values()), retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return dict(zip(tensors, found, strict=True))


def summed(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([part[name] for part in parts]).sum(dim=0) for name in parts[0]}


def assert_the_whole(
    detection: Detection, targets: Targets, config: LossConfig, totals: dict[str, Tensor], counts: dict[str, Tensor]
) -> None:
    """Values and gradients from sums over parts are those of the whole batch, for every term."""
    expected = loss_terms(detection, targets, config, EVERY)
    found = {name: term_value(total, counts[name]) for name, total in totals.items()}
    assert set(found) == EVERY
    assert all(value.item() > 0.05 for value in expected.values())
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    slopes = [gradients(detection, values) for values in (found, expected)]
    for slope in slopes:  # a weight on padded sound, which the detector holds at 0, is no part of a shorter part
        slope["alignment"] = slope["alignment"] * targets.audio_mask[:, None, None, None, None]
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_parts_add_up_to_the_whole(config: LossConfig) -> None:
    """Each part is padded to its own longest clip only."""
    detection, targets = whole_batch()
    totals, counts = [], []
    for part in PARTS:
        longest = max(REAL[part])
        own = target_rows(targets, part, longest)
        totals.append(loss_totals(rows(detection, part, longest), own, config, EVERY))
        counts.append(loss_counts(own, config, EVERY))
    assert_the_whole(detection, targets, config, summed(totals), summed(counts))


@pytest.mark.parametrize("config", SHARED.values(), ids=SHARED.keys())
def test_a_contrast_with_the_batch_sees_its_own_part_alone(config: LossConfig) -> None:
    """So its sum over parts is smaller than the whole's, whose candidates are more; the counts still add up."""
    detection, targets = whole_batch()
    wanted = ["contrastive"]
    parts = [loss_totals(rows(detection, p), target_rows(targets, p), config, wanted) for p in PARTS]
    whole = loss_totals(detection, targets, config, wanted)["contrastive"]
    assert (summed(parts)["contrastive"] < whole - 1).all()
    counts = summed([loss_counts(target_rows(targets, p), config, wanted) for p in PARTS])
    torch.testing.assert_close(counts, loss_counts(targets, config, wanted))


class Meeting:
    """As many threads as parts, each standing for a process; whoever gathers more or less often breaks it."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier, self.calls = size, threading.Barrier(size, timeout=20), [0] * size
        self.slots: list[Tensor] = [torch.empty(0)] * size

    def process(self, rank: int) -> Process:
        return Process(self, rank)

    def run(self, work: Callable[[Process], dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        def one(rank: int) -> dict[str, Tensor]:
            try:
                return work(self.process(rank))
            except BaseException:
                self.barrier.abort()
                raise

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(one, range(self.size)))


class Process:
    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting, self.rank = meeting, rank

    def gather(self, sent: Tensor) -> Tensor:
        meeting = self.meeting
        meeting.calls[self.rank] += 1
        meeting.slots[self.rank] = sent
        meeting.barrier.wait()
        received = torch.cat(meeting.slots)
        meeting.barrier.wait()
        return received


@pytest.mark.parametrize("config", SHARED.values(), ids=SHARED.keys())
def test_processes_that_gather_have_the_loss_of_the_whole(config: LossConfig) -> None:
    detection, targets = whole_batch()
    meeting = Meeting(len(PARTS))

    def work(process: Process) -> dict[str, Tensor]:
        part, longest = PARTS[process.rank], max(REAL[PARTS[process.rank]])
        return loss_totals(
            rows(detection, part, longest), target_rows(targets, part, longest), config, EVERY, everyone=process
        )

    totals = summed(meeting.run(work))
    counts = summed([loss_counts(target_rows(targets, part), config, EVERY) for part in PARTS])
    assert_the_whole(detection, targets, config, totals, counts)
    assert meeting.calls == [2, 2, 2]


def test_only_real_frames_are_sent() -> None:
    _, targets = whole_batch()
    sent = []

    class Listener:
        rank = 0

        def gather(self, rows: Tensor) -> Tensor:
            sent.append(tuple(rows.shape))
            return rows

    loss_totals(random_detection(SCENES, FACES, FRAMES), targets, options(), ["contrastive"], everyone=Listener())
    assert sent == [(FACES * sum(REAL), 2, 8), (FACES * sum(REAL), 4)]


def nothing_real() -> tuple[Detection, Targets]:
    """The smallest part there is: one scene, one face, one frame, and that one padding."""
    nothing = torch.zeros(1, 1, 1, dtype=torch.bool)
    return random_detection(1, 1, 1, seed=5), targets_of(~nothing, nothing)


@pytest.mark.parametrize("config", [*CONFIGS.values(), *SHARED.values()], ids=[*CONFIGS, *SHARED])
@pytest.mark.parametrize("frames", [1, FRAMES])
def test_a_masked_part_adds_nothing(config: LossConfig, frames: int) -> None:
    nothing = torch.zeros(2, FACES, frames, dtype=torch.bool)
    detection = random_detection(2, FACES, frames)
    totals = loss_totals(detection, targets_of(~nothing, nothing), config, EVERY)
    counts = loss_counts(targets_of(~nothing, nothing), config, EVERY)
    assert set(totals) == set(counts) == EVERY
    for name, total in totals.items():
        assert not total.any(), name
        assert not counts[name].any(), name
        assert total.requires_grad, name
    for name, gradient in gradients(detection, {name: total.sum() for name, total in totals.items()}).items():
        assert torch.equal(gradient, torch.zeros_like(gradient)), name


@pytest.mark.parametrize("config", SHARED.values(), ids=SHARED.keys())
def test_a_process_without_a_real_frame_gathers_as_often_as_the_others(config: LossConfig) -> None:
    """One holds the batch, the other nothing: the sum is the batch's loss, the empty part's gradient is zero."""
    detection, targets = whole_batch()
    empty, no_targets = nothing_real()
    meeting = Meeting(2)

    def work(process: Process) -> dict[str, Tensor]:
        own = (detection, targets) if process.rank == 0 else (empty, no_targets)
        return loss_totals(*own, config, EVERY, everyone=process)

    totals = meeting.run(work)
    assert meeting.calls == [2, 2]
    assert not any(total.any() for total in totals[1].values())
    assert_the_whole(detection, targets, config, summed(totals), loss_counts(targets, config, EVERY))
    together = {name: total.sum() for name, total in summed(totals).items()}
    for name, gradient in gradients(empty, together).items():
        assert torch.equal(gradient, torch.zeros_like(gradient)), name


@pytest.mark.parametrize("config", SHARED.values(), ids=SHARED.keys())
def test_processes_that_all_hold_nothing_have_zero(config: LossConfig) -> None:
    parts = [nothing_real() for _ in range(2)]
    totals = Meeting(2).run(lambda process: loss_totals(*parts[process.rank], config, EVERY, everyone=process))
    assert not any(total.any() for part in totals for total in part.values())
    gradient = gradients(parts[0][0], {name: total.sum() for name, total in summed(totals).items()})
    assert not any(tensor.any() for tensor in gradient.values())


@pytest.mark.parametrize("config", [*CONFIGS.values(), *SHARED.values()], ids=[*CONFIGS, *SHARED])
def test_what_stands_in_the_padding_changes_nothing_and_gets_no_gradient(config: LossConfig) -> None:
    """Padded frames hold wild numbers, and whole padded scenes and faces come in between."""
    detection, targets = whole_batch()
    before = loss_terms(detection, targets, config, EVERY)
    real = targets.frame_mask
    heard = real[:, 0]
    masks = {
        "logits": real,
        "audio_logits": real,
        "video_logits": real,
        "video_embedding": real[..., None],
        "audio_embedding": heard[..., None],
        "audio_embedding_100hz": targets.audio_mask[..., None],
        "alignment": real[:, :, None, None, :, None],
    }
    wild = {
        name: torch.where(masks[name], tensor.detach(), 9.0).requires_grad_(True)
        for name, tensor in tensors_of(detection).items()
    }
    moved = Detection(**wild)
    labels = torch.where(real, targets.speaking, True)
    after = loss_terms(moved, Targets(labels, real, targets.audio_mask, targets.audio_id), config, EVERY)
    torch.testing.assert_close(after, before, rtol=1e-6, atol=1e-7)
    for name, gradient in gradients(moved, after).items():
        assert gradient.isfinite().all(), name
        assert not gradient.masked_fill(masks[name], 0.0).any(), name


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_a_scene_without_one_of_its_streams_counts_in_the_speaking_loss_alone(config: LossConfig) -> None:
    """The other terms are those of the batch without that scene."""
    detection, targets = whole_batch()
    scenes = len(targets.speaking)
    matched = torch.arange(scenes) != scenes - 1
    found = loss_terms(detection, replace(targets, matched=matched), config, EVERY)
    left = slice(0, scenes - 1)
    without = loss_terms(rows(detection, left), target_rows(targets, left), config, EVERY)
    torch.testing.assert_close(found.pop("speaking"), loss_terms(detection, targets, config, {"speaking"})["speaking"])
    del without["speaking"]
    torch.testing.assert_close(found, without, rtol=1e-5, atol=1e-6)


def test_what_is_not_wanted_is_not_computed() -> None:
    """A detection without anything but logits serves the speaking terms."""
    _, targets = whole_batch()
    logits = torch.zeros(SCENES, FACES, FRAMES)
    nothing: Tensor = None  # type: ignore[assignment]
    bare = Detection(logits, logits, logits, nothing, nothing)
    assert list(loss_terms(bare, targets, LossConfig(), ["video", "speaking"])) == ["speaking", "video"]
