"""From examples to batches: padded, masked, and bucketed by length under a budget of frames.

``B`` scenes of one face track each (the ``S`` axis of the batch is 1), ``T`` video frames, ``A = 4 T`` audio frames,
``M`` mel bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME
from avfusion.data.examples import Example, Examples, Request
from avfusion.errors import AvfusionError


@dataclass
class Batch:
    """Padded clips. Masks are True on real frames.

    Attributes:
        crops: ``(B, 1, T, Y, X)`` float 0..1.
        log_mel: ``(B, 4 T, M)``.
        speaking: ``(B, 1, T)`` bool.
        frame_mask: ``(B, 1, T)`` bool.
        audio_mask: ``(B, 4 T)`` bool.
        audio_id: ``(B,)`` integers, equal where the same sound is heard.
        requests: which stretch of which track each row is.
    """

    crops: Tensor
    log_mel: Tensor
    speaking: Tensor
    frame_mask: Tensor
    audio_mask: Tensor
    audio_id: Tensor
    requests: list[Request]

    def to(self, device: torch.device) -> Batch:
        """The batch with its tensors on ``device``."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "requests"}
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
        return Batch(**moved, requests=self.requests)


def collate(examples: Sequence[Example]) -> Batch:
    """Pads examples to the longest."""
    frames = max(len(example.speaking) for example in examples)

    def stack(tensors: Sequence[Tensor], length: int) -> Tensor:
        padded = tensors[0].new_zeros((len(tensors), length, *tensors[0].shape[1:]))
        for row, tensor in zip(padded, tensors, strict=True):
            row[: len(tensor)] = tensor
        return padded

    frame_mask = stack([torch.ones(len(e.speaking), dtype=torch.bool) for e in examples], frames)
    return Batch(
        crops=stack([e.crops for e in examples], frames)[:, None],
        log_mel=stack([e.log_mel for e in examples], frames * AUDIO_FRAMES_PER_VIDEO_FRAME),
        speaking=stack([e.speaking for e in examples], frames)[:, None],
        frame_mask=frame_mask[:, None],
        audio_mask=frame_mask.repeat_interleave(AUDIO_FRAMES_PER_VIDEO_FRAME, dim=1),
        audio_id=torch.tensor([e.audio_id for e in examples], dtype=torch.int64),
        requests=[e.request for e in examples],
    )


def group_by_length(requests: Sequence[Request], batch_frames: int) -> list[list[Request]]:
    """Groups requests so that a batch, padding included, holds at most ``batch_frames`` (one request at least).

    Requests of like length come together; those of equal length keep their order.
    """
    batches: list[list[Request]] = []
    for request in sorted(requests, key=lambda r: -r.num_frames):
        current = batches[-1] if batches else []
        if current and (len(current) + 1) * current[0].num_frames <= batch_frames:
            current.append(request)
        else:
            batches.append([request])
    return batches


class TrainingSampler(Sampler[list[Request]]):
    """One random stretch of every track an epoch, shuffled, grouped by length, batches shuffled again.

    Args:
        lengths: frames of each track.
        clip_frames: longest stretch.
        batch_frames: budget of a batch, padding included.
        seed: with the epoch, fixes every draw.
        speaking: tracks in which somebody speaks; the contrastive epochs draw from them alone.
        contrastive_epochs: how many epochs, from the first, are contrastive.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        clip_frames: int,
        batch_frames: int,
        seed: int,
        speaking: Sequence[int] = (),
        contrastive_epochs: int = 0,
    ) -> None:
        self.lengths, self.clip_frames, self.batch_frames, self.seed = lengths, clip_frames, batch_frames, seed
        self.speaking, self.contrastive_epochs = speaking, contrastive_epochs
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch whose draws the next iteration makes."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.batches(self.epoch))

    def __iter__(self) -> Iterator[list[Request]]:
        return iter(self.batches(self.epoch))

    def batches(self, epoch: int) -> list[list[Request]]:
        """The batches of an epoch."""
        rng = np.random.default_rng([self.seed, epoch])
        contrastive = epoch < self.contrastive_epochs
        requests = []
        for track in rng.permutation(self.speaking if contrastive else len(self.lengths)):
            length = self.lengths[track]
            count = min(length, self.clip_frames)
            first = int(rng.integers(0, length - count + 1))
            requests.append(Request(int(track), first, count, epoch, in_sync=contrastive))
        grouped = group_by_length(requests, self.batch_frames)
        return [grouped[i] for i in rng.permutation(len(grouped))]


class ClipLoader(DataLoader[Batch]):
    """Batches of clips, read by workers that open video themselves; a clip that cannot be read is told in one line."""

    def __init__(
        self, examples: Examples, batches: Sampler[list[Request]] | Sequence[list[Request]], workers: int
    ) -> None:
        super().__init__(
            examples,  # type: ignore[arg-type]
            batch_sampler=batches,
            collate_fn=collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
        )

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        try:
            yield from super().__iter__()
        except AvfusionError as error:
            # torch puts a worker's whole traceback into the message; its last line ends with what was wrong.
            last_line = str(error).strip().splitlines()[-1]
            raise type(error)(last_line.removeprefix(f"{type(error).__module__}.{type(error).__name__}: ")) from error
