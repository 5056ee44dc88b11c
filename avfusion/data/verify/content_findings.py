"""What the content of sound and crop files (``content.py``) tells about the faults of a dataset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.data.verify.content import Looked
from avfusion.data.verify.files import CropContent, SoundContent
from avfusion.data.verify.findings import Finding
from avfusion.data.verify.headers import Headers
from avfusion.data.verify.uses import Use, of_files, shared


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


def crop_findings(headers: Headers, looked: Looked[CropContent], kind: str = "crop files") -> list[Finding]:
    """Crops (``kind``: what holds them) that stop decoding, show nothing, or never change although somebody speaks."""
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
        *of_files(f"{kind} stop decoding before their end", broken, total, uses),
        *of_files(f"{kind} are black or empty", blank, total, uses),
        *of_files(f"{kind} show one frozen picture although somebody speaks", frozen, total, uses),
        *of_files(f"{kind} hold some black or empty pictures", partly, total, {}, "look at the source", True),
        *of_files(f"{kind} of faces that never speak show one frozen picture", still, total, {}, note, True),
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
