"""From examples to batches: padded, masked, and bucketed by length under a budget of frames.

``B`` scenes, ``S`` face tracks in a scene (the first is the one the scene is built around), ``T`` video frames,
``A = 4 T`` audio frames, ``M`` mel bins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME
from avfusion.data.companions import Companions
from avfusion.data.examples import Example, Examples, Request
from avfusion.errors import AvfusionError


@dataclass
class Batch:
    """Padded clips. Masks are True on real frames.

    Attributes:
        crops: ``(B, S, T, Y, X)`` float 0..1.
        log_mel: ``(B, 4 T, M)``.
        speaking: ``(B, S, T)`` bool.
        frame_mask: ``(B, S, T)`` bool.
        audio_mask: ``(B, 4 T)`` bool.
        audio_id: ``(B,)`` integers, equal where the same sound is heard.
        matched: ``(B,)`` bool, False where augmentation dropped picture or sound.
        requests: which stretch of which track each row is.
    """

    crops: Tensor
    log_mel: Tensor
    speaking: Tensor
    frame_mask: Tensor
    audio_mask: Tensor
    audio_id: Tensor
    matched: Tensor
    requests: list[Request]

    @property
    def is_padded(self) -> bool:
        """Whether any frame is not real; told by the requests, so that a GPU need not be asked."""
        alike = len({(request.num_frames, request.num_faces) for request in self.requests}) == 1
        return not alike or self.requests[0].num_faces > 1  # another face may be away in some of the frames

    def to(self, device: torch.device) -> Batch:
        """The batch with its tensors on ``device``."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "requests"}
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
        return Batch(**moved, requests=self.requests)


def collate(examples: Sequence[Example], crop_size: int = 1, num_mels: int = 1) -> Batch:
    """Pads examples to the longest.

    Args:
        examples: clips; none at all give a batch of one clip of one frame that is not real, so that a process without a
            share still takes part in a step.
        crop_size: side of that frame.
        num_mels: mel bins of its sound.
    """
    if not examples:
        return _nothing(crop_size, num_mels)
    frames = max(len(example.speaking) for example in examples)
    faces = 1 + max(len(example.others) for example in examples)

    def stack(tensors: Sequence[Tensor], length: int) -> Tensor:
        padded = tensors[0].new_zeros((len(tensors), length, *tensors[0].shape[1:]))
        for row, tensor in zip(padded, tensors, strict=True):
            row[: len(tensor)] = tensor
        return padded

    def by_face(own: Sequence[Tensor], of_others: Sequence[Sequence[Tensor]]) -> Tensor:
        if faces == 1:
            return stack(own, frames)[:, None]
        padded = own[0].new_zeros((len(own), faces, frames, *own[0].shape[1:]))
        for scene, first, others in zip(padded, own, of_others, strict=True):
            for row, tensor in zip(scene, (first, *others), strict=False):
                row[: len(tensor)] = tensor
        return padded

    real = [torch.ones(len(e.speaking), dtype=torch.bool) for e in examples]
    return Batch(
        crops=by_face([e.crops for e in examples], [[o.crops for o in e.others] for e in examples]),
        log_mel=stack([e.log_mel for e in examples], frames * AUDIO_FRAMES_PER_VIDEO_FRAME),
        speaking=by_face([e.speaking for e in examples], [[o.speaking for o in e.others] for e in examples]),
        frame_mask=by_face(real, [[o.there for o in e.others] for e in examples]),
        audio_mask=stack(real, frames).repeat_interleave(AUDIO_FRAMES_PER_VIDEO_FRAME, dim=1),
        audio_id=torch.tensor([e.audio_id for e in examples], dtype=torch.int64),
        matched=torch.tensor([e.matched for e in examples]),
        requests=[e.request for e in examples],
    )


def _nothing(crop_size: int, num_mels: int) -> Batch:
    unreal = torch.zeros(1, 1, 1, dtype=torch.bool)
    return Batch(
        crops=torch.zeros(1, 1, 1, crop_size, crop_size),
        log_mel=torch.zeros(1, AUDIO_FRAMES_PER_VIDEO_FRAME, num_mels),
        speaking=unreal,
        frame_mask=unreal,
        audio_mask=torch.zeros(1, AUDIO_FRAMES_PER_VIDEO_FRAME, dtype=torch.bool),
        audio_id=torch.zeros(1, dtype=torch.int64),
        matched=torch.ones(1, dtype=torch.bool),
        requests=[],
    )


def group_by_length(requests: Sequence[Request], batch_frames: int) -> list[list[Request]]:
    """Groups requests so that a batch, padding included, holds at most ``batch_frames`` pictures (one scene at least).

    Requests of like length, and of as many faces, come together; those that are alike keep their order.
    """
    batches: list[list[Request]] = []
    for request in sorted(requests, key=lambda r: (-r.num_frames, -r.num_faces)):
        current = batches[-1] if batches else []
        faces = max((other.num_faces for other in current), default=1)
        pictures = (len(current) + 1) * max(faces, request.num_faces) * current[0].num_frames if current else 0
        if current and pictures <= batch_frames:
            current.append(request)
        else:
            batches.append([request])
    return batches


