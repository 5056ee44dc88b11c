"""Voices of synthetic talkers: pitch, formants, hiss, bursts and silence are where the plan says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from avfusion.clock import SAMPLE_RATE
from avfusion.data.synthetic.mouth import speak
from avfusion.data.synthetic.phones import PHONES
from avfusion.data.synthetic.script import CONTROL_HZ, Script
from avfusion.data.synthetic.voice import (
    Utterance,
    Voice,
    make_utterance,
    pitch_track,
    random_voice,
    render_utterance,
)

VOICE = Voice(pitch_hz=125.0, tract_scale=1.0, tilt_hz=250.0, breath=0.01, melody=0.0, syllable_hz=4.0, jitter=0.003)


def planned(phones: tuple[str, ...], edges_s: list[float], voice: Voice = VOICE) -> Utterance:
    """An utterance of given phones, the first and last of them rests, at the voice's own pitch."""
    edges = np.array(edges_s)
    ones = np.ones(len(phones))
    script = Script(phones, edges, ones, ones, edges[None, [1, -2]], edges[None, [1, -2]])
    steps = round((edges[-1] - edges[0]) * CONTROL_HZ)
    return Utterance(script, voice, float(edges[0]), float(edges[-1]), np.full(steps, voice.pitch_hz))


def steady(phone: str, voice: Voice = VOICE) -> Utterance:
    """One phone held for a second, with rests around it."""
    return planned(("rest", phone, "rest"), [-1.0, 0.1, 1.1, 2.0], voice)


def middle_of(utterance: Utterance) -> np.ndarray:
    """The steady 0.75 s of a held phone."""
    return render_utterance(np.random.default_rng(0), utterance, 20_000)[4000:16_000].astype(float)


def period(sound: np.ndarray, near: float) -> float:
    """Distance of the glottal pulses in samples, by autocorrelation and a parabola through its peak."""
    lags = np.arange(int(0.7 * near), int(1.3 * near))
    score = np.array([np.dot(sound[:-lag], sound[lag:]) / np.linalg.norm(sound[lag:]) for lag in lags])
    top = int(np.clip(np.argmax(score), 1, len(lags) - 2))
    before, peak, after = score[top - 1 : top + 2]
    return float(lags[top] + 0.5 * (before - after) / (before - 2 * peak + after))


def spoken(count: int, num_samples: int = 48_000) -> list[tuple[Utterance, np.ndarray]]:
    """Random utterances of random voices with their sounds from 0 s on."""
    pairs = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        utterance = make_utterance(rng, random_voice(rng), -1.0, 4.0)
        pairs.append((utterance, render_utterance(rng, utterance, num_samples)))
    return pairs


@pytest.mark.parametrize("phone", ["a", "e", "i", "o", "u", "@", "l", "j"])
@pytest.mark.parametrize("tract_scale", [1.0, 1.15])
def test_a_held_phone_has_the_pitch_and_formants_of_its_table(phone: str, tract_scale: float):
    sound = middle_of(steady(phone, replace(VOICE, tract_scale=tract_scale)))
    assert period(sound, 128.0) == pytest.approx(SAMPLE_RATE / 125.0, rel=0.01)
    power = np.abs(np.fft.rfft(sound * np.hanning(len(sound)))) ** 2
    hz = np.fft.rfftfreq(len(sound), 1 / SAMPLE_RATE)
    smoothed = np.convolve(power * hz**2, np.ones(140), mode="same")  # over 187 Hz, more than a harmonic spacing
    for formant_hz in PHONES[phone][1:3]:
        near = (np.abs(hz - tract_scale * formant_hz) < 300) & (hz > tract_scale * PHONES[phone].f1_hz + 250)
        assert hz[near][np.argmax(smoothed[near])] == pytest.approx(tract_scale * formant_hz, abs=150)


@pytest.mark.parametrize("nasal", ["m", "n"])
def test_nasals_are_a_low_murmur(nasal: str):
    def high_share(phone: str) -> float:
        power = np.abs(np.fft.rfft(middle_of(steady(phone)))) ** 2
        hz = np.fft.rfftfreq(12_000, 1 / SAMPLE_RATE)
        return float(power[hz > 600].sum() / power.sum())

    assert high_share(nasal) < 0.02 < high_share("@")
    quiet = render_utterance(
        np.random.default_rng(0), planned(("rest", "a", "b", "rest"), [-1, 0.1, 0.6, 1.1, 2]), 20_000
    )
    assert np.std(quiet[10_500:16_500]) < 0.4 * np.std(quiet[2500:9000])  # behind closed lips less is heard


