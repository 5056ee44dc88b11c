"""From the model's probabilities to the scores of a face: a moving mean, and no speaker where there is no sound.

Shapes: ``(T,)`` float32, one value for each frame of a face track at 25 per second.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ


def smoothed(raw: NDArray[np.float32], smooth_s: float) -> NDArray[np.float32]:
    """The mean of the probabilities in a window around each frame.

    Probabilities and not logits are averaged, so that one frame of which the model is very sure counts no more than
    its share of the window. The window is the nearest odd number of frames, as long before as after, so nothing moves
    in time; at both ends of a track it is cut to the frames that are there.

    Args:
        raw: ``(T,)`` probabilities 0..1.
        smooth_s: length of the window in seconds; below two frames (0.08 s) nothing changes.

    Returns:
        ``(T,)``.
    """
    half = window_frames(smooth_s) // 2
    if half == 0 or len(raw) == 0:
        return raw.copy()
    frames = np.arange(len(raw))
    first, last = np.maximum(frames - half, 0), np.minimum(frames + half + 1, len(raw))
    until = np.concatenate([[0.0], np.cumsum(raw, dtype=np.float64)])
    means = (until[last] - until[first]) / (last - first)
    result: NDArray[np.float32] = np.clip(means, 0.0, 1.0).astype(np.float32)
    return result


def window_frames(smooth_s: float) -> int:
    """The odd number of frames nearest to a length in seconds, at least 1."""
    return 2 * round((smooth_s * VIDEO_HZ - 1) / 2) + 1 if smooth_s * VIDEO_HZ > 1 else 1


def only_where_heard(
    scores: NDArray[np.float32], start_frame: int, sound_starts_frame: int, sound_ends_frame: int
) -> NDArray[np.float32]:
    """Scores that are 0 in frames without sound: nobody is the one being heard there, whatever the face does.

    Args:
        scores: ``(T,)``.
        start_frame: the film's frame at which the track begins.
        sound_starts_frame: the first one with sound.
        sound_ends_frame: the first one behind it.

    Returns:
        ``(T,)``.
    """
    frames = start_frame + np.arange(len(scores))
    heard = (frames >= sound_starts_frame) & (frames < sound_ends_frame)
    return np.where(heard, scores, np.float32(0.0)).astype(np.float32)
