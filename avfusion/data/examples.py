"""Clips made ready for the model: cut to size, perhaps augmented, with their log-mel.

``T`` video frames of ``Y`` by ``X``, ``A = 4 T`` audio frames, ``M`` mel bins. What is done to a clip depends on (seed,
epoch, track) alone: any number of workers and processes gives the same examples.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms.v2.functional import resized_crop

from avfusion.clock import SAMPLES_PER_VIDEO_FRAME
from avfusion.config import DataConfig
from avfusion.data.augment import augment_audio, augment_crops, out_of_sync
from avfusion.data.clips import Clip, ClipDataset
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
