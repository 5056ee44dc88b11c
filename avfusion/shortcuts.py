"""Scores without a model: what pixels and loudness alone say about who is heard.

A benchmark of correspondence is worth what it withholds from these. Each is one figure per frame: how much the mouth
moves, how loud it is, and whether the two go together over about a second around the frame.

Shapes: ``T`` video frames at 25 per second, crops ``(T, Y, X)``, ``640 T`` sound samples, scores ``(T,)``; ``W`` lags.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from einops import rearrange
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from avfusion.clock import SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.data.clips import Clip, ClipDataset

Floats = NDArray[np.float64]

MOUTH_REGION = (0.36, 0.60, 0.64, 0.88)  # x1, y1, x2, y2 as fractions of the face crop
WINDOW_S = 0.5  # to each side of the frame
LAGS_S = (-0.04, 0.20)  # sound after picture, as in natural speech
QUIET_DB = -60.0  # full scale; a 16-bit recording of nobody lies about there
SILENT_BELOW_DB, HEARD_ABOVE_DB = -25.0, -12.0  # against the loud parts of the clip
DIP_FRAMES = 4  # shorter than the 200 ms from which labels count a pause
LOUD_SHARE = 0.9  # quantile of a clip's loudness that stands for its loud parts
_HALF_WINDOW = round(WINDOW_S * VIDEO_HZ)
_LAGS = np.arange(round(LAGS_S[0] * VIDEO_HZ), round(LAGS_S[1] * VIDEO_HZ) + 1)


def mouth_energy(crops: NDArray[np.uint8]) -> Floats:
    """How much the mouth moves: mean absolute difference of neighboring frames in the mouth region, in grey levels.

    Args:
        crops: ``(T, Y, X)``.

    Returns:
        ``(T,)``: the mean of the steps into and out of the frame, so that it is centred on the frame.
    """
    mouth = _mouth(crops)
    if len(mouth) < 2:
        return np.zeros(len(mouth))
    steps = np.abs(np.diff(mouth, axis=0)).mean(axis=(1, 2), dtype=np.float64)
    centred: Floats = (np.append(steps[:1], steps) + np.append(steps, steps[-1:])) / 2
    return centred


def mouth_opening(crops: NDArray[np.uint8]) -> Floats:
    """How open the mouth looks: mean squared darkness of the mouth region against its median grey, which is skin.

    Squared, the dark inside of a mouth counts more than lips, beard and shade.

    Args:
        crops: ``(T, Y, X)``.

    Returns:
        ``(T,)`` in 0..1: mean over the pixels of the square of how far they lie below the median, as a share of it.
    """
    pixels = rearrange(_mouth(crops), "t y x -> t (y x)")
    skin = np.maximum(np.median(pixels, axis=1, keepdims=True), 1.0)
    darkness: Floats = ((np.maximum(skin - pixels, 0.0) / skin) ** 2).mean(axis=1, dtype=np.float64)
    return darkness


def amplitude(audio: NDArray[np.float32]) -> Floats:
    """Root mean square of the sound of each video frame.

    Args:
        audio: ``(640 T,)``.

    Returns:
        ``(T,)``.
    """
    frames = rearrange(audio.astype(np.float64), "(t n) -> t n", n=SAMPLES_PER_VIDEO_FRAME)
    rms: Floats = np.sqrt((frames**2).mean(axis=1))
    return rms


def loudness_db(audio: NDArray[np.float32]) -> Floats:
    """Level of the sound of each video frame in dB of full scale, at least :data:`QUIET_DB`.

    Args:
        audio: ``(640 T,)``.

    Returns:
        ``(T,)``.
    """
    return 20 * np.log10(np.maximum(amplitude(audio), 10 ** (QUIET_DB / 20)))


def loudness_gate(level_db: Floats) -> Floats:
    """0 where the sound is silent, 1 where it is as loud as the clip's loud parts, a straight line in dB between.

    Dips of up to :data:`DIP_FRAMES` frames, as between syllables, are filled to the lower of their edges.

    Args:
        level_db: ``(T,)`` as :func:`loudness_db` gives it.

    Returns:
        ``(T,)`` in 0..1; all 0 for a clip without sound.
    """
    against_loud = level_db - np.quantile(level_db, LOUD_SHARE)
    gate = np.clip((against_loud - SILENT_BELOW_DB) / (HEARD_ABOVE_DB - SILENT_BELOW_DB), 0.0, 1.0)
    gate = np.where(level_db > QUIET_DB, gate, 0.0)
    widened = sliding_window_view(np.pad(gate, DIP_FRAMES), DIP_FRAMES + 1).max(axis=1)
    filled: Floats = sliding_window_view(widened, DIP_FRAMES + 1).min(axis=1)
    return filled


def windowed_correlation(first: Floats, second: Floats, lags: NDArray[np.int64], half_window: int) -> Floats:
    """Pearson correlation of ``first[t]`` with ``second[t + lag]`` over a window around each frame.

    Args:
        first: ``(T,)``.
        second: ``(T,)``.
        lags: ``(W,)`` frames.
        half_window: frames on each side; windows are cut where either signal ends.

    Returns:
        ``(W, T)`` in -1..1; 0 where a signal does not change within the window.
    """
    frames = np.arange(len(first))
    partner = frames + lags[:, None]
    real = (partner >= 0) & (partner < len(first))
    # Deviations from the mean of the clip: sums of squares of large numbers would lose the small differences.
    x = np.where(real, first - first.mean(), 0.0)
    y = np.where(real, (second - second.mean())[np.clip(partner, 0, len(first) - 1)], 0.0)
    begin, end = np.maximum(frames - half_window, 0), np.minimum(frames + half_window + 1, len(first))

    def total(values: NDArray[Any]) -> Floats:
        sums = np.cumsum(np.pad(values.astype(np.float64), ((0, 0), (1, 0))), axis=1)
        return np.asarray(sums[:, end] - sums[:, begin])

    count, sum_x, sum_y = np.maximum(total(real), 1.0), total(x), total(y)
    var_x = total(x * x) - sum_x**2 / count
    var_y = total(y * y) - sum_y**2 / count
    product = total(x * y) - sum_x * sum_y / count
    changes = (var_x > 1e-9 * (1e-12 + (x * x).sum())) & (var_y > 1e-9 * (1e-12 + (y * y).sum()))
    scale = np.sqrt(np.where(changes, var_x * var_y, 1.0))
    return np.where(changes, np.clip(product / scale, -1.0, 1.0), 0.0)


def mouth_energy_loudness(clip: Clip) -> Floats:
    """Windowed correlation of mouth motion with loudness at the same time, ``(T,)`` in -1..1, silent frames at -1."""
    level_db = loudness_db(clip.audio)
    lag = np.zeros(1, dtype=np.int64)
    return _gated(windowed_correlation(mouth_energy(clip.crops), level_db, lag, _HALF_WINDOW)[0], level_db)


def envelope_correlation(clip: Clip) -> Floats:
    """Windowed correlation of how open the mouth looks with the amplitude of the sound, at the best lag of the clip.

    The best lag is the one whose correlation, averaged over the frames with sound, is highest: one face's lag is one
    number, and choosing it anew for each frame would give chance a free hand.

    Args:
        clip: ``T`` frames with their sound.

    Returns:
        ``(T,)`` in -1..1, silent frames at -1.
    """
    level_db = loudness_db(clip.audio)
    correlation = windowed_correlation(mouth_opening(clip.crops), amplitude(clip.audio), _LAGS, _HALF_WINDOW)
    best = int(np.argmax(correlation @ loudness_gate(level_db)))
    return _gated(correlation[best], level_db)


SHORTCUTS: dict[str, Callable[[Clip], Floats]] = {
    "mouth_energy_loudness": mouth_energy_loudness,
    "envelope_correlation": envelope_correlation,
    "mouth_energy": lambda clip: mouth_energy(clip.crops),
    "loudness": lambda clip: loudness_db(clip.audio),
}


def score_shortcuts(dataset: ClipDataset) -> dict[str, list[Floats]]:
    """Scores every track of a dataset with every shortcut; each clip is read once.

    Returns:
        For each name of :data:`SHORTCUTS` one ``(T,)`` array per track, in the dataset's order.
    """
    scores: dict[str, list[Floats]] = {name: [] for name in SHORTCUTS}
    for index in range(len(dataset.tracks)):
        clip = dataset.read(index)
        for name, shortcut in SHORTCUTS.items():
            scores[name].append(shortcut(clip))
    return scores


def _mouth(crops: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The mouth region of ``(T, Y, X)`` crops."""
    height, width = crops.shape[1:]
    x1, y1, x2, y2 = MOUTH_REGION
    return crops[:, round(y1 * height) : round(y2 * height), round(x1 * width) : round(x2 * width)].astype(np.float32)


def _gated(correlation: Floats, level_db: Floats) -> Floats:
    """Moves a correlation towards -1, the lowest score there is, as the sound fades into silence."""
    return loudness_gate(level_db) * (1 + correlation) - 1
