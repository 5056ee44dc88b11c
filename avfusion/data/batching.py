"""From clips to batches: padded, masked, and bucketed by length under a budget of frames.

``B`` scenes of one face track each (the ``S`` axis of the batch is 1), ``T`` video frames, ``A = 4 T`` audio frames,
``M`` mel bins. What a worker does to a clip depends on (seed, epoch, track) alone: any number of workers gives the
same batches.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision.transforms.v2.functional import resized_crop

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, SAMPLES_PER_VIDEO_FRAME
from avfusion.config import DataConfig
from avfusion.data.augment import augment_audio, augment_crops, out_of_sync
from avfusion.data.clips import Clip, ClipDataset
from avfusion.errors import AvfusionError
from avfusion.media.audio import LogMel


@dataclass(frozen=True)
class Request:
    """A stretch of one track; ``epoch`` seeds its augmentation, ``in_sync`` keeps its sound where it is."""

    track: int
    first_frame: int
    num_frames: int
    epoch: int = 0
    in_sync: bool = False


@dataclass
class Example:
    """One clip as the model takes it: ``(T, Y, X)`` float 0..1, ``(4 T, M)``, ``(T,)`` bool."""

    request: Request
    crops: Tensor
    log_mel: Tensor
    speaking: Tensor
    audio_id: int


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


def fit_crops(crops: Tensor, region: Sequence[float], size: int) -> Tensor:
    """Cuts a region out of stored crops and resizes it.

    Args:
        crops: ``(T, Y, X)`` uint8.
        region: x1, y1, x2, y2 as fractions of the stored crop.
        size: side of the result in pixels.

    Returns:
        ``(T, size, size)`` uint8.
    """
    height, width = crops.shape[1:]
    x1, x2 = round(region[0] * width), round(region[2] * width)
    y1, y2 = round(region[1] * height), round(region[3] * height)
    fitted: Tensor = resized_crop(crops, y1, x1, y2 - y1, x2 - x1, [size, size], antialias=True)
    return fitted


class Examples(Dataset[Example]):
    """Clips of a dataset made ready for the model, with or without augmentation.

    Args:
        dataset: where tracks are read.
        config: sizes, region, augmentation, memory.
        augment: whether to augment.
        seed: seeds the augmentation together with the request.
    """

    def __init__(self, dataset: ClipDataset, config: DataConfig, *, augment: bool = False, seed: int = 0) -> None:
        self.dataset, self.config, self.augment, self.seed = dataset, config, augment, seed
        self._log_mel = LogMel(config.num_mels)
        self._cache: dict[int, Clip] = {}
        self._cache_bytes = 0

    def __len__(self) -> int:
        return len(self.dataset.tracks)

    def __getitem__(self, request: Request) -> Example:
        rng = np.random.default_rng([self.seed, request.epoch, request.track]) if self.augment else None
        clip = self._clip(request, rng)
        crops, audio = torch.from_numpy(clip.crops).float() / 255, clip.audio
        if rng is not None:
            crops = augment_crops(crops, self.config.augment, rng)
            audio = augment_audio(audio, self.config.augment, rng)
        return Example(
            request,
            crops,
            self._log_mel(torch.from_numpy(audio)),
            torch.from_numpy(clip.speaking),
            zlib.crc32(self.dataset.tracks[request.track].audio_id.encode()),
        )

    def preload(self, clips: Iterable[Clip]) -> None:
        """Keeps whole tracks, given in the dataset's order, in memory until it is full, so that no epoch reads them."""
        for track, whole in enumerate(clips):
            if not self._keep(track, self._fitted(whole)):
                return

    def _clip(self, request: Request, rng: np.random.Generator | None) -> Clip:
        """The requested stretch with crops at the model's size, perhaps with its sound moved; whole tracks are kept."""
        resync = rng is not None and rng.random() < self.config.augment.resync and not request.in_sync
        whole = self._cache.get(request.track)
        if whole is None and (resync or self._has_room):
            whole = self._fitted(self.dataset.read(request.track))
            self._keep(request.track, whole)
        if whole is None:
            return self._fitted(self.dataset.read(request.track, request.first_frame, request.num_frames))
        if rng is not None and resync and whole.speaking.any():  # other tracks might be turned into sync
            whole = out_of_sync(whole, rng)
        first, last = request.first_frame, request.first_frame + request.num_frames
        sound = whole.audio[first * SAMPLES_PER_VIDEO_FRAME : last * SAMPLES_PER_VIDEO_FRAME]
        return Clip(whole.crops[first:last], sound, whole.speaking[first:last])

    @property
    def _has_room(self) -> bool:
        return self._cache_bytes < self.config.cache_gb * 1e9

    def _keep(self, track: int, whole: Clip) -> bool:
        """Keeps a track where there is room; whether there was."""
        if not self._has_room:
            return False
        self._cache[track] = whole
        self._cache_bytes += whole.crops.nbytes + whole.audio.nbytes
        return True

    def _fitted(self, clip: Clip) -> Clip:
        crops = fit_crops(torch.from_numpy(clip.crops), self.config.region, self.config.crop_size)
        return Clip(crops.numpy(), clip.audio, clip.speaking)


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
