"""What a synthetic talker says: a random string of phones with exact times.

A :class:`Script` tiles a stretch of time with phones: syllables (consonant, vowel, sometimes a coda) in phrases with
pauses between. The sound (``voice``) and the mouth (``mouth``) are both made from it, so they agree phone by phone.

Shapes: ``N`` phones, ``K`` syllables, ``P`` phrases, ``G`` control steps of 2 ms.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from avfusion.data.synthetic.phones import PHONE_NUMBER, PHONE_TARGETS, PHONES

CONTROL_HZ = 500
"""Control tracks have 500 steps a second."""

MIN_PAUSE_S = 0.25
"""Pauses between phrases are longer than 200 ms: they are labeled as not speaking."""

_VOWELS, _VOWEL_SHARE = ("a", "e", "i", "o", "u", "@"), (0.26, 0.17, 0.16, 0.16, 0.13, 0.12)
_ONSETS = ("p", "b", "m", "t", "d", "k", "g", "n", "l", "r", "w", "j", "f", "v", "s", "z", "S", "h", "")
# fmt: off
_ONSET_SHARE = (
    0.1, 0.1, 0.13, 0.07, 0.07, 0.06, 0.04, 0.05, 0.05, 0.04, 0.05, 0.02, 0.04, 0.02, 0.04, 0.02, 0.03, 0.02, 0.05,
)  # "" = the syllable starts with its vowel
# fmt: on
_CODAS = ("m", "n", "s", "l", "z", "r")
_CODA_CHANCE = 0.2
_VOICED_TWIN = {"p": "b", "t": "d", "k": "g"}
_LONGEST_ONSET_S = 0.12
_STRESS_DB, _EFFORT = (-10.0, 0.0), (0.45, 1.0)


@dataclass(frozen=True)
class Script:
    """Phones over a stretch of time.

    Attributes:
        phones: ``(N,)`` names, keys of :data:`avfusion.data.synthetic.phones.PHONES`.
        edges_s: ``(N + 1,)`` phone ``n`` lasts from ``edges_s[n]`` to ``edges_s[n + 1]``.
        stress: ``(N,)`` 0..1, scales the loudness of the phone's syllable.
        effort: ``(N,)`` 0..1, scales its mouth opening. Drawn apart from the stress, so that loudness tells little
            about how far the mouth is open, beyond the alternation of consonants and vowels.
        syllables_s: ``(K, 2)`` start and end of each syllable.
        phrases_s: ``(P, 2)`` stretches with voice. The silent closure of a first ``p t k`` lies before its phrase.
    """

    phones: tuple[str, ...]
    edges_s: NDArray[np.float64]
    stress: NDArray[np.float64]
    effort: NDArray[np.float64]
    syllables_s: NDArray[np.float64]
    phrases_s: NDArray[np.float64]

    def voiced_at(self, times_s: NDArray[np.float64]) -> NDArray[np.bool_]:
        """True at the times that lie inside a phrase."""
        if len(self.phrases_s) == 0:
            return np.zeros(len(times_s), dtype=bool)
        phrase = np.searchsorted(self.phrases_s[:, 0], times_s, side="right") - 1
        inside: NDArray[np.bool_] = (phrase >= 0) & (times_s < self.phrases_s[np.maximum(phrase, 0), 1])
        return inside

    def moved(self, by_s: float) -> Script:
        """The same words, all of them later by ``by_s``."""
        return replace(
            self,
            edges_s=self.edges_s + by_s,
            syllables_s=self.syllables_s + by_s,
            phrases_s=self.phrases_s + by_s,
        )

    def bursts(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """Releases of the stops: their names (``p``, ``b`` ...) and ``(B,)`` times at which their bursts set in."""
        releases = [number for number, phone in enumerate(self.phones) if phone.endswith("+")]
        return tuple(self.phones[number][:-1] for number in releases), self.edges_s[releases]

    def segments_at(self, times_s: NDArray[np.float64]) -> NDArray[np.intp]:
        """Numbers of the phones that last at the given times, any shape; before the first it is the first."""
        return np.searchsorted(self.edges_s[1:-1], times_s, side="right")

    def targets(self) -> NDArray[np.float64]:
        """``(N, fields of Phone)`` targets of its phones."""
        return PHONE_TARGETS[[PHONE_NUMBER[name] for name in self.phones]]


def _pick(rng: np.random.Generator, shares: tuple[float, ...], count: int) -> list[int]:
    """Draws ``count`` numbers with the given shares."""
    limits = np.cumsum(shares)
    numbers = np.searchsorted(limits, limits[-1] * rng.random(count), side="right")
    return [min(int(number), len(shares) - 1) for number in numbers]


def _random_phrases(rng: np.random.Generator, start_s: float, end_s: float) -> list[tuple[float, float]]:
    """Phrases of 0.5..1.8 s with pauses of 0.25..0.9 s between them, wholly inside ``start_s .. end_s``."""
    phrases_s = []
    now_s = start_s - rng.uniform(3.0, 5.0)  # long before, so that phrases start at no preferred time
    while now_s + 0.5 < end_s:
        phrase_end_s = min(now_s + rng.uniform(0.5, 1.8), end_s - 0.05)
        if phrase_end_s - now_s >= 0.5 and now_s >= start_s + 0.15:
            phrases_s.append((now_s, phrase_end_s))
        now_s = phrase_end_s + rng.uniform(MIN_PAUSE_S, 0.9)
    return phrases_s


@dataclass
class _Draft:
    """A script while it is being written."""

    phones: list[str]
    ends_s: list[float]
    stress: list[float]
    effort: list[float]
    syllables_s: list[tuple[float, float]]

    def add(self, phone: str, end_s: float, stress: float = 1.0, effort: float = 1.0) -> None:
        """Lets ``phone`` follow the last one until ``end_s``."""
        self.phones.append(phone)
        self.ends_s.append(end_s)
        self.stress.append(stress)
        self.effort.append(effort)


def _write_phrase(
    rng: np.random.Generator, draft: _Draft, start_s: float, end_s: float, before_s: float, syllable_hz: float
) -> None:
    """Appends the pause since ``before_s`` and one phrase of random syllables that lasts exactly ``start_s..end_s``."""
    count = max(1, round((end_s - start_s) * syllable_hz))
    shares = np.clip(rng.normal(1.0, 0.2, count), 0.7, 1.5)
    shares[-1] *= 1.2  # speakers stretch the last syllable
    reached = np.cumsum(shares)
    edges_s = [start_s, *(start_s + (end_s - start_s) * reached[:-1] / reached[-1]).tolist(), end_s]
    onsets, vowels = _pick(rng, _ONSET_SHARE, count), _pick(rng, _VOWEL_SHARE, count)
    onset_shares = rng.uniform(0.36, 0.46, count)
    stresses, efforts = 10 ** (rng.uniform(*_STRESS_DB, count) / 20), rng.uniform(*_EFFORT, count)
    has_coda, codas = rng.random(count) < _CODA_CHANCE, rng.integers(len(_CODAS), size=count)

    for number in range(count):
        from_s, to_s = edges_s[number], edges_s[number + 1]
        weights = float(stresses[number]), float(efforts[number])
        onset_s = min(_LONGEST_ONSET_S, (to_s - from_s) * float(onset_shares[number]))
        onset = _ONSETS[onsets[number]]
        first_and_voiceless = number == 0 and onset in _VOICED_TWIN
        if first_and_voiceless and start_s - before_s < 1.5 * _LONGEST_ONSET_S:
            onset, first_and_voiceless = _VOICED_TWIN[onset], False  # no room for a closure before the phrase
        release_s = min(0.04, 0.32 * onset_s) if onset in _VOICED_TWIN else min(0.015, 0.25 * onset_s)
        closure_end_s = from_s + onset_s - release_s
        if first_and_voiceless:
            draft.add("rest", start_s - (onset_s - release_s))
            closure_end_s = start_s
        elif number == 0 and start_s > before_s:
            draft.add("rest", start_s)
        if f"{onset}+" in PHONES:
            draft.add(onset, closure_end_s, *weights)
            draft.add(f"{onset}+", closure_end_s + release_s, *weights)
        elif onset:
            draft.add(onset, from_s + onset_s, *weights)
        coda_s = 0.25 * (to_s - from_s) if has_coda[number] else 0.0
        draft.add(_VOWELS[vowels[number]], to_s - coda_s, *weights)
        if coda_s:
            draft.add(_CODAS[int(codas[number])], to_s, *weights)
        draft.syllables_s.append((from_s, to_s))


def random_script(
    rng: np.random.Generator,
    start_s: float,
    end_s: float,
    syllable_hz: float,
    phrases_s: NDArray[np.float64] | None = None,
) -> Script:
    """Makes up what is said from ``start_s`` to ``end_s``.

    Args:
        rng: source of all chance.
        start_s: start of the script; may lie before the scene.
        end_s: end of the script.
        syllable_hz: mean syllable rate, 3..6 per second.
        phrases_s: ``(P, 2)`` speak in exactly these stretches, with other words, instead of drawing some.

    Returns:
        Phones that tile ``start_s .. end_s``. Drawn phrases last 0.5..1.8 s with pauses of 0.25..0.9 s between them.

    Raises:
        ValueError: if the given phrases overlap or reach beyond the script.
    """
    spans_s = (
        _random_phrases(rng, start_s, end_s) if phrases_s is None else [(float(a), float(b)) for a, b in phrases_s]
    )
    flat_s = [start_s, *(edge_s for span_s in spans_s for edge_s in span_s), end_s]
    if any(later_s < earlier_s for earlier_s, later_s in itertools.pairwise(flat_s)):
        raise ValueError(f"phrases {spans_s} must follow each other inside {start_s}..{end_s} s")
    draft = _Draft([], [], [], [], [])
    before_s = start_s
    for phrase_start_s, phrase_end_s in spans_s:
        _write_phrase(rng, draft, phrase_start_s, phrase_end_s, before_s, syllable_hz)
        before_s = phrase_end_s
    if before_s < end_s or not draft.phones:
        draft.add("rest", end_s)
    return Script(
        phones=tuple(draft.phones),
        edges_s=np.array([start_s, *draft.ends_s]),
        stress=np.array(draft.stress),
        effort=np.array(draft.effort),
        syllables_s=np.array(draft.syllables_s).reshape(-1, 2),
        phrases_s=np.array(spans_s).reshape(-1, 2),
    )


def smooth(
    tracks: NDArray[np.float64], width_s: float, holds: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Smooths control tracks over time with a Hann window.

    Args:
        tracks: ``(G, C)`` at :data:`CONTROL_HZ`.
        width_s: width of the window at half its height.
        holds: ``(G,)`` weights above zero; each step counts in proportion to its hold.

    Returns:
        ``(G, C)``; stretches of zeros longer than the window stay exactly zero inside.
    """
    half = max(1, round(width_s * CONTROL_HZ))
    window = np.hanning(2 * half + 1)
    window /= window.sum()

    def over_time(columns: NDArray[np.float64]) -> NDArray[np.float64]:
        padded = np.pad(columns, ((half, half), (0, 0)), mode="edge")
        return np.stack([np.convolve(column, window, mode="valid") for column in padded.T], axis=1)

    if holds is None:
        return over_time(tracks)
    weights = holds[:, None]
    return over_time(tracks * weights) / over_time(weights)


def control_times_s(start_s: float, end_s: float) -> NDArray[np.float64]:
    """``(G,)`` times of the control steps from ``start_s`` on."""
    return start_s + np.arange(round((end_s - start_s) * CONTROL_HZ)) / CONTROL_HZ


def control_tracks(script: Script, start_s: float, end_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Reads a script off at :data:`CONTROL_HZ`, before any smoothing.

    Returns:
        ``(G,)`` times in seconds from ``start_s`` on, and ``(G, C)`` targets: the fields of
        :class:`avfusion.data.synthetic.phones.Phone` and, last, the stress.
    """
    times_s = control_times_s(start_s, end_s)
    every_phone = np.column_stack([script.targets(), script.stress])
    return times_s, every_phone[script.segments_at(times_s)]
