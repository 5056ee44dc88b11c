"""Controls: the same clips with another sound, none, sound backwards, moved sound, or a picture that stands still.

What a head's figures are worth shows beside these. A *change* takes a clip made ready for the model and gives it back
with one thing different; labels and length stay. Sounds are read from the dataset and go through the same log-mel as
always. Nothing here is drawn anew: the same clip always gets the same change.
Shapes: ``T`` video frames, ``640 T`` sound samples, log-mel ``(4 T, M)``.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from avfusion.alignment.capture import Change
from avfusion.alignment.measures.resampling import group_of
from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME
from avfusion.config import Config
from avfusion.data.augment.mixing import looped
from avfusion.data.examples import Example, Examples
from avfusion.errors import AvfusionError
from avfusion.models import ActiveSpeakerDetector, build_model
from avfusion.tracks import FaceTrack


class OtherSound:
    """The sound of a track of another group, video and sound, one that speaks where there is one; repeated if short."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        tracks = examples.dataset.tracks
        self._speaking = [index for index, track in enumerate(tracks) if track.speaking.any()]

    def __call__(self, example: Example, track: int) -> Example:
        """Replaces the sound.

        Raises:
            AvfusionError: every track has the same sound or was made from the same clip.
        """
        partner, count = self.partner(track), example.request.num_frames
        length = self.examples.dataset.tracks[partner].num_frames
        # Where a long track is run in stretches, each hears the part of the other sound that belongs to it.
        start = example.request.first_frame % length
        if start + count <= length:
            return _with_sound(example, self.examples.sound_of(partner, start, count), self.examples)
        whole = self.examples.sound_of(partner, 0, length)
        samples = looped(whole, count * SAMPLES_PER_VIDEO_FRAME, start * SAMPLES_PER_VIDEO_FRAME)
        return _with_sound(example, samples, self.examples)

    def partner(self, track: int) -> int:
        """Whose sound is heard with this track: from a place that its name draws, the next one that may be."""
        tracks = self.examples.dataset.tracks
        own = tracks[track]
        place = zlib.crc32(f"{own.video_id}/{own.entity_id}".encode())
        for candidates in (self._speaking, range(len(tracks))):
            for step in range(len(candidates)):
                index = candidates[(place + step) % len(candidates)]
                if _unrelated(tracks[index], own):
                    return index
        raise AvfusionError(
            f"{own.entity_id}: no track of another video and group whose sound it could get; other_sound needs two"
        )


@dataclass(frozen=True)
class Silence:
    """Digital silence."""

    examples: Examples

    def __call__(self, example: Example, track: int) -> Example:
        """Replaces the sound."""
        count = example.request.num_frames * SAMPLES_PER_VIDEO_FRAME
        return _with_sound(example, np.zeros(count, np.float32), self.examples)


@dataclass(frozen=True)
class ReversedSound:
    """The sound of the stretch played backwards: its spectrum and level are kept, what it says when is not."""

    examples: Examples

    def __call__(self, example: Example, track: int) -> Example:
        """Replaces the sound."""
        sound = self.examples.sound_of(track, example.request.first_frame, example.request.num_frames)
        return _with_sound(example, np.ascontiguousarray(sound[::-1]), self.examples)


@dataclass(frozen=True)
class FrozenPicture:
    """The middle frame of the stretch, all the time."""

    examples: Examples

    def __call__(self, example: Example, track: int) -> Example:
        """Replaces the picture."""
        middle = example.crops[len(example.crops) // 2]
        return replace(example, crops=middle.expand_as(example.crops).clone())


@dataclass(frozen=True)
class ShiftedSound:
    """The sound of the track ``shift_ms`` later: at time t is heard what belongs to ``t - shift_ms``.

    What comes in at the ends of the stretch is the real sound of the track; beyond the track's own ends it is silence.
    """

    examples: Examples
    shift_ms: float

    def __call__(self, example: Example, track: int) -> Example:
        """Replaces the sound."""
        first, count = example.request.first_frame, example.request.num_frames
        heard_first = first * SAMPLES_PER_VIDEO_FRAME - round(self.shift_ms * SAMPLE_RATE / 1000)
        return _with_sound(example, self._sound(track, heard_first, count * SAMPLES_PER_VIDEO_FRAME), self.examples)

    def _sound(self, track: int, first_sample: int, num_samples: int) -> NDArray[np.float32]:
        """Samples from ``first_sample`` on, which may lie before or after the track; zeros there."""
        sound = np.zeros(num_samples, np.float32)
        first = max(first_sample // SAMPLES_PER_VIDEO_FRAME, 0)
        last = math.ceil((first_sample + num_samples) / SAMPLES_PER_VIDEO_FRAME)
        last = min(last, self.examples.dataset.tracks[track].num_frames)
        if first >= last:
            return sound
        real = self.examples.sound_of(track, first, last - first)
        offset = first * SAMPLES_PER_VIDEO_FRAME - first_sample  # of the real sound within the stretch
        begin, end = max(offset, 0), min(offset + len(real), num_samples)
        sound[begin:end] = real[begin - offset : end - offset]
        return sound


CONTROLS: dict[str, Callable[[Examples], Change]] = {
    "other_sound": OtherSound,
    "silence": Silence,
    "reversed_sound": ReversedSound,
    "frozen_picture": FrozenPicture,
}
"""By name, what makes the control from the clips of a split: ``CONTROLS["silence"](examples)``."""


def shifted(examples: Examples, shift_ms: float) -> Change:
    """Sound moved by so many milliseconds; positive: the sound comes later."""
    return ShiftedSound(examples, shift_ms)


def untrained(config: Config, seed: int = 0) -> ActiveSpeakerDetector:
    """A model of the same build with fresh weights, in evaluation mode; the same for the same seed.

    The seed is that of nothing else: the state of torch's generator is as before.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(config.model, config.data.num_mels)
    return model.eval()


def _unrelated(one: FaceTrack, other: FaceTrack) -> bool:
    """Whether neither video, nor sound, nor what both were made from is the same."""
    return one.video_id != other.video_id and one.audio_id != other.audio_id and group_of(one) != group_of(other)


def _with_sound(example: Example, sound: NDArray[np.float32], examples: Examples) -> Example:
    return replace(example, log_mel=examples.log_mel_of(sound))
