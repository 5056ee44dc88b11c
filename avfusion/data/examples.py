"""Clips made ready for the model: cut to size, perhaps augmented, with their log-mel.

``T`` video frames of ``Y`` by ``X``, ``A = 4 T`` audio frames, ``M`` mel bins. A clip is a stretch of one face track
with its sound, and perhaps other faces that are seen meanwhile. What is done to it depends on (seed, epoch, tracks)
alone: any number of workers and processes gives the same examples, whatever is in memory already.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms.v2.functional import resized_crop

from avfusion.clock import SAMPLES_PER_VIDEO_FRAME
from avfusion.config import DataConfig
from avfusion.data.augment.draws import Draws, between
from avfusion.data.augment.folders import open_folders
from avfusion.data.augment.interferer import Interferers
from avfusion.data.augment.mixing import Added, looped
from avfusion.data.augment.modality import NO_PICTURE_LEVEL, dropped_stream
from avfusion.data.augment.picture import augment_crops
from avfusion.data.augment.sound import augment_audio
from avfusion.data.augment.timing import Timing, draw_timing, out_of_sync
from avfusion.data.clips import Clip, ClipDataset
from avfusion.data.companions import Companions, Presence
from avfusion.media.audio import LogMel
from avfusion.processes import one_numpy_thread


@dataclass(frozen=True)
class Request:
    """A stretch of one track; ``epoch`` seeds its augmentation.

    ``in_sync`` is for learning what goes together: sound and picture are both there, and at their own time. ``others``
    are tracks of the same video that are seen in some of its frames.
    """

    track: int
    first_frame: int
    num_frames: int
    epoch: int = 0
    in_sync: bool = False
    others: tuple[int, ...] = ()

    @property
    def num_faces(self) -> int:
        """``S`` of its scene."""
        return 1 + len(self.others)


@dataclass
class OtherFace:
    """Another face in the frames of a clip: ``(T, Y, X)`` float 0..1, ``(T,)`` bool, ``(T,)`` bool: it is there."""

    crops: Tensor
    speaking: Tensor
    there: Tensor


@dataclass
class Example:
    """One clip as the model takes it: ``(T, Y, X)`` float 0..1, ``(4 T, M)``, ``(T,)`` bool.

    ``matched`` is False where one of the streams was dropped: nothing can be learnt there about what goes together.
    ``others`` are the faces that the request names.
    """

    request: Request
    crops: Tensor
    log_mel: Tensor
    speaking: Tensor
    audio_id: int
    matched: bool = True
    others: list[OtherFace] = field(default_factory=list)


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

    Raises:
        UsageError: a folder of sounds that augmentation asks for is missing or holds none.
        AvfusionError: one of its files cannot be read.
    """

    def __init__(self, dataset: ClipDataset, config: DataConfig, *, augment: bool = False, seed: int = 0) -> None:
        self.dataset, self.config, self.augment, self.seed = dataset, config, augment, seed
        self._log_mel = LogMel(config.num_mels)
        self._cache: dict[int, Clip] = {}
        self._cache_bytes = 0
        self.companions = Companions(dataset.tracks)
        wanted = config.augment
        self._interferers = Interferers(dataset.tracks) if augment and wanted.interferer else None
        self._folders = open_folders(wanted) if augment else None
        if self._interferers is not None and (alone := self._interferers.num_alone):
            print(
                f"note: data.augment.interferer: for {alone} of {len(self)} tracks nobody speaks in another video,"
                " sound and group: no voice is mixed into those",
                file=sys.stderr,
            )

    def __len__(self) -> int:
        return len(self.dataset.tracks)

    def __getitem__(self, request: Request) -> Example:
        # As a worker does it: more threads add up in another order, and the last bit would tell who made the clip.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with one_numpy_thread():
                return self._example(request)
        finally:
            torch.set_num_threads(threads)

    def _example(self, request: Request) -> Example:
        draws = Draws(self.seed, request.epoch, request.track) if self.augment else None
        dropped = None
        clip, timing, moved = self._clip(request, draws)
        others = [self._other_face(request, other, timing, moved) for other in request.others]
        crops, audio = torch.from_numpy(clip.crops).float().div_(255), clip.audio
        if draws is not None:
            dropped = None if request.in_sync else dropped_stream(self.config.augment, draws)
            crops = augment_crops(crops, self.config.augment, draws)
            if dropped == "video":
                for shown in (crops, *(other.crops for other in others)):
                    shown.fill_(NO_PICTURE_LEVEL)
            added = [] if dropped == "audio" else self._other_sounds(request, len(audio), draws)
            audio = augment_audio(audio, self.config.augment, draws, added)
            if dropped == "audio":
                audio = np.zeros_like(audio)
        return Example(
            request,
            crops,
            self.log_mel_of(audio),
            torch.from_numpy(clip.speaking),
            zlib.crc32(self.dataset.tracks[request.track].audio_id.encode()),
            matched=dropped is None,
            others=others,
        )

    def log_mel_of(self, audio: NDArray[np.float32]) -> Tensor:
        """``(640 T,)`` sound as the model takes it, ``(4 T, M)``."""
        log_mel: Tensor = self._log_mel(torch.from_numpy(audio))
        return log_mel

    def preload(self, clips: Iterable[Clip]) -> None:
        """Keeps whole tracks, given in the dataset's order, in memory until it is full, so that no epoch reads them."""
        for track, whole in enumerate(clips):
            if not self._keep(track, self._fitted(whole)):
                return

    def _other_face(self, request: Request, other: int, timing: Timing, moved: bool) -> OtherFace:
        """Another face in the frames of the request; where the sound was moved out of step nobody speaks."""
        track = self.dataset.tracks[other]
        place = timing.places + self.companions.offset(request.track, other)
        presence = Presence.at(place, track.num_frames)
        first, count = presence.span
        whole = self._whole(other)
        part = self._fitted(self.dataset.read(other, first, count)) if whole is None else _cut(whole, first, count)
        shown, speaking = presence.shown(part, first)
        crops = torch.from_numpy(shown).float().div_(255)
        if self.augment:
            crops = augment_crops(crops, self.config.augment, Draws(self.seed, request.epoch, other))
        labels = np.zeros_like(speaking) if moved else speaking
        return OtherFace(crops, torch.from_numpy(labels), torch.from_numpy(presence.there))

    def _clip(self, request: Request, draws: Draws | None) -> tuple[Clip, Timing, bool]:
        """The requested stretch with crops at the model's size, perhaps with its sound moved or at another speed.

        Returns:
            The stretch, where it is taken from, and whether its sound was moved out of step.
        """
        timing, resync = Timing(request.first_frame, request.num_frames), False
        track_frames = self.dataset.tracks[request.track].num_frames
        if draws is not None:
            settings = self.config.augment
            resync = draws.main.random() < settings.resync and not request.in_sync
            timing = draw_timing(
                request.first_frame,
                request.num_frames,
                track_frames,
                settings,
                draws,
                may_shift=not (resync or request.in_sync),  # moved back into step it would be labelled wrong
            )
        first, count = timing.source(track_frames)
        whole = self._whole(request.track, needed=resync)
        if whole is None:
            return timing.played(self._fitted(self.dataset.read(request.track, first, count)), first), timing, False
        moved = draws is not None and resync and bool(whole.speaking.any())  # other tracks might be turned into sync
        if draws is not None and moved:
            turned = out_of_sync(whole, draws.main)
            whole, moved = turned, turned is not whole
        return timing.played(_cut(whole, first, count), first), timing, moved

    def _other_sounds(self, request: Request, num_samples: int, draws: Draws) -> list[Added]:
        """What is mixed into a clip: another clip's voice, sound from the user's folders."""
        settings = self.config.augment
        added: list[Added] = []
        if self._interferers is not None and (rng := draws.chance("interferer", settings.interferer)) is not None:
            snr_db = between(rng, settings.interferer_snr_db)
            place = self._interferers.draw(request.track, request.num_frames, rng)
            if place is not None:
                added.append(Added(looped(self.sound_of(*place), num_samples), snr_db))
        if self._folders is not None and (rng := draws.chance("folder_noise", settings.folder_noise)) is not None:
            snr_db = between(rng, settings.folder_snr_db)
            added.append(Added(self._folders.draw(num_samples, rng), snr_db))
        return added

    def sound_of(self, track: int, first: int, count: int) -> NDArray[np.float32]:
        """The ``(640 count,)`` sound of frames ``first ..`` of any track, as the dataset has it."""
        whole = self._whole(track)
        return self.dataset.read(track, first, count).audio if whole is None else _cut(whole, first, count).audio

    def _whole(self, track: int, *, needed: bool = False) -> Clip | None:
        """A whole track, its crops at the model's size: from memory, or read if there is room or it is needed."""
        whole = self._cache.get(track)
        if whole is None and (needed or self._has_room):
            whole = self._fitted(self.dataset.read(track))
            self._keep(track, whole)
        return whole

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


def _cut(clip: Clip, first: int, count: int) -> Clip:
    """Frames ``first .. first + count`` of a clip with their sound."""
    last = first + count
    sound = clip.audio[first * SAMPLES_PER_VIDEO_FRAME : last * SAMPLES_PER_VIDEO_FRAME]
    return Clip(clip.crops[first:last], sound, clip.speaking[first:last])
