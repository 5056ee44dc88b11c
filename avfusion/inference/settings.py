"""What a user may decide about the way from a video to scores."""

from __future__ import annotations

from dataclasses import dataclass

from avfusion.clock import FRAME_MS
from avfusion.errors import UsageError

LONGEST_SMOOTHING_S = 10.0
MOST_THREADS = 1024
FARTHEST_LAG_MS = 1000


@dataclass(frozen=True)
class Settings:
    """How one video is worked on; the face detector and the model are given beside it.

    Attributes:
        audio_track: number of the sound track; None takes the one flagged default, else the first.
        salvage: keep what can be decoded of a damaged or cut-short file.
        shortest_frames: shorter face tracks are dropped, and counted; 0 keeps all.
        sound_lag_ms: by how much the sound comes after the picture, which is taken out before faces are scored; whole
            frames of 40 ms, negative where it comes before it. None lets the model find it.
        smooth_s: length of the moving mean over the scores in seconds; 0 leaves them.
        threshold: a face speaks where its score is at least this.
        overlay: write the film with its boxes and scores.
        viewer: write the page that shows what the attention heads listened to.
        threads: of decoding and encoding; 0 lets FFmpeg choose.

    Raises:
        UsageError: a number is out of range.
    """

    audio_track: int | None = None
    salvage: bool = False
    shortest_frames: int = 10
    sound_lag_ms: int | None = None
    smooth_s: float = 0.2
    threshold: float = 0.5
    overlay: bool = True
    viewer: bool = True
    threads: int = 0

    def __post_init__(self) -> None:
        lag_ms = self.sound_lag_ms or 0
        if lag_ms % FRAME_MS or abs(lag_ms) > FARTHEST_LAG_MS:
            raise UsageError(
                f"--sound-lag={lag_ms}: expected a multiple of {FRAME_MS} ms, a frame, from -{FARTHEST_LAG_MS} to"
                f" {FARTHEST_LAG_MS}"
            )
        if not 0 <= self.smooth_s <= LONGEST_SMOOTHING_S:
            raise UsageError(f"--smooth={self.smooth_s:g}: expected seconds from 0 to {LONGEST_SMOOTHING_S:g}")
        if not 0 < self.threshold <= 1:
            raise UsageError(f"--threshold={self.threshold:g}: expected a probability above 0, up to 1")
        for option, number in (
            ("audio-track", self.audio_track or 0),
            ("shortest-track", self.shortest_frames),
            ("threads", self.threads),
        ):
            if number < 0:
                raise UsageError(f"--{option}={number}: expected a number from 0")
        if self.threads > MOST_THREADS:
            raise UsageError(
                f"--threads={self.threads}: expected at most {MOST_THREADS}; 0 lets FFmpeg and torch choose"
            )