@pytest.mark.parametrize("phone", ["f", "s", "S"])
def test_hiss_lies_where_its_table_says_and_rests_are_silent(phone: str):
    sound = render_utterance(np.random.default_rng(0), steady(phone), 30_000)
    power = np.abs(np.fft.rfft(sound[4000:16_000])) ** 2
    hz = np.fft.rfftfreq(12_000, 1 / SAMPLE_RATE)
    tolerance_hz = 250 if phone != "f" else 1000  # f is so broad that the ends of the band cut it
    assert (power * hz).sum() / power.sum() == pytest.approx(PHONES[phone].noise_hz, abs=tolerance_hz)
    assert np.sqrt(np.mean(sound[4000:16_000] ** 2)) == pytest.approx(PHONES[phone].noise, rel=0.1)
    assert not sound[:1200].any()
    assert not sound[18_400:].any()


def test_measured_pitch_is_the_pitch_track():
    errors = []
    for utterance, sound in spoken(12):
        pitch_hz = pitch_track(utterance, 300)
        for frame in range(8, 290, 6):
            around = pitch_hz[frame - 4 : frame + 5]
            if around.min() > 0 and np.ptp(around) < 0.05 * around.mean():
                stretch = sound[frame * 160 - 560 : frame * 160 + 560].astype(float)
                errors.append(period(stretch, SAMPLE_RATE / pitch_hz[frame]) * pitch_hz[frame] / SAMPLE_RATE - 1)
    assert len(errors) > 150
    assert np.percentile(np.abs(errors), 90) < 0.03
    assert abs(np.median(errors)) < 0.003


def test_the_pitch_track_is_zero_where_nothing_is_voiced_and_moves_with_its_start():
    utterance = planned(("rest", "s", "a", "rest"), [-1.0, 0.1, 0.3, 0.6, 1.0])
    track = pitch_track(utterance, 80)
    assert not track[:30].any()
    np.testing.assert_allclose(track[30:60], 125.0)
    assert not track[60:].any()
    np.testing.assert_array_equal(pitch_track(utterance, 20, at_s=0.25), track[25:45])


@pytest.mark.parametrize("stop", ["p", "t", "k", "b", "d", "g"])
def test_a_burst_sets_in_at_its_release(stop: str):
    release_s = 0.5537
    utterance = planned(
        ("rest", "a", stop, f"{stop}+", "a", "rest"), [-1, 0.2, 0.47, release_s, release_s + 0.03, 0.9, 2]
    )
    names, times_s = utterance.script.bursts()
    assert names == (stop,)
    np.testing.assert_array_equal(times_s, [release_s])
    sound = render_utterance(np.random.default_rng(1), utterance, 16_000).astype(float)
    sharp = np.diff(sound, n=2) ** 2  # leaves out what little voice there is in the closure
    energy = np.convolve(sharp, np.ones(16), mode="same")
    release = round(release_s * SAMPLE_RATE)
    quiet = energy[release - 400 : release - 80].max()
    onset = release - 80 + int(np.argmax(energy[release - 80 : release + 160] > 4 * quiet))
    assert abs(onset - release) < 0.005 * SAMPLE_RATE
    assert energy[release : release + 80].max() > 10 * quiet


def test_velar_bursts_follow_the_vowel_and_aspiration_follows_voiceless_stops_only():
    def after_release(stop: str, vowel: str) -> np.ndarray:
        utterance = planned(("rest", stop, f"{stop}+", vowel, "rest"), [-1, 0.2, 0.3, 0.34, 0.8, 2])
        return render_utterance(np.random.default_rng(1), utterance, 16_000).astype(float)[4800:5400]

    def mean_hz(sound: np.ndarray) -> float:
        power = np.abs(np.fft.rfft(sound[:160])) ** 2
        return float((power * np.fft.rfftfreq(160, 1 / SAMPLE_RATE)).sum() / power.sum())

    assert mean_hz(after_release("k", "i")) > mean_hz(after_release("k", "u")) + 500
    assert mean_hz(after_release("t", "a")) > mean_hz(after_release("p", "a")) + 1000
    assert np.std(after_release("t", "a")[320:480]) > 0.03  # 20..30 ms after the release the burst itself is over


def test_speech_has_unit_rms_and_the_tail_of_a_phrase_is_not_made_as_loud():
    def rms(utterance: Utterance, sound: np.ndarray, at_s: float) -> float:
        script, times_s = utterance.script, at_s + np.arange(len(sound)) / SAMPLE_RATE
        strong = np.array([PHONES[phone].voice for phone in script.phones]) * script.stress > 0.3
        return float(np.sqrt(np.mean(sound[strong[script.segments_at(times_s)]] ** 2)))

    gains_db = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        utterance = make_utterance(rng, random_voice(rng), -1.0, 4.0)
        whole = render_utterance(np.random.default_rng(1), utterance, 80_000, -1.0)
        assert rms(utterance, whole, -1.0) == pytest.approx(1.0, abs=0.01)
        assert rms(utterance, render_utterance(rng, utterance, 48_000), 0.0) == pytest.approx(1.0, abs=0.01)
        tail_s = float(utterance.script.phrases_s[0, 1]) - 0.25
        part = render_utterance(np.random.default_rng(1), utterance, 6_400, tail_s)
        same = whole[round((tail_s + 1.0) * SAMPLE_RATE) :][:6_400]
        gains_db.append(20 * np.log10(np.sqrt((part**2).mean() / (same**2).mean())))
    assert abs(np.median(gains_db)) < 2.5
    assert np.percentile(gains_db, 90) < 5.0  # vowels differ in loudness at the same strength


