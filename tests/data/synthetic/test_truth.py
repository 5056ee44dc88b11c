"""The truth of a scene is that of its sound and picture, and survives being written as JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from avfusion.data.synthetic import SCENES_PER_BLOCK, SyntheticDataset
from avfusion.data.synthetic.sound import mix, render_voices
from avfusion.data.synthetic.truth import cut, describe

BLOCK = sum(SCENES_PER_BLOCK.values())


@pytest.fixture(scope="module")
def dataset() -> SyntheticDataset:
    return SyntheticDataset("truth", BLOCK)


def test_intervals_are_cut_at_the_ends_of_the_scene():
    spans_s = np.array([[-1.0, -0.1], [-0.2, 0.3], [1.0, 2.0], [2.9, 3.4], [3.0, 3.5]])
    np.testing.assert_allclose(cut(spans_s, 3.0), [[0.0, 0.3], [1.0, 2.0], [2.9, 3.0]])


def test_envelopes_are_those_of_the_voices_as_they_are_in_the_mixture(dataset: SyntheticDataset):
    """Where two voices overlap without a background, their powers add up to that of the mixture but for the room."""
    index = next(i for i, t in enumerate(dataset.tracks) if t.role == "overlap" and not dataset.truth(i).background)
    truth, audio = dataset.truth(index), dataset.read(index).audio.astype(float)
    mixture = np.square(audio).reshape(-1, 160).mean(axis=1)
    total = sum(np.square(voice.envelope) for voice in truth.voices)
    assert mixture.sum() == pytest.approx(total.sum(), rel=0.1)
    assert np.corrcoef(mixture, total)[0, 1] > 0.95


def test_levels_are_those_of_the_voiced_stretches(dataset: SyntheticDataset):
    ratios_db, told_db = [], []
    for index, track in enumerate(dataset.tracks):
        if track.role.startswith("overlap"):
            voices = dataset.truth(index).voices
            rms = [np.sqrt(np.mean(v.envelope[v.f0_hz > 0] ** 2)) for v in voices]
            ratios_db.append(20 * np.log10(rms[1] / rms[0]))
            told_db.append(voices[1].level_db)
    np.testing.assert_allclose(ratios_db, told_db, atol=2.0)


def test_the_mixture_is_scaled_once_and_the_truth_with_it(dataset: SyntheticDataset):
    scene = next(scene for n in range(BLOCK) if (scene := dataset.scene(n)).voices)
    loud = type(scene)(**{**vars(scene), "floor_level": 2.0})
    rng = np.random.default_rng(0)
    voices = render_voices(rng, loud)
    audio, scale = mix(rng, loud, voices)
    assert np.abs(audio).max() == pytest.approx(0.98, abs=1e-4)
    assert 0.05 < scale < 0.5
    (found,) = {len(describe("x", loud, voices, scale).voices), len(voices)}
    assert found > 0
    for told, voice in zip(describe("x", loud, voices, scale).voices, voices, strict=True):
        assert np.square(told.envelope).sum() * 160 == pytest.approx(scale**2 * np.square(voice, dtype=float).sum())


def test_pitch_is_there_exactly_while_the_voice_is_voiced(dataset: SyntheticDataset):
    ratios = []
    for index in range(0, len(dataset.tracks), 3):
        for voice in dataset.truth(index).voices:
            times_s = (np.arange(300) + 0.5) / 100
            active = np.zeros(300, dtype=bool)
            for start_s, end_s in voice.active_s:
                active |= (times_s > start_s - 0.03) & (times_s < end_s + 0.03)
            assert not (voice.f0_hz[~active] > 0).any()
            voiced = voice.f0_hz[voice.f0_hz > 0]
            ratios.append(np.mean(voiced) / voice.pitch_hz)
            assert voice.envelope[voice.f0_hz > 0].mean() > 3 * voice.envelope[~active].mean() + 1e-9
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.04)


def test_bursts_lie_at_the_releases_of_their_plosives_and_sound_sets_in_there(dataset: SyntheticDataset):
    rises_db = []
    for index in range(len(dataset.tracks)):
        truth = dataset.truth(index)
        for number, voice in enumerate(truth.voices):
            assert len(voice.bursts) == len(voice.bursts_s)
            rng = dataset.sound_rng(dataset.scene_of_track[index][0])
            sound = render_voices(rng, dataset.scene(dataset.scene_of_track[index][0]))[number].astype(float)
            for name, at_s in zip(voice.bursts, voice.bursts_s, strict=True):
                assert name in "pbtdkg"
                at = round(at_s * 16_000)
                if name in "ptk" and 800 < at < len(sound) - 800:
                    before, after = sound[at - 400 : at - 80], sound[at : at + 320]
                    rises_db.append(10 * np.log10((after**2).mean() / ((before**2).mean() + 1e-10)))
    assert len(rises_db) > 30
    assert np.median(rises_db) > 15


def test_truth_is_plain_json_with_times_to_a_tenth_of_a_millisecond(dataset: SyntheticDataset):
    for index in range(0, len(dataset.tracks), 5):
        truth = dataset.truth(index)
        plain = json.loads(json.dumps(truth.to_json(), allow_nan=False))
        assert plain["role"] == dataset.tracks[index].role
        assert len(plain["faces"][0]["speaking"]) == 75
        for voice, told in zip(truth.voices, plain["voices"], strict=True):
            np.testing.assert_allclose(np.array(told["phones_s"]).reshape(-1, 2), voice.phones_s, atol=1e-5)
            assert told["phones"] == list(voice.phones)
            assert len(told["envelope"]) == len(told["f0_hz"]) == 300
        for face, told in zip(truth.faces, plain["faces"], strict=True):
            assert (told["lag_ms"] is None) == (face.voice is None)
