"""What a model is put through: every condition with its name, its severity and the change of the clips.

Conditions come in families of growing severity. Under those of :data:`MOVED` the labels would be false: a face whose
sound is another one's is not the one that is heard. There the share of frames still accepted is measured, never AP. In
all others the same people are heard as before, so labels stay and AP is measured; without sound too, where it says how
well the model knows from the picture alone who spoke.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from avfusion.data.clips import ClipDataset
from avfusion.robustness.clips import Change, unchanged
from avfusion.robustness.pictures import Blurred, Dropped, LowResolution, Occluded, Pixelated, no_picture
from avfusion.robustness.sounds import (
    FolderMusic,
    MakeSound,
    Mixed,
    OtherSound,
    Shifted,
    Voices,
    made_music,
    pink,
    silenced,
    white,
)
from avfusion.tracks import FaceTrack

SHIFTS_MS = (80, 160, 240, 400, 800, 1600)
SNRS_DB = (10, 5, 0, -5, -10)
CLEAN, SILENCE, OTHER = "clean", "missing sound", "another clip's sound"
SHIFTED = "shifted sound"


@dataclass(frozen=True)
class Family:
    """Conditions that differ in severity alone.

    Attributes:
        name: of the family.
        stream: ``sound`` or ``picture``, which of the two is changed.
        unit: what the severity is.
        severities: mild to severe; none where there are no degrees.
    """

    name: str
    stream: str
    unit: str = ""
    severities: tuple[float, ...] = ()


@dataclass(frozen=True)
class Condition:
    """One change of all clips.

    Attributes:
        name: unique.
        family: its family's name.
        severity: in the family's unit; None where there are no degrees.
        change: of the clips.
    """

    name: str
    family: str
    severity: float | None
    change: Change


NOISES = ("white noise", "pink noise", "music", "babble", "one other voice")
FAMILIES = (
    *(Family(name, "sound", "dB SNR", SNRS_DB) for name in NOISES),
    Family(SILENCE, "sound"),
    Family("occlusion", "picture", "% of the mouth area", (25, 50, 100)),
    Family("pixelation", "picture", "blocks across", (24, 12, 6)),
    Family("blur", "picture", "% of the side (sigma)", (2, 4, 8)),
    Family("low resolution", "picture", "pixels across", (24, 12, 6)),
    Family("frame drops", "picture", "% of the pictures", (10, 25, 50)),
    Family("missing picture", "picture"),
)
"""Families under which AP is measured, in the order of the table."""
NEEDS_VOICES = ("babble", "one other voice", OTHER)
MOVED = (SHIFTED, OTHER, SILENCE)


def all_conditions(clips: ClipDataset, music_folder: str | None = None) -> list[Condition]:
    """Every condition of the suite, the clean one first; those that need other voices only where every track has some.

    Args:
        clips: the split.
        music_folder: where to take music from; None makes some.

    Raises:
        AvfusionError: there is a folder, and it cannot be used.
    """
    tracks, voices = clips.tracks, Voices(clips)
    makers: dict[str, MakeSound] = {
        "white noise": white,
        "pink noise": pink,
        "music": made_music if music_folder is None else FolderMusic(music_folder),
        "babble": voices.babble,
        "one other voice": voices,
    }
    conditions = [Condition(CLEAN, CLEAN, None, unchanged)]
    for shift_ms in sorted([*SHIFTS_MS, *(-shift_ms for shift_ms in SHIFTS_MS)]):
        conditions.append(Condition(f"{SHIFTED}, {shift_ms:+d} ms", SHIFTED, shift_ms, Shifted(shift_ms)))
    conditions.append(Condition(OTHER, OTHER, None, OtherSound(voices, tracks)))
    for family in FAMILIES:
        if not family.severities:
            missing = silenced if family.name == SILENCE else no_picture
            conditions.append(Condition(family.name, family.name, None, missing))
        for severity in family.severities:
            change: Change
            if family.name in makers:
                change = Mixed(family.name, makers[family.name], severity, tracks)
            else:
                change = _damage(family.name, severity, tracks)
            name = f"{family.name}, {severity:g} {family.unit}"
            conditions.append(Condition(name, family.name, severity, change))
    if voices.num_alone:
        conditions = [one for one in conditions if one.family not in NEEDS_VOICES]
    return conditions


def _damage(family: str, severity: float, tracks: Sequence[FaceTrack]) -> Change:
    """The change of the pictures."""
    if family == "occlusion":
        return Occluded(severity / 100, tracks)
    if family == "frame drops":
        return Dropped(severity / 100, tracks)
    if family == "blur":
        return Blurred(severity / 100)
    return Pixelated(round(severity)) if family == "pixelation" else LowResolution(round(severity))
