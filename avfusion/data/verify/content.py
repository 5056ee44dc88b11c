"""Looks at what the sound and crop files of a prepared dataset hold (``content_findings.py`` says what is wrong).

They are looked at whole (every file decoded, in processes of their own), or at a few files: some at random and those
with the fewest bytes for their length, because silence and pictures that never change take almost none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME
from avfusion.data.verify.files import (
    CropContent,
    SoundContent,
    crop_content,
    crop_stretch,
    sound_content,
    sound_stretch,
)
from avfusion.data.verify.headers import Headers, mapped
from avfusion.data.verify.uses import Use
from avfusion.processes import available_cores, process_pool

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
        jobs = min(available_cores(), (len(sound_paths) + len(crop_paths)) // FILES_WORTH_A_PROCESS)
    with process_pool(jobs, "run the check again with a smaller --jobs") if jobs > 1 else nullcontext() as pool:
        sound = mapped(pool, sound_content, root, sound_paths, "sound", bar)
        crops = mapped(pool, crop_content, root, crop_paths, "crops", bar)
    return Looked(sound), Looked(crops)


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
