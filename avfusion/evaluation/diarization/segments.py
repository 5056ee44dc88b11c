"""Scores of a face track over time to stretches of speech.

``(T,)`` stamps in seconds and ``(T,)`` scores, in order of time. A frame covers the time from its stamp to the next.
Where the next is more than 1.5 steps away the face was not seen in between: the frame then covers one step, and the
stretch ends there. Nothing is averaged or filled across such a gap. Within a gapless part, in this order: centred
moving average, hysteresis (start at ``onset``, end below ``offset``), pauses filled, short stretches dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.errors import UsageError
from avfusion.tracks import runs_of_true

GAP_STEPS = 1.5
ROUNDING = 1e-9  # of sums: five scores of 0.4 average 0.4 and reach a threshold of 0.4
ROUNDING_S = 1e-6
TOUCHING_S = 0.0005  # times are whole milliseconds


@dataclass(frozen=True)
class Segmentation:
    """How scores become stretches of speech.

    Attributes:
        smooth_s: the moving average spans the longest odd number of frames that fits; 0: none.
        onset: speech starts where the averaged score reaches this.
        offset: it ends where the averaged score falls below this; not above ``onset``.
        min_speech_s: shorter stretches are dropped, once pauses are filled.
        min_pause_s: shorter pauses are filled.

    Raises:
        UsageError: ``offset`` is above ``onset``, or a duration is negative.
    """

    smooth_s: float
    onset: float
    offset: float
    min_speech_s: float
    min_pause_s: float

    def __post_init__(self) -> None:
        if not self.offset <= self.onset:
            raise UsageError(f"offset: expected at most onset {self.onset:g}, found {self.offset:g}; lower it")
        for name in ("smooth_s", "min_speech_s", "min_pause_s"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name}: expected seconds from 0, found {getattr(self, name):g}")


EXACT = Segmentation(smooth_s=0.0, onset=0.5, offset=0.5, min_speech_s=0.0, min_pause_s=0.0)  # of labels 0 and 1


@dataclass(frozen=True)
class Segment:
    """A stretch of speech, ``start_s <= t < end_s``, in whole milliseconds.

    Attributes:
        start_s: where it starts, in seconds of the video.
        end_s: where it ends.
        mean_score: mean of its frames' scores as the model gave them, filled pauses included.
    """

    start_s: float
    end_s: float
    mean_score: float


def frame_step_s(stamps_s: Sequence[NDArray[np.float64]]) -> float:
    """Time from frame to frame in tracks of one video, in seconds.

    The mean of all steps of at most 1.5 times their median: AVA rounds its stamps to 10 ms, so that at 30 per second no
    single step is right. 1/25 s where no track has two frames.

    Args:
        stamps_s: for each track its ``(T,)`` rising stamps.
    """
    steps = np.concatenate([np.diff(times) for times in stamps_s] or [np.empty(0)])
    return float(steps[steps <= GAP_STEPS * np.median(steps)].mean()) if len(steps) else 1 / VIDEO_HZ


def segments_of(
    times_s: NDArray[np.float64],
    scores: NDArray[np.floating[Any]],
    rules: Segmentation,
    step_s: float | None = None,
) -> list[Segment]:
    """The stretches in which one face speaks.

    Args:
        times_s: ``(T,)`` rising stamps, at any constant rate, with gaps where the face was not seen.
        scores: ``(T,)`` finite scores, on the scale of ``rules.onset``.
        rules: how scores become speech.
        step_s: time from frame to frame, where more is known than this track tells; None takes its own.

    Raises:
        ValueError: the two differ in length, stamps do not rise, or a score is not finite.
    """
    values = np.asarray(scores, dtype=np.float64)
    if times_s.shape != values.shape or times_s.ndim != 1:
        raise ValueError(f"stamps {times_s.shape} and scores {values.shape}, expected (T,) both")
    if not (np.diff(times_s) > 0).all() or not np.isfinite(values).all():
        raise ValueError("expected rising stamps and finite scores")
    if not len(times_s):
        return []
    step = frame_step_s([times_s]) if step_s is None else step_s
    ends = [*(np.flatnonzero(np.diff(times_s) > GAP_STEPS * step) + 1).tolist(), len(times_s)]
    segments = []
    for first, end in zip([0, *ends], ends, strict=False):
        segments += _in_one_part(times_s[first:end], values[first:end], rules, step)
    return segments


def merge_segments(segments: Iterable[Segment]) -> list[Segment]:
    """Joins the stretches of one person's tracks where they overlap or touch.

    Returns:
        Stretches in order of time, apart from each other; the mean score of a joined one is that of its parts, weighted
        by their seconds.
    """
    groups: list[list[Segment]] = []
    end_s = -np.inf
    for segment in sorted(segments, key=lambda s: (s.start_s, s.end_s)):
        if segment.start_s > end_s + TOUCHING_S:
            groups.append([])
        groups[-1].append(segment)
        end_s = max(end_s, segment.end_s)
    return [_joined(group) for group in groups]


def _joined(parts: list[Segment]) -> Segment:
    weights = [part.end_s - part.start_s for part in parts]
    mean = float(np.average([part.mean_score for part in parts], weights=weights))
    return Segment(parts[0].start_s, max(part.end_s for part in parts), mean)


def _in_one_part(
    times_s: NDArray[np.float64], scores: NDArray[np.float64], rules: Segmentation, step_s: float
) -> list[Segment]:
    """Segments of frames without a gap."""
    edges_s = np.append(times_s, times_s[-1] + step_s)
    frames = max(1, int(rules.smooth_s / step_s + ROUNDING_S))
    speaking = _with_hysteresis(_moving_average(scores, (frames - 1) // 2), rules)
    joined: list[tuple[int, int]] = []
    for first, end in runs_of_true(speaking):
        if joined and edges_s[first] - edges_s[joined[-1][1]] < rules.min_pause_s - ROUNDING_S:
            first = joined.pop()[0]
        joined.append((first, end))
    return [
        Segment(round(float(edges_s[first]), 3), round(float(edges_s[end]), 3), float(scores[first:end].mean()))
        for first, end in joined
        if edges_s[end] - edges_s[first] >= rules.min_speech_s - ROUNDING_S
    ]


def _moving_average(scores: NDArray[np.float64], half: int) -> NDArray[np.float64]:
    """Mean over up to ``half`` frames on either side; at the ends, over those that there are."""
    window = np.ones(2 * half + 1)
    inside = slice(half, half + len(scores))
    averaged: NDArray[np.float64] = (
        np.convolve(scores, window)[inside] / np.convolve(np.ones(len(scores)), window)[inside]
    )
    return averaged


def _with_hysteresis(scores: NDArray[np.float64], rules: Segmentation) -> NDArray[np.bool_]:
    """``(T,)`` bool: on from the onset until the score falls below the offset; off at first."""
    on, off = scores >= rules.onset - ROUNDING, scores < rules.offset - ROUNDING
    latest = np.maximum.accumulate(np.where(on | off, np.arange(len(scores)), -1))  # frame that decided last
    speaking: NDArray[np.bool_] = (latest >= 0) & on[latest]
    return speaking
