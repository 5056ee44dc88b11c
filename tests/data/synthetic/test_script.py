"""Scripts of synthetic talkers: phones tile time, phrases are exactly where they are wanted, releases are found."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.data.synthetic.phones import COLUMN, PHONES
from avfusion.data.synthetic.script import MIN_PAUSE_S, Script, control_tracks, random_script, smooth


def scripts(count: int = 60) -> list[Script]:
    return [random_script(np.random.default_rng(seed), -1.0, 4.0, 3.0 + seed % 4) for seed in range(count)]


def spelled(*phones: str) -> Script:
    """Phones of 100 ms each from 0 s on; the phrase is all but the rests around."""
    edges_s = np.arange(len(phones) + 1) / 10
    phrase_s = np.array([[edges_s[1], edges_s[-2]]])
    ones = np.ones(len(phones))
    return Script(phones, edges_s, ones, ones, phrase_s, phrase_s)


def test_phones_tile_the_whole_stretch_and_phrases_are_what_is_no_rest():
    for script in scripts():
        assert script.edges_s[0] == -1.0
        assert script.edges_s[-1] == 4.0
        assert len(script.edges_s) == len(script.phones) + 1 == len(script.stress) + 1
        assert np.diff(script.edges_s).min() > 0.009
        middles_s = (script.edges_s[:-1] + script.edges_s[1:]) / 2
        for phone, end_s, inside in zip(script.phones, script.edges_s[1:], script.voiced_at(middles_s), strict=True):
            if inside:
                assert phone != "rest"
            elif phone != "rest":  # the silent closure of a first stop ends where its phrase starts
                assert phone in ("p", "t", "k")
                assert np.isclose(script.phrases_s[:, 0], end_s).any()


def test_drawn_phrases_and_pauses_have_the_promised_lengths():
    for script in scripts():
        lengths_s = script.phrases_s[:, 1] - script.phrases_s[:, 0]
        pauses_s = script.phrases_s[1:, 0] - script.phrases_s[:-1, 1]
        assert np.all((lengths_s >= 0.5) & (lengths_s <= 1.8))
        assert np.all((pauses_s >= MIN_PAUSE_S - 1e-9) & (pauses_s <= 0.9 + 1e-9))
    share = np.mean([script.voiced_at(np.linspace(0, 3, 100)).mean() for script in scripts()])
    assert 0.5 < share < 0.8


def test_the_pace_is_the_one_asked_for():
    for syllable_hz in (3.0, 4.5, 6.0):
        script = random_script(np.random.default_rng(0), 0.0, 200.0, syllable_hz)
        spoken_s = float((script.phrases_s[:, 1] - script.phrases_s[:, 0]).sum())
        assert len(script.syllables_s) / spoken_s == pytest.approx(syllable_hz, rel=0.05)


def test_imposed_phrases_come_out_exactly_with_other_words():
    for seed in range(40):
        phrases_s = random_script(np.random.default_rng(seed), -1.0, 4.0, 4.0).phrases_s
        first, second = (
            random_script(np.random.default_rng(100 + seed), -1.0, 4.0, hz, phrases_s) for hz in (4.0, 5.0)
        )
        np.testing.assert_array_equal(first.phrases_s, phrases_s)
        np.testing.assert_array_equal(second.phrases_s, phrases_s)
        assert first.phones != second.phones
        assert set(phrases_s.ravel()) <= set(first.edges_s)
        assert first.phones[int(np.searchsorted(first.edges_s, phrases_s[0, 0]))] not in ("p", "t", "k")


def test_an_imposed_phrase_may_fill_the_script_and_not_reach_beyond_it():
    rngs = [np.random.default_rng(seed) for seed in range(40)]
    for script in (random_script(rng, 0.0, 1.0, 4.0, np.array([[0.0, 1.0]])) for rng in rngs):
        assert "rest" not in script.phones
        assert script.phones[0] not in ("p", "t", "k")
        assert (script.edges_s[0], script.edges_s[-1]) == (0.0, 1.0)
    for wrong in ([[0.0, 1.1]], [[-0.1, 0.5]], [[0.0, 0.6], [0.5, 1.0]]):
        with pytest.raises(ValueError, match="follow each other inside"):
            random_script(rngs[0], 0.0, 1.0, 4.0, np.array(wrong))


def test_no_time_or_no_phrases_give_a_rest():
    for script in (
        random_script(np.random.default_rng(0), 0.0, 0.3, 4.0),
        random_script(np.random.default_rng(0), 0.0, 3.0, 4.0, np.zeros((0, 2))),
    ):
        assert script.phones == ("rest",)
        assert not script.voiced_at(np.linspace(-1, 4, 50)).any()
        assert script.syllables_s.shape == script.phrases_s.shape == (0, 2)


def test_bursts_are_the_starts_of_releases():
    names, times_s = spelled("rest", "p", "p+", "a", "d", "d+", "u", "rest").bursts()
    assert names == ("p", "d")
    np.testing.assert_allclose(times_s, [0.2, 0.5])
    assert spelled("rest", "a", "rest").bursts()[0] == ()


def test_a_moved_script_says_the_same_later():
    script = scripts(1)[0]
    moved = script.moved(0.25)
    assert moved.phones == script.phones
    times_s = np.linspace(-0.5, 3.5, 401)
    np.testing.assert_array_equal(moved.voiced_at(times_s + 0.25), script.voiced_at(times_s))
    np.testing.assert_allclose(moved.bursts()[1], script.bursts()[1] + 0.25)
    np.testing.assert_allclose(moved.syllables_s - script.syllables_s, 0.25)


def test_the_same_generator_writes_the_same_script():
    first, again = (random_script(np.random.default_rng(4), -1.0, 4.0, 4.0) for _ in range(2))
    assert first.phones == again.phones
    np.testing.assert_array_equal(first.edges_s, again.edges_s)


def test_control_tracks_hold_the_table_and_the_stress():
    script = spelled("rest", "a", "s", "rest")
    times_s, targets = control_tracks(script, -0.1, 0.5)
    np.testing.assert_allclose(times_s[[0, -1]], [-0.1, 0.498])
    at = {name: targets[np.argmin(np.abs(times_s - time_s))] for name, time_s in (("a", 0.15), ("s", 0.25))}
    for name, row in at.items():
        assert tuple(row[:-1]) == PHONES[name]
        assert row[-1] == 1.0
    assert targets[0, COLUMN["voice"]] == targets[-1, COLUMN["voice"]] == 0.0


def test_smoothing_keeps_means_and_far_zeros_and_follows_the_firmer_hold():
    step = np.repeat([0.0, 1.0], 100)[:, None]
    smoothed = smooth(step, 0.05)[:, 0]
    assert not smoothed[:75].any()
    assert smoothed[99:101].mean() == pytest.approx(0.5)
    assert smoothed[150] == pytest.approx(1.0)
    firm = smooth(step, 0.05, np.where(step[:, 0] > 0, 3.0, 1.0))[:, 0]
    assert firm[99:101].mean() == pytest.approx(0.75, abs=0.01)
