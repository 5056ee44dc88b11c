"""What a synthetic talker says: a random string of phones with exact times, and the mouth movement that makes it.

A :class:`Script` tiles a scene with phones: syllables (consonant, vowel, sometimes a coda) in phrases with pauses
between. Sound (``synthetic_voice``) and picture (``synthetic_picture``) are both made from it, so they agree phone by
phone: ``a`` is open, ``i`` wide, ``u`` round, and ``p b m`` shut the lips.

Formant values are textbook averages of adult speakers (Peterson and Barney, 1952), rounded; a voice scales them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CONTROL_HZ = 500
"""Articulation is computed 500 times a second, then read off at glottal pulses, noise grains and video frames."""

MIN_PAUSE_S = 0.25
"""Pauses between phrases are longer than 200 ms: they are labeled as not speaking."""

_MARGIN_S = 0.4  # scripts run this far past both ends of a scene, so that smoothing and lag never meet an edge


class Phone(NamedTuple):
    """Sound and mouth targets of a phone.

    Attributes:
        f1_hz, f2_hz, f3_hz: formants of a vocal tract of scale 1.
        voice: strength of the glottal pulses, 0..1.
        noise: strength of friction or burst noise, 0..1.
        noise_hz: center of that noise.
        noise_width_hz: its standard deviation in frequency.
        opening: height between the lips, 1 = wide open. Negative targets press the lips together: after smoothing and
            clipping at zero they stay shut for part of the closure, as real lips do.
        width: 0 = round, 1 = spread.
    """

    f1_hz: float
    f2_hz: float
    f3_hz: float
    voice: float
    noise: float
    noise_hz: float
    noise_width_hz: float
    opening: float
    width: float


PHONES: dict[str, Phone] = {
    "rest": Phone(500, 1500, 2500, 0.0, 0.0, 2000, 1000, 0.0, 0.5),
    # vowels
    "a": Phone(750, 1200, 2500, 1.0, 0.0, 2000, 1000, 1.0, 0.55),
    "e": Phone(540, 1850, 2500, 0.9, 0.0, 2000, 1000, 0.62, 0.8),
    "i": Phone(290, 2250, 3000, 0.9, 0.0, 2000, 1000, 0.35, 1.1),
    "o": Phone(460, 850, 2450, 0.95, 0.0, 2000, 1000, 0.6, 0.15),
    "u": Phone(310, 750, 2300, 0.9, 0.0, 2000, 1000, 0.3, -0.1),
    "@": Phone(560, 1450, 2450, 0.8, 0.0, 2000, 1000, 0.5, 0.5),
    # stops: a closure, then its release (named with a "+")
    "p": Phone(250, 800, 2200, 0.0, 0.0, 900, 700, -0.5, 0.45),
    "p+": Phone(400, 900, 2300, 0.0, 0.45, 900, 900, 0.15, 0.45),
    "b": Phone(220, 800, 2200, 0.12, 0.0, 900, 700, -0.5, 0.45),
    "b+": Phone(350, 900, 2300, 0.4, 0.25, 900, 900, 0.15, 0.45),
    "t": Phone(250, 1750, 2600, 0.0, 0.0, 4200, 1200, 0.08, 0.65),
    "t+": Phone(400, 1750, 2600, 0.0, 0.5, 4200, 1200, 0.15, 0.65),
    "d": Phone(220, 1750, 2600, 0.12, 0.0, 4000, 1200, 0.08, 0.65),
    "d+": Phone(350, 1750, 2600, 0.4, 0.3, 4000, 1200, 0.15, 0.65),
    "k": Phone(250, 1900, 2300, 0.0, 0.0, 2200, 500, 0.2, 0.5),
    "k+": Phone(400, 1900, 2300, 0.0, 0.5, 2200, 500, 0.25, 0.5),
    # the other consonants
    "m": Phone(260, 1000, 2200, 0.4, 0.0, 1000, 500, -0.5, 0.5),
    "n": Phone(260, 1600, 2500, 0.4, 0.0, 1000, 500, 0.1, 0.6),
    "l": Phone(360, 1200, 2700, 0.55, 0.0, 1000, 500, 0.25, 0.55),
    "w": Phone(300, 650, 2200, 0.5, 0.0, 1000, 500, 0.05, -0.2),
    "f": Phone(350, 1100, 2300, 0.0, 0.16, 5000, 2500, -0.1, 0.6),
    "s": Phone(350, 1700, 2600, 0.0, 0.32, 6000, 900, 0.08, 0.8),
    "S": Phone(350, 1700, 2500, 0.0, 0.36, 3200, 800, 0.15, 0.1),
}
PHONE_NAMES = tuple(PHONES)
PHONE_TARGETS: NDArray[np.float64] = np.array(list(PHONES.values()))  # (phones, targets)

_VOWELS, _VOWEL_SHARE = ("a", "e", "i", "o", "u", "@"), (0.26, 0.17, 0.16, 0.16, 0.13, 0.12)
_ONSETS = ("p", "b", "m", "t", "d", "k", "n", "l", "w", "f", "s", "S", "")  # "" = the syllable starts with its vowel
_ONSET_SHARE = (0.12, 0.12, 0.14, 0.09, 0.08, 0.08, 0.07, 0.06, 0.06, 0.05, 0.05, 0.03, 0.05)
_CODAS = ("m", "n", "s", "l")
_CODA_CHANCE = 0.2
_RELEASE_S = 0.02


@dataclass(frozen=True)
class Script:
    """Phones over one scene, from a little before its start to a little after its end.

    Attributes:
        phones: ``(N,)`` names, keys of :data:`PHONES`.
        edges_s: ``(N + 1,)`` phone ``n`` lasts from ``edges_s[n]`` to ``edges_s[n + 1]``.
        stress: ``(N,)`` 0..1, scales loudness and mouth opening of the phone's syllable.
        syllables_s: ``(K, 2)`` start and end of each syllable.
        phrases_s: ``(P, 2)`` stretches with voice; between them are pauses of at least :data:`MIN_PAUSE_S`.
    """

    phones: tuple[str, ...]
    edges_s: NDArray[np.float64]
    stress: NDArray[np.float64]
    syllables_s: NDArray[np.float64]
    phrases_s: NDArray[np.float64]

    def voiced_at(self, times_s: NDArray[np.float64]) -> NDArray[np.bool_]:
        """True at the times that lie inside a phrase."""
        if len(self.phrases_s) == 0:
            return np.zeros(len(times_s), dtype=bool)
        phrase = np.searchsorted(self.phrases_s[:, 0], times_s, side="right") - 1
        inside: NDArray[np.bool_] = (phrase >= 0) & (times_s < self.phrases_s[np.maximum(phrase, 0), 1])
        return inside


def _random_syllable(rng: np.random.Generator, syllable_s: float) -> list[tuple[str, float]]:
    """Phones of one syllable with their durations in seconds, which sum to ``syllable_s``."""
    onset = _ONSETS[rng.choice(len(_ONSETS), p=_ONSET_SHARE)]
    vowel = _VOWELS[rng.choice(len(_VOWELS), p=_VOWEL_SHARE)]
    parts: list[tuple[str, float]] = []
    if onset:
        onset_s = min(0.12, syllable_s * rng.uniform(0.36, 0.46))
        if f"{onset}+" in PHONES:
            parts += [(onset, onset_s - _RELEASE_S), (f"{onset}+", _RELEASE_S)]
        else:
            parts += [(onset, onset_s)]
    coda_s = 0.25 * syllable_s if rng.random() < _CODA_CHANCE else 0.0
    parts += [(vowel, syllable_s - coda_s - sum(duration for _, duration in parts))]
    if coda_s:
        parts += [(_CODAS[rng.integers(len(_CODAS))], coda_s)]
    return parts


def random_script(rng: np.random.Generator, scene_s: float, syllable_hz: float) -> Script:
    """Makes up what is said in a scene.

    Args:
        rng: source of all chance.
        scene_s: length of the scene; speech may already run at its start and still run at its end.
        syllable_hz: mean syllable rate, 3..6 per second.

    Returns:
        Phrases of 0.5..1.8 s with pauses of 0.25..0.9 s between them.
    """
    phones, durations_s, stress = ["rest"], [float(rng.uniform(0.0, 1.4))], [1.0]
    now_s = durations_s[0] - 0.8 - _MARGIN_S
    start_s = now_s - durations_s[0]
    syllables_s, phrases_s = [], []
    while now_s < scene_s + _MARGIN_S:
        phrase_start_s, phrase_end_s = now_s, now_s + rng.uniform(0.5, 1.8)
        while now_s < phrase_end_s:
            syllable_s = float(np.clip(rng.lognormal(-np.log(syllable_hz), 0.2), 0.12, 0.45))
            syllable_stress = float(rng.uniform(0.65, 1.0))
            for phone, duration_s in _random_syllable(rng, syllable_s):
                if now_s == phrase_start_s and phone in ("p", "t", "k"):
                    phrase_start_s += duration_s  # a voiceless closure after a pause cannot be heard yet
                phones.append(phone)
                durations_s.append(duration_s)
                stress.append(syllable_stress)
            syllables_s.append((now_s, now_s + syllable_s))
            now_s += syllable_s
        phrases_s.append((phrase_start_s, now_s))
        phones.append("rest")
        durations_s.append(float(rng.uniform(MIN_PAUSE_S, 0.9)))
        stress.append(1.0)
        now_s += durations_s[-1]
    edges_s = start_s + np.concatenate([[0.0], np.cumsum(durations_s)])
    return Script(tuple(phones), edges_s, np.array(stress), np.array(syllables_s), np.array(phrases_s))


def smooth(tracks: NDArray[np.float64], width_s: float) -> NDArray[np.float64]:
    """Smooths ``(G, C)`` control tracks over time with a Hann window of half-height width ``width_s``."""
    half = max(1, round(width_s * CONTROL_HZ))
    window = np.hanning(2 * half + 1)
    padded = np.pad(tracks, ((half, half), (0, 0)), mode="edge")
    columns = [np.convolve(column, window / window.sum(), mode="valid") for column in padded.T]
    return np.stack(columns, axis=1)


def control_tracks(script: Script, scene_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Reads a script off at :data:`CONTROL_HZ`, before any smoothing.

    Returns:
        ``(G,)`` times in seconds, and ``(G, 10)`` targets: the columns of :class:`Phone` and the stress.
    """
    times_s = np.arange(round(-_MARGIN_S * CONTROL_HZ), round((scene_s + _MARGIN_S) * CONTROL_HZ)) / CONTROL_HZ
    segment = np.searchsorted(script.edges_s[1:-1], times_s, side="right")
    phone = np.array([PHONE_NAMES.index(name) for name in script.phones])[segment]
    return times_s, np.column_stack([PHONE_TARGETS[phone], script.stress[segment]])


