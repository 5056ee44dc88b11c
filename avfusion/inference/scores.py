"""The stage that scores: every face of a film in every frame, in memory that does not grow with the film.

A model of bounded reach scores long tracks in chunks that overlap by its reach: chunks equal the whole. A model that
looks over whole tracks (``window_s: null``, the recurrent baselines) would hold a whole track at once; there the
film is cut every ``LONGEST_S`` seconds, for all of its faces alike, and the pieces are scored as tracks of their own.

Shapes: ``T`` frames of a track.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from avfusion.clock import FRAME_MS, VIDEO_HZ
from avfusion.config import Config
from avfusion.data.clips import Clip, ClipDataset, Skipped
from avfusion.data.examples import Examples
from avfusion.data.prepared import PreparedDataset
from avfusion.errors import AvfusionError
from avfusion.files import whole_file
from avfusion.inference.crops import SPLIT
from avfusion.inference.film_lag import FilmLag, MovedSound, find_lag
from avfusion.models import ActiveSpeakerDetector, context_frames
from avfusion.scoring import score_tracks
from avfusion.tracks import FaceTrack

LONGEST_S = 60.0


@dataclass(frozen=True)
class Scored:
    """The faces of a film, scored.

    Attributes:
        of: for each entity its ``(T,)`` probabilities 0..1.
        lag: of the film's sound, which was taken out first; None where it was given.
        notes: what a user should know, a sentence each.
    """

    of: dict[str, NDArray[np.float32]]
    lag: FilmLag | None
    notes: tuple[str, ...]


def score_faces(
    root: Path, audio: Path, model: ActiveSpeakerDetector, config: Config, device: torch.device, lag_ms: int | None
) -> Scored:
    """Scores the faces of a prepared dataset of split ``own``.

    Args:
        root: the dataset.
        audio: the film's whole sound.
        model: on the device.
        config: its configuration.
        device: where to run.
        lag_ms: of the sound, whole frames; None lets the model find it.

    Raises:
        AvfusionError: a score is no number, or a file of the dataset cannot be read.
    """
    # Nothing is kept in memory, and nothing read by other processes: films may be long, and most are short.
    config = replace(config, data=replace(config.data, workers=0, cache_gb=0.0))
    prepared = PreparedDataset(root, SPLIT)
    lag = find_lag(model, prepared, config, device) if lag_ms is None else None
    frames = lag.frames if lag is not None else (lag_ms or 0) // FRAME_MS
    dataset = MovedSound(prepared, audio, frames)
    notes = [] if lag is None else [_told(lag)]
    pieces = Pieces(dataset, LONGEST_S)
    if context_frames(config.model) is not None or len(pieces.tracks) == len(dataset.tracks):
        scores = score_tracks(model, Examples(dataset, config.data), config, device, label="scores")
    else:
        notes.append(
            f"the model looks over whole tracks: {len(pieces.tracks) - len(dataset.tracks)} times a track was cut for"
            f" it, every {LONGEST_S:.0f} s of the film"
        )
        scores = pieces.joined(score_tracks(model, Examples(pieces, config.data), config, device, label="scores"))
    for track, values in zip(dataset.tracks, scores, strict=True):
        if not np.isfinite(values).all():
            at_s = float(track.timestamps_s[np.argmin(np.isfinite(values))])
            raise AvfusionError(
                f"the model gives no number for {track.entity_id} at {at_s:.2f} s: its weights or their numbers have"
                " overflowed; take another checkpoint, or --device=cpu"
            )
    of = {track.entity_id: values for track, values in zip(dataset.tracks, scores, strict=True)}
    return Scored(of, lag, tuple(notes))


def _told(lag: FilmLag) -> str:
    """What was found of the lag, in a sentence."""
    if not lag.found:
        return (
            "too little tells by how much the sound comes late, so it was taken to be in step; if nobody seems to"
            " speak, try --sound-lag=80 and others"
        )
    found_in = "1 stretch" if lag.stretches == 1 else f"{lag.stretches} stretches"
    if lag.frames == 0:
        return f"the sound is in step with the picture, as the model finds in {found_in}"
    order = f"about {FRAME_MS * abs(lag.frames)} ms {'after' if lag.frames > 0 else 'before'} the picture"
    return (
        f"the sound comes {order}, as the model finds in {found_in}, and was moved back for the scores;"
        " --sound-lag=0 leaves it"
    )


@dataclass(frozen=True)
class _Piece:
    track: int
    first_frame: int
    num_frames: int


class Pieces:
    """A dataset whose tracks are cut at the same times of the film, every ``longest_s`` seconds.

    Args:
        dataset: the tracks; on the 25 fps grid.
        longest_s: from one cut to the next.

    Attributes:
        name: of the dataset.
        tracks: the pieces.
        skipped: of the dataset.
    """

    def __init__(self, dataset: ClipDataset, longest_s: float) -> None:
        self.dataset, self.name, self.skipped = dataset, dataset.name, Skipped()
        every = round(longest_s * VIDEO_HZ)
        self._pieces: list[_Piece] = []
        for index, track in enumerate(dataset.tracks):
            start = round(track.start_s * VIDEO_HZ)
            end = start + track.num_frames
            cuts = [start, *range((start // every + 1) * every, end, every), end]
            self._pieces += [_Piece(index, a - start, b - a) for a, b in pairwise(cuts)]
        self.tracks: Sequence[FaceTrack] = [_part(dataset.tracks[piece.track], piece) for piece in self._pieces]

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """Reads frames ``first_frame ..`` of piece ``index`` with the sound of exactly those frames."""
        piece = self._pieces[index]
        count = piece.num_frames - first_frame if num_frames is None else num_frames
        return self.dataset.read(piece.track, piece.first_frame + first_frame, count)

    def joined(self, values: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """What was found for the pieces, put together for the tracks: ``(T,)`` each."""
        of_tracks: list[list[NDArray[np.float32]]] = [[] for _ in self.dataset.tracks]
        for piece, of_piece in zip(self._pieces, values, strict=True):
            of_tracks[piece.track].append(of_piece)
        return [np.concatenate(parts) for parts in of_tracks]


def _part(track: FaceTrack, piece: _Piece) -> FaceTrack:
    frames = slice(piece.first_frame, piece.first_frame + piece.num_frames)
    return replace(
        track,
        entity_id=f"{track.entity_id}@{piece.first_frame}",
        start_s=track.start_s + piece.first_frame / VIDEO_HZ,
        speaking=track.speaking[frames],
        boxes_xyxy=track.boxes_xyxy[frames],
    )


def save_scores(path: Path, scores: dict[str, NDArray[np.float32]]) -> None:
    """Writes the scores of each entity; atomic."""
    with whole_file(path) as part, part.open("wb") as file:
        np.savez(
            file,
            entity_id=np.array(list(scores), dtype=np.str_),
            num_frames=np.array([len(values) for values in scores.values()], dtype=np.int64),
            raw=np.concatenate([np.zeros(0, np.float32), *scores.values()]),
        )


def load_scores(path: Path) -> dict[str, NDArray[np.float32]]:
    """Reads what :func:`save_scores` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        parts = np.split(arrays["raw"], np.cumsum(arrays["num_frames"])[:-1])
        return dict(zip(arrays["entity_id"].tolist(), parts, strict=False))