class TrainingSampler(Sampler[list[Request]]):
    """A random stretch of every track an epoch, shuffled, grouped by length, groups shuffled again.

    With ``faces`` above 1 a scene shows others who are seen in the stretch; whoever was shown so is not drawn again.

    A group is what one optimiser step learns from. It is planned for all processes together, from the seed and the
    epoch alone, and dealt out like cards: to every process in turn, and within a process to the parts whose gradients
    are added up. So no clip is lost or repeated, whatever the number of processes; a process may get nothing.
    Each part stays within the budget but for one clip at most.

    Args:
        lengths: frames of each track.
        clip_frames: longest stretch.
        batch_frames: budget of one part, padding included; a step has ``ranks * accumulate`` times as much.
        seed: with the epoch, fixes every draw.
        speaking: tracks in which somebody speaks; the contrastive epochs draw from them alone.
        contrastive_epochs: how many epochs, from the first, are contrastive.
        accumulate: parts a process works through before each step.
        rank: of this process.
        ranks: number of processes.
        companions: who is seen with whom; None for scenes of one face.
        faces: most faces of a scene.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        clip_frames: int,
        batch_frames: int,
        seed: int,
        speaking: Sequence[int] = (),
        contrastive_epochs: int = 0,
        *,
        accumulate: int = 1,
        rank: int = 0,
        ranks: int = 1,
        companions: Companions | None = None,
        faces: int = 1,
    ) -> None:
        self.lengths, self.clip_frames, self.seed = lengths, clip_frames, seed
        self.speaking, self.contrastive_epochs = speaking, contrastive_epochs
        self.accumulate, self.rank, self.ranks = accumulate, rank, ranks
        self.step_frames = batch_frames * accumulate * ranks
        self.companions, self.faces = companions, faces
        self.epoch, self.first_step = 0, 0

    def set_epoch(self, epoch: int, first_step: int = 0) -> None:
        """Chooses the epoch whose draws the next iteration makes, and at which of its steps it begins."""
        self.epoch, self.first_step = epoch, first_step

    def __len__(self) -> int:
        """Parts that this process will work through."""
        return (len(self.steps(self.epoch)) - self.first_step) * self.accumulate

    def __iter__(self) -> Iterator[list[Request]]:
        """This process's parts, ``accumulate`` of them a step."""
        for step in self.steps(self.epoch)[self.first_step :]:
            yield from self.parts(step, self.rank)

    def fingerprint(self, epoch: int) -> str:
        """Tells whether an epoch is planned as it was: the same clips in the same steps."""
        plan = [
            [(r.track, r.first_frame, r.num_frames, r.in_sync, *([r.others] if r.others else [])) for r in step]
            for step in self.steps(epoch)
        ]
        return hashlib.sha256(repr(plan).encode()).hexdigest()

    def parts(self, step: Sequence[Request], rank: int) -> list[list[Request]]:
        """What a process works through in a step, ``accumulate`` parts; those at the end may be empty."""
        return [list(step[part * self.ranks + rank :: self.ranks * self.accumulate]) for part in range(self.accumulate)]

    def steps(self, epoch: int) -> list[list[Request]]:
        """The clips of every step of an epoch, over all processes."""
        rng = np.random.default_rng([self.seed, epoch])
        contrastive = epoch < self.contrastive_epochs
        requests = []
        shown: set[int] = set()
        for track in rng.permutation(self.speaking if contrastive else len(self.lengths)):
            if track in shown:
                continue
            length = self.lengths[track]
            count = min(length, self.clip_frames)
            first = int(rng.integers(0, length - count + 1))
            others = () if contrastive else self._others(int(track), first, count, rng)
            shown.update(others)
            requests.append(Request(int(track), first, count, epoch, in_sync=contrastive, others=others))
        grouped = group_by_length(requests, self.step_frames)
        return [grouped[i] for i in rng.permutation(len(grouped))]

    def _others(self, track: int, first: int, count: int, rng: np.random.Generator) -> tuple[int, ...]:
        """Who else is in the scene, at random where more are seen than there is room for."""
        if self.companions is None or self.faces == 1:
            return ()
        seen = self.companions.seen_with(track, first, count)
        if len(seen) >= self.faces:
            seen = [seen[place] for place in sorted(rng.choice(len(seen), self.faces - 1, replace=False))]
        return tuple(seen)


class ClipLoader(DataLoader[Batch]):
    """Batches of clips, read by workers that open video themselves; a clip that cannot be read is told in one line."""

    def __init__(
        self, examples: Examples, batches: Sampler[list[Request]] | Sequence[list[Request]], workers: int
    ) -> None:
        super().__init__(
            examples,  # type: ignore[arg-type]
            batch_sampler=batches,
            collate_fn=partial(collate, crop_size=examples.config.crop_size, num_mels=examples.config.num_mels),
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=torch.cuda.is_available(),
            # Of its own, since every loop over the batches draws from it and a resumed epoch begins one loop more.
            generator=torch.Generator(),
        )

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        try:
            yield from super().__iter__()
        except RuntimeError as error:  # torch's word for a worker that the system ended
            if "DataLoader worker" not in str(error):
                raise
            raise AvfusionError(
                f"a process that loads clips was killed from outside (often: no memory left); use fewer data.workers"
                f" (now {self.num_workers}) or a smaller data.cache_gb"
            ) from error
        except AvfusionError as error:
            # torch puts a worker's whole traceback into the message; its last line ends with what was wrong.
            last_line = str(error).strip().splitlines()[-1]
            raise type(error)(last_line.removeprefix(f"{type(error).__module__}.{type(error).__name__}: ")) from error
