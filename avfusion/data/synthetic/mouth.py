"""How the mouth of a synthetic talker moves: speech, made phone by phone from a script, and movements that are none.

Speech blends the lip targets of neighboring phones by how firmly each holds them, then lets closures win: the lips of
``p b m`` meet exactly while the sound is closed and part at the burst. Chewing, smiling and yawning move about as much
and as fast as speech does, so that the amount of motion does not give a talker away.

Shapes: ``T`` video frames, ``N`` phones, ``W`` steps of the smoothing window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.data.synthetic.phones import COLUMN
from avfusion.data.synthetic.script import Script

Track = NDArray[np.float64]

_OPENING_REACH_S = 0.065  # phones this far away still move the lips apart or together
_SHAPE_REACH_S = 0.11  # spreading and rounding start earlier and last longer
_WINDOW_STEP_S = 0.005
_OPEN_PER_S = 1 / 0.07  # the lips need 70 ms from shut to wide open


@dataclass(frozen=True)
class MouthMovement:
    """Mouth shape in every video frame, each ``(T,)``.

    Attributes:
        opening: 0 = lips shut, 1 = wide open; at most 1.1.
        width: 0 = round (small), 1 = spread.
        rounding: 0..1, lips pushed forward.
        teeth: 0..1, how much of the upper teeth shows while the mouth is open.
        smile: -0.3..1, corners of the mouth up.
        sideways: shift of the jaw in face units (half a face height).
    """

    opening: Track
    width: Track
    rounding: Track
    teeth: Track
    smile: Track
    sideways: Track


def _blend(script: Script, times_s: Track, values: Track, holds: Track, reach_s: float) -> Track:
    """Hann-weighted mean of phone values around each time, each phone counting by its hold.

    Args:
        script: gives the times of the phones.
        times_s: ``(T,)``.
        values: ``(N, C)`` targets.
        holds: ``(N,)``.
        reach_s: half length of the window.

    Returns:
        ``(T, C)``.
    """
    steps = round(reach_s / _WINDOW_STEP_S)
    offsets_s = (np.arange(2 * steps + 1) - steps) * _WINDOW_STEP_S
    window = np.hanning(2 * steps + 3)[1:-1]
    phone = script.segments_at(times_s[:, None] + offsets_s)  # (T, W)
    weights = window * holds[phone]
    weights /= weights.sum(axis=1, keepdims=True)
    return np.stack([(weights * column[phone]).sum(axis=1) for column in values.T], axis=1)


def _ceiling(script: Script, times_s: Track, ceilings: Track) -> Track:
    """``(T,)`` how far the lips can be apart, given that they need time to leave the closures and narrows around."""
    low = np.flatnonzero(ceilings <= 1.0)
    if len(low) == 0:
        return np.full(len(times_s), 2.0)
    starts_s, ends_s = script.edges_s[low], script.edges_s[low + 1]
    away_s = np.maximum(np.maximum(starts_s - times_s[:, None], times_s[:, None] - ends_s), 0.0)
    highest: Track = (ceilings[low] + _OPEN_PER_S * away_s).min(axis=1)
    return highest


def speak(script: Script, times_s: Track, articulation: float) -> MouthMovement:
    """Mouth movement that makes a script.

    Args:
        script: what is said.
        times_s: ``(T,)`` times on the script's clock.
        articulation: how far this person opens the mouth, about 0.75..1.1.

    Returns:
        Lips that are shut (0) during the closures of ``p b m``, and open with the vowels.
    """
    targets = script.targets()
    opening = targets[:, COLUMN["opening"]]
    opening = np.where(opening > 0, articulation * opening * script.effort, opening)
    opening = _blend(script, times_s, opening[:, None], targets[:, COLUMN["opening_hold"]], _OPENING_REACH_S)[:, 0]
    opening = np.minimum(opening, _ceiling(script, times_s, targets[:, COLUMN["ceiling"]]))
    shape = targets[:, [COLUMN["width"], COLUMN["rounding"], COLUMN["teeth"]]]
    width, rounding, teeth = _blend(script, times_s, shape, targets[:, COLUMN["shape_hold"]], _SHAPE_REACH_S).T
    still = np.zeros(len(times_s))
    return MouthMovement(np.clip(opening, 0.0, 1.1), width, np.clip(rounding, 0.0, 1.0), teeth, still, still)


def _glide(times_s: Track, keys_s: Track, values: Track) -> Track:
    """``(T, C)`` smooth movement through the ``(M, C)`` values at ``(M,)`` times, at rest in each of them."""
    key = np.clip(np.searchsorted(keys_s, times_s, side="right") - 1, 0, len(keys_s) - 2)
    share = np.clip((times_s - keys_s[key]) / (keys_s[key + 1] - keys_s[key]), 0.0, 1.0)
    share = share * share * (3 - 2 * share)
    return values[key] + (values[key + 1] - values[key]) * share[:, None]


def _beats(rng: np.random.Generator, start_s: float, end_s: float, beat_hz: float) -> Track:
    """``(M,)`` times about ``1 / beat_hz`` apart, from before ``start_s`` to after ``end_s``."""
    count = int((end_s - start_s) * beat_hz * 1.6) + 4
    gaps_s = np.clip(rng.normal(1.0, 0.25, count), 0.6, 1.6) / beat_hz
    beats_s: Track = start_s - rng.random() / beat_hz - gaps_s[0] + np.cumsum(gaps_s)
    return beats_s


def _rests(rng: np.random.Generator, count: int, length: int, chance: float) -> NDArray[np.bool_]:
    """``(count,)`` True in rests of ``length`` beats, each followed by movement of at least that length."""
    resting = rng.random(-(-count // length)) < chance
    resting[1::2] = False
    return np.repeat(resting, length)[:count]


def chew(rng: np.random.Generator, times_s: Track) -> MouthMovement:
    """Chewing at 1.2..5 bites a second (fast bites are small), the jaw swinging sideways, with short rests."""
    bite_hz, swing = rng.uniform(1.2, 5.0), rng.choice([-1.0, 1.0]) * rng.uniform(0.02, 0.06)
    bites_s = _beats(rng, times_s[0], times_s[-1], 2 * bite_hz)  # open, shut, open, shut
    is_open = np.arange(len(bites_s)) % 2
    busy = ~_rests(rng, len(bites_s), max(2, round(1.2 * bite_hz)), 0.2)
    jaw = is_open * busy * rng.uniform(0.4, 1.0, len(bites_s)) * min(0.72, 1.5 / bite_hz)
    side = np.where(np.arange(len(bites_s)) % 4 < 2, 1.0, -1.0) * busy
    width = 0.5 - 0.3 * jaw + rng.normal(0.0, 0.06, len(bites_s))
    keys = np.column_stack([jaw, width, rng.uniform(0.0, 0.3, len(bites_s)), side])
    opening, width, rounding, side = _glide(times_s, bites_s, keys).T
    still = np.zeros(len(times_s))
    return MouthMovement(opening, width, rounding, 0.3 * opening, still, swing * side)


_FACES_MADE: tuple[tuple[float, ...], ...] = (  # opening, width, rounding, teeth, smile
    (0.05, 0.85, 0.0, 0.6, 0.8),  # smile with the lips together
    (0.6, 0.95, 0.0, 1.0, 1.0),  # broad smile
    (0.0, 0.4, 0.0, 0.0, -0.2),  # lips pressed together
    (0.9, 0.65, 0.0, 0.5, 0.5),  # laugh
    (0.5, 0.35, 0.5, 0.0, 0.0),  # lips licked or pursed
)


def smile(rng: np.random.Generator, times_s: Track) -> MouthMovement:
    """Smiles, laughs, lips pressed and licked, one after the other at the rhythm of syllables, with short rests."""
    beats_s = _beats(rng, times_s[0], times_s[-1], rng.uniform(5.0, 8.0))
    made = np.array(_FACES_MADE)[rng.integers(len(_FACES_MADE), size=len(beats_s))]
    made *= rng.uniform(0.55, 0.95, (len(beats_s), 1))
    made[_rests(rng, len(beats_s), 4, 0.25)] = (0.03, 0.8, 0.0, 0.3, 0.5)
    opening, width, rounding, teeth, corners = _glide(times_s, beats_s, made).T
    return MouthMovement(np.clip(opening, 0.0, 1.1), width, rounding, np.clip(teeth, 0, 1), corners, 0.0 * corners)


def yawn(rng: np.random.Generator, times_s: Track) -> MouthMovement:
    """Slow, wide openings of 1..1.8 s, and lips smacking at the rhythm of syllables before and after them."""
    beats_s = _beats(rng, times_s[0], times_s[-1], rng.uniform(6.0, 9.0))
    count = len(beats_s)
    smack = (np.arange(count) % 2) * rng.uniform(0.1, 0.46, count)
    keys = np.column_stack([smack, 0.5 - 0.2 * smack, rng.uniform(0.0, 0.4, count), 0.3 * smack])
    opening, width, rounding, teeth = _glide(times_s, beats_s, keys).T
    peak_s = times_s[0] + rng.uniform(0.2, 1.0)
    while peak_s < times_s[-1]:
        half_s = rng.uniform(0.5, 0.9)
        wide = np.clip(1.25 * np.cos(np.clip((times_s - peak_s) / half_s, -1, 1) * np.pi / 2) ** 2, 0.0, 1.0)
        opening, width = opening + wide * (1.05 - opening), width + wide * (0.35 - width)
        rounding, teeth = rounding * (1 - wide), teeth + wide * (0.4 - teeth)
        peak_s += rng.uniform(2.0, 4.0)
    still = np.zeros(len(times_s))
    return MouthMovement(opening, width, rounding, teeth, still, still)


def keep_still(times_s: Track) -> MouthMovement:
    """A mouth at rest."""
    still = np.zeros(len(times_s))
    return MouthMovement(still, np.full(len(times_s), 0.5), still, still, still, still)
