"""By how many frames a film's sound comes late, found by the model itself: one number for the whole film.

A model that tells a voice in time from one that is not, takes a film whose sound is a frame or two off for one in which
nobody speaks. Films are off by such amounts (broadcasters allow 60 ms late, 40 ms early: EBU R37), the same for all of
their faces from start to end. So all faces are compared with their sound moved by every number of frames, as in
:mod:`avfusion.evaluation.desync`, stretch by stretch. What an instant of sound has in common with all pictures of its
window tells nothing, and is taken off first.

A stretch tells for a lag as much as a choice among all moves by their similarity gives it, against a guess: stretches
in which nobody speaks are alike at all moves and tell nothing either way. What all stretches tell is summed, and set
against there being no lag at which picture and sound belong together.

Shapes: ``T`` frames of a window, ``M = 2 R + 1`` moves, ``R`` the farthest that is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.clock import FRAME_MS, SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME
from avfusion.config import Config
from avfusion.data.batching import collate
from avfusion.data.clips import Clip, ClipDataset
from avfusion.data.examples import Example, Request, fit_crops
from avfusion.media.audio import LogMel, num_samples_of, read_audio
from avfusion.models import ActiveSpeakerDetector
from avfusion.tracks import FaceTrack

WINDOW_FRAMES = 200  # 8 s, seen and heard at once
SHORTEST_FRAMES = 25  # a shorter track is left out
MOST_WINDOWS = 30  # of a long film, spread over it
STRETCH_FRAMES = 50  # 2 s: what is weighed as one choice
LARGEST_FRAMES = 5  # 200 ms: what is further off is a film out of step, and is to be noticed
FARTHEST = 12  # moves that are looked at
EDGE = 3  # frames at a window's ends that are left out: padding matches padding at 0
LEAST_PAIRS = 5  # of a stretch and move
# Sound comes rather late than early, by a frame or two (docs/experiments.md).
USUAL_FRAMES, SPREAD_FRAMES = 0.7, 2.0
# How much a frame's similarity, -1..1, counts: frames beside each other say nearly the same. Set with the next number
# on clips of 4 s; a stranger's voice that is moved by 200 ms at most is still a stranger's (docs/experiments.md).
NATS_A_FRAME = 0.4
ENOUGH_NATS = 0.5

Floats = NDArray[np.float64]
NO_CURVES: Floats = np.zeros((0, 2 * FARTHEST + 1))


@dataclass(frozen=True)
class FilmLag:
    """What was found.

    Attributes:
        frames: by how many the sound comes later than the picture; negative: earlier. 0 where too little tells.
        found: whether enough does.
        stretches: that were compared.
        evidence: for the sound belonging to the picture at some lag within ±5 frames, in nats; 0 without stretches.
        similarity: mean over the frames at moves ``-12 .. 12``, less the mean over the moves.
    """

    frames: int
    found: bool
    stretches: int
    evidence: float
    similarity: tuple[float, ...]

    def facts(self) -> dict[str, Any]:
        """What the report says of it, ready for JSON."""
        return {
            "ms": FRAME_MS * self.frames,
            "found": self.found,
            "stretches": self.stretches,
            "evidence": round(self.evidence, 2),
            "similarity_by_ms": {
                str(FRAME_MS * (move - FARTHEST)): round(value, 4) for move, value in enumerate(self.similarity)
            },
        }


def find_lag(model: ActiveSpeakerDetector, dataset: ClipDataset, config: Config, device: torch.device) -> FilmLag:
    """Compares picture and sound of a film's faces at every move.

    Args:
        model: in any mode; put back into it afterwards.
        dataset: the film's tracks.
        config: of the model.
        device: where to run.

    Returns:
        The lag, within ±5 frames; 0 where there is too little evidence for any.

    Raises:
        AvfusionError: a file cannot be read.
    """
    was_training = model.training
    model.eval()
    try:
        bar = tqdm(_windows(dataset.tracks), desc="lag of sound", unit="window", leave=False, disable=None)
        of_windows = [_curves(model, dataset, window, config, device) for window in bar]
    finally:
        model.train(was_training)
    curves = np.concatenate([NO_CURVES, *(some for some, _ in of_windows)])
    return weigh(curves, [frames for _, some in of_windows for frames in some])


def weigh(curves: Floats, frames: Sequence[int]) -> FilmLag:
    """Decides by the curves of all stretches.

    Args:
        curves: ``(n, M)`` similarities at moves ``-R .. R``.
        frames: ``n`` lengths of the stretches.
    """
    if len(curves) == 0:
        return FilmLag(0, found=False, stretches=0, evidence=0.0, similarity=())
    lengths = np.asarray(frames, dtype=np.float64)[:, None]
    above = curves - curves.mean(axis=1, keepdims=True)
    told = NATS_A_FRAME * lengths * above  # of each move against the mean of all
    told = (told - np.log(np.exp(told).mean(axis=1, keepdims=True))).sum(axis=0)  # against a guess, all stretches
    expected = _how_usual()
    evidence = float(told.max() + np.log(np.sum(np.exp(told - told.max()) * expected)))
    best = int(np.where(expected > 0, told, -np.inf).argmax())
    found = evidence >= ENOUGH_NATS
    similarity = (lengths * above).sum(axis=0) / lengths.sum()
    return FilmLag(best - FARTHEST if found else 0, found, len(curves), evidence, tuple(similarity.tolist()))


def _how_usual() -> Floats:
    """``(M,)``: the share of films with each lag, as is expected before anything is compared; 0 beyond ±5 frames."""
    lags = np.arange(-FARTHEST, FARTHEST + 1)
    shares = np.exp(-0.5 * ((lags - USUAL_FRAMES) / SPREAD_FRAMES) ** 2) * (np.abs(lags) <= LARGEST_FRAMES)
    usual: Floats = shares / shares.sum()
    return usual


@dataclass(frozen=True)
class _Window:
    track: int
    first: int
    count: int


def _windows(tracks: Sequence[FaceTrack]) -> list[_Window]:
    """What is compared: tracks in windows of 8 s, the last of a track shorter; not more than enough."""
    windows = [
        _Window(index, first, min(WINDOW_FRAMES, track.num_frames - first))
        for index, track in enumerate(tracks)
        for first in range(0, track.num_frames, WINDOW_FRAMES)
        if track.num_frames - first >= SHORTEST_FRAMES
    ]
    if len(windows) <= MOST_WINDOWS:
        return windows
    return [windows[i] for i in np.linspace(0, len(windows) - 1, MOST_WINDOWS).round().astype(int)]


def _num_stretches(frames: int) -> int:
    return max(1, round(frames / STRETCH_FRAMES))


def _curves(
    model: ActiveSpeakerDetector, dataset: ClipDataset, window: _Window, config: Config, device: torch.device
) -> tuple[Floats, list[int]]:
    """What :func:`stretch_curves` gives of a window; nothing where the model gives no numbers."""
    clip = dataset.read(window.track, window.first, window.count)
    example = Example(
        Request(window.track, window.first, window.count),
        fit_crops(torch.from_numpy(clip.crops), config.data.region, config.data.crop_size).float() / 255,
        LogMel(config.data.num_mels)(torch.from_numpy(clip.audio)),
        torch.from_numpy(clip.speaking),
        audio_id=0,
    )
    batch = collate([example]).to(device)
    with torch.no_grad():
        out = model(batch.crops, batch.log_mel, batch.frame_mask, batch.audio_mask)
    similarity = (out.video_embedding[0, 0].float() @ out.audio_embedding[0].float().T).cpu().numpy()
    if not np.isfinite(similarity).all():
        return NO_CURVES, []
    return stretch_curves(similarity)


def stretch_curves(similarity: NDArray[np.floating[Any]]) -> tuple[Floats, list[int]]:
    """Similarity at every move, stretch by stretch.

    Args:
        similarity: ``(T, T)`` of a window, picture by sound.

    Returns:
        ``(n, M)`` for ``n`` stretches of about 2 s of pictures, the most negative move first: the mean over the
        stretch's pictures of what they have in common with the sound so many frames later, less what that sound has in
        common with all pictures. And the ``n`` lengths. Stretches with too few pairs at some move are left out.
    """
    frames = len(similarity)
    own = similarity - similarity.mean(axis=0, keepdims=True, dtype=np.float64)
    cuts = np.linspace(0, frames, max(1, round(frames / STRETCH_FRAMES)) + 1).round().astype(int).tolist()
    moves = range(-FARTHEST, FARTHEST + 1)
    curves, lengths = [], []
    for begin, end in pairwise(cuts):
        pictures = [
            np.arange(max(begin, EDGE, EDGE - move), min(end, frames - EDGE, frames - EDGE - move)) for move in moves
        ]
        if min(len(some) for some in pictures) >= LEAST_PAIRS:
            curves.append([own[some, some + move].mean() for some, move in zip(pictures, moves, strict=True)])
            lengths.append(end - begin)
    return np.array(curves, dtype=np.float64).reshape(-1, len(moves)), lengths


class MovedSound:
    """The tracks of a film with its sound moved back by its lag; beyond the film's ends there is silence.

    Args:
        dataset: the tracks.
        audio: the film's whole sound, from time 0.
        lag_frames: by how many the sound comes late.

    Attributes:
        name: of the dataset.
        tracks: likewise.
        skipped: likewise.
    """

    def __init__(self, dataset: ClipDataset, audio: Path, lag_frames: int) -> None:
        self.name, self.tracks, self.skipped = dataset.name, dataset.tracks, dataset.skipped
        self._dataset, self._audio, self._lag = dataset, audio, lag_frames

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """Reads frames ``first_frame ..`` of track ``index`` with the sound that belongs to them."""
        clip = self._dataset.read(index, first_frame, num_frames)
        if self._lag == 0:
            return clip
        start = round(self.tracks[index].start_s * SAMPLE_RATE) + SAMPLES_PER_VIDEO_FRAME * (first_frame + self._lag)
        return replace(clip, audio=_stretch(self._audio, start, len(clip.audio)))


def _stretch(audio: Path, start: int, count: int) -> NDArray[np.float32]:
    """``count`` samples from ``start`` on, silence where there are none."""
    first, end = max(start, 0), min(start + count, num_samples_of(audio))
    sound = np.zeros(count, np.float32)
    if first < end:
        sound[first - start : end - start] = read_audio(audio, first, end - first)
    return sound
