"""Voices of espeak-ng: the same bits every time, and times that agree with the waveform."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import subprocess
import sys
import threading
from itertools import pairwise

import numpy as np
import pytest

from avfusion.clock import SAMPLE_RATE
from avfusion.data.synthetic import espeak, espeak_library
from avfusion.data.synthetic.espeak import espeak_utterance
from avfusion.data.synthetic.espeak_library import find_espeak
from avfusion.data.synthetic.mouth import speak
from avfusion.data.synthetic.phones import PHONES
from avfusion.data.synthetic.pitch_estimate import estimated_pitch_hz
from avfusion.data.synthetic.script import MIN_PAUSE_S
from avfusion.data.synthetic.voice import Utterance, pitch_track, random_voice, render_utterance
from avfusion.errors import UsageError

START_S, END_S = -0.4, 4.6
NUM_UTTERANCES = 24

needs_espeak = pytest.mark.skipif(not find_espeak(), reason="libespeak-ng is not installed")


def made(seed: int) -> Utterance:
    rng = np.random.default_rng(seed)
    return espeak_utterance(rng, random_voice(rng), START_S, END_S)


def fingerprint(seed: int) -> str:
    utterance = made(seed)
    parts = [utterance.sound.tobytes(), utterance.script.edges_s.tobytes(), utterance.pitch_hz.tobytes()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.fixture(scope="module")
def utterances() -> list[Utterance]:
    return [made(seed) for seed in range(NUM_UTTERANCES)]


def brightness_gain_db(utterance: Utterance, time_s: float) -> float:
    """How much the high frequencies gain from the 4 ms before a time to the 4 ms after it."""
    curvature = np.pad(np.diff(utterance.sound.astype(float), n=2, prepend=0, append=0) ** 2, 100)
    at = round((time_s - START_S) * SAMPLE_RATE) + 100
    return float(10 * np.log10((curvature[at - 8 : at + 56].sum() + 1e-6) / (curvature[at - 72 : at - 8].sum() + 1e-6)))


def level_db(utterance: Utterance, from_s: float, to_s: float) -> float:
    low, high = (round((time_s - START_S) * SAMPLE_RATE) for time_s in (from_s, to_s))
    return float(10 * np.log10(np.mean(utterance.sound[low:high].astype(float) ** 2) + 1e-12))


def test_asking_without_the_library_tells_in_one_line_what_to_install(monkeypatch):
    monkeypatch.setenv("AVFUSION_ESPEAK", "no-such-library.so")
    espeak_library._synthesizer.cache_clear()
    assert not find_espeak()
    with pytest.raises(UsageError, match=r"apt install libespeak-ng1.*brew install espeak-ng") as caught:
        made(0)
    assert "\n" not in str(caught.value)
    espeak_library._synthesizer.cache_clear()


def test_pitch_of_a_known_glide_is_found_through_a_gap():
    time_s = np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE
    octaves = 0.25 * time_s  # 100 Hz rises to 141 Hz
    cycles = 100.0 * (2.0**octaves - 1) / (0.25 * np.log(2))
    sound = sum(np.cos(2 * np.pi * number * cycles) / number for number in (1, 2, 3, 4, 5, 6))
    voiced = np.ones(1000, dtype=bool)
    voiced[400:500] = False
    sound[round(0.8 * SAMPLE_RATE) : SAMPLE_RATE] = 0.0
    contour_hz = estimated_pitch_hz(sound.astype(np.float32), voiced, 120.0)
    true_hz = 100.0 * 2.0 ** (0.25 * np.arange(1000) / 500)
    np.testing.assert_allclose(contour_hz[20:980], true_hz[20:980], rtol=0.015)


def test_resampling_keeps_a_tone_and_its_time():
    native_s = np.arange(22_050) / 22_050
    tone = np.sin(2 * np.pi * 1000.0 * native_s) * np.hanning(22_050)
    expected = np.sin(2 * np.pi * 1000.0 * np.arange(16_000) / 16_000) * np.interp(
        np.arange(16_000) / 16_000, native_s, np.hanning(22_050)
    )
    np.testing.assert_allclose(espeak._resample(tone), expected, atol=2e-4)


@pytest.mark.parametrize(
    ("name", "phone"), [("a", "a"), ("S", "S"), ("I", "i"), ("t#", "t"), ("n^", "n"), ("_:", None), ("?", None)]
)
def test_names_of_the_library_become_the_nearest_phone(name, phone):
    assert espeak._nearest(name) == phone


def test_every_phone_that_others_are_mapped_to_exists():
    assert set(espeak._NEAREST.values()) <= set(PHONES)


@needs_espeak
def test_the_same_rng_gives_the_same_bits_whatever_was_said_before():
    seeds = range(40)  # all kinds of voices, languages and phones
    forward = [fingerprint(seed) for seed in seeds]
    assert [fingerprint(seed) for seed in reversed(seeds)][::-1] == forward
    assert len(set(forward)) == len(seeds)


@needs_espeak
def test_another_process_says_the_same():
    folders = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    fresh = subprocess.run(
        [sys.executable, "-c", "import test_espeak; print(test_espeak.fingerprint(2))"],
        env={**os.environ, "PYTHONPATH": folders}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert fresh.stdout.strip() == fingerprint(2)


@needs_espeak
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
def test_a_forked_worker_says_the_same_even_if_the_library_was_busy():
    expected = fingerprint(4)
    with espeak_library._lock, multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(fingerprint, (4,)).get(timeout=30) == expected


@needs_espeak
def test_threads_take_turns():
    expected = {seed: fingerprint(seed) for seed in (5, 6)}
    found: dict[int, str] = {}
    threads = [threading.Thread(target=lambda seed=seed: found.update({seed: fingerprint(seed)})) for seed in (5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


@needs_espeak
def test_scripts_tile_the_utterance_and_pauses_are_silent(utterances):
    for utterance in utterances:
        script = utterance.script
        assert (script.edges_s[0], script.edges_s[-1]) == (START_S, END_S)
        assert (np.diff(script.edges_s) > 0).all()
        assert len(script.phones) == len(script.stress) == len(script.edges_s) - 1
        assert all(later[0] - earlier[1] >= MIN_PAUSE_S for earlier, later in pairwise(script.phrases_s))
        sample_s = START_S + np.arange(len(utterance.sound)) / SAMPLE_RATE
        assert not utterance.sound[~script.voiced_at(sample_s + 1e-9)].any()
        for start_s, end_s in script.phrases_s:
            assert level_db(utterance, start_s, end_s) > -12.0
    assert sum(len(utterance.script.phrases_s) for utterance in utterances) > NUM_UTTERANCES


@needs_espeak
def test_bursts_are_where_the_waveform_says(utterances):
    gains = [
        brightness_gain_db(utterance, time_s) for utterance in utterances for time_s in utterance.script.bursts()[1]
    ]
    assert len(gains) > 60
    assert min(gains) > 3.0


@needs_espeak
def test_voiceless_closures_are_silent_and_vowels_after_them_set_in_at_their_edge(utterances):
    rises = []
    for utterance in utterances:
        script = utterance.script
        for number, phone in enumerate(script.phones[:-2]):
            if phone in ("p", "t", "k"):
                assert level_db(utterance, script.edges_s[number] + 0.002, script.edges_s[number + 1] - 0.002) < -50.0
                vowel_s = script.edges_s[number + 2]
                after_db, before_db = (
                    level_db(utterance, vowel_s, vowel_s + 0.02),
                    level_db(utterance, vowel_s - 0.01, vowel_s),
                )
                rises.append(after_db - before_db)
    assert len(rises) > 30
    assert np.quantile(rises, 0.05) > 3.0


@needs_espeak
def test_sound_has_unit_rms_over_its_voiced_phones_and_rendering_hands_it_back(utterances):
    utterance = utterances[0]
    script = utterance.script
    sample_s = START_S + (np.arange(len(utterance.sound)) + 0.5) / SAMPLE_RATE
    strong = script.targets()[:, PHONES["a"]._fields.index("voice")] * script.stress > 0.3
    voiced = strong[script.segments_at(sample_s)]
    assert np.sqrt(np.mean(utterance.sound[voiced].astype(float) ** 2)) == pytest.approx(1.0, abs=0.01)
    rng = np.random.default_rng(0)
    rendered = render_utterance(rng, utterance, len(utterance.sound), START_S)
    np.testing.assert_allclose(rendered, utterance.sound, rtol=1e-3)


@needs_espeak
def test_voices_differ_in_pitch_and_contours_stay_near_it(utterances):
    pitches_hz = [utterance.voice.pitch_hz for utterance in utterances]
    assert max(pitches_hz) > 1.8 * min(pitches_hz)
    octaves = []
    for utterance in utterances:
        assert utterance.pitch_hz.shape == (2500,)
        assert (utterance.pitch_hz > 0).all()
        track_hz = pitch_track(utterance, 500, START_S)
        octaves.append(np.log2(track_hz[track_hz > 0] / utterance.voice.pitch_hz))
    assert np.mean(np.abs(np.concatenate(octaves)) < 0.6) > 0.99


@needs_espeak
def test_the_mouth_moves_with_the_sound(utterances):
    for utterance in utterances:
        times_s = START_S + 0.1 + np.arange(120) / 25
        opening = speak(utterance.script, times_s, 1.0).opening
        loudness = [level_db(utterance, time_s - 0.01, time_s + 0.01) for time_s in times_s]
        assert np.corrcoef(opening, np.maximum(loudness, -30.0))[0, 1] > 0.5