@dataclass(frozen=True)
class MouthMovement:
    """Mouth shape in every video frame, each ``(T,)``.

    Attributes:
        opening: 0 = lips shut, 1 = wide open.
        width: 0 = round, 1 = spread.
        sideways: shift of the jaw in face units (half a face height).
    """

    opening: NDArray[np.float64]
    width: NDArray[np.float64]
    sideways: NDArray[np.float64]


def speak(script: Script, scene_s: float, times_s: NDArray[np.float64], articulation: float) -> MouthMovement:
    """Mouth movement that makes a script.

    Args:
        script: what is said.
        scene_s: length of the scene.
        times_s: ``(T,)`` times on the script's clock, at most 0.4 s outside the scene.
        articulation: how far this person opens the mouth, about 0.75..1.1.

    Returns:
        Targets smoothed over 65 ms, the width over 80 ms: neighboring phones blend, as they do between real lips.
    """
    control_s, targets = control_tracks(script, scene_s)
    opening_column, width_column = Phone._fields.index("opening"), Phone._fields.index("width")
    target = targets[:, [opening_column]]
    opening = smooth(np.where(target > 0, target * targets[:, [-1]], target), 0.065)[:, 0]
    width = smooth(targets[:, [width_column]], 0.08)[:, 0]
    return MouthMovement(
        opening=np.clip(articulation * np.interp(times_s, control_s, opening), 0.0, 1.1),
        width=np.interp(times_s, control_s, width),
        sideways=np.zeros(len(times_s)),
    )


def chew(rng: np.random.Generator, times_s: NDArray[np.float64]) -> MouthMovement:
    """Rhythmic chewing at 1.2..2.6 bites a second, the jaw swinging sideways, with short rests."""
    bite_hz, swing = rng.uniform(1.2, 2.6), rng.choice([-1.0, 1.0]) * rng.uniform(0.02, 0.06)
    phase = 2 * np.pi * (bite_hz * times_s + rng.random()) + 0.6 * np.sin(2 * np.pi * (0.5 * times_s + rng.random()))
    bite = np.floor(phase / (2 * np.pi)).astype(int)
    bite -= bite.min()
    strength = rng.uniform(0.35, 0.95, bite.max() + 1) * (rng.random(bite.max() + 1) < 0.8)
    jaw = np.sin(phase / 2) ** 2 * strength[bite]
    return MouthMovement(opening=0.9 * jaw, width=0.5 - 0.25 * jaw, sideways=swing * np.sin(phase) * strength[bite])


def keep_still(times_s: NDArray[np.float64]) -> MouthMovement:
    """A mouth at rest."""
    return MouthMovement(np.zeros(len(times_s)), np.full(len(times_s), 0.5), np.zeros(len(times_s)))
