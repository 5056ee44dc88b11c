"""What could be known in the hidden stretches: how well a voice is told from the other one by what was heard in view.

Somebody who knows when the person is seen to talk, and when somebody else is heard over their still face, describes
either voice by the mean of its features there, and asks of each hidden moment which of the two it is nearer
to. With the true pitch this says whether the scenes allow the task at all, with the sound whether it can be heard, with
an encoder's embeddings whether the encoder lets the voice through. Of many features, a linear map learnt on other
scenes keeps what differs between voices. ``T`` video frames, ``F`` features.

Source of the map: Fisher's linear discriminants (Rao 1948).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, VIDEO_HZ
from benchmarks.returning_frames import Frames

AROUND_S = 0.5
Floats = NDArray[np.float64]


def template_scores(features: Sequence[Floats], frames: Sequence[Frames]) -> list[Floats]:
    """Scores of every track, higher where the person's own voice is nearer than the other one.

    Features are averaged over the heard frames within 0.5 s, and each is measured by how much it varies within a voice.
    Where the other voice is never heard in view, what it is like is the mean over all scenes.

    Args:
        features: ``(T, F)`` of each track; NaN where a feature is not there.
        frames: of each track.
    """
    smooth = [around(values, of_track.heard) for values, of_track in zip(features, frames, strict=True)]
    described = [
        (mean_of(values, f.own & ~f.hidden), mean_of(values, f.other & ~f.hidden))
        for values, f in zip(smooth, frames, strict=True)
    ]
    people = [number for number, of_track in enumerate(frames) if of_track.person]
    typical = np.nanmean([described[number] for number in people], axis=(0, 1))
    spread = np.sqrt(
        np.nanmean(
            np.concatenate([
                np.square(smooth[n][mask & ~frames[n].hidden] - described[n][which])
                for n in people
                for which, mask in enumerate((frames[n].own, frames[n].other))
            ]),
            axis=0,
        )
    )  # fmt: skip
    scores = []
    for values, (own, other) in zip(smooth, described, strict=True):
        to_own, to_other = (
            distance((values - np.where(np.isnan(voice), typical, voice)) / spread) for voice in (own, other)
        )
        scores.append(to_other - to_own)
    return scores


def voice_map(features: Sequence[Floats], frames: Sequence[Frames], dims: int = 16, ridge: float = 0.02) -> Floats:
    """``(F, dims)`` directions in which voices differ most, measured by how much each voice varies.

    Args:
        features: ``(T, F)`` of the people of other scenes than those it is for.
        frames: of each.
        dims: how many directions.
        ridge: added to the covariance within a voice, as a share of its mean variance.
    """
    means, within, count = [], np.zeros((features[0].shape[1],) * 2), 0
    for values, of_track in zip(features, frames, strict=True):
        smooth = around(values, of_track.heard)
        for mask in (of_track.own, of_track.other):
            said = smooth[mask]
            said = said[~np.isnan(said).any(axis=1)]
            if len(said) >= 2 * VIDEO_HZ:
                means.append(said.mean(axis=0))
                within += (said - means[-1]).T @ (said - means[-1])
                count += len(said)
    within /= count
    within += np.eye(len(within)) * np.trace(within) / len(within) * ridge
    whiten = np.linalg.cholesky(np.linalg.inv(within))
    apart = (np.array(means) - np.mean(means, axis=0)) @ whiten
    directions: Floats = whiten @ np.linalg.svd(apart, full_matrices=False)[2][:dims].T
    return directions


def distance(apart: Floats) -> Floats:
    """``(T,)`` mean of the squares of the features ``(T, F)`` that are there; 0 without any."""
    known = ~np.isnan(apart)
    mean: Floats = np.square(np.where(known, apart, 0.0)).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return mean


def around(values: Floats, heard: NDArray[np.bool_]) -> Floats:
    """``(T, F)`` means over the heard frames within 0.5 s that have the feature; NaN where there are none."""
    known = heard[:, None] & ~np.isnan(values)
    sums, counts = (_windowed(np.where(known, part, 0.0)) for part in (values, np.ones_like(values)))
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0.5)


def _windowed(values: Floats) -> Floats:
    """Sums over ±0.5 s of ``(T, F)``."""
    reach = round(AROUND_S * VIDEO_HZ)
    until = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    frames = np.arange(len(values))
    sums: Floats = until[np.minimum(frames + reach + 1, len(values))] - until[np.maximum(frames - reach, 0)]
    return sums


def mean_of(values: Floats, mask: NDArray[np.bool_]) -> Floats:
    """``(F,)`` mean over the masked frames; NaN without any."""
    kept = values[mask]
    kept = kept[~np.isnan(kept).all(axis=1)]
    return np.nanmean(kept, axis=0) if len(kept) else np.full(values.shape[1], np.nan)


def true_pitch(dataset: Any, index: int) -> Floats:
    """``(T, 1)`` octaves: pitch of the one voice that is heard, by the truth; NaN where it has none."""
    from avfusion.data.scene_truth import read_truth

    truth = read_truth(dataset, index)
    assert truth is not None
    hz = np.max([voice.f0_hz for voice in truth.voices], axis=0)
    by_frame = hz[: dataset.tracks[index].num_frames * AUDIO_FRAMES_PER_VIDEO_FRAME].reshape(
        -1, AUDIO_FRAMES_PER_VIDEO_FRAME
    )
    octaves = np.log2(by_frame, out=np.full_like(by_frame, np.nan), where=by_frame > 0)
    known = ~np.isnan(octaves)
    sums, counts = np.where(known, octaves, 0).sum(axis=1), known.sum(axis=1)
    return np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)[:, None]


def at_frames(values: NDArray[np.floating]) -> Floats:
    """``(4 T, F)`` at 100 Hz to ``(T, F)``."""
    pooled: Floats = values.reshape(-1, AUDIO_FRAMES_PER_VIDEO_FRAME, values.shape[-1]).mean(axis=1, dtype=np.float64)
    return pooled
