"""A model and a dataset in, one score per face and frame out; and the frame similarities that offset accuracy needs.

Long tracks are scored in chunks that overlap by the model's whole reach, so a chunked score equals the unchunked one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.clock import SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.config import Config
from avfusion.data.batching import ClipLoader, collate, group_by_length
from avfusion.data.clips import ClipDataset
from avfusion.data.examples import Example, Examples, Request, fit_crops
from avfusion.distributed import ALONE, World
from avfusion.errors import UsageError
from avfusion.media.audio import LogMel
from avfusion.models import ActiveSpeakerDetector, context_frames

CHUNK_FRAMES = 500
SCORING_BATCH_FRAMES = 2000


def pick_device(name: str, local_rank: int | None = None, option: str = "run.device") -> torch.device:
    """The device for ``run.device``: ``auto`` takes CUDA, then Apple's MPS, then the CPU.

    Args:
        name: as configured.
        local_rank: of one of several processes on this machine: each takes the GPU of its number.
        option: what the command calls the setting, for messages.

    Raises:
        UsageError: the named device is not there, or there are more processes than GPUs.
    """
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, there in found.items() if there)
    if not found[name]:
        there = ", ".join(device for device, ok in found.items() if ok)
        raise UsageError(f"{option}={name}: torch finds no such device here (it finds: {there}); use --{option}=auto")
    if local_rank is not None and name != "cpu":
        count = torch.cuda.device_count() if name == "cuda" else 0
        if local_rank >= count:
            raise UsageError(
                f"{option}={name}: process {local_rank} of this machine finds {count} CUDA devices, one is needed for"
                f" each; start fewer (--nproc-per-node) or use --{option}=cpu"
            )
        return torch.device(name, local_rank)
    return torch.device(name)


@dataclass(frozen=True)
class Chunk:
    """A stretch to run, the part of it whose scores are kept, in frames of the track, and of which tracks."""

    request: Request
    keep_first: int
    keep_last: int
    others: tuple[int, ...] = ()  # tracks of the same frames whose scores are kept as well

    @property
    def scored(self) -> tuple[int, ...]:
        """All tracks whose scores are kept."""
        return (self.request.track, *self.others)


def plan_chunks(track: int, num_frames: int, reach: int | None, chunk_frames: int = CHUNK_FRAMES) -> list[Chunk]:
    """Splits a track into chunks, each with ``reach`` frames of context on both sides; None keeps the track whole."""
    if reach is None or num_frames <= chunk_frames:
        return [Chunk(Request(track, 0, num_frames), 0, num_frames)]
    chunks = []
    for first in range(0, num_frames, chunk_frames):
        last = min(first + chunk_frames, num_frames)
        run_first, run_last = max(first - reach, 0), min(last + reach, num_frames)
        chunks.append(Chunk(Request(track, run_first, run_last - run_first), first, last))
    return chunks


def plan_scenes(examples: Examples, config: Config, chunk_frames: int = CHUNK_FRAMES) -> dict[Request, list[Chunk]]:
    """What is run to score all tracks, and which part of it is kept; a long reach lets chunks share one stretch."""
    reach, between_faces = context_frames(config.model), config.model.speaker.layers > 0
    chunks: dict[Request, list[Chunk]] = defaultdict(list)
    planned: set[int] = set()
    for index, track in enumerate(examples.dataset.tracks):
        if index in planned:
            continue
        together = tuple(examples.companions.same_frames(index)) if between_faces else ()
        planned.update(together)
        for chunk in plan_chunks(index, track.num_frames, reach, chunk_frames):
            request = in_scene(chunk.request, examples, config)
            chunks[request].append(replace(chunk, request=request, others=together))
    return chunks


def in_scene(request: Request, examples: Examples, config: Config) -> Request:
    """The request with all who are seen meanwhile, where the model's faces know of each other."""
    if config.model.speaker.layers == 0:
        return request
    seen = examples.companions.seen_with(request.track, request.first_frame, request.num_frames)
    return replace(request, others=tuple(seen))