def test_pauses_are_silent():
    for utterance, sound in spoken(30):
        assert sound.dtype == np.float32
        assert sound.shape == (48_000,)
        assert np.isfinite(sound).all()
        script, times_s = utterance.script, np.arange(48_000) / SAMPLE_RATE
        shifts_s = np.linspace(-0.05, 0.05, 5)
        resting = ~np.any([script.voiced_at(times_s + shift_s) for shift_s in shifts_s], axis=0)
        assert np.abs(sound[resting]).max(initial=0.0) < 0.003


def test_loudness_follows_the_own_mouth():
    correlations = []
    for utterance, sound in spoken(30):
        loudness = np.sqrt(np.convolve(sound.astype(float) ** 2, np.ones(640) / 640, mode="same"))[::640]
        opening = speak(utterance.script, np.arange(75) / 25, 0.95).opening
        correlations.append(np.corrcoef(opening, loudness)[0, 1])
    assert np.mean(correlations) > 0.6
    assert min(correlations) > 0.4


def test_a_stretch_starts_where_it_is_told_and_outside_is_silence():
    utterance = steady("a", replace(VOICE, jitter=0.0, breath=0.0))
    whole = render_utterance(np.random.default_rng(0), utterance, 48_000, at_s=-1.0)
    part = render_utterance(np.random.default_rng(1), utterance, 8000, at_s=0.3)
    same = whole[20_800:28_800].astype(float)
    assert np.corrcoef(same, part)[0, 1] > 0.99  # but for shimmer
    ends = part[-40:] @ same[-40:] / (same[-40:] @ same[-40:])
    assert ends == pytest.approx(1.0, abs=0.15)  # no fading at the end of the stretch
    assert not render_utterance(np.random.default_rng(0), utterance, 8000, at_s=5.0).any()
    assert not render_utterance(np.random.default_rng(0), utterance, 8000, at_s=-5.0).any()


def test_sound_from_elsewhere_is_cut_and_scaled():
    elsewhere = np.zeros(48_000, dtype=np.float32)
    elsewhere[17_600:33_600] = 0.2  # the phone lasts from 0.1 to 1.1 s, sound starts at -1 s
    utterance = replace(steady("a"), sound=elsewhere)
    sound = render_utterance(np.random.default_rng(0), utterance, 40_000, at_s=-0.5)
    assert not sound[:9600].any()
    np.testing.assert_allclose(sound[9600:25_600], 1.0, rtol=1e-5)
    assert not sound[25_600:].any()
    early = render_utterance(np.random.default_rng(0), utterance, 30_000, at_s=-2.0)
    assert not early.any()  # the voice would set in at sample 33 600


def test_the_same_generator_speaks_the_same_and_another_does_not():
    first, again, other = (spoken_by(seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def spoken_by(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return render_utterance(rng, make_utterance(rng, random_voice(rng), -1.0, 2.0), 8000)


def test_imposed_phrases_keep_the_voice_in_them():
    rng = np.random.default_rng(8)
    voice = random_voice(rng)
    model = make_utterance(rng, voice, -1.0, 4.0)
    other = make_utterance(rng, voice, -1.0, 4.0, model.script.phrases_s)
    np.testing.assert_array_equal(other.script.phrases_s, model.script.phrases_s)
    assert other.script.phones != model.script.phones
    assert other.pitch_hz.shape == model.pitch_hz.shape == (2500,)
    assert not np.array_equal(other.pitch_hz, model.pitch_hz)


def test_voices_differ_and_their_pitch_stays_near_their_mean():
    rng = np.random.default_rng(0)
    voices = [random_voice(rng) for _ in range(200)]
    assert len({voice.pitch_hz for voice in voices}) == 200
    for voice in voices:
        assert 90.0 <= voice.pitch_hz <= 260.0
        assert 0.85 <= voice.tract_scale <= 1.2
        assert 3.0 <= voice.syllable_hz <= 6.0
    scales = np.corrcoef([voice.pitch_hz for voice in voices], [voice.tract_scale for voice in voices])[0, 1]
    assert scales > 0.6  # high voices come from short tracts
    for voice in voices[:20]:
        octaves = np.log2(make_utterance(rng, voice, -1.0, 4.0).pitch_hz / voice.pitch_hz)
        assert np.abs(octaves).max() < 4 * voice.melody + 0.03
        assert octaves.std() > 0.1 * voice.melody
