"""What the headers of the sound and crop files of a prepared dataset tell about its faults: nothing is decoded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.data.verify.files import CropHeader, SoundHeader, crop_header, sound_header
from avfusion.data.verify.findings import Finding
from avfusion.data.verify.uses import Use, of_files
from avfusion.processes import available_cores

_HEADER_THREADS = 8  # opening waits for the disk or the network more than for the processor
_FILES_AT_A_TIME = 16

Result = TypeVar("Result")


@dataclass
class Headers:
    """The files by path, as their headers tell them, and the tracks that use each."""

    sound: dict[str, SoundHeader]
    crops: dict[str, CropHeader]
    sound_uses: Mapping[str, Sequence[Use]]
    crop_uses: Mapping[str, Sequence[Use]]


def read_headers(root: Path, uses: Sequence[Use], bar: bool) -> Headers:
    """Reads the header of every file that a track uses."""
    sound_uses: dict[str, list[Use]] = defaultdict(list)
    crop_uses: dict[str, list[Use]] = defaultdict(list)
    for use in uses:
        sound_uses[use.row.audio].append(use)
        crop_uses[use.row.crops].append(use)
    with ThreadPoolExecutor(min(_HEADER_THREADS, available_cores() + 1)) as pool:
        try:
            sound = mapped(pool, sound_header, root, sorted(sound_uses), "sound headers", bar)
            crops = mapped(pool, crop_header, root, sorted(crop_uses), "crop headers", bar)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return Headers(sound, crops, sound_uses, crop_uses)


def sound_header_findings(headers: Headers) -> list[Finding]:
    """Missing, unreadable, cut and short sound, and sound that is not 16 kHz mono."""
    files, uses = headers.sound, headers.sound_uses
    short: dict[str, list[Use]] = {}
    for path, header in files.items():
        if not header.state:
            late = [use for use in uses[path] if use.end_sample - SAMPLES_PER_VIDEO_FRAME >= header.num_samples_16k]
            if late:
                short[path] = late
    needed = {path: max(use.end_sample for use in late) / SAMPLE_RATE for path, late in short.items()}

    def lasts(path: str) -> str:
        return f"{path} ({files[path].num_samples_16k / SAMPLE_RATE:.2f} s of {needed[path]:.2f} s)"

    rate = {
        path: f"{path} ({header.sample_rate} Hz, {header.channels} channels)"
        for path, header in files.items()
        if header.sample_rate and (header.sample_rate, header.channels) != (SAMPLE_RATE, 1)
    }
    total = len(files)
    return [
        *_by_state(files, uses, "sound files"),
        *of_files("sound files are too short for their tracks", {p: lasts(p) for p in short}, total, short),
        *of_files(f"sound files are not mono at {SAMPLE_RATE} Hz", rate, total, uses),
    ]


def crop_header_findings(headers: Headers, crop_size: int | None) -> list[Finding]:
    """Missing, unreadable and short crops, and crops of another rate or size."""
    files, uses = headers.crops, headers.crop_uses
    short: dict[str, list[Use]] = {}
    rate, size = {}, {}
    for path, header in files.items():
        if header.state:
            continue
        longer = [use for use in uses[path] if use.row.num_frames > header.num_frames]
        if longer:
            short[path] = longer
        if abs(header.fps - VIDEO_HZ) > 0.01:
            rate[path] = f"{path} ({header.fps:g} fps)"
        if crop_size is not None and (header.width, header.height) != (crop_size, crop_size):
            size[path] = f"{path} ({header.width}x{header.height})"

    def frames(path: str) -> str:
        return f"{path} ({files[path].num_frames} frames of {max(use.row.num_frames for use in short[path])})"

    total = len(files)
    return [
        *_by_state(files, uses, "crop files"),
        *of_files("crop files are shorter than their tracks", {p: frames(p) for p in short}, total, short),
        *of_files(f"crop files are not at {VIDEO_HZ} fps", rate, total, uses),
        *of_files(f"crop files are not of the dataset's size {crop_size}x{crop_size}", size, total, uses),
    ]


def _by_state(
    files: Mapping[str, SoundHeader] | Mapping[str, CropHeader], uses: Mapping[str, Sequence[Use]], what: str
) -> list[Finding]:
    kinds = {"missing": "are missing", "unreadable": "cannot be read", "cut": "are cut short or damaged"}
    findings = []
    for state, words in kinds.items():
        cases = {
            path: path + (f" ({header.reason})" if header.reason else "")
            for path, header in files.items()
            if header.state == state
        }
        findings += of_files(f"{what} {words}", cases, len(files), uses)
    return findings


def mapped(
    pool: Executor | None, look: Callable[[Path], Result], root: Path, paths: Sequence[str], title: str, bar: bool
) -> dict[str, Result]:
    """One result a path, with a progress bar; without a pool they are made here, one after the other."""
    count = max(1, min(_FILES_AT_A_TIME, len(paths) // 64))  # handing over one file costs as much as looking at it
    whole = [root / path for path in paths]
    groups = [whole[start : start + count] for start in range(0, len(whole), count)]
    each = partial(_each, look)
    results = chain.from_iterable(map(each, groups) if pool is None else pool.map(each, groups))
    shown = tqdm(results, desc=title, total=len(paths), unit="file", leave=False, disable=None if bar else True)
    return dict(zip(paths, shown, strict=True))


def _each(look: Callable[[Path], Result], paths: Sequence[Path]) -> list[Result]:
    return [look(path) for path in paths]
