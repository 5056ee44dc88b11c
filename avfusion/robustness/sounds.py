"""Changes of a clip's sound: moved, another one, none, and other sounds mixed into it at a ratio.

Ratios are of active power over the whole track, pauses left out, as :mod:`avfusion.data.augment.mixing` measures it.
Shapes: ``N = 640 T`` samples of 16 kHz mono sound for ``T`` video frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME
from avfusion.data.augment.folders import BABBLE_VOICES, SoundFolders
from avfusion.data.augment.interferer import Interferers
from avfusion.data.augment.mixing import Added, active_power, looped, mix
from avfusion.data.augment.sound import pink_noise
from avfusion.data.clips import Clip, ClipDataset
from avfusion.data.compose import turn
from avfusion.data.synthetic.sounds import music
from avfusion.errors import AvfusionError
from avfusion.robustness.clips import draws_of
from avfusion.tracks import FaceTrack

Sound = NDArray[np.float32]
MakeSound = Callable[[int, int, np.random.Generator], Sound]
"""Track, number of samples, source of every draw: a sound of that length at any level."""
SEAM_MARGIN_MS = 200.0  # lips lead or trail their sound by less
FAR_MS = 800.0  # so far off, sound is out of time whatever the shift


@dataclass(frozen=True)
class Shifted:
    """The sound ``shift_ms`` later (negative: earlier): at time t is heard what belongs to ``t - shift_ms``.

    It is turned in a circle: what leaves at one end of the track comes in at the other, with 5 ms of fading where the
    ends meet, at the seam. So whatever a model hears, however far it reaches, is sound of the track and out of time:
    off by the shift on one side of the seam, by the rest of the track's length on the other. Nothing is made up.
    """

    shift_ms: float

    @property
    def samples(self) -> int:
        """The shift in samples."""
        return _samples(self.shift_ms)

    def __call__(self, clip: Clip, track: int) -> Clip:
        """Moves the sound."""
        return replace(clip, audio=turn(clip.audio, self.samples))

    def counts(self, num_frames: int) -> NDArray[np.bool_]:
        """``(T,)``: the frames that count at this shift.

        Their own sound is moved by just the shift, and the seam is 200 ms away or more. None where the sound from
        beyond the seam would be nearly in time again: off by less than the shift and by less than 800 ms.
        """
        length, by = num_frames * SAMPLES_PER_VIDEO_FRAME, self.samples
        if by == 0:
            return np.ones(num_frames, bool)
        if length - abs(by) < min(abs(by), _samples(FAR_MS)):
            return np.zeros(num_frames, bool)
        start = np.arange(num_frames) * SAMPLES_PER_VIDEO_FRAME
        margin = _samples(SEAM_MARGIN_MS)
        kept: NDArray[np.bool_] = (
            start >= by + margin if by > 0 else start + SAMPLES_PER_VIDEO_FRAME <= length + by - margin
        )
        return kept


def _samples(duration_ms: float) -> int:
    return round(duration_ms * SAMPLE_RATE / 1000)


def silenced(clip: Clip, track: int) -> Clip:
    """Digital silence."""
    return replace(clip, audio=np.zeros_like(clip.audio))


class Voices:
    """Sounds of other tracks that speak: of another video, another sound and another group than a track's own.

    Args:
        clips: the split.
    """

    def __init__(self, clips: ClipDataset) -> None:
        self._clips = clips
        self._interferers = Interferers(clips.tracks)

    @property
    def num_alone(self) -> int:
        """How many tracks have nobody to be heard with."""
        return self._interferers.num_alone

    def __call__(self, track: int, num_samples: int, rng: np.random.Generator) -> Sound:
        """A stretch in which another track speaks at some time; repeated where it is shorter.

        Raises:
            AvfusionError: there is no such track.
        """
        place = self._interferers.draw(track, num_samples // SAMPLES_PER_VIDEO_FRAME, rng)
        if place is None:
            raise AvfusionError(f"track {track}: nobody speaks in another video, sound and group than its own")
        return looped(self._clips.read(*place).audio, num_samples)

    def babble(self, track: int, num_samples: int, rng: np.random.Generator) -> Sound:
        """3 to 7 such sounds of equal active power at once."""
        total = np.zeros(num_samples, np.float32)
        for _ in range(int(rng.integers(BABBLE_VOICES[0], BABBLE_VOICES[1] + 1))):
            voice = self(track, num_samples, rng)
            power = active_power(voice)
            if power > 0:
                total += voice * np.float32(1 / math.sqrt(power))
        return total


@dataclass(frozen=True)
class OtherSound:
    """The sound of another track that speaks, of another video and group."""

    voices: Voices
    tracks: Sequence[FaceTrack]

    def __call__(self, clip: Clip, track: int) -> Clip:
        """Replaces the sound."""
        rng = draws_of(self.tracks[track]).of("other_sound")
        return replace(clip, audio=self.voices(track, len(clip.audio), rng))


@dataclass(frozen=True)
class Mixed:
    """A sound mixed into the clip's own; the same one at every ratio. A track that is silent throughout stays so.

    Attributes:
        kind: names the draws.
        make: the sound.
        snr_db: active power of the clip's own sound over that of the other.
        tracks: of the split.
    """

    kind: str
    make: MakeSound
    snr_db: float
    tracks: Sequence[FaceTrack]

    def __call__(self, clip: Clip, track: int) -> Clip:
        """Mixes."""
        added = self.make(track, len(clip.audio), draws_of(self.tracks[track]).of(self.kind))
        return replace(clip, audio=mix(clip.audio, [Added(added, self.snr_db)]))


def white(track: int, num_samples: int, rng: np.random.Generator) -> Sound:
    """White noise."""
    return rng.standard_normal(num_samples, dtype=np.float32)


def pink(track: int, num_samples: int, rng: np.random.Generator) -> Sound:
    """Noise whose power falls by 3 dB an octave."""
    return pink_noise(num_samples, rng)


def made_music(track: int, num_samples: int, rng: np.random.Generator) -> Sound:
    """Music as the synthetic talkers have it around them."""
    return music(rng, num_samples)


class FolderMusic:
    """Music from a folder of the user's.

    Args:
        folder: with wav or flac files.

    Raises:
        AvfusionError: see :class:`avfusion.data.augment.folders.SoundFolders`.
    """

    def __init__(self, folder: str) -> None:
        self._files = SoundFolders({"music": folder})

    def __call__(self, track: int, num_samples: int, rng: np.random.Generator) -> Sound:
        """A stretch of one of the files."""
        return self._files.draw(num_samples, rng)
