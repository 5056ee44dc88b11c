"""Is the face in step with the sound: offsets found in similarity matrices, and false accepts on shifted sound.

Offsets are in video frames (40 ms). Sign: sound shifted LATER by ``k`` frames (the sound that belongs to picture ``i``
is heard at frame ``i + k``) is offset ``+k``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_PAIRS = 5  # frame pairs behind a mean: with the defaults, windows of 1 s (25 frames) still leave 7


def offset_from_similarity(similarity: NDArray[np.floating[Any]], max_offset: int = 12, edge: int = 3) -> int:
    """The offset at which picture and sound of a window agree best.

    For each ``d`` in ``-max_offset .. max_offset`` the mean of ``similarity[i, i + d]`` is taken over all ``i`` with
    both ``i`` and ``i + d`` inside ``[edge, T - edge)``; the ``d`` of the highest mean is the offset. Frames at the
    window's edge are left out because a network pads them: padded picture frames match padded sound frames at
    offset 0, whatever the sound, and would fake a synchronous clip.

    Where offsets agree equally well the lowest (most negative) wins, so that a matrix without any information does not
    pass for a synchronous one.

    Args:
        similarity: ``(T, T)`` finite cosine similarities, video frame x audio frame, both at 25 per second.
        max_offset: largest offset looked for, in frames.
        edge: frames left out at each end of both axes.

    Raises:
        ValueError: the matrix is not square or not finite, or the window is too short: the largest offset leaves
            ``T - 2 edge - max_offset`` pairs, and at least 5 are needed.
    """
    similarity = np.asarray(similarity)
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(f"similarity is {similarity.shape}, expected (T, T)")
    if not np.isfinite(similarity).all():
        raise ValueError("similarity has NaN or infinite entries")
    if max_offset < 0 or edge < 0:
        raise ValueError(f"max_offset {max_offset} and edge {edge}, expected 0 or more")
    num_frames = len(similarity)
    pairs = num_frames - 2 * edge - max_offset
    if pairs < MIN_PAIRS:
        raise ValueError(
            f"{num_frames} frames leave {pairs} pairs at offset {max_offset} without {edge} edge frames, expected at "
            f"least {MIN_PAIRS}: take {2 * edge + max_offset + MIN_PAIRS} frames or more"
        )
    inside = similarity[edge : num_frames - edge, edge : num_frames - edge]
    offsets = range(-max_offset, max_offset + 1)
    means = [inside.diagonal(offset).mean(dtype=np.float64) for offset in offsets]
    return offsets[int(np.argmax(means))]


def offset_accuracy(found: Sequence[int], planted: Sequence[int], tolerance: int = 1) -> float:
    """Share of clips whose found offset is within ``tolerance`` frames of the planted one.

    Raises:
        ValueError: no clips, or the two differ in number.
    """
    if len(found) != len(planted) or not len(found):
        raise ValueError(f"{len(found)} found and {len(planted)} planted offsets, expected equally many, at least one")
    return float((np.abs(np.asarray(found) - np.asarray(planted)) <= tolerance).mean())


def threshold_at_miss_rate(speaking_scores: NDArray[np.floating[Any]], miss_rate: float = 0.05) -> float:
    """The highest threshold that misses at most that share of the speaking frames; ``score >= threshold`` accepts.

    Args:
        speaking_scores: ``(N,)`` finite scores of speaking frames with their own, synchronous sound.
        miss_rate: share in 0..1 (below 1) that may be missed.

    Raises:
        ValueError: no scores, not finite, or a miss rate outside [0, 1).
    """
    scores = np.sort(np.asarray(speaking_scores, dtype=np.float64))
    if not len(scores) or not np.isfinite(scores).all() or not 0 <= miss_rate < 1:
        raise ValueError(f"{len(scores)} scores and miss rate {miss_rate}, expected finite scores and a rate in [0, 1)")
    missable = int(np.floor(miss_rate * len(scores) + 1e-9))  # 0.29 * 100 is 29 frames, not 28.999...
    return float(scores[missable])


def weighted_threshold_at_miss_rate(
    rising: NDArray[np.floating[Any]], weights: NDArray[np.integer[Any]], miss_rate: float = 0.05
) -> float:
    """As :func:`threshold_at_miss_rate`, each score counting as often as its weight says, as in a bootstrap resample.

    Args:
        rising: ``(N,)`` scores of speaking frames in rising order.
        weights: ``(N,)`` how often each counts.
        miss_rate: share in 0..1 (below 1) that may be missed.

    Returns:
        The threshold; NaN where none counts.
    """
    until = np.cumsum(weights)
    if not len(until) or until[-1] == 0:
        return float("nan")
    missable = np.floor(miss_rate * until[-1] + 1e-9)
    return float(rising[np.searchsorted(until, missable, side="right")])


def false_accept_rate(scores: NDArray[np.floating[Any]], threshold: float) -> float:
    """Share of frames accepted, ``score >= threshold``, though their sound was shifted, replaced or silenced.

    Raises:
        ValueError: no scores, or not finite.
    """
    scores = np.asarray(scores, dtype=np.float64)
    if not len(scores) or not np.isfinite(scores).all():
        raise ValueError(f"{len(scores)} scores, expected at least one, all finite")
    return float((scores >= threshold).mean())
