"""Noise, music and babble from folders of sound files of the user's own (MUSAN, DEMAND, ESC-50, any speech).

Files are wav or flac of any rate and number of channels, found in all folders below, in order of their names, so that
the same folder gives the same draws everywhere. They are looked at before the first epoch: each header, and each end.
Of a long file only the stretch that is heard is read.

Shapes: ``N`` samples of 16 kHz mono sound.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE
from avfusion.config import AugmentConfig
from avfusion.data.augment.mixing import active_power, looped
from avfusion.errors import AvfusionError, UsageError
from avfusion.media.audio import resample

ENDINGS = (".wav", ".flac")
BABBLE_VOICES = (3, 7)  # fewest and most
_END = 4096  # frames at the end of a file that are looked at beforehand
_TRIES = 4  # stretches drawn where the first ones are digital silence, as between the sounds of ESC-50


@dataclass(frozen=True)
class SoundFile:
    """A file with what its header says: frames at its own rate; and the key that named its folder."""

    key: str
    path: Path
    num_frames: int
    rate_hz: int


class SoundFolders:
    """The files of the given folders by kind.

    Args:
        folders: ``noise``, ``music`` or ``babble`` to a folder; one at least.

    Raises:
        UsageError: no such folder, or no sound file in it.
        AvfusionError: a file that cannot be read, or whose end is missing or no numbers.
    """

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._files = {kind: _sound_files(f"data.augment.{kind}_folder", Path(at)) for kind, at in folders.items()}

    def draw(self, num_samples: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """A stretch of sound from one of the folders, each folder alike and each file of it alike.

        Args:
            num_samples: ``N``.
            rng: source of every draw.

        Returns:
            ``(N,)`` float32: of noise and music as it is in the file; of babble 3 to 7 voices of equal active power.
            Digital silence where the files held nothing else, four times over.
        """
        kind = list(self._files)[int(rng.integers(len(self._files)))]
        files = self._files[kind]
        if kind != "babble":
            return _stretch(files[int(rng.integers(len(files)))], num_samples, rng)
        count = int(rng.integers(BABBLE_VOICES[0], BABBLE_VOICES[1] + 1))
        babble = np.zeros(num_samples, np.float32)
        for number in rng.choice(len(files), count, replace=count > len(files)):
            voice = _stretch(files[number], num_samples, rng)
            power = active_power(voice)
            if power > 0:
                babble += voice * np.float32(1 / math.sqrt(power))
        return babble


def open_folders(config: AugmentConfig) -> SoundFolders | None:
    """The folders that a configuration names; None where it asks for no sound from them.

    Raises:
        AvfusionError: see :class:`SoundFolders`.
    """
    named = {"noise": config.noise_folder, "music": config.music_folder, "babble": config.babble_folder}
    folders = {kind: folder for kind, folder in named.items() if folder is not None}
    if config.folder_noise:
        return SoundFolders(folders)
    if folders:
        keys = ", ".join(f"{kind}_folder" for kind in folders)
        print(f"note: data.augment.{keys} given and data.augment.folder_noise is 0: not used", file=sys.stderr)
    return None


def _sound_files(key: str, folder: Path) -> list[SoundFile]:
    if not folder.is_dir():
        state = "is no folder" if folder.exists() else "does not exist"
        raise UsageError(f"{key}: {folder} {state}; expected a folder with wav or flac files")
    paths = [path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and not path.name.startswith(".")]
    if not paths:
        found = ", ".join(sorted(path.name for path in folder.iterdir())[:4]) or "nothing"
        raise UsageError(f"{key}: {folder} holds {found}, and no wav or flac file in any folder below")
    return [_checked(key, path) for path in sorted(paths, key=lambda path: path.relative_to(folder).as_posix())]


def _checked(key: str, path: Path) -> SoundFile:
    """Reads a file's header and its end, which a file that was cut short does not have."""
    import soundfile

    try:
        with soundfile.SoundFile(os.fsencode(path)) as file:
            num_frames, rate_hz = int(file.frames), int(file.samplerate)
            wanted = min(num_frames, _END)
            if wanted:
                file.seek(num_frames - wanted)
            end = file.read(wanted, dtype="float32")
    except (soundfile.LibsndfileError, OSError) as error:
        raise AvfusionError(f"{key}: {path} cannot be read as sound ({error}); repair or remove it") from error
    if not num_frames or len(end) < wanted:
        raise AvfusionError(f"{key}: {path} holds no sound, or less than its header says; repair or remove it")
    if not np.isfinite(end).all():
        raise AvfusionError(f"{key}: {path} holds samples that are no numbers (NaN or infinite); repair or remove it")
    return SoundFile(key, path, num_frames, rate_hz)


def _stretch(file: SoundFile, num_samples: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Any stretch of a file as 16 kHz mono; a file that is shorter is repeated, from anywhere in it on."""
    # One more, since the last sample may lie between two of the file.
    wanted = math.ceil(num_samples * file.rate_hz / SAMPLE_RATE) + 1
    if file.num_frames <= wanted:
        sound = _read(file, 0, file.num_frames)
        return looped(sound, num_samples, int(rng.integers(len(sound))))
    for _ in range(_TRIES):
        sound = _read(file, int(rng.integers(file.num_frames - wanted + 1)), wanted)[:num_samples]
        if sound.any():
            break
    return sound


def _read(file: SoundFile, start: int, count: int) -> NDArray[np.float32]:
    """Frames ``start .. start + count`` at the file's own rate, brought to 16 kHz mono."""
    import soundfile

    try:
        with soundfile.SoundFile(os.fsencode(file.path)) as opened:
            opened.seek(start)
            samples = opened.read(count, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, OSError) as error:
        raise AvfusionError(
            f"{file.key}: {file.path} cannot be read as sound any more ({error}); put it back"
        ) from error
    if len(samples) < count:
        found = f"ends after {start + len(samples)} samples, and its header says {file.num_frames}"
    elif not np.isfinite(samples).all():
        from_s, to_s = start / file.rate_hz, (start + count) / file.rate_hz
        found = f"holds samples that are no numbers (NaN or infinite) between {from_s:.1f} s and {to_s:.1f} s"
    else:
        return resample(samples.mean(axis=1, dtype=np.float32), file.rate_hz)
    raise AvfusionError(f"{file.key}: {file.path} {found}; repair or remove it")
