"""Scenes hold what their roles promise, and whether a mouth is heard cannot be told from mouth or sound alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from avfusion.data.clips import Clip
from avfusion.data.synthetic import SCENES_PER_BLOCK, FaceTruth, SceneTruth, SyntheticDataset
from avfusion.data.synthetic.draft import LAG_MS, SHIFTS_S
from avfusion.data.synthetic.scenes import plan_scene
from avfusion.data.synthetic.script import MIN_PAUSE_S
from avfusion.errors import UsageError

BLOCKS = 6
SPEECH = ("speech", "other_speech", "shifted_speech")


@dataclass(frozen=True)
class Track:
    role: str
    clip: Clip
    scene: SceneTruth
    face: FaceTruth

    @property
    def opening(self) -> np.ndarray:
        """Mouth opening at 100 Hz."""
        return np.interp(np.arange(300) / 100, np.arange(75) / 25, self.face.mouth_opening)

    @property
    def envelope(self) -> np.ndarray:
        """Loudness of the mixture at 100 Hz, 20 ms around each instant."""
        power = np.pad(self.clip.audio.astype(float) ** 2, 160).reshape(-1, 160).mean(axis=1)
        return np.sqrt((power[:-2] + power[1:-1]) / 2)[:300]

    @property
    def motion(self) -> float:
        """Mean change of the pixels around the mouth from frame to frame."""
        mouth = self.clip.crops[:, 28:46, 12:36].astype(float)
        return float(np.abs(np.diff(mouth, axis=0)).mean())

    @property
    def loudness(self) -> float:
        return float(np.sqrt(np.mean(self.clip.audio**2)))


@pytest.fixture(scope="module")
def tracks() -> list[Track]:
    dataset = SyntheticDataset("val", BLOCKS * sum(SCENES_PER_BLOCK.values()))
    made = []
    for index, track in enumerate(dataset.tracks):
        truth = dataset.truth(index)
        face = truth.faces[dataset.scene_of_track[index][1]]
        assert face.entity_id == track.entity_id
        made.append(Track(track.role, dataset.read(index), truth, face))
    return made


def of_role(tracks: list[Track], *roles: str) -> list[Track]:
    return [track for track in tracks if track.role in roles]


def test_a_face_is_labeled_exactly_while_its_own_voice_says_a_phrase(tracks: list[Track]):
    times_s = np.arange(75) / 25
    for track in tracks:
        expected = np.zeros(75, dtype=bool)
        if track.face.voice is not None:
            voice = track.scene.voices[track.face.voice]
            assert voice.entity_id == track.face.entity_id
            for start_s, end_s in voice.active_s:
                expected |= (times_s >= start_s) & (times_s < end_s)
        np.testing.assert_array_equal(track.clip.speaking, expected)
    heard = [track.clip.speaking.mean() for track in of_role(tracks, "solo")]
    assert 0.5 < np.mean(heard) < 0.9


def test_roles_show_and_sound_as_their_names_say(tracks: list[Track]):
    motions = {role: {t.face.motion for t in of_role(tracks, role)} for role in SCENES_PER_BLOCK}
    assert motions["solo"] == motions["turns"] == motions["change"] == {"speech"}
    assert motions["listener"] == {"speech", "still"}
    assert motions["overlap"] == motions["overlap_off_screen"] == {"speech", "other_speech"}
    assert motions["surrogate"] == motions["other_voice"] == motions["background"] == {"other_speech"}
    assert motions["silence"] == {"other_speech"}
    assert motions["shifted"] == {"shifted_speech"}
    assert motions["off_screen"] == {"still"}
    for role in ("chewing", "smiling", "yawning"):
        assert motions[role] == {role}
    voices = {role: {len(t.scene.voices) for t in of_role(tracks, role)} for role in SCENES_PER_BLOCK}
    assert voices["overlap"] == voices["overlap_off_screen"] == voices["turns"] == voices["change"] == {2}
    assert voices["silence"] == voices["background"] == {0}
    assert voices["chewing"] | voices["smiling"] | voices["yawning"] == {0, 1}
    assert all(
        voices[role] == {1} for role in ("solo", "listener", "off_screen", "surrogate", "shifted", "other_voice")
    )
    assert all(t.scene.background for t in of_role(tracks, "background"))
    assert not any(t.scene.background for t in of_role(tracks, "silence"))


def test_people_take_turns_and_the_speaker_changes_inside_the_clip(tracks: list[Track]):
    turns = of_role(tracks, "turns")
    for first, second in zip(turns[::2], turns[1::2], strict=True):
        assert first.scene.video_id == second.scene.video_id
        assert not (first.clip.speaking & second.clip.speaking).any()
    assert sum(t.clip.speaking.any() for t in turns) > 0.8 * len(turns)
    for track in of_role(tracks, "change"):
        own, other = track.scene.voices
        assert track.clip.speaking.any()
        assert len(other.active_s) > 0
        before = own.active_s[-1, 1] <= other.active_s[0, 0]
        after = other.active_s[-1, 1] <= own.active_s[0, 0]
        assert before != after


def test_two_voices_overlap_at_five_decibels_either_way(tracks: list[Track]):
    levels_db = [t.scene.voices[1].level_db for t in of_role(tracks, "overlap", "overlap_off_screen")]
    assert -5 <= min(levels_db) < -3
    assert 3 < max(levels_db) <= 5
    both = []
    for track in of_role(tracks, "overlap"):
        active = np.zeros((2, 300), dtype=bool)
        for number, voice in enumerate(track.scene.voices):
            for start_s, end_s in voice.active_s:
                active[number, round(100 * start_s) : round(100 * end_s)] = True
        both.append((active[0] & active[1]).sum() / active.any(axis=0).sum())
    assert np.mean(both) > 0.35


def test_in_overlaps_as_many_mouths_are_heard_as_not(tracks: list[Track]):
    for role, count in (("overlap", 4 * BLOCKS), ("overlap_off_screen", 2 * BLOCKS)):
        heard = [track.face.voice is not None for track in of_role(tracks, role)]
        assert len(heard) == count
        assert sum(heard) == count / 2, role
    changes = of_role(tracks, "change")
    first = [t.scene.voices[0].active_s[0, 0] < t.scene.voices[1].active_s[0, 0] for t in changes]
    assert sum(first) == len(first) / 2


def test_a_surrogate_has_the_phrases_of_the_voice_and_other_words(tracks: list[Track]):
    matched = 0
    for track in of_role(tracks, "surrogate"):
        (voice,) = track.scene.voices
        assert track.face.said != voice.phones
        pauses_s = track.face.said_s[1:, 0] - track.face.said_s[:-1, 1]
        heard_s = voice.phones_s[1:, 0] - voice.phones_s[:-1, 1]
        pauses_s, heard_s = pauses_s[pauses_s > 0.1], heard_s[heard_s > 0.1]
        if len(pauses_s) == len(heard_s):  # lips may lead a pause out of the scene, and a closure may fill one's end
            np.testing.assert_allclose(pauses_s, heard_s, atol=0.13)
            matched += len(pauses_s)
    assert matched > 10


def test_pauses_are_long_and_silent(tracks: list[Track]):
    seconds, contrasts_db = np.arange(300) / 100, []
    for track in of_role(tracks, "solo", "surrogate", "other_voice", "off_screen"):
        (voice,) = track.scene.voices
        spans = voice.active_s
        assert np.all(spans[1:, 0] - spans[:-1, 1] >= MIN_PAUSE_S - 1e-9)
        if len(spans) > 1 and spans[0, 1] - spans[0, 0] > 0.3 and not track.scene.background:
            gap = (seconds > spans[0, 1] + 0.06) & (seconds < spans[1, 0] - 0.06)
            talk = (seconds > spans[0, 0]) & (seconds < spans[0, 1])
            contrasts_db.append(20 * np.log10(track.envelope[talk].mean() / track.envelope[gap].mean()))
    assert len(contrasts_db) > 20
    assert min(contrasts_db) > 9.0  # the room lies 15..35 dB below the voice


def test_lips_follow_the_sound_heard_when_speaking_and_no_other(tracks: list[Track]):
    def match(track: Track) -> float:
        """Correlation of mouth opening and loudness at the best of the natural lags."""
        lags = range(-4, 21)
        return max(np.corrcoef(track.opening[20:-30], track.envelope[20 + k : 270 + k])[0, 1] for k in lags)

    mean = {role: np.mean([match(t) for t in of_role(tracks, role)]) for role in ("solo", "shifted", "other_voice")}
    assert mean["solo"] > 0.45
    assert mean["solo"] > mean["shifted"] + 0.2
    assert mean["solo"] > mean["other_voice"] + 0.2


def test_sound_follows_the_lips_by_the_recorded_lag(tracks: list[Track]):
    lags = np.arange(-20, 40)  # in steps of 10 ms
    recorded, measured = [], []
    for track in of_role(tracks, "solo"):
        if track.scene.background:
            continue
        lips = track.opening[20:-40]
        match = [np.corrcoef(lips, track.envelope[20 + lag : 260 + lag])[0, 1] for lag in lags]
        measured.append(10.0 * lags[int(np.argmax(match))])
        recorded.append(track.face.lag_ms)
    errors = np.subtract(measured, recorded)
    assert np.median(np.abs(errors)) < 25.0
    assert abs(np.median(errors)) < 15.0
    assert min(recorded) < 0
    every = [t.face.lag_ms for t in tracks if t.face.lag_ms is not None]
    assert LAG_MS[0] <= min(every) < -20
    assert 180 < max(every) <= LAG_MS[1]
    assert all((t.face.lag_ms is None) == (t.face.voice is None) for t in tracks)


def test_the_shift_of_words_heard_at_the_wrong_time_is_told(tracks: list[Track]):
    for track in tracks:
        assert (track.face.shift_ms is None) == (track.role != "shifted")
    for track in of_role(tracks, "shifted"):
        (voice,) = track.scene.voices
        shift_s = track.face.shift_ms / 1000
        starts_s = [round(start_s - shift_s, 2) for start_s, _ in voice.phones_s]
        moved = set(zip(voice.phones, starts_s, strict=True))
        seen = set(zip(track.face.said, np.round(track.face.said_s[:, 0], 2).tolist(), strict=True))
        assert len(moved & seen) > 0.2 * len(seen)
        assert any(early <= track.face.shift_ms / 1000 <= late for early, late in SHIFTS_S)


def test_shifted_sound_is_a_quarter_second_or_more_from_any_natural_lag():
    for early, late in SHIFTS_S:
        assert late < LAG_MS[0] / 1000 - 0.2 or early > LAG_MS[1] / 1000 + 0.2


def test_a_mouth_that_is_heard_moves_and_sounds_like_one_that_is_not(tracks: list[Track]):
    """The guard against shortcuts: neither energy of the mouth nor loudness tells the labels of the hard roles."""

    def ratio(one: list[Track], other: list[Track], figure: str) -> float:
        return float(np.mean([getattr(t, figure) for t in one]) / np.mean([getattr(t, figure) for t in other]))

    solo = of_role(tracks, "solo")
    for figure in ("motion", "loudness"):
        for role in ("surrogate", "shifted", "other_voice"):
            assert 0.75 < ratio(of_role(tracks, role), solo, figure) < 1.33, (role, figure)
        mixed = of_role(tracks, "overlap", "overlap_off_screen")
        heard, unheard = ([t for t in mixed if (t.face.voice is None) == quiet] for quiet in (False, True))
        assert min(len(heard), len(unheard)) > 10
        assert 0.75 < ratio(heard, unheard, figure) < 1.33, figure


def test_when_people_speak_tells_no_role_apart():
    """Phrases start at no preferred time, or sound alone would tell how a scene was made."""
    dataset = SyntheticDataset("when", 1)
    times_s = np.arange(75) / 25
    for role in ("solo", "surrogate", "shifted", "other_voice", "overlap"):
        scenes = [plan_scene(np.random.default_rng([7, n]), role, dataset.num_frames) for n in range(400)]
        heard = np.mean([scene.voices[0].utterance.script.voiced_at(times_s) for scene in scenes], axis=0)
        said = np.mean([scene.faces[0].said.voiced_at(times_s) for scene in scenes if scene.faces[0].said], axis=0)
        for share in (heard, said):
            assert abs(share[:10].mean() - share[30:45].mean()) < 0.06, role
            assert abs(share[-10:].mean() - share[30:45].mean()) < 0.06, role
            assert share.mean() == pytest.approx(0.66, abs=0.04), role


def test_quiet_mouths_that_move_do_so_as_much_as_speech(tracks: list[Track]):
    def movement(group: list[Track]) -> float:
        return float(np.mean([np.abs(np.diff(t.face.mouth_opening)).mean() for t in group]))

    speech = movement([t for t in tracks if t.face.motion in SPEECH])
    for role in ("chewing", "smiling", "yawning"):
        assert movement(of_role(tracks, role)) == pytest.approx(speech, rel=0.4), role
    assert movement([t for t in tracks if t.face.motion == "still"]) < 0.1 * speech


def test_sound_and_pictures_use_their_range_and_keep_to_it(tracks: list[Track]):
    for track in tracks:
        assert track.clip.audio.dtype == np.float32
        assert track.clip.audio.size == 75 * 640
        assert np.abs(track.clip.audio).max() <= 1.0
        np.testing.assert_array_equal(track.clip.audio * 32768, np.round(track.clip.audio * 32768))
        assert track.clip.crops.dtype == np.uint8
        assert track.clip.crops.shape == (75, 48, 48)
        assert track.clip.crops.std() > 8.0
    levels = np.percentile(np.stack([track.clip.crops[0] for track in tracks]), [5, 95])
    assert levels[0] < 60 < 170 < levels[1]


def test_p_b_m_shut_the_lips_and_a_opens_them_when_the_picture_says_them(tracks: list[Track]):
    at_phone: dict[str, list[float]] = {}
    for track in tracks:
        for phone, (start_s, end_s) in zip(track.face.said, track.face.said_s, strict=True):
            if start_s > 0.1 and end_s < 2.9 and end_s - start_s > 0.05:
                opening = np.interp((start_s + end_s) / 2, np.arange(75) / 25, track.face.mouth_opening)
                at_phone.setdefault("closure" if phone in ("p", "b", "m") else phone, []).append(float(opening))
    assert len(at_phone["closure"]) > 50
    assert np.mean(at_phone["closure"]) < 0.15
    assert np.mean(at_phone["a"]) > 0.45
    assert np.mean(at_phone["i"]) < 0.7 * np.mean(at_phone["a"])


def test_lags_can_be_kept_to_a_part_of_what_is_natural():
    tracks = SyntheticDataset("train", 20, crop_size=32, scene_s=1.2, lag_ms=(-20.0, 30.0)).tracks
    lags = [track.lag_ms for track in tracks if track.lag_ms is not None]
    assert len(lags) > 10
    assert -20 <= min(lags) < 0 < max(lags) <= 30
    usual = SyntheticDataset("train", 20, crop_size=32, scene_s=1.2).tracks
    assert [track.entity_id for track in usual] == [track.entity_id for track in tracks]


@pytest.mark.parametrize("lag_ms", [(-50, 0), (0, 210), (30, 20), (0,), (math.nan, 0)])
def test_lags_beyond_what_is_natural_are_refused(lag_ms: tuple[float, ...]):
    with pytest.raises(UsageError, match=r"lag_ms is .* within -40\.\.200"):
        SyntheticDataset("train", 20, crop_size=32, scene_s=1.2, lag_ms=lag_ms)
