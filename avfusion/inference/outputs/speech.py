"""When each face speaks: stretches of speech from the smoothed scores of its track.

On the frames of one track, in this order: hysteresis (a stretch starts where the score reaches ``onset`` and ends where
it falls below ``offset``), pauses shorter than ``min_pause_s`` filled, stretches shorter than ``min_speech_s`` dropped.
A stretch never goes beyond its track: where a face comes back as another track, another stretch begins.

These are the rules by which ``eval.py --scores --diarization`` reads a score file (a test holds the two together); the
scores are smoothed already. Shapes: ``T`` video frames of a track at 25 per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.inference.result import Result
from avfusion.tracks import runs_of_true

OFFSET_SHARE = 0.8  # of the onset; 0.4 where speech starts at 0.5
MIN_PAUSE_S = 0.3
MIN_SPEECH_S = 0.2
_ROUNDING = 1e-9  # a score of 0.4 reaches a threshold of 0.8 * 0.5


@dataclass(frozen=True)
class SpeechRules:
    """How scores become stretches of speech.

    Attributes:
        onset: speech starts where the score reaches this.
        offset: it ends where the score falls below this.
        min_pause_s: shorter pauses are filled.
        min_speech_s: shorter stretches are dropped, once pauses are filled.
    """

    onset: float
    offset: float
    min_pause_s: float = MIN_PAUSE_S
    min_speech_s: float = MIN_SPEECH_S

    @classmethod
    def at(cls, threshold: float) -> SpeechRules:
        """The usual rules for a threshold."""
        return cls(threshold, OFFSET_SHARE * threshold)


@dataclass(frozen=True)
class Speech:
    """One face's stretch of speech, frames ``first <= n < end`` of the film.

    Attributes:
        face: index into the result's faces.
        first: first frame in the film.
        end: one past the last frame.
        mean_score: mean of its frames' scores, filled pauses included.
    """

    face: int
    first: int
    end: int
    mean_score: float

    @property
    def start_s(self) -> float:
        """Where it starts, in seconds of the film."""
        return self.first / VIDEO_HZ

    @property
    def end_s(self) -> float:
        """Where it ends: where the frame after its last one stands."""
        return self.end / VIDEO_HZ


def find_speech(result: Result, rules: SpeechRules) -> list[Speech]:
    """The stretches of all faces, in order of time."""
    found = [
        Speech(
            index,
            face.track.start_frame + first,
            face.track.start_frame + end,
            float(face.scores[first:end].mean(dtype=np.float64)),
        )
        for index, face in enumerate(result.faces)
        for first, end in speaking_runs(face.scores, rules)
    ]
    return sorted(found, key=lambda speech: (speech.first, speech.end, speech.face))


def speaking_runs(scores: NDArray[np.float32], rules: SpeechRules) -> list[tuple[int, int]]:
    """The stretches of one track.

    Args:
        scores: ``(T,)`` probabilities.
        rules: how they become speech.

    Returns:
        First and one past the last frame of each, counted in the track.
    """
    joined: list[tuple[int, int]] = []
    # As a file has them: the float32 nearest to 0.4 is a little less, and who reads the file would decide otherwise.
    written = score_texts(scores).astype(np.float64)
    for first, end in runs_of_true(_with_hysteresis(written, rules)):
        if joined and (first - joined[-1][1]) / VIDEO_HZ < rules.min_pause_s - _ROUNDING:
            first = joined.pop()[0]
        joined.append((first, end))
    return [(first, end) for first, end in joined if (end - first) / VIDEO_HZ >= rules.min_speech_s - _ROUNDING]


def speaking_frames(result: Result, speech: Sequence[Speech]) -> list[NDArray[np.bool_]]:
    """For each face ``(T,)`` bool: the frame lies in one of its stretches."""
    speaking = [np.zeros(face.track.num_frames, dtype=np.bool_) for face in result.faces]
    for one in speech:
        start = result.faces[one.face].track.start_frame
        speaking[one.face][one.first - start : one.end - start] = True
    return speaking


def score_texts(scores: NDArray[np.float32]) -> NDArray[np.str_]:
    """``(T,)`` scores in the fewest digits that name a float32: nothing is lost, and 0.9 stays 0.9."""
    return scores.astype(np.float32).astype(str)


def _with_hysteresis(scores: NDArray[np.float64], rules: SpeechRules) -> NDArray[np.bool_]:
    """``(T,)`` bool: on from the onset until the score falls below the offset; off at first."""
    on, off = scores >= rules.onset - _ROUNDING, scores < rules.offset - _ROUNDING
    decided = np.maximum.accumulate(np.where(on | off, np.arange(len(scores)), -1))  # frame that decided last
    speaking: NDArray[np.bool_] = (decided >= 0) & on[decided]
    return speaking