@torch.inference_mode()
def score_tracks(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    *,
    chunk_frames: int = CHUNK_FRAMES,
    label: str = "scoring",
    world: World = ALONE,
) -> list[NDArray[np.float32]]:
    """Scores every track of a dataset.

    Where the model's faces know of each other (``model.speaker.layers``), each track is scored in the scene around it:
    its frames and sound, and all who are seen meanwhile. Tracks of exactly the same frames are scored together.

    Args:
        model: in any mode; put back into it afterwards.
        examples: without augmentation.
        config: the model's configuration.
        device: where to run.
        chunk_frames: longest stretch scored at once.
        label: name of the progress bar.
        world: processes that share the work; batches are planned as for one, so the scores do not depend on them.

    Returns:
        One ``(T,)`` array of probabilities 0..1 per track, in the dataset's order; an empty list in all processes but
        the main one.
    """
    tracks = examples.dataset.tracks
    chunks = plan_scenes(examples, config, chunk_frames)
    batches = world.shard(group_by_length(list(chunks), SCORING_BATCH_FRAMES))
    loader = ClipLoader(examples, batches, config.data.workers)
    scores = [np.full(track.num_frames, np.nan, dtype=np.float32) for track in tracks]
    was_training = model.training
    model.eval()
    try:
        for batch in tqdm(loader, desc=label, leave=False, disable=None if world.is_main else True):
            moved = batch.to(device)
            out = model(moved.crops, moved.log_mel, moved.frame_mask, moved.audio_mask)
            for request, rows in zip(batch.requests, out.logits.float().sigmoid().cpu().numpy(), strict=True):
                for chunk in chunks[request]:
                    begin = chunk.keep_first - request.first_frame
                    for track in chunk.scored:
                        row = rows[0 if track == request.track else 1 + request.others.index(track)]
                        kept = row[begin : begin + chunk.keep_last - chunk.keep_first]
                        scores[track][chunk.keep_first : chunk.keep_last] = kept
    finally:
        model.train(was_training)
    if world.size == 1:
        return scores
    of_all = world.collect(scores)
    return [np.fmax.reduce(of_track) for of_track in zip(*of_all, strict=True)]  # each frame was scored by one process


@dataclass(frozen=True)
class OffsetTrial:
    """Similarities of one window whose sound was really moved.

    Attributes:
        track: index of the track.
        planted: frames by which the sound is later than the picture: those it was moved by and, where the track's lag
            is known, that lag.
        similarity: ``(T, T)`` cosine similarity, video frame by sound of a video frame.
    """

    track: int
    planted: int
    similarity: NDArray[np.float32]


@torch.inference_mode()
def offset_trials(
    model: ActiveSpeakerDetector,
    dataset: ClipDataset,
    tracks: Sequence[int],
    config: Config,
    device: torch.device,
    *,
    max_planted: int = 8,
    window_frames: int = 50,
    seed: int = 0,
) -> list[OffsetTrial]:
    """Cuts a window from inside each clip, moves its sound by a drawn number of frames, and compares all frame pairs.

    Both streams are cut from inside the clip, so that no padded edge of one can match a padded edge of the other, and
    where most of the speech is: silence has no offset. A clip shorter than the window and the largest move on both
    sides gives a shorter window, of at least 32 frames, or none.

    Args:
        model: in any mode; put back into it afterwards.
        dataset: where the clips are.
        tracks: which tracks; their own sound is expected to be in sync.
        config: the model's configuration.
        device: where to run.
        max_planted: the move is drawn from ``-max_planted .. max_planted`` frames.
        window_frames: length of the window.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    to_log_mel = LogMel(config.data.num_mels)
    trials = []
    was_training = model.training
    model.eval()
    try:
        for track in tqdm(tracks, desc="offsets", leave=False, disable=None):
            planted = int(rng.integers(-max_planted, max_planted + 1))
            clip = dataset.read(track)
            frames = len(clip.crops)
            length = min(window_frames, frames - 2 * max_planted)
            if length < 32:
                continue
            first = _window_of_most_speech(clip.speaking, length, max_planted)
            crops = fit_crops(torch.from_numpy(clip.crops), config.data.region, config.data.crop_size)
            heard_first = first - planted  # sound that comes k frames later: frame i hears what belongs to frame i - k
            sound = clip.audio[heard_first * SAMPLES_PER_VIDEO_FRAME : (heard_first + length) * SAMPLES_PER_VIDEO_FRAME]
            example = Example(
                Request(track, first, length),
                crops[first : first + length].float() / 255,
                to_log_mel(torch.from_numpy(sound)),
                torch.from_numpy(clip.speaking[first : first + length]),
                audio_id=0,
            )
            batch = collate([example]).to(device)
            out = model(batch.crops, batch.log_mel, batch.frame_mask, batch.audio_mask)
            similarity = (out.video_embedding[0, 0].float() @ out.audio_embedding[0].float().T).cpu().numpy()
            lag_frames = round((dataset.tracks[track].lag_ms or 0.0) * VIDEO_HZ / 1000)
            trials.append(OffsetTrial(track, planted + lag_frames, similarity))
    finally:
        model.train(was_training)
    return trials


def _window_of_most_speech(speaking: NDArray[np.bool_], length: int, margin: int) -> int:
    """First frame of the window with most speech, ``margin`` frames from both ends; of equals the middle one."""
    firsts = np.arange(margin, len(speaking) - length - margin + 1)
    until = np.concatenate([[0], np.cumsum(speaking)])
    spoken = until[firsts + length] - until[firsts]
    best = firsts[spoken == spoken.max()]
    return int(best[len(best) // 2])
