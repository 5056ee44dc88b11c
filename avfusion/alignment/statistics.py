"""Figures that describe where each attention head listened, computed from the alignment of one clip.

Shapes: ``H`` heads, ``T`` video frames (the queries), ``A`` audio frames (the keys). ``weights[h, t, a]`` is the share
of frame ``t``'s attention that head ``h`` put on sound ``a``; what is missing from 1 over the real keys is the null
mass, the weight on "no sound belongs to this face now". Lag is the time of the sound minus the time of the frame:
positive means the head attends to sound after the frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from avfusion.alignment.reach import EVERYWHERE, KeyReach
from avfusion.clock import AUDIO_HZ, VIDEO_HZ

Floats = NDArray[np.float64]

# Above this null mass what is left on the sound is rounding: where it points means nothing.
MAX_NULL_MASS = 0.999


@dataclass(frozen=True)
class AlignmentStatistics:
    """What each head did in each frame of one clip. Every array is ``(H, T)`` float64.

    Frames that are not real are NaN throughout. Lag, width and entropy describe the weights renormalized over the
    sound, and are NaN where the null mass exceeds 0.999, because then the head heard nothing.

    Attributes:
        null_mass: 0..1, share of the attention that fell on no sound.
        lag_ms: mean lag of the attended sound, in milliseconds; positive: sound after the frame.
        width_ms: standard deviation of the lag, in milliseconds.
        entropy: 0..1, entropy of the weights over that of equal weights on all the keys in reach; 0 = one key only.
    """

    null_mass: Floats
    lag_ms: Floats
    width_ms: Floats
    entropy: Floats


def alignment_statistics(
    weights: ArrayLike,
    query_s: ArrayLike | None = None,
    key_s: ArrayLike | None = None,
    key_mask: ArrayLike | None = None,
    frame_mask: ArrayLike | None = None,
    reach: KeyReach = EVERYWHERE,
) -> AlignmentStatistics:
    """Null mass, lag, width and entropy of every head in every frame.

    Args:
        weights: ``(H, T, A)`` attention weights of one clip; the null key is left out.
        query_s: ``(T,)`` times of the video frames in seconds; default 25 a second from 0.
        key_s: ``(A,)`` times of the audio frames in seconds; default 100 a second from 0.
        key_mask: ``(A,)`` bool, True = real sound; weights elsewhere are left out. Default: all real.
        frame_mask: ``(T,)`` bool, True = real frame. Default: all real.
        reach: of the model. It only sets what the entropy is compared with.

    Raises:
        ValueError: shapes that do not fit together, or times that are not finite.

    Source: DESIGN section 8, "Per head".
    """
    maps = _as_maps(weights)
    _, num_frames, num_keys = maps.shape
    query = _fitted("query_s", np.arange(num_frames) / VIDEO_HZ if query_s is None else query_s, num_frames)
    key = _fitted("key_s", np.arange(num_keys) / AUDIO_HZ if key_s is None else key_s, num_keys)
    real_key = _fitted("key_mask", np.ones(num_keys) if key_mask is None else key_mask, num_keys) > 0
    real_frame = _fitted("frame_mask", np.ones(num_frames) if frame_mask is None else frame_mask, num_frames) > 0

    lag_s = key[None, :] - query[:, None]
    in_reach = np.broadcast_to(real_key & reach.holds(lag_s), lag_s.shape)
    return describe(np.where(real_key, maps, 0.0), lag_s, in_reach, real_frame)[0]


def describe(
    heard: Floats, lag_s: Floats, reach: NDArray[np.bool_], real_frame: NDArray[np.bool_]
) -> tuple[AlignmentStatistics, Floats]:
    """The figures of weights that are laid out with their lags, in whatever way.

    Args:
        heard: ``(..., T, A)`` weights, 0 where no real key is.
        lag_s: ``(T, A)`` lag of each weight, in seconds.
        reach: ``(T, A)`` which keys are real and in reach: with as many the entropy is compared.
        real_frame: ``(T,)``.

    Returns:
        The figures, ``(..., T)`` each, and the shares ``(..., T, A)``: weights over their sum, NaN in frames that are
        not real or heard nothing.
    """
    mass = heard.sum(axis=-1)
    null_mass = np.clip(1.0 - mass, 0.0, 1.0)
    meaningful = real_frame & (null_mass <= MAX_NULL_MASS)
    shares = heard / np.where(meaningful, mass, np.nan)[..., None]
    lag_ms, width_ms = lag_and_width(shares, lag_s)
    entropy = _relative_entropy(shares, reach.sum(axis=-1))
    return AlignmentStatistics(np.where(real_frame, null_mass, np.nan), lag_ms, width_ms, entropy), shares


def lag_and_width(shares: Floats, lag_s: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the lag, ``(..., T)`` each in ms, of shares ``(..., T, A)`` that sum to 1."""
    mean_s = np.einsum("...ta,ta->...t", shares, lag_s)
    variance = np.einsum("...ta,...ta->...t", shares, (lag_s - mean_s[..., None]) ** 2)
    return 1000.0 * mean_s, 1000.0 * np.sqrt(variance)


