"""Time: sound out of step with its picture, both played faster or slower, or the sound moved a little.

Shapes: ``T`` video frames of ``Y`` by ``X``, sound of ``640 T`` samples. Times of a stretch count from its first frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME
from avfusion.config import AugmentConfig
from avfusion.data.augment.draws import Draws
from avfusion.data.clips import Clip
from avfusion.media.audio import fit_to_frames, resample

LEAST_SHIFT_FRAMES = 8  # 0.32 s: clearly more than natural lag


def out_of_sync(clip: Clip, rng: np.random.Generator) -> Clip:
    """The clip with its own sound turned by 0.3 s or more either way, end joined to start: nobody speaks in it.

    Picture and sound stay those of the speaking clip and only their timing changes, so a model cannot learn by heart
    which sound goes with which picture. A clip too short to be moved so far (under 0.64 s) is left as it is.
    """
    frames = len(clip.crops)
    if frames < 2 * LEAST_SHIFT_FRAMES:
        return clip
    shift = int(rng.integers(LEAST_SHIFT_FRAMES, frames - LEAST_SHIFT_FRAMES + 1))
    turned = np.roll(clip.audio, shift * SAMPLES_PER_VIDEO_FRAME)
    return Clip(clip.crops, turned, np.zeros_like(clip.speaking))


@dataclass(frozen=True)
class Timing:
    """Where a stretch of ``T`` frames is taken from in its track, and how it is played.

    Attributes:
        first_frame: of the track, shown first.
        num_frames: ``T`` of the result.
        percent: speed. At 110 what stood at 1.1 s of the track stands at 1 s, in picture, sound and labels.
        shift_samples: how much later than its picture the sound comes; negative: earlier.
    """

    first_frame: int
    num_frames: int
    percent: int = 100
    shift_samples: int = 0

    @property
    def as_it_is(self) -> bool:
        """Whether nothing is changed."""
        return self.percent == 100 and self.shift_samples == 0

    @property
    def places(self) -> NDArray[np.float64]:
        """``(T,)`` where in the track each picture is taken, in frames."""
        return self.first_frame + np.arange(self.num_frames, dtype=np.float64) * (self.percent / 100)

    @property
    def _picture_frames(self) -> int:
        """Frames of the track that the pictures need, one beyond the last to blend with."""
        return math.ceil(self.num_frames * self.percent / 100) + (self.percent != 100)

    @property
    def _sound(self) -> tuple[int, int]:
        """First sample of the track and number of samples that the sound needs; both may lie outside of the track."""
        first = SAMPLES_PER_VIDEO_FRAME * self.first_frame - round(self.shift_samples * self.percent / 100)
        return first, math.ceil(SAMPLES_PER_VIDEO_FRAME * self.num_frames * self.percent / 100)

    def source(self, track_frames: int) -> tuple[int, int]:
        """First frame and number of frames of a track of so many frames that must be read."""
        sound_first, sound_count = self._sound
        first = max(0, min(self.first_frame, sound_first // SAMPLES_PER_VIDEO_FRAME))
        sound_end = math.ceil((sound_first + sound_count) / SAMPLES_PER_VIDEO_FRAME)
        end = min(track_frames, max(self.first_frame + self._picture_frames, sound_end))
        return first, end - first

    def played(self, source: Clip, source_first: int) -> Clip:
        """Makes the stretch.

        Args:
            source: frames ``source_first ..`` of the track, as :meth:`source` asks for.
            source_first: of the track.

        Returns:
            Pictures blended linearly between their two nearest, sound resampled, labels of the nearest frame. Sound
            from before or behind the track is silent.
        """
        if self.as_it_is:
            return source
        place = self.places - source_first
        last = len(source.speaking) - 1
        nearest = np.minimum((place + 0.5).astype(int), last)
        sound_first, sound_count = self._sound
        audio = _cut(source.audio, sound_first - SAMPLES_PER_VIDEO_FRAME * source_first, sound_count)
        audio = fit_to_frames(resample(audio, SAMPLE_RATE * self.percent // 100), self.num_frames)
        crops = source.crops[nearest] if self.percent == 100 else _between(source.crops, np.minimum(place, last))
        return Clip(crops, audio, source.speaking[nearest])


def draw_timing(
    first_frame: int,
    num_frames: int,
    track_frames: int,
    config: AugmentConfig,
    draws: Draws,
    *,
    may_shift: bool,
) -> Timing:
    """Draws speed and shift of a stretch.

    A faster stretch needs more of its track: it begins earlier where the track's end is near, and is only as fast as
    the whole track allows, so that a track taken whole is slowed down or left as it is.

    Args:
        first_frame: of the stretch that was asked for.
        num_frames: its frames, ``T``.
        track_frames: frames of its track.
        config: strengths.
        draws: source of every draw; what is off draws nothing.
        may_shift: False keeps the sound where it is.

    Returns:
        The timing; ``as_it_is`` where both are off.
    """
    percent, shift = 100, 0
    if config.speed:
        reach = round(100 * config.speed)
        percent += int(draws.of("speed").integers(-reach, reach + 1))
        percent = min(percent, 100 * track_frames // num_frames)
        first_frame = min(first_frame, track_frames - math.ceil(num_frames * percent / 100))
    if config.audio_shift_ms and may_shift:
        shift = round(draws.of("audio_shift").uniform(-1, 1) * config.audio_shift_ms * SAMPLE_RATE / 1000)
    return Timing(first_frame, num_frames, percent, shift)


def _cut(audio: NDArray[np.float32], first: int, count: int) -> NDArray[np.float32]:
    """Samples ``first .. first + count`` of a sound that is silent before its beginning and behind its end."""
    inside = audio[max(first, 0) : max(first + count, 0)]
    before = min(max(-first, 0), count)
    return np.pad(inside, (before, count - before - len(inside)))


def _between(crops: NDArray[np.uint8], place: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Pictures at fractional frame numbers ``(T,)``, blended linearly between the two nearest."""
    before = place.astype(int)
    after = np.minimum(before + 1, len(crops) - 1)
    share = (place - before).astype(np.float32)[:, None, None]
    blended: NDArray[np.float32] = crops[before] * (1 - share) + crops[after] * share
    return np.rint(blended).astype(np.uint8)
