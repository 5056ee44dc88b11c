"""What the content of the sound and crop files of a prepared dataset tells about its faults.

It is looked at whole (every file decoded, in processes of their own), or at a few files: some at random and those
with the fewest bytes for their length, because silence and pictures that never change take almost none.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.data.verify.files import (
    CropContent,
    SoundContent,
    crop_content,
    crop_stretch,
    sound_content,
    sound_stretch,
)
from avfusion.data.verify.findings import Finding
from avfusion.data.verify.headers import Headers, cores, mapped
from avfusion.data.verify.uses import Use, of_files, shared
from avfusion.errors import AvfusionError

SAMPLED_FILES = 16  # at random, of either kind
FULL_ENOUGH = 4  # so many ordinary files in a row end the search among the smallest
MOST_SUSPECTS = 400
SOUND_STRETCH_FRAMES = 750
CROP_STRETCH_FRAMES = 50
FILES_WORTH_A_PROCESS = 100  # one takes a few seconds to start

Content = TypeVar("Content", SoundContent, CropContent)


@dataclass
class Looked(Generic[Content]):
    """Files that were looked into: content by path, and at which frame of the file it begins."""

    content: dict[str, Content] = field(default_factory=dict)
    first_frame: dict[str, int] = field(default_factory=dict)


def look_into_all(
    root: Path, headers: Headers, jobs: int | None, bar: bool
) -> tuple[Looked[SoundContent], Looked[CropContent]]:
    """Reads and decodes every readable file; ``jobs`` processes, None for what the machine and the work suggest."""
    sound_paths = [path for path, header in headers.sound.items() if not header.state]
    crop_paths = [path for path, header in headers.crops.items() if not header.state]
    if jobs is None:
        jobs = min(cores(), (len(sound_paths) + len(crop_paths)) // FILES_WORTH_A_PROCESS)
    sound: Looked[SoundContent] = Looked()
    crops: Looked[CropContent] = Looked()
    if jobs < 2:
        sound.content = mapped(None, sound_content, root, sound_paths, "sound", bar)
        crops.content = mapped(None, crop_content, root, crop_paths, "crops", bar)
        return sound, crops
    # Spawned: a fork would copy torch's threads in whatever state they are. A killed process is told, not waited for.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _ignore_interrupts) as pool:
        try:
            _start(pool, jobs)
            sound.content = mapped(pool, sound_content, root, sound_paths, "sound", bar)
            crops.content = mapped(pool, crop_content, root, crop_paths, "crops", bar)
        except BrokenExecutor as error:
            raise AvfusionError(
                "a process that was checking files was killed from outside (often: no memory left); run the check again"
                " with a smaller --jobs"
            ) from error
        except BaseException:
            pool.shutdown(cancel_futures=True)  # waits for the files that are being read
            raise
    return sound, crops


def look_into_some(root: Path, headers: Headers, seed: int) -> tuple[Looked[SoundContent], Looked[CropContent]]:
    """Reads stretches of a few files the way training reads them."""
    rng = np.random.default_rng(seed)
    sound: Looked[SoundContent] = Looked()
    crops: Looked[CropContent] = Looked()

    def look_at_sound(path: str) -> bool:
        use = max(headers.sound_uses[path], key=lambda use: use.num_speaking)
        first, count = _stretch(use, SOUND_STRETCH_FRAMES)
        start = round(use.row.start_s * SAMPLE_RATE) + first * SAMPLES_PER_VIDEO_FRAME
        count = min(count * SAMPLES_PER_VIDEO_FRAME, headers.sound[path].num_samples_16k - start)
        if count <= 0:
            return True
        found = sound_stretch(root / path, start, count)
        sound.content[path], sound.first_frame[path] = found, round(start / SAMPLES_PER_VIDEO_FRAME)
        return not found.error and not found.flat.all()

    def look_at_crops(path: str) -> bool:
        use = max(headers.crop_uses[path], key=lambda use: use.num_speaking)
        first, count = _stretch(use, CROP_STRETCH_FRAMES)
        count = min(count, headers.crops[path].num_frames - first)
        if count <= 0:
            return True
        found = crop_stretch(root / path, first, count)
        crops.content[path], crops.first_frame[path] = found, first
        return not (found.error or found.is_frozen or found.blank.all())

    _search(
        rng, {p: h.num_bytes / max(h.num_samples, 1) for p, h in headers.sound.items() if not h.state}, look_at_sound
    )
    _search(
        rng, {p: h.num_bytes / max(h.num_frames, 1) for p, h in headers.crops.items() if not h.state}, look_at_crops
    )
    return sound, crops


def sound_findings(headers: Headers, looked: Looked[SoundContent]) -> list[Finding]:
    """Sound that cannot be read to its end, is no number, or is silence where somebody speaks."""
    total = len(looked.content)
    broken = {path: f"{path} ({found.error})" for path, found in looked.content.items() if found.error}
    not_finite = {path: f"{path} ({c.num_bad} samples)" for path, c in looked.content.items() if c.num_bad}
    silent: list[tuple[Use, float]] = []
    partly: list[tuple[Use, float]] = []
    still: list[tuple[Use, float]] = []
    tracks = 0
    for use, found, first in _tracks_looked_at(headers.sound_uses, looked):
        assert use.track is not None
        offset = round(use.row.start_s * VIDEO_HZ) - first
        flat, speaking = _aligned(found.flat, use.track.speaking, offset)
        if not len(flat):
            continue
        tracks += 1
        if speaking.any():
            share = float(flat[speaking].mean())
            (silent if share >= 0.5 else partly if share >= 0.1 else []).append((use, share))
        elif flat.all() and use.row.role != "silence":
            still.append((use, 1.0))
    return [
        *of_files("sound files cannot be read to their end", broken, total, headers.sound_uses),
        *of_files("sound files hold samples that are no number", not_finite, total, headers.sound_uses),
        *_of_tracks(
            "tracks are labelled as speaking over silent or constant sound",
            silent,
            tracks,
            "silence to the last digit is no recording: look whether sound was lost or a wrong file taken, "
            "prepare again",
        ),
        *_of_tracks(
            "tracks have silent or constant sound in part of their speaking frames",
            partly,
            tracks,
            "look whether the sound ends early or has gaps",
            is_note=True,
        ),
        *_of_tracks(
            "tracks that never speak (or have no labels) lie over silent or constant sound",
            still,
            tracks,
            "right for a scene without sound (role 'silence'), else look whether sound was lost",
            is_note=True,
        ),
    ]


def crop_findings(headers: Headers, looked: Looked[CropContent]) -> list[Finding]:
    """Crops that stop decoding, show nothing, or never change although somebody speaks."""
    total, uses = len(looked.content), headers.crop_uses
    broken: dict[str, str] = {}
    blank: dict[str, str] = {}
    partly: dict[str, str] = {}
    frozen: dict[str, str] = {}
    still: dict[str, str] = {}
    for path, found in looked.content.items():
        if found.error:
            broken[path] = f"{path} ({found.error})"
            continue
        share = float(found.blank.mean())
        if share >= 0.5:
            blank[path] = f"{path} ({share:.0%} of its pictures)"
        elif found.is_frozen:
            (frozen if any(use.speaks for use in uses[path]) else still)[path] = path
        elif share > 0:
            partly[path] = f"{path} ({int(found.blank.sum())} pictures)"
    note = "right for a photograph on the screen, else look at the source"
    return [
        *of_files("crop files stop decoding before their end", broken, total, uses),
        *of_files("crop files are black or empty", blank, total, uses),
        *of_files("crop files show one frozen picture although somebody speaks", frozen, total, uses),
        *of_files("crop files hold some black or empty pictures", partly, total, {}, "look at the source", True),
        *of_files("crop files of faces that never speak show one frozen picture", still, total, {}, note, True),
    ]


def same_content(headers: Headers, sound: Looked[SoundContent], crops: Looked[CropContent]) -> list[Finding]:
    """Files of different splits that are the same to the last byte (silence and empty pictures do not count)."""
    findings = []
    plain_sound = {path for path, found in sound.content.items() if found.flat.all()}
    plain_crops = {path for path, found in crops.content.items() if found.is_frozen or found.blank.all()}
    for what, looked, uses, plain in (
        ("sound", sound, headers.sound_uses, plain_sound),
        ("crop", crops, headers.crop_uses, plain_crops),
    ):
        paths_of: dict[str, list[str]] = defaultdict(list)
        for path, found in looked.content.items():
            if found.digest and path not in plain:
                paths_of[found.digest].append(path)
        splits_of = {
            " = ".join(paths): {use.split for path in paths for use in uses[path]}
            for paths in paths_of.values()
            if len({use.split for use in uses[paths[0]]}) == 1  # one path in two splits is told by the tables
        }
        advice = "a copy of one split's file gives the other away; move all of it to one split"
        findings += shared(f"{what} files are copies of a file of another split", splits_of, advice)
    return findings


def speech_levels_db(headers: Headers, looked: Looked[SoundContent]) -> dict[str, list[float]]:
    """By split, the level in dB re full scale of the speaking frames of each track that was looked at."""
    levels: dict[str, list[float]] = defaultdict(list)
    for use, found, first in _tracks_looked_at(headers.sound_uses, looked):
        assert use.track is not None
        power, speaking = _aligned(found.power, use.track.speaking, round(use.row.start_s * VIDEO_HZ) - first)
        mean = float(power[speaking].mean()) if speaking.any() else 0.0
        if mean > 0:
            levels[use.split].append(10 * float(np.log10(mean)))
    return levels


# --- parts -----------------------------------------------------------------------------------------------------------


def _of_tracks(
    what: str, cases: Sequence[tuple[Use, float]], total: int, advice: str, is_note: bool = False
) -> list[Finding]:
    if not cases:
        return []
    names = [f"{use.name}, {use.row.audio}" + (f" ({share:.0%})" if share < 1 else "") for use, share in cases]
    keys = frozenset(use.key for use, _ in cases) if not is_note else frozenset()
    return [Finding(what, names, total, advice, keys, is_note)]


def _tracks_looked_at(
    uses: Mapping[str, Sequence[Use]], looked: Looked[SoundContent]
) -> Iterator[tuple[Use, SoundContent, int]]:
    for path, found in looked.content.items():
        for use in uses[path]:
            if use.track is not None and not found.error:
                yield use, found, looked.first_frame.get(path, 0)


Values = TypeVar("Values", NDArray[np.bool_], NDArray[np.float32])


def _aligned(values: Values, speaking: NDArray[np.bool_], offset: int) -> tuple[Values, NDArray[np.bool_]]:
    """The part of a track that was looked at: frame ``i`` of the track is ``values[i + offset]``."""
    first, last = max(0, -offset), max(0, min(len(speaking), len(values) - offset))
    return values[first + offset : last + offset], speaking[first:last]


def _search(rng: np.random.Generator, bytes_of: Mapping[str, float], is_ordinary: Callable[[str], bool]) -> None:
    """Looks at some files at random, then at the smallest for their length until several in a row are ordinary."""
    paths = sorted(bytes_of)
    drawn = rng.permutation(len(paths))[:SAMPLED_FILES]
    for index in drawn:
        is_ordinary(paths[index])
    seen = {paths[index] for index in drawn}
    in_a_row = 0
    for path in sorted(set(paths) - seen, key=lambda path: (bytes_of[path], path))[:MOST_SUSPECTS]:
        in_a_row = in_a_row + 1 if is_ordinary(path) else 0
        if in_a_row == FULL_ENOUGH:
            break


def _stretch(use: Use, longest: int) -> tuple[int, int]:
    """First frame and number of frames of the stretch of a track that is looked at: from where it first speaks."""
    first = int(use.track.speaking.argmax()) if use.track is not None else 0
    first = max(0, min(first, use.row.num_frames - longest))
    return first, min(longest, use.row.num_frames - first)


def _start(pool: Executor, jobs: int) -> None:
    """Starts the processes deaf to Ctrl-C: the parent hears it and ends them, also while they are still loading."""
    if threading.current_thread() is not threading.main_thread():
        return  # only there may signals be set; the processes then ignore them once they are loaded
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for _ in range(jobs):
            pool.submit(_nothing)
    finally:
        signal.signal(signal.SIGINT, before)


def _nothing() -> None:
    pass


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends its processes
