"""Mouths of synthetic talkers: they make the phones of their script, and other movements move as much as speech."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from avfusion.data.synthetic.mouth import MouthMovement, chew, keep_still, smile, speak, yawn
from avfusion.data.synthetic.script import Script, random_script

FRAMES_S = np.arange(75) / 25


def spelled(*phones: str, phone_s: float = 0.1) -> Script:
    """Phones of one length from 0 s on."""
    edges_s = np.arange(len(phones) + 1) * phone_s
    ones = np.ones(len(phones))
    return Script(phones, edges_s, ones, ones, edges_s[None, [1, -2]], edges_s[None, [1, -2]])


def at(mouth: MouthMovement) -> dict[str, float]:
    return {name: float(track[0]) for name, track in vars(mouth).items()}


@pytest.mark.parametrize("closure", ["p", "b", "m"])
def test_lips_are_shut_exactly_while_p_b_m_last_and_part_at_once(closure: str):
    script = spelled("rest", "a", closure, "a", "rest", phone_s=0.08)
    times_s = np.arange(0.0, 0.4, 0.001)
    opening = speak(script, times_s, 1.0).opening
    closed = (times_s >= 0.16) & (times_s <= 0.24)
    assert not opening[closed].any()
    assert opening[np.isclose(times_s, 0.15)] > 0.05
    assert opening[np.isclose(times_s, 0.25)] > 0.05
    assert opening[np.isclose(times_s, 0.12)] > 0.5


def test_every_closure_of_random_speech_is_seen_shut():
    shut, widest, times_s = [], [], np.arange(0.0, 3.0, 0.002)
    for seed in range(30):
        script = random_script(np.random.default_rng(seed), -1.0, 4.0, 3.0 + seed % 4)
        opening = speak(script, times_s, 1.1).opening
        phones = np.array(script.phones)[script.segments_at(times_s)]
        shut.append(opening[np.isin(phones, ("p", "b", "m"))])
        assert opening.max() <= 1.1
        widest.append(opening[phones == "a"].max(initial=0.0))
    assert len(np.concatenate(shut)) > 1000
    assert not np.concatenate(shut).any()
    assert np.median(widest) > 0.6


def test_held_vowels_have_the_shapes_of_their_names():
    def shape(vowel: str) -> dict[str, float]:
        return at(speak(spelled("rest", vowel, "rest", phone_s=1.0), np.array([1.5]), 1.0))

    a, i, u, o = (shape(vowel) for vowel in ("a", "i", "u", "o"))
    assert a["opening"] == pytest.approx(1.0)
    assert i["opening"] == pytest.approx(0.35)
    assert u["width"] < o["width"] < a["width"] < i["width"]
    assert u["rounding"] > o["rounding"] > a["rounding"] == i["rounding"] == 0.0
    assert i["teeth"] > a["teeth"] > u["teeth"] == 0.0


def test_f_and_s_are_narrow_and_show_the_teeth():
    for fricative, highest in (("f", 0.15), ("v", 0.15), ("s", 0.26), ("z", 0.26)):
        mouth = at(speak(spelled("rest", "a", fricative, "a", "rest"), np.array([0.25]), 1.0))
        assert 0.0 < mouth["opening"] < highest
        assert mouth["teeth"] > 0.7


def test_neutral_consonants_take_the_lips_of_the_vowel_beside_them():
    round_t, spread_t = (at(speak(spelled("rest", v, "t", "t+", v, "rest"), np.array([0.25]), 1.0)) for v in ("u", "i"))
    assert round_t["rounding"] > 0.5
    assert spread_t["rounding"] == 0.0
    assert spread_t["width"] - round_t["width"] > 0.5
    w = at(speak(spelled("rest", "i", "w", "i", "rest"), np.array([0.25]), 1.0))
    assert w["rounding"] > 0.7  # but w insists on its own


def test_articulation_and_effort_scale_the_opening():
    script = spelled("rest", "a", "rest", phone_s=0.5)
    whole, mild = (at(speak(script, np.array([0.75]), articulation))["opening"] for articulation in (1.0, 0.8))
    assert mild == pytest.approx(0.8 * whole)
    quiet = replace(script, effort=0.5 * script.effort)
    assert at(speak(quiet, np.array([0.75]), 1.0))["opening"] == pytest.approx(0.5 * whole)


def test_the_movement_at_a_time_does_not_depend_on_the_other_times():
    script = random_script(np.random.default_rng(2), -1.0, 4.0, 4.0)
    np.testing.assert_allclose(speak(script, FRAMES_S, 0.9).width[30:40], speak(script, FRAMES_S[30:40], 0.9).width)
    later = speak(script.moved(0.12), FRAMES_S + 0.12, 0.9)
    np.testing.assert_allclose(later.opening, speak(script, FRAMES_S, 0.9).opening, atol=1e-6)


def test_a_mouth_between_phrases_is_shut():
    for seed in range(20):
        script = random_script(np.random.default_rng(seed), -1.0, 4.0, 4.0)
        times_s = np.arange(0.0, 3.0, 0.01)
        resting = ~np.any([script.voiced_at(times_s + shift_s) for shift_s in np.arange(-0.2, 0.21, 0.02)], axis=0)
        assert speak(script, times_s, 1.0).opening[resting].max(initial=0.0) < 1e-9


@pytest.mark.parametrize("movement", [chew, smile, yawn])
def test_other_movements_move_as_much_as_speech(movement: Callable[..., MouthMovement]):
    def mean_motion(mouths: list[MouthMovement]) -> float:
        return float(np.mean([np.abs(np.diff(mouth.opening)).mean() for mouth in mouths]))

    rngs = [np.random.default_rng(seed) for seed in range(150)]
    speech = [
        speak(random_script(rng, -1.0, 4.0, rng.uniform(3.0, 6.0)), FRAMES_S, rng.uniform(0.75, 1.1)) for rng in rngs
    ]
    others = [movement(rng, FRAMES_S) for rng in rngs]
    assert 0.8 < mean_motion(others) / mean_motion(speech) < 1.25
    for mouth in others:
        assert mouth.opening.min() >= 0.0
        assert 0.2 < mouth.opening.max() <= 1.1
        assert all(np.isfinite(track).all() and len(track) == 75 for track in vars(mouth).values())


def test_the_other_movements_are_what_their_names_say():
    rngs = [np.random.default_rng(seed) for seed in range(60)]
    assert np.mean([np.abs(chew(rng, FRAMES_S).sideways).max() for rng in rngs]) > 0.015
    assert min(smile(rng, FRAMES_S).smile.max() for rng in rngs) > 0.4
    widest = [yawn(rng, FRAMES_S).opening for rng in rngs]
    assert min((opening > 0.8).sum() for opening in widest) >= 10  # open wide for 400 ms, as no syllable is
    still = keep_still(FRAMES_S)
    assert not any(np.diff(track).any() for track in vars(still).values())
    assert not still.opening.any()
