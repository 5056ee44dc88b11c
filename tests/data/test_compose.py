"""Facts about composed scenes: which are planned, what is heard in them, and what the labels say."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.data.compose import (
    REFERENCE_RMS,
    SourceClip,
    active_frames,
    audible,
    compose_scene,
    still_order,
    to_reference_level,
    turn,
)
from avfusion.data.compose_plan import ClipFacts, Recipe, plan_scenes, split_names
from avfusion.data.compose_truth import scene_truth
from avfusion.data.scene_truth import truth_from_json

NUM_FRAMES = 75
VOICES = {split: [f"speech/{split}{index}" for index in range(4)] for split in ("train", "val", "test")}
NOISES = {split: [f"noise/{split}"] for split in ("train", "val", "test")}


def facts(clip_id: str, talker: str, split: str = "train", corpus: str = "c", speaks: bool = True) -> ClipFacts:
    return ClipFacts(clip_id, corpus, talker, split, NUM_FRAMES, 15 if speaks else None, has_still=True)


def source(clip_id: str, talker: str, seed: int) -> SourceClip:
    """A talker who speaks (here: hisses) in frames 15 to 50."""
    speaking = (np.arange(NUM_FRAMES) >= 15) & (np.arange(NUM_FRAMES) < 50)
    hiss = np.random.default_rng(seed).standard_normal(640 * NUM_FRAMES) * np.repeat(speaking, 640)
    audio = to_reference_level(hiss.astype(np.float32), np.repeat(speaking, 640))
    boxes = np.tile(np.array([0.2, 0.3, 0.6, 0.9], dtype=np.float32), (NUM_FRAMES, 1))
    still = still_order(speaking)
    return SourceClip(facts(clip_id, talker), audio, speaking, boxes, f"{clip_id}.mp4", still, f"{clip_id}-still.mp4")


CLIPS = {"a": source("a", "t1", 1), "b": source("b", "t1", 2), "x": source("x", "t2", 3)}


def load_sound(path: str) -> NDArray[np.float32]:
    seed = sum(path.encode())
    return (0.01 * np.random.default_rng(seed).standard_normal(16_000)).astype(np.float32)


def recipe(role: str, variant: str = "", faces: tuple[str, ...] = ("a",), **drawn: object) -> Recipe:
    return Recipe(scene_id="s", split="train", role=role, variant=variant, faces=faces, **drawn)  # type: ignore[arg-type]


def test_a_frame_is_active_where_speech_fills_half_of_it() -> None:
    # Frames last 40 ms: speech from 60 to 140 ms fills half of frame 1, frame 2, half of frame 3.
    np.testing.assert_array_equal(np.flatnonzero(active_frames([(0.06, 0.14)], 6)), [1, 2, 3])
    np.testing.assert_array_equal(np.flatnonzero(active_frames([(0.061, 0.139)], 6)), [2])
    # Two halves of a half.
    np.testing.assert_array_equal(np.flatnonzero(active_frames([(0.0, 0.01), (0.03, 0.04)], 3)), [0])


def test_pauses_under_200_ms_are_filled_and_longer_ones_are_not() -> None:
    assert active_frames([(0.0, 0.4), (0.56, 1.0)], 25).all()  # 4 frames
    np.testing.assert_array_equal(np.flatnonzero(~active_frames([(0.0, 0.4), (0.6, 1.0)], 25)), np.arange(10, 15))
    # Silence before and after speech is no pause.
    np.testing.assert_array_equal(np.flatnonzero(active_frames([(0.08, 0.4)], 12)), np.arange(2, 10))


def test_a_still_face_comes_from_the_longest_pause_and_never_jumps() -> None:
    speaking = (np.arange(75) >= 15) & (np.arange(75) < 50)
    order = still_order(speaking)
    assert len(order) == 75
    assert order.min() == 53  # three frames after the last word
    assert order.max() == 74
    assert (np.abs(np.diff(order)) == 1).all()
    assert not speaking[order].any()
    assert len(still_order(np.ones(75, dtype=np.bool_))) == 0
    assert len(still_order(np.arange(75) >= 12)) == 0  # 9 usable frames are too few


def test_turning_loses_nothing_and_leaves_no_click() -> None:
    audio = np.random.default_rng(0).standard_normal(16_000).astype(np.float32)
    later = turn(audio, 4000)
    np.testing.assert_array_equal(later[4080:], audio[80:12_000])
    np.testing.assert_array_equal(later[:3920], audio[12_000:15_920])
    assert later[3999] == 0.0
    assert later[4000] == 0.0
    np.testing.assert_array_equal(turn(audio, -4000)[100:11_900], audio[4100:15_900])
    np.testing.assert_array_equal(turn(audio, 0), audio)


def test_every_voice_is_brought_to_one_level_over_its_active_part() -> None:
    rng = np.random.default_rng(0)
    audio = np.concatenate([np.zeros(8000), 0.3 * rng.standard_normal(8000)]).astype(np.float32)
    level = to_reference_level(audio)
    assert np.sqrt(np.mean(level[8000:] ** 2)) == pytest.approx(REFERENCE_RMS, rel=1e-3)
    np.testing.assert_array_equal(audible(audio), np.arange(16_000) >= 8000)
    assert not to_reference_level(np.zeros(100, dtype=np.float32)).any()


def test_own_sound_is_the_clip_and_its_voice_activity() -> None:
    scene = compose_scene(recipe("own_sound"), CLIPS, load_sound)
    np.testing.assert_array_equal(scene.audio, CLIPS["a"].audio)
    np.testing.assert_array_equal(scene.tracks[0].speaking, CLIPS["a"].speaking)
    assert scene.tracks[0].crops == "a.mp4"


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 10.0])
def test_own_noisy_keeps_the_labels_and_has_the_snr_drawn(snr_db: float) -> None:
    scene = compose_scene(recipe("own_noisy", interferer="noise/train", snr_db=snr_db), CLIPS, load_sound)
    own, active = CLIPS["a"].audio, np.repeat(CLIPS["a"].speaking, 640)
    interferer = scene.audio - own
    measured = 10 * np.log10(np.mean(own[active] ** 2) / np.mean(interferer[active] ** 2))
    assert abs(measured - snr_db) < 0.1
    np.testing.assert_array_equal(scene.tracks[0].speaking, CLIPS["a"].speaking)


def test_shifted_sound_is_the_own_sound_turned_and_nobody_is_the_speaker() -> None:
    scene = compose_scene(recipe("shifted", shift_s=0.5), CLIPS, load_sound)
    np.testing.assert_array_equal(scene.audio[8080:], CLIPS["a"].audio[80:-8000])
    assert not scene.tracks[0].speaking.any()


@pytest.mark.parametrize(
    ("role", "sound", "crops"),
    [
        ("other_clip", "b", "a.mp4"),
        ("other_voice", "speech/train0", "a.mp4"),
        ("moving_face", "b", "a.mp4"),
        ("still_face", "b", "a-still.mp4"),
    ],
)
def test_a_foreign_voice_makes_nobody_the_speaker(role: str, sound: str, crops: str) -> None:
    scene = compose_scene(recipe(role, sound=sound), CLIPS, load_sound)
    expected = CLIPS["b"].audio if sound == "b" else to_reference_level(np.resize(load_sound(sound), 48_000))
    np.testing.assert_array_equal(scene.audio, expected)
    assert scene.tracks[0].crops == crops
    assert not scene.tracks[0].speaking.any()


def test_silence_is_digital_or_the_quiet_of_a_room() -> None:
    digital = compose_scene(recipe("silence", "digital"), CLIPS, load_sound)
    assert not digital.audio.any()
    for noise in ("", "noise/train"):
        room = compose_scene(recipe("silence", "room", interferer=noise), CLIPS, load_sound)
        assert 0.0004 < room.audio.std() < 0.005
        assert not room.tracks[0].speaking.any()


def test_two_faces_share_one_sound_and_each_is_labeled_by_its_own_voice() -> None:
    both = compose_scene(recipe("two_faces", "both", ("a", "x"), snr_db=6.0), CLIPS, load_sound)
    ratio = 10 ** (6.0 / 40)
    np.testing.assert_allclose(both.audio, CLIPS["a"].audio * ratio + CLIPS["x"].audio / ratio, atol=1e-6)
    assert [track.speaking.sum() for track in both.tracks] == [35, 35]
    np.testing.assert_allclose(both.tracks[0].boxes_xyxy[0], [0.1, 0.3, 0.3, 0.9], atol=1e-6)
    np.testing.assert_allclose(both.tracks[1].boxes_xyxy[0], [0.6, 0.3, 0.8, 0.9], atol=1e-6)

    right = compose_scene(recipe("two_faces", "right_heard_other_still", ("a", "x")), CLIPS, load_sound)
    np.testing.assert_array_equal(right.audio, CLIPS["x"].audio)
    assert [track.clip_id for track in right.tracks] == ["a", "x"]
    assert [track.crops for track in right.tracks] == ["a-still.mp4", "x.mp4"]
    assert [track.speaking.sum() for track in right.tracks] == [0, 35]

    left = compose_scene(recipe("two_faces", "left_heard_other_moves", ("a", "x")), CLIPS, load_sound)
    np.testing.assert_array_equal(left.audio, CLIPS["a"].audio)
    assert [track.crops for track in left.tracks] == ["a.mp4", "x.mp4"]
    assert [track.speaking.sum() for track in left.tracks] == [35, 0]


def many_clips() -> list[ClipFacts]:
    """Three talkers of eight clips in train and val, one of a single clip, and one who never speaks."""
    talkers = [(split, f"{split}-{name}") for split in ("train", "val") for name in "abc"]
    clips = [facts(f"{talker}/{number}", talker, split) for split, talker in talkers for number in range(8)]
    return [*clips, facts("lone", "lone"), facts("mute", "mute", speaks=False)]


def test_without_noises_and_with_a_single_voice_scenes_are_still_made() -> None:
    plan = plan_scenes(many_clips(), {split: ["speech/one"] for split in VOICES}, {}, seed=0)
    assert {scene.interferer for scene in plan} == {"", "speech/one"}
    assert all(scene.interferer != scene.sound or not scene.sound for scene in plan)


def test_a_plan_depends_on_the_seed_only_and_not_on_the_order() -> None:
    clips = many_clips()
    plan = plan_scenes(clips, VOICES, NOISES, seed=0)
    assert plan_scenes(clips[::-1], VOICES, NOISES, seed=0) == plan
    assert plan_scenes(clips, VOICES, NOISES, seed=1) != plan
    assert len({recipe.scene_id for recipe in plan}) == len(plan)


def test_no_scene_crosses_a_split() -> None:
    clips = {clip.clip_id: clip for clip in many_clips()}
    for drawn in plan_scenes(list(clips.values()), VOICES, NOISES, seed=0):
        for name in (*drawn.faces, drawn.sound, drawn.interferer):
            if name in clips:
                assert clips[name].split == drawn.split
            elif name:
                assert name in VOICES[drawn.split] + NOISES[drawn.split]


def test_other_sound_is_of_the_same_talker_where_there_is_any() -> None:
    clips = {clip.clip_id: clip for clip in many_clips()}
    drawn = [scene for scene in plan_scenes(list(clips.values()), VOICES, NOISES, seed=0) if scene.role == "other_clip"]
    for scene in drawn:
        face, voice = clips[scene.faces[0]], clips[scene.sound]
        assert face.clip_id != voice.clip_id
        assert face.talker == voice.talker or face.talker == "lone"
    assert any(scene.faces == ("lone",) for scene in drawn)


def test_two_faces_are_two_talkers_both_of_whom_speak_in_time() -> None:
    clips = {clip.clip_id: clip for clip in many_clips()}
    clips["late"] = ClipFacts("late", "c", "late", "train", 200, 80, has_still=True)  # others end at 75
    scenes = [scene for scene in plan_scenes(list(clips.values()), VOICES, NOISES, seed=0) if scene.role == "two_faces"]
    assert scenes
    for scene in scenes:
        left, right = (clips[name] for name in scene.faces)
        assert left.talker != right.talker
        assert {"late", "mute"}.isdisjoint(scene.faces)


def test_a_moving_mouth_is_as_often_heard_as_not_and_noise_comes_with_both() -> None:
    plan = plan_scenes(many_clips(), VOICES, NOISES, seed=0)
    heard, unheard = Counter[str](), Counter[str]()
    for scene in plan:
        mixed = "mixed" if scene.interferer else "clean"
        if scene.role in ("own_sound", "own_noisy"):
            heard[mixed] += 1
        elif scene.role in ("other_clip", "other_voice", "shifted"):
            unheard[mixed] += 1
        elif scene.role == "silence":
            unheard["silence"] += 1
        elif scene.role == "two_faces":
            heard["clean"] += 2 if scene.variant == "both" else 1
            unheard["clean"] += scene.variant.endswith("moves")
    assert 0.42 < heard.total() / (heard.total() + unheard.total()) < 0.58
    for counts in (heard, unheard):
        assert 0.2 < counts["mixed"] / (counts["mixed"] + counts["clean"]) < 0.6


def test_a_face_that_never_speaks_is_only_ever_seen_under_a_foreign_voice() -> None:
    by_face = defaultdict(set)
    for scene in plan_scenes(many_clips(), VOICES, NOISES, seed=0):
        for name in scene.faces:
            by_face[name].add(scene.role)
        assert "mute" not in (scene.sound, scene.interferer)
        assert scene.sound or scene.role != "moving_face"
    assert by_face["mute"] == {"moving_face"}


@pytest.mark.parametrize("num_frames", [15, 20, 30, 45, 100])
def test_a_shift_is_one_both_ways_round_the_circle(num_frames: int) -> None:
    clips = [ClipFacts(f"short{n}", "c", "t", "train", num_frames, 2, has_still=False) for n in range(100)]
    shifts = [r.shift_s for r in plan_scenes(clips, VOICES, NOISES, seed=0) if r.role == "shifted"]
    assert len(shifts) == 100
    length_s = num_frames / 25
    distances = [min(abs(shift) % length_s, -abs(shift) % length_s) for shift in shifts]
    assert min(distances) >= 0.3 - 1e-9
    assert max(np.abs(shifts)) <= 1.5
    if num_frames >= 20:
        assert min(shifts) < 0 < max(shifts)
        assert np.ptp(np.abs(shifts)) > 0.8 * (min(1.5, length_s - 0.3) - 0.3)  # the whole range is used


def test_a_clip_under_600_ms_is_never_shifted() -> None:
    clips = [ClipFacts(f"short{n}", "c", "t", "train", 14, 1, has_still=False) for n in range(20)]
    roles = Counter(recipe.role for recipe in plan_scenes(clips, VOICES, NOISES, seed=0))
    assert roles["shifted"] == 0
    assert roles["own_sound"] >= 20


def test_speakers_are_shared_out_without_overlap_whatever_the_order() -> None:
    names = [f"speaker{index}" for index in range(140)]
    shares = split_names(names)
    assert {split: len(chosen) for split, chosen in shares.items()} == {"train": 98, "val": 21, "test": 21}
    assert sorted(name for chosen in shares.values() for name in chosen) == sorted(names)
    assert split_names(names[::-1] + names) == shares
    assert all(len(chosen) >= 1 for chosen in split_names(["x", "y", "z"]).values())


def test_overlaps_hear_both_faces_one_of_them_and_neither_as_often() -> None:
    clips = {clip.clip_id: clip for clip in many_clips()}
    plan = plan_scenes(list(clips.values()), VOICES, NOISES, seed=0, overlaps=1)
    drawn = [scene for scene in plan if scene.role == "overlap"]
    assert [scene for scene in plan if scene.role != "overlap"] == plan_scenes(
        list(clips.values()), VOICES, NOISES, seed=0
    )
    assert len(set(Counter(scene.variant for scene in drawn).values())) == 1
    for scene in drawn:
        assert clips[scene.faces[0]].talker != clips[scene.faces[1]].talker
        sounds = scene.voices
        assert len(set(sounds)) == 2
        for kind, face, sound, other in zip(
            scene.variant.split("_"), scene.faces, sounds, scene.faces[::-1], strict=True
        ):
            assert (sound == face) == (kind == "own")
            assert sound != other  # nobody is dubbed with the voice of the face beside them
            assert clips[sound].split == scene.split
            assert clips[sound].talker == clips[face].talker or clips[face].talker == "lone"


def test_an_overlap_mixes_two_voices_and_labels_the_faces_whose_own_they_are() -> None:
    mixed = compose_scene(recipe("overlap", "own_other", ("a", "x"), voices=("a", "b"), snr_db=6.0), CLIPS, load_sound)
    own, other = mixed.voices
    np.testing.assert_allclose(mixed.audio, own.audio + other.audio, atol=1e-6)
    np.testing.assert_allclose(own.audio, CLIPS["a"].audio * 10 ** (3 / 20), rtol=1e-5)  # half of the 6 dB each way
    np.testing.assert_allclose(other.audio, CLIPS["b"].audio * 10 ** (-3 / 20), rtol=1e-5)
    assert (own.face, other.face) == (0, None)
    np.testing.assert_array_equal(mixed.tracks[0].speaking, CLIPS["a"].speaking)
    assert not mixed.tracks[1].speaking.any()
    truth = scene_truth(recipe("overlap", "own_other", ("a", "x"), voices=("a", "b"), snr_db=6.0), mixed)
    assert [voice.entity_id for voice in truth.voices] == ["s:0", ""]
    assert [face.voice for face in truth.faces] == [0, None]
    np.testing.assert_allclose(truth.voices[0].active_s, [[15 / 25, 50 / 25]])
    rms = np.sqrt(np.mean(own.audio[640 * 20 : 640 * 20 + 160].astype(np.float64) ** 2))
    np.testing.assert_allclose(truth.voices[0].envelope[80], rms, rtol=1e-6)
    again = truth_from_json(json.loads(json.dumps(truth.to_json(), allow_nan=False)))
    np.testing.assert_allclose(again.voices[1].envelope, truth.voices[1].envelope, atol=1e-5)
    assert again.faces[0].lag_ms is None
    assert np.isnan(again.voices[0].f0_hz).all()


def test_voices_of_an_overlap_are_heard_before_it_is_cut() -> None:
    short = [ClipFacts(f"{t}1", "c", t, "train", 75, 10, has_still=True) for t in ("a", "b")]
    long = [ClipFacts(f"{t}2", "c", t, "train", 250, 150, has_still=True) for t in ("a", "b")]
    spare = [ClipFacts(f"{t}3", "c", t, "train", 75, 10, has_still=True) for t in ("a", "b")]
    facts_of = {clip.clip_id: clip for clip in short + long + spare}
    drawn = [r for r in plan_scenes(list(facts_of.values()), VOICES, NOISES, seed=0, overlaps=3) if r.role == "overlap"]
    assert drawn
    for scene in drawn:
        end = min(facts_of[face].num_frames for face in scene.faces)
        assert all(facts_of[voice].speech_start < end - 12 for voice in scene.voices)
    # Without the spare clips nobody can be dubbed in a short scene: no round of four, so none of it.
    few = plan_scenes(short + long, VOICES, NOISES, seed=0, overlaps=3)
    assert all(min(facts_of[f].num_frames for f in r.faces) == 250 for r in few if r.role == "overlap")
