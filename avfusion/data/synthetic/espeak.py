"""A second source of voices: random syllables spoken by the espeak-ng library, where it is installed.

What is made here tests that a model listens to speech and not to the manner of ``voice``. The library is loaded when a
voice is first asked for and tells at which sample each of its phones starts. Bursts are then found in the waveform.
It remembers the phase of flutter, breath, roughness and trills from one call to the next; the voices made here have
none of these, so that the same ``rng`` gives the same bits whatever was said before. Another version of the library
may speak otherwise: its sounds and times are no part of a benchmark.

Shapes: ``N`` phones, ``K`` syllables, ``G`` control steps of 2 ms, ``n`` samples at 22,050 Hz inside, 16 kHz outside.
Source: the interface of espeak-ng 1.51, ``speak_lib.h`` and ``docs/voices.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE
from avfusion.data.synthetic.espeak_library import NATIVE_RATE, say
from avfusion.data.synthetic.phones import COLUMN, PHONES
from avfusion.data.synthetic.pitch_estimate import estimated_pitch_hz
from avfusion.data.synthetic.script import MIN_PAUSE_S, Script, control_times_s
from avfusion.data.synthetic.voice import Utterance, Voice, render_utterance

Track = NDArray[np.float64]

_LANGUAGES = ("de", "el", "hu", "ro", "fi", "tr", "sv", "id")  # these say the phones below as they are written
_KLATT = (0, 0, 0, 1, 2, 3)  # kinds of voice: sums of harmonics (0), Klatt's with three glottal sources
_ENDINGS = (".", ".", ",", "?")
# fmt: off
# "r/" is not trilled: the pulses of a trill go on counting where the last call ended.
_ONSETS = ("p", "p", "b", "b", "m", "m", "t", "d", "k", "g", "n", "l", "r/", "w", "j", "f", "v", "s", "z", "S", "h")
# fmt: on
_VOWELS = ("a", "a", "a", "e", "e", "i", "i", "o", "o", "u", "@")
_CODAS = ("m", "n", "s", "l", "", "", "", "", "", "")
_STOPS, _VOICED_STOPS, _NASALS = ("p", "t", "k", "b", "d", "g"), ("b", "d", "g"), ("m", "n")
_NEAREST = {  # by the first letter of a name of the library that is none of ours
    "A": "a", "V": "a", "&": "a", "E": "e", "I": "i", "y": "i", "Y": "u", "U": "u", "O": "o", "0": "o", "3": "@",
    "N": "n", "B": "v", "D": "z", "T": "s", "Z": "z", "R": "r", "*": "r", "Q": "r", "x": "h", "X": "h", "C": "h",
    "c": "k", "q": "k", "J": "g",
}  # fmt: skip
_CLOSURE_S = 0.06  # the lips are shut that long before a burst that opens a phrase
_LONGEST_PHRASE_S, _TRIES = 1.8, 3
_EFFORT = (0.5, 1.0)


@dataclass(frozen=True)
class _Phrase:
    """A phrase that starts at time 0 with its first sound.

    Attributes:
        phones: ``(N,)`` names, keys of ``PHONES``.
        edges_s: ``(N + 1,)``, below 0 in the closure of a first stop.
        weights: ``(N, 2)`` stress and effort of their syllables.
        syllables_s: ``(K, 2)``.
        sound: ``(m,)`` at 16 kHz.
    """

    phones: tuple[str, ...]
    edges_s: Track
    weights: Track
    syllables_s: Track
    sound: Track


def _nearest(name: str) -> str | None:
    """Our phone for a name of the library; None for pauses and glottal stops."""
    if name in PHONES:
        return name
    letter = name[:1]
    return letter if letter in PHONES else _NEAREST.get(letter)


def _voice_file(rng: np.random.Generator, voice: Voice) -> str:
    """A voice of the library with the pitch and the vocal tract of ``voice``; the rest is drawn."""
    swing = 2.0 ** (1.5 * voice.melody)
    lines = [
        "name talker",
        f"language {_LANGUAGES[rng.integers(len(_LANGUAGES))]}",
        f"pitch {voice.pitch_hz / swing:.0f} {voice.pitch_hz * swing:.0f}",
        "flutter 0",
        "roughness 0",
        f"voicing {rng.integers(80, 121)}",
        f"consonants {rng.integers(80, 121)} {rng.integers(80, 121)}",
    ]
    for formant in range(9):
        height, width = rng.integers(85, 116, 2)
        lines.append(f"formant {formant} {100 * voice.tract_scale + rng.uniform(-3, 3):.0f} {height} {width}")
    klatt = _KLATT[rng.integers(len(_KLATT))]
    return "\n".join([*lines, *([f"klatt {klatt}"] if klatt else []), ""])


def _random_words(rng: np.random.Generator, num_syllables: int) -> tuple[str, Track]:
    """Text of words of one to three syllables, one of each stressed; and ``(K, 2)`` stress and effort of all."""
    words: list[str] = []
    weights: list[tuple[float, float]] = []
    while len(weights) < num_syllables:
        length = min(int(rng.integers(1, 4)), num_syllables - len(weights))
        stressed = int(rng.integers(length))
        word = ""
        for number in range(length):
            onset, vowel, coda = (sounds[rng.integers(len(sounds))] for sounds in (_ONSETS, _VOWELS, _CODAS))
            word += ("'" if number == stressed else "") + onset + vowel + coda
            stress = rng.uniform(0.85, 1.0) if number == stressed else rng.uniform(0.65, 0.85)
            weights.append((stress, rng.uniform(*_EFFORT)))
        words.append(word)
    return f"[[{' '.join(words)}]]{_ENDINGS[rng.integers(len(_ENDINGS))]}", np.array(weights)


def _resample(sound: Track) -> Track:
    """22,050 Hz to 16 kHz through the spectrum, which ends softly below 8 kHz. The first samples share an instant."""
    blocks = -(-len(sound) // 441) + 1  # one block of silence keeps the end from ringing into the start
    spectrum = np.fft.rfft(sound, 441 * blocks)[: 160 * blocks + 1]
    bins_hz = np.arange(len(spectrum)) * (SAMPLE_RATE / 2) / (len(spectrum) - 1)
    spectrum *= 0.5 + 0.5 * np.cos(np.pi * np.clip((bins_hz - 7000.0) / 1000.0, 0.0, 1.0))
    resampled: Track = np.fft.irfft(spectrum, 320 * blocks) * (320 / 441)
    return resampled[: round(len(sound) * 320 / 441)]


def _sharpest_rise(brightness: Track, low: int, high: int) -> int | None:
    """Sample in ``low..high`` at which the high frequencies gain most within 4 ms; None if they gain less than 6 dB."""
    half = NATIVE_RATE // 250
    candidates = np.arange(max(low, half), min(high, len(brightness) - 1 - half))
    if len(candidates) == 0:
        return None
    before = brightness[candidates] - brightness[candidates - half]
    after = brightness[candidates + half] - brightness[candidates]
    gain = (after + 1.0) / (before + 1.0)
    best = int(gain.argmax())
    return int(candidates[best]) if gain[best] > 4.0 else None


def _segments(sound: Track, events: Sequence[tuple[str, int]], first: int, last: int) -> tuple[list[str], list[int]]:
    """Phones and edges of a phrase, in samples of ``sound``; stops become closure and release.

    The library starts a stop at its burst where it is silent before, and else at its closure; and a nasal lasts until
    the vowel is reached, 20..50 ms after lips or tongue have opened. Such openings are found in the waveform.

    Args:
        sound: ``(n,)``.
        events: phones with the samples they start at.
        first: sample at which the phrase sets in.
        last: one past its last sample.
    """
    brightness = np.cumsum(np.diff(sound, n=2, prepend=0.0, append=0.0) ** 2)  # energy of high frequencies so far
    sounding = np.abs(sound) > 1e-3 * np.abs(sound).max()
    shortest, closure = NATIVE_RATE // 100, round(_CLOSURE_S * NATIVE_RATE)
    known = [(phone, at) for name, at in events if (phone := _nearest(name)) and at < last]
    ends = [at for _, at in known[1:]] + [last]
    known = [heard for heard, end in zip(known, ends, strict=True) if end - heard[1] >= shortest // 2]  # some are nil
    phones: list[str] = []
    starts: list[int] = []
    for number, (phone, at) in enumerate(known):
        following, end = known[number + 1] if number + 1 < len(known) else ("rest", last)
        at = max(at, first) if number else first
        if phone in _STOPS:
            if number == 0:
                release, at = at, at - closure
            else:
                heard = np.flatnonzero(sounding[starts[-1] : at])
                silent_from = starts[-1] + int(heard[-1]) + 1 if len(heard) else starts[-1] + shortest
                if phone in _VOICED_STOPS and at - silent_from < shortest // 3:  # voiced right through its closure
                    release = _sharpest_rise(brightness, at + shortest, end) or max(at + shortest, end - 2 * shortest)
                else:
                    release, at = at, min(at - shortest, silent_from)
            phones += [phone, f"{phone}+"]
            starts += [at, release]
        else:
            phones.append(phone)
            starts.append(at)
        if phone in _NASALS and following in _VOWELS:
            opening = _sharpest_rise(brightness, at + shortest, end + 1)
            if opening is not None:
                known[number + 1] = (following, opening)
    return phones, [*starts, last]


def _speak_phrase(text: str, weights: Track, voice_file: str, rate: int) -> _Phrase:
    native, events = say(text, voice_file, rate)
    sound = native.astype(np.float64)
    heard = np.flatnonzero(np.abs(sound) > 1e-3 * np.abs(sound).max())
    first, last = int(heard[0]), int(heard[-1]) + 1
    names, edges = _segments(sound, events, first, last)
    edges_s = (np.array(edges) - first) / NATIVE_RATE
    starts: list[int] = []  # phones that start a syllable: the consonant before each vowel, if it has one
    for number in (number for number, name in enumerate(names) if name in _VOWELS):
        onset = number - (2 if number and names[number - 1].endswith("+") else 1)
        starts.append(onset if onset >= 0 and names[number - 1] not in _VOWELS else number)
    syllable = np.maximum(np.searchsorted(np.array(starts), np.arange(len(names)), side="right") - 1, 0)
    syllable_edges_s = np.append(edges_s[:-1][starts], edges_s[-1])
    syllables_s = np.stack([syllable_edges_s[:-1], syllable_edges_s[1:]], axis=1)
    weights = weights[np.minimum(syllable, len(weights) - 1)]
    return _Phrase(tuple(names), edges_s, weights, syllables_s, _resample(sound[first:last]))


def espeak_utterance(rng: np.random.Generator, voice: Voice, start_s: float, end_s: float) -> Utterance:
    """Lets espeak-ng say random syllables.

    Args:
        rng: source of all chance; the same gives the same bits from the same version of the library.
        voice: who speaks: pitch, vocal tract, melody and pace; the rest is drawn anew each time.
        start_s: start of the utterance, seconds.
        end_s: its end.

    Returns:
        An utterance with its sound at hand, of unit rms over the voiced phones; phrases of about 0.5..1.8 s and pauses
        of 0.25..0.9 s. Phones are the nearest of ours. ``voice`` tells pitch, vocal tract and pace as they are; it has
        no breath and no jitter, and ``tilt_hz`` means nothing here.

    Raises:
        UsageError: if the library is not installed.
        AvfusionError: if it does not speak.
    """
    voice_file = _voice_file(rng, voice)
    sound = np.zeros(round((end_s - start_s) * SAMPLE_RATE), dtype=np.float32)
    phones: list[str] = []
    edges_s, weights, syllables_s, phrases_s = [np.array([start_s])], [np.ones((1, 2))], [np.empty((0, 2))], []
    now = round(rng.uniform(0.15, 0.9) * SAMPLE_RATE)
    while (phrase := _phrase_within(rng, (len(sound) - now) / SAMPLE_RATE - 0.05, voice, voice_file)) is not None:
        at_s, end = start_s + now / SAMPLE_RATE, now + len(phrase.sound)
        sound[now:end] = phrase.sound
        phones += ["rest", *phrase.phones]
        weights += [phrase.weights, np.ones((1, 2))]
        edges_s.append(at_s + phrase.edges_s)
        syllables_s.append(at_s + phrase.syllables_s)
        phrases_s.append((at_s, edges_s[-1][-1]))
        now = end + round(rng.uniform(MIN_PAUSE_S + 0.001, 0.9) * SAMPLE_RATE)
    script = Script(
        phones=(*phones, "rest"),
        edges_s=np.concatenate([*edges_s, [end_s]]),
        stress=np.concatenate(weights)[:, 0],
        effort=np.concatenate(weights)[:, 1],
        syllables_s=np.concatenate(syllables_s),
        phrases_s=np.array(phrases_s).reshape(-1, 2),
    )
    control_s = control_times_s(start_s, end_s)
    voiced = script.targets()[script.segments_at(control_s), COLUMN["voice"]] > 0.35  # not the near silence of closures
    pitch_hz = estimated_pitch_hz(sound, voiced, voice.pitch_hz)
    usual_hz = float(np.median(pitch_hz[voiced])) if voiced.any() else voice.pitch_hz
    voice = replace(voice, breath=0.0, jitter=0.0, pitch_hz=usual_hz)
    raw = Utterance(script, voice, start_s, end_s, pitch_hz, sound)
    return replace(raw, sound=render_utterance(rng, raw, len(sound), start_s))  # scales it and draws nothing


def _phrase_within(rng: np.random.Generator, room_s: float, voice: Voice, voice_file: str) -> _Phrase | None:
    """A phrase of at most ``room_s``, or None if the room is too short for one."""
    for _ in range(_TRIES):
        wanted_s = min(rng.uniform(0.5, _LONGEST_PHRASE_S), room_s)
        if wanted_s < 0.5:
            return None
        text, weights = _random_words(rng, max(2, round(wanted_s * voice.syllable_hz)))
        phrase = _speak_phrase(text, weights, voice_file, round(33.0 * voice.syllable_hz))
        if len(phrase.sound) / SAMPLE_RATE <= room_s:
            return phrase
    return None