def lag_image(
    weights: ArrayLike, half_width_s: float = 0.5, query_hz: int = VIDEO_HZ, key_hz: int = AUDIO_HZ
) -> Floats:
    """One head's map in lag coordinates: a head that always listens 60 ms late is a straight line at +60 ms.

    Args:
        weights: ``(T, A)`` of one head, both axes starting at the same instant.
        half_width_s: lags from minus to plus this many seconds are kept.
        query_hz: video frames a second.
        key_hz: audio frames a second.

    Returns:
        ``(L, T)``: row ``l`` holds the weights at lag ``l / key_hz - half_width_s`` seconds; NaN where that lies
        outside the sound.

    Raises:
        ValueError: weights that are not two-dimensional.
    """
    grid = np.asarray(weights, dtype=np.float64)
    if grid.ndim != 2:
        raise ValueError(f"expected the weights of one head (T, A), found shape {grid.shape}")
    num_frames, num_keys = grid.shape
    half = round(half_width_s * key_hz)
    nearest = np.rint(np.arange(num_frames) * key_hz / query_hz).astype(np.int64)
    keys = nearest[None, :] + np.arange(-half, half + 1)[:, None]
    inside = (keys >= 0) & (keys < num_keys)
    image = np.full(keys.shape, np.nan)
    rows, columns = np.nonzero(inside)
    image[rows, columns] = grid[columns, keys[rows, columns]]
    return image


def median_over(values: ArrayLike, frames: ArrayLike) -> Floats:
    """``(H,)`` medians of ``(H, T)`` values over the chosen ``(T,)`` frames; NaN values do not count, NaN for none."""
    chosen = np.asarray(values, dtype=np.float64)[:, np.asarray(frames, dtype=bool)]
    kept = [row[~np.isnan(row)] for row in chosen]
    return np.array([np.median(row) if row.size else np.nan for row in kept])


def _as_maps(weights: ArrayLike) -> Floats:
    maps = np.asarray(weights, dtype=np.float64)
    if maps.ndim != 3:
        raise ValueError(f"expected weights (H, T, A) of one clip, found shape {maps.shape}")
    return maps


def _fitted(name: str, values: ArrayLike, length: int) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (length,) or not np.isfinite(array).all():
        raise ValueError(f"{name}: expected {length} finite values to fit the weights, found shape {array.shape}")
    return array


def entropy_nats(shares: Floats) -> Floats:
    """−Σ p ln p over the last axis; NaN where a share is."""
    logs = np.log(shares, where=shares > 0, out=np.zeros_like(shares))
    return np.asarray(-np.einsum("...a,...a->...", shares, logs))


def _relative_entropy(shares: Floats, num_keys: NDArray[np.int64]) -> Floats:
    """``(..., T)`` entropy of shares ``(..., T, A)`` over ln of ``(T,)`` numbers of keys; 0 where one is in reach."""
    entropy = entropy_nats(shares)
    largest = np.log(np.maximum(num_keys, 2))
    relative: Floats = np.clip(entropy / largest, 0.0, 1.0)
    return relative
