"""Synthetic talkers: deterministic, truthful about lag and speech, and decided by neither lips nor sound alone."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
import pytest

from avfusion.clock import SAMPLE_RATE
from avfusion.data.clips import Clip
from avfusion.data.synthetic import ROLES, SceneTruth, SyntheticDataset
from avfusion.data.synthetic_face import HeadMovement, random_face
from avfusion.data.synthetic_picture import render_face
from avfusion.data.synthetic_script import MIN_PAUSE_S, PHONES, MouthMovement, Script
from avfusion.data.synthetic_voice import Voice, render_voice
from avfusion.errors import UsageError

NUM_SCENES = 120


@dataclass(frozen=True)
class Rendered:
    role: str
    clip: Clip
    truth: SceneTruth
    envelope: np.ndarray  # loudness at 100 Hz
    opening: np.ndarray  # mouth opening at 100 Hz


@pytest.fixture(scope="module")
def scenes() -> list[Rendered]:
    dataset = SyntheticDataset("val", NUM_SCENES)
    rendered = []
    for index, track in enumerate(dataset.tracks):
        clip, truth = dataset.read(index), dataset.truth(index)
        power = np.pad(clip.audio.astype(float) ** 2, 160).reshape(-1, 160).mean(axis=1)
        envelope = np.sqrt((power[:-2] + power[1:-1]) / 2)  # 20 ms around each instant
        opening = np.interp(np.arange(len(envelope)) / 100, np.arange(75) / 25, truth.mouth_opening)
        rendered.append(Rendered(track.role, clip, truth, envelope, opening))
    return rendered


def of_role(scenes: list[Rendered], role: str) -> list[Rendered]:
    return [scene for scene in scenes if scene.role == role]


def test_same_seed_gives_the_same_bits_and_another_seed_does_not():
    first, again, other = (SyntheticDataset("train", 3, seed).read(1) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.crops, again.crops)
    np.testing.assert_array_equal(first.audio, again.audio)
    np.testing.assert_array_equal(first.speaking, again.speaking)
    assert not np.array_equal(first.crops, other.crops)
    assert not np.array_equal(first.audio, other.audio)


def test_a_scene_depends_on_neither_reading_order_nor_number_of_scenes():
    few, many = SyntheticDataset("train", 3), SyntheticDataset("train", 25)
    few.read(0)
    np.testing.assert_array_equal(few.read(2).audio, many.read(2).audio)
    np.testing.assert_array_equal(few.read(2).crops, many.read(2).crops)
    assert [track.role for track in few.tracks] == [track.role for track in many.tracks[:3]]


def test_a_part_equals_the_same_part_of_the_whole():
    dataset = SyntheticDataset("val", 2)
    whole, part, tail = dataset.read(1), dataset.read(1, 20, 30), dataset.read(1, 70)
    np.testing.assert_array_equal(part.crops, whole.crops[20:50])
    np.testing.assert_array_equal(part.audio, whole.audio[20 * 640 : 50 * 640])
    np.testing.assert_array_equal(part.speaking, dataset.tracks[1].speaking[20:50])
    np.testing.assert_array_equal(tail.audio, whole.audio[70 * 640 :])


def test_splits_share_no_voice_and_no_face():
    train, val = (SyntheticDataset(split, 60) for split in ("train", "val"))
    truths = [[dataset.truth(index) for index in range(60)] for dataset in (train, val)]
    faces = [{value for truth in split for value in astuple(truth.face) if value} for split in truths]
    voices = [{value for truth in split if truth.voice for value in astuple(truth.voice)[::2]} for split in truths]
    assert len(faces[0]) > 1000
    assert len(voices[0]) > 120
    assert not faces[0] & faces[1]
    assert not voices[0] & voices[1]


def test_every_ten_scenes_hold_the_promised_roles():
    tracks = SyntheticDataset("train", 50).tracks
    for start in range(0, 50, 10):
        roles = [track.role for track in tracks[start : start + 10]]
        assert [roles.count(role) for role in ROLES] == [4, 1, 3, 1, 1]
    assert len({track.entity_id for track in tracks}) == 50
    assert tracks[12].video_id == tracks[12].audio_id == "train_00012"
    assert tracks[12].entity_id == "train_00012:0"


def test_only_speaking_scenes_are_labeled_and_exactly_while_their_voice_is_active(scenes: list[Rendered]):
    times_s = np.arange(75) / 25
    for scene in scenes:
        expected = np.zeros(75, dtype=bool)
        if scene.role == "speaking":
            for start_s, end_s in scene.truth.voice_active_s:
                expected |= (times_s >= start_s) & (times_s < end_s)
        np.testing.assert_array_equal(scene.clip.speaking, expected)
    share = np.mean([scene.clip.speaking.mean() for scene in of_role(scenes, "speaking")])
    assert 0.5 < share < 0.85


def test_pauses_are_long_and_silent_and_speech_is_loud(scenes: list[Rendered]):
    seconds = np.arange(300) / 100
    contrasts = []
    for scene in scenes:
        spans = scene.truth.voice_active_s
        assert np.all(spans[1:, 0] - spans[:-1, 1] >= MIN_PAUSE_S - 1e-9)
        if (
            len(spans) > 1 and spans[0, 1] - spans[0, 0] > 0.3
        ):  # not the last sound of a phrase cut by the scene's start
            gap = (seconds > spans[0, 1] + 0.06) & (seconds < spans[1, 0] - 0.06)
            voice = (seconds > spans[0, 0]) & (seconds < spans[0, 1])
            contrasts.append(20 * np.log10(scene.envelope[voice].mean() / scene.envelope[gap].mean()))
    assert len(contrasts) > 40
    assert min(contrasts) > 9.0  # the noise floor lies 15..35 dB below the voice


def test_lips_follow_the_sound_heard_when_speaking_and_not_when_dubbed(scenes: list[Rendered]):
    correlation = {
        role: [np.corrcoef(scene.opening, scene.envelope)[0, 1] for scene in of_role(scenes, role)]
        for role in ("speaking", "dub")
    }
    assert np.mean(correlation["speaking"]) > 0.55
    assert abs(np.mean(correlation["dub"])) < 0.1


def test_sound_follows_the_lips_by_the_recorded_lag(scenes: list[Rendered]):
    lags = np.arange(-15, 26)  # in steps of 10 ms
    recorded, measured = [], []
    for scene in of_role(scenes, "speaking"):
        lips = scene.opening[20:-30]
        match = [np.corrcoef(lips, scene.envelope[20 + lag : 270 + lag])[0, 1] for lag in lags]
        measured.append(10.0 * lags[int(np.argmax(match))])
        recorded.append(scene.truth.lag_ms)
    np.testing.assert_allclose(measured, recorded, atol=40.0)
    assert 0.0 <= min(recorded) < 10.0
    assert 70.0 < max(recorded) <= 80.0
    assert abs(np.mean(np.subtract(measured, recorded))) < 5.0
    assert all(np.isnan(scene.truth.lag_ms) for scene in scenes if scene.role != "speaking")


def test_dub_equals_speaking_in_mouth_motion_and_in_loudness(scenes: list[Rendered]):
    def mean_motion(role: str) -> float:
        return float(np.mean([np.abs(np.diff(scene.truth.mouth_opening)).mean() for scene in of_role(scenes, role)]))

    def mean_picture_motion(role: str) -> float:
        mouths = [scene.clip.crops[:, 28:46, 12:36].astype(float) for scene in of_role(scenes, role)]
        return float(np.mean([np.abs(np.diff(mouth, axis=0)).mean() for mouth in mouths]))

    def mean_loudness(role: str) -> float:
        return float(np.mean([np.sqrt(np.mean(scene.clip.audio**2)) for scene in of_role(scenes, role)]))

    for statistic in (mean_motion, mean_picture_motion, mean_loudness):
        assert 0.8 < statistic("dub") / statistic("speaking") < 1.25


def test_other_roles_move_and_sound_as_their_names_say(scenes: list[Rendered]):
    for role in ("silent", "off_screen"):
        assert max(scene.truth.mouth_opening.max() for scene in of_role(scenes, role)) < 0.05
    assert min(scene.truth.mouth_opening.max() for scene in of_role(scenes, "chewing")) > 0.25
    assert all(scene.truth.voice is None for scene in of_role(scenes, "silent"))
    assert max(np.abs(scene.clip.audio).max() for scene in of_role(scenes, "silent")) < 0.15
    assert all(len(scene.truth.voice_active_s) for scene in of_role(scenes, "off_screen"))
    with_speech = [scene.truth.voice is not None for scene in of_role(scenes, "chewing")]
    assert sum(with_speech) == len(with_speech) // 2


def test_sound_and_pictures_use_their_range_and_keep_to_it(scenes: list[Rendered]):
    for scene in scenes:
        assert scene.clip.audio.dtype == np.float32
        assert scene.clip.audio.size == 75 * 640
        assert np.isfinite(scene.clip.audio).all()
        assert np.abs(scene.clip.audio).max() <= 1.0
        assert scene.clip.crops.dtype == np.uint8
        assert scene.clip.crops.shape == (75, 48, 48)
        assert scene.clip.crops.std() > 12.0
    levels = np.percentile(np.stack([scene.clip.crops[0] for scene in scenes]), [5, 95])
    assert levels[0] < 60 < 180 < levels[1]


def test_p_b_m_shut_the_lips_and_a_opens_them(scenes: list[Rendered]):
    at_phone: dict[str, list[float]] = {"closure": [], "a": [], "i": []}
    for scene in of_role(scenes, "speaking"):
        for phone, (start_s, end_s) in zip(scene.truth.phones, scene.truth.phones_s, strict=True):
            lips_s = (start_s + end_s) / 2 - scene.truth.lag_ms / 1000
            if start_s > 0.1 and end_s < 2.9 and end_s - start_s > 0.05:
                kind = "closure" if phone in ("p", "b", "m") else phone
                opening = np.interp(lips_s, np.arange(75) / 25, scene.truth.mouth_opening)
                at_phone.setdefault(kind, []).append(float(opening))
    assert len(at_phone["closure"]) > 50
    assert np.mean(at_phone["closure"]) < 0.1
    assert np.mean(at_phone["a"]) > 0.5
    assert np.mean(at_phone["i"]) < 0.6 * np.mean(at_phone["a"])


def test_an_open_mouth_is_dark_and_a_round_one_is_narrow():
    rng, zeros, ones = np.random.default_rng(3), np.zeros(4), np.ones(4)
    face, still = random_face(rng), HeadMovement(zeros, zeros, ones, zeros, zeros, zeros, ones, zeros[:0])
    mouth = MouthMovement(np.array([0.0, 0.5, 1.0, 0.5]), np.array([0.5, 1.0, 0.5, 0.0]), np.zeros(4))
    crops = render_face(rng, face, still, mouth, 96).astype(float)
    shut, spread, wide_open, round_ = (crop[60:92, 24:72] for crop in crops)
    dark = 0.45 * face.skin
    assert (wide_open < dark).sum() > 1.2 * (spread < dark).sum()
    assert (spread < dark).sum() > 3 * (shut < dark).sum()
    assert (spread < dark).any(axis=0).sum() > 1.3 * (round_ < dark).any(axis=0).sum()


def steady(phone: str) -> Script:
    """One phone held for a second, with rests around it."""
    edges_s = np.array([-1.0, 0.1, 1.1, 2.0])
    return Script(("rest", phone, "rest"), edges_s, np.ones(3), edges_s[None, 1:3], edges_s[None, 1:3])


VOICE = Voice(pitch_hz=125.0, tract_scale=1.0, tilt_hz=250.0, breath=0.01, melody=0.0)


@pytest.mark.parametrize("phone", ["a", "i", "u"])
def test_a_vowel_has_the_pitch_and_formants_of_its_table(phone: str):
    sound = render_voice(np.random.default_rng(0), steady(phone), VOICE, 20_000)[4000:16_000]
    lags = np.arange(60, 200)
    period = lags[int(np.argmax([np.dot(sound[:-lag], sound[lag:]) for lag in lags]))]
    assert period == pytest.approx(SAMPLE_RATE / 125.0, abs=2)  # 128 samples
    power = np.abs(np.fft.rfft(sound * np.hanning(len(sound)))) ** 2
    hz = np.fft.rfftfreq(len(sound), 1 / SAMPLE_RATE)
    smoothed = np.convolve(power * hz**2, np.ones(140), mode="same")  # over 187 Hz, more than a harmonic spacing
    second = (hz > PHONES[phone].f1_hz + 250) & (hz < 2800)
    assert hz[second][np.argmax(smoothed[second])] == pytest.approx(PHONES[phone].f2_hz, abs=150)


def test_hiss_lies_where_its_table_says_and_rests_are_silent():
    sound = render_voice(np.random.default_rng(0), steady("s"), VOICE, 20_000)
    power = np.abs(np.fft.rfft(sound[4000:16_000])) ** 2
    hz = np.fft.rfftfreq(12_000, 1 / SAMPLE_RATE)
    assert (power * hz).sum() / power.sum() == pytest.approx(PHONES["s"].noise_hz, abs=250)
    assert np.sqrt(np.mean(sound[4000:16_000] ** 2)) == pytest.approx(PHONES["s"].noise, rel=0.1)
    assert not sound[:1200].any()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"num_scenes": 0}, "num_scenes is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"crop_size": 8}, "crop_size is 8"),
        ({"scene_s": float("nan")}, "scene_s is nan"),
        ({"split": ""}, "no name"),
    ],
)
def test_impossible_options_are_told_in_one_line(options: dict[str, object], word: str):
    with pytest.raises(UsageError, match=word) as error:
        SyntheticDataset(**({"split": "val", "num_scenes": 2} | options))  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("stretch", [(2, 0, None), (-1, 0, None), (0, 70, 10), (0, -1, 5), (0, 5, 0)])
def test_reading_what_is_not_there_is_refused(stretch: tuple[int, int, int | None]):
    with pytest.raises(UsageError, match="ask for"):
        SyntheticDataset("val", 2).read(*stretch)
