"""The synthetic dataset: the same on every call, all but the same on every machine, with its own people per split."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from avfusion.data.synthetic import ROLES, SCENES_PER_BLOCK, SyntheticDataset
from avfusion.errors import UsageError

BLOCK = sum(SCENES_PER_BLOCK.values())


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
    assert [track.role for track in few.tracks] == [track.role for track in many.tracks[: len(few.tracks)]]


def test_a_part_equals_the_same_part_of_the_whole():
    dataset = SyntheticDataset("val", 2)
    whole, part, tail = dataset.read(1), dataset.read(1, 20, 30), dataset.read(1, 70)
    np.testing.assert_array_equal(part.crops, whole.crops[20:50])
    np.testing.assert_array_equal(part.audio, whole.audio[20 * 640 : 50 * 640])
    np.testing.assert_array_equal(part.speaking, dataset.tracks[1].speaking[20:50])
    np.testing.assert_array_equal(tail.audio, whole.audio[70 * 640 :])


def test_splits_share_no_voice_and_no_face():
    scenes = [[SyntheticDataset(split, 60).scene(number) for number in range(60)] for split in ("train", "val")]
    faces = [{face.face for scene in split for face in scene.faces} for split in scenes]
    voices = [{voice.utterance.voice for scene in split for voice in scene.voices} for split in scenes]
    for people in (faces, voices):
        assert len(people[0]) > 50
        assert not people[0] & people[1]
    numbers = [{v for face in split for v in astuple(face) if isinstance(v, float) and v > 0} for split in faces]
    assert len(numbers[0]) > 1000
    assert not numbers[0] & numbers[1]


def test_every_block_of_scenes_holds_the_promised_roles_and_tracks_of_a_scene_share_its_sound():
    dataset = SyntheticDataset("train", 2 * BLOCK)
    role_of_scene = {track.video_id: track.role for track in dataset.tracks}
    roles = list(role_of_scene.values())
    assert set(SCENES_PER_BLOCK) == set(ROLES) - {"returning"}  # which needs long scenes
    assert Counter(roles[:BLOCK]) == Counter(roles[BLOCK:]) == Counter(SCENES_PER_BLOCK)
    faces = Counter(track.video_id for track in dataset.tracks)
    two_faces = {"listener", "turns", "overlap"}
    assert all(faces[scene] == 1 + (role in two_faces) for scene, role in role_of_scene.items())
    pair = [index for index, track in enumerate(dataset.tracks) if track.role == "turns"][:2]
    first, second = (dataset.read(index) for index in pair)
    np.testing.assert_array_equal(first.audio, second.audio)
    assert not np.array_equal(first.crops, second.crops)
    assert [dataset.tracks[index].entity_id[-2:] for index in pair] == [":0", ":1"]
    assert dataset.tracks[pair[0]].video_id == dataset.tracks[pair[1]].audio_id


def test_boxes_have_the_size_of_the_face_and_do_not_touch():
    dataset = SyntheticDataset("train", 2 * BLOCK)
    by_scene: dict[str, list[np.ndarray]] = {}
    widths = []
    for index, track in enumerate(dataset.tracks):
        number, face = dataset.scene_of_track[index]
        box = track.boxes_xyxy[0]
        widths.append(dataset.scene(number).faces[face].camera.face_px)
        np.testing.assert_allclose((box[2] - box[0]) * 640, widths[-1], atol=1e-3)
        np.testing.assert_allclose((box[3] - box[1]) * 360, widths[-1], atol=1e-3)
        assert 0 <= box.min() < box.max() <= 1
        by_scene.setdefault(track.video_id, []).append(box)
    assert all(boxes[0][2] <= boxes[1][0] for boxes in by_scene.values() if len(boxes) == 2)
    assert 24 <= min(widths) < 32
    assert 90 < max(widths) <= 112


def test_a_machine_without_vector_instructions_makes_the_same_labels_and_all_but_the_same_sound(tmp_path: Path):
    """Stands in for another platform: sine and exponential there differ in their last bit."""
    script = (
        "import sys, numpy as np; from avfusion.data.synthetic import SyntheticDataset as D\n"
        "d = D('val', 12); clips = [d.read(i) for i in range(len(d.tracks))]\n"
        "np.savez(sys.argv[1], speaking=[t.speaking for t in d.tracks], boxes=[t.boxes_xyxy for t in d.tracks],\n"
        "  phones=[p for i in range(len(d.tracks)) for v in d.truth(i).voices for p in v.phones],\n"
        "  phones_s=np.concatenate([v.phones_s for i in range(len(d.tracks)) for v in d.truth(i).voices]),\n"
        "  crops=[c.crops for c in clips], audio=[c.audio for c in clips])\n"
    )
    found = []
    instructions = _vector_instructions()
    if not instructions:
        pytest.skip("numpy uses no vector instructions that could be switched off here")
    for name, switched_off in (("here", ""), ("there", instructions)):
        environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": switched_off}
        if not switched_off:
            environment.pop("NPY_DISABLE_CPU_FEATURES")
        path = tmp_path / f"{name}.npz"
        subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(path)], check=True, env=environment)
        found.append(np.load(path))
    here, there = found
    np.testing.assert_array_equal(here["speaking"], there["speaking"])
    np.testing.assert_array_equal(here["phones"], there["phones"])
    np.testing.assert_allclose(here["boxes"], there["boxes"], atol=1e-7)
    np.testing.assert_allclose(here["phones_s"], there["phones_s"], atol=1e-9)
    assert np.abs(here["crops"].astype(int) - there["crops"]).mean() < 1e-3
    assert np.abs(here["audio"] - there["audio"]).max() < 3 / 32768


def _vector_instructions() -> str:
    """The instructions of this processor that numpy chooses at run time."""
    try:
        from numpy._core import _multiarray_umath as umath
    except ImportError:
        from numpy.core import _multiarray_umath as umath  # numpy 1.26

    return " ".join(name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"num_scenes": 0}, "num_scenes is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"crop_size": 8}, "crop_size is 8"),
        ({"scene_s": float("nan")}, "scene_s is nan"),
        ({"scene_s": float("inf")}, "scene_s is inf"),
        ({"espeak": -0.5}, "espeak is -0.5"),
        ({"espeak": 1.5}, "espeak is 1.5"),
        ({"split": ""}, "no name"),
    ],
)
def test_impossible_options_are_told_in_one_line(options: dict[str, object], word: str):
    with pytest.raises(UsageError, match=word) as error:
        SyntheticDataset(**({"split": "val", "num_scenes": 2} | options))  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("stretch", [(9, 0, None), (-1, 0, None), (0, 70, 10), (0, -1, 5), (0, 5, 0)])
def test_reading_what_is_not_there_is_refused(stretch: tuple[int, int, int | None]):
    with pytest.raises(UsageError, match="ask for"):
        SyntheticDataset("val", 2).read(*stretch)


def test_named_roles_come_as_often_as_they_are_named() -> None:
    dataset = SyntheticDataset("val", 12, crop_size=24, roles=["overlap", "solo", "overlap"])
    roles = [dataset.scene(number).role for number in range(12)]
    assert roles.count("overlap") == 8
    assert roles.count("solo") == 4
    # Over four scenes of a role both faces are heard once, one of them twice, neither once.
    heard = [sum(t.speaking.any() for t in dataset.tracks if t.video_id == dataset.video_id(n)) for n in range(12)]
    assert sorted(count for count, role in zip(heard, roles, strict=True) if role == "overlap") == [
        0,
        0,
        1,
        1,
        1,
        1,
        2,
        2,
    ]
    with pytest.raises(UsageError, match="'sole' is no role; expected some of solo, listener"):
        SyntheticDataset("val", 12, crop_size=24, roles=["sole"])
