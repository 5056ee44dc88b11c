"""Pictures of synthetic talkers: lips, lids, light and cameras do as told, and the mouth shows nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from avfusion.data.synthetic.camera import Camera, random_camera, random_occluder
from avfusion.data.synthetic.face import HAIR_STYLES, Face, HeadMovement, random_face, random_head_movement
from avfusion.data.synthetic.mouth import MouthMovement
from avfusion.data.synthetic.picture import VIEW, VIEW_V, render_face
from avfusion.data.synthetic.portrait import EYE_V, MOUTH_V

SEEDS = range(6)


def face_of(seed: int) -> Face:
    return replace(random_face(np.random.default_rng(seed)), glasses=0.0)


def still_head(num_frames: int = 1, **changes: float | list[float]) -> HeadMovement:
    still = {name: np.zeros(num_frames) for name in HeadMovement.__dataclass_fields__} | {"zoom": np.ones(num_frames)}
    return HeadMovement(**(still | {name: np.broadcast_to(value, num_frames) for name, value in changes.items()}))


def mouth_of(num_frames: int = 1, **changes: float | list[float] | np.ndarray) -> MouthMovement:
    rest = {"opening": 0.0, "width": 0.5, "rounding": 0.0, "teeth": 0.0, "smile": 0.0, "sideways": 0.0}
    return MouthMovement(
        **{name: np.broadcast_to(np.float64(value), num_frames) for name, value in (rest | changes).items()}
    )


def clean_camera(num_frames: int = 1, **changes: float) -> Camera:
    camera = Camera(112.0, 0.2, -0.4, np.ones(num_frames), blur=0.0, grain=0.0, compression=0.0, occluder=None)
    return replace(camera, **changes)


def draw(face: Face, head: HeadMovement, mouth: MouthMovement, camera: Camera, crop_size: int = 112) -> np.ndarray:
    return render_face(np.random.default_rng(0), face, head, mouth, camera, crop_size).astype(float)


def pixel(place: float, middle: float, size: int = 112) -> int:
    """Index of the pixel that shows a face coordinate when the head is still."""
    return int(((place - middle) / VIEW + 1) / 2 * size)


def window(u_low: float, u_high: float, v_low: float, v_high: float, size: int = 112) -> tuple[slice, slice, slice]:
    rows = slice(pixel(v_low, VIEW_V, size), pixel(v_high, VIEW_V, size) + 1)
    return slice(None), rows, slice(pixel(u_low, 0.0, size), pixel(u_high, 0.0, size) + 1)


MOUTH = window(-0.34, 0.34, MOUTH_V - 0.12, MOUTH_V + 0.45)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_open_mouth_is_dark_and_grows_with_opening(seed: int):
    opening = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    face = face_of(seed)
    pictures = draw(face, still_head(5), mouth_of(5, opening=opening), clean_camera(5))[MOUTH]
    dark = (pictures < 0.15 * face.skin + 12).sum(axis=(1, 2))
    assert np.all(np.diff(dark) > 0.2 * dark[-1] / 5)
    assert dark[-1] > 200  # a good part of the window


@pytest.mark.parametrize("seed", SEEDS)
def test_a_round_mouth_is_narrower_than_a_spread_one(seed: int):
    face = face_of(seed)
    mouth = mouth_of(3, opening=0.4, width=[0.0, 0.5, 1.0], rounding=[1.0, 0.0, 0.0])
    pictures = draw(face, still_head(3), mouth, clean_camera(3))[MOUTH]
    columns = (pictures < 0.15 * face.skin + 12).any(axis=1).sum(axis=1)
    assert columns[0] * 1.4 < columns[1]
    assert columns[1] * 1.15 < columns[2]


@pytest.mark.parametrize("seed", SEEDS)
def test_teeth_brighten_an_open_mouth_and_do_not_show_in_a_shut_one(seed: int):
    face = face_of(seed)
    mouth = mouth_of(4, opening=[0.3, 0.3, 0.0, 0.0], teeth=[0.0, 1.0, 0.0, 1.0])
    bare, toothed, shut, shut_toothed = draw(face, still_head(4), mouth, clean_camera(4))[MOUTH]
    assert (toothed - bare).max() > 90
    assert (toothed - bare).min() > -1
    assert np.abs(shut_toothed - shut).max() < 40  # the line between shut lips is all that can change


@pytest.mark.parametrize("seed", SEEDS)
def test_a_smile_lifts_the_corners(seed: int):
    pictures = draw(face_of(seed), still_head(2), mouth_of(2, smile=[-0.3, 1.0]), clean_camera(2))
    corner = pictures[window(0.17, 0.2, MOUTH_V - 0.14, MOUTH_V + 0.1)].mean(axis=2)
    darkest = corner.argmin(axis=1)
    assert darkest[0] - darkest[1] >= 2


def test_a_swinging_jaw_moves_the_mouth_sideways():
    face = face_of(0)
    pictures = draw(face, still_head(2), mouth_of(2, opening=0.5, sideways=[-0.06, 0.06]), clean_camera(2))[MOUTH]
    dark = pictures < 0.15 * face.skin + 12
    middle = (dark * np.arange(dark.shape[2])).sum(axis=(1, 2)) / dark.sum(axis=(1, 2))
    assert middle[1] - middle[0] == pytest.approx(0.12 / VIEW * 56, abs=0.5)


@pytest.mark.parametrize("seed", SEEDS)
def test_only_mouth_and_jaw_depend_on_the_mouth(seed: int):
    face, head = face_of(seed), still_head(4, yaw=0.1, roll=0.05)
    shapes = mouth_of(4, opening=[0, 1, 0.3, 0.1], width=[0.5, 0, 1, 0], rounding=[0, 1, 0, 0], smile=[0, 0, 1, -0.3])
    first, *others = draw(face, head, shapes, clean_camera(4))
    outside = np.ones((112, 112), bool)
    outside[window(-0.8, 0.8, 0.0, VIEW_V + VIEW)[1:]] = False
    assert outside.mean() > 0.6
    for picture in others:
        np.testing.assert_array_equal(picture[outside], first[outside])
        assert np.abs(picture - first).max() > 50


@pytest.mark.parametrize("seed", SEEDS)
def test_a_blink_hides_the_iris_and_a_glance_moves_it(seed: int):
    face = face_of(seed)
    head = still_head(4, lids=[0, 1, 0, 0], gaze=[0, 0, -0.05, 0.05])
    pictures = draw(face, head, mouth_of(4), clean_camera(4))
    iris = window(face.eye_space - 0.03, face.eye_space + 0.03, EYE_V - 0.03, EYE_V)
    opened, shut = pictures[iris].mean(axis=(1, 2))[:2]
    assert shut > opened + 25
    eye = pictures[window(face.eye_space - 0.12, face.eye_space + 0.12, EYE_V - 0.02, EYE_V)]
    darkness = 255 - eye.mean(axis=1)
    darkness -= darkness.min(axis=1, keepdims=True)
    middle = (darkness * np.arange(darkness.shape[1])).sum(axis=1) / darkness.sum(axis=1)
    assert middle[3] - middle[2] > 1.0


def test_raised_brows_move_up():
    face = replace(face_of(1), brow_darkness=1.0, skin=190.0, hair=20.0, hairline=-0.7, hair_style="short", parting=0.1)
    pictures = draw(face, still_head(2, brows=[0.0, 0.06]), mouth_of(2), clean_camera(2))
    brow = pictures[window(0.2, 0.3, face.brow_height - 0.15, face.brow_height + 0.06)].mean(axis=2)
    assert 2 <= brow[0].argmin() - brow[1].argmin() <= 4  # 0.06 face units are 3 pixels


def test_turning_moves_the_features_but_not_the_outline():
    face = replace(face_of(2), hair_style="buzz", skin=190.0)
    pictures = draw(face, still_head(3, yaw=[-0.3, 0.0, 0.3]), mouth_of(3, opening=0.6), clean_camera(3))
    dark = pictures[window(-0.6, 0.6, MOUTH_V - 0.1, MOUTH_V + 0.4)] < 0.15 * face.skin + 12
    middle = (dark * np.arange(dark.shape[2])).sum(axis=(1, 2)) / dark.sum(axis=(1, 2))
    assert middle[0] + 4 < middle[1] < middle[2] - 4
    np.testing.assert_array_equal(pictures[0][:, :8], pictures[2][:, :8])


def test_light_from_the_right_brightens_the_right_cheek():
    left, right = (
        draw(face_of(3), still_head(), mouth_of(), clean_camera(light_right=light, light_down=0.0))[0]
        for light in (-0.6, 0.6)
    )
    cheek = window(0.35, 0.5, 0.1, 0.3)[1:]
    assert right[cheek].mean() > 1.15 * left[cheek].mean()


@pytest.mark.parametrize("kind", ["hand", "microphone", "cup"])
def test_an_occluder_hides_the_mouth_in_its_time_and_only_then(kind: str):
    occluder = random_occluder(np.random.default_rng(0), 50)
    occluder = replace(occluder, kind=kind, start_s=0.5, end_s=1.5, u=0.0, v=0.5, tilt=0.0, size=0.42)
    camera, head = clean_camera(50), still_head(50)
    free = draw(face_of(4), head, mouth_of(50, opening=0.5), camera)
    hidden = draw(face_of(4), head, mouth_of(50, opening=0.5), replace(camera, occluder=occluder))
    shut = draw(face_of(4), head, mouth_of(50), replace(camera, occluder=occluder))
    before_and_after = np.r_[0:13, 38:50]  # up to 0.48 s, from 1.52 s
    np.testing.assert_array_equal(hidden[before_and_after], free[before_and_after])
    lips = window(-0.15, 0.15, MOUTH_V - 0.04, MOUTH_V + 0.2)
    assert np.abs(hidden[lips][18:32] - shut[lips][18:32]).max() == 0
    assert np.abs(hidden[lips][18:32] - free[lips][18:32]).mean() > 10


def test_a_small_face_holds_less_detail_and_no_more_than_the_crop():
    def detail(face_px: float) -> float:
        picture = draw(face_of(5), still_head(), mouth_of(), clean_camera(face_px=face_px))[0]
        return float(np.abs(np.diff(picture, 2, axis=0)).mean())

    assert detail(24.0) < 0.6 * detail(48.0) < 0.6 * detail(112.0)
    large, equal = (
        draw(face_of(5), still_head(), mouth_of(), clean_camera(face_px=size), 48) for size in (112.0, 48.0)
    )
    np.testing.assert_array_equal(large, equal)


def test_compression_leaves_block_edges_in_the_picture():
    def edge_share(compression: float) -> float:
        camera = clean_camera(compression=compression)
        steps = np.abs(np.diff(draw(face_of(0), still_head(), mouth_of(), camera)[0], axis=1)).mean(axis=0)
        at_edge = np.arange(111) % 8 == 7
        return float(steps[at_edge].mean() / steps[~at_edge].mean())

    assert edge_share(1.0) > 1.2 * edge_share(0.0)


def test_same_source_of_noise_gives_the_same_bits_and_another_changes_the_grain_only():
    rng = np.random.default_rng(7)
    face, head, camera = random_face(rng), random_head_movement(rng, 30), replace(random_camera(rng, 30), grain=2.0)
    mouth = mouth_of(30, opening=np.linspace(0, 1, 30))
    first, again, other = (
        render_face(np.random.default_rng(seed), face, head, mouth, replace(camera, compression=0.0), 48)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.abs(first.astype(float) - other).mean() < 2.0 * 2


def test_a_frame_does_not_depend_on_the_frames_around_it():
    rng = np.random.default_rng(8)
    face, head = random_face(rng), random_head_movement(rng, 40)
    mouth, camera = mouth_of(40, opening=rng.random(40)), clean_camera(40)
    whole = draw(face, head, mouth, camera, 48)
    part = HeadMovement(**{name: getattr(head, name)[30:33] for name in HeadMovement.__dataclass_fields__})
    few = draw(face, part, mouth_of(3, opening=mouth.opening[30:33]), clean_camera(3), 48)
    np.testing.assert_array_equal(few, whole[30:33])


@pytest.mark.parametrize("style", HAIR_STYLES)
def test_every_hair_style_is_a_look_of_its_own(style: str):
    def picture_of(style: str) -> np.ndarray:
        face = replace(face_of(1), hair=20.0, skin=180.0, hair_volume=0.1, parting=0.2, hair_style=style)
        face = replace(face, hair_length=1.3 if style == "long" else 0.3)
        return draw(face, still_head(), mouth_of(), clean_camera())[0]

    assert picture_of(style).std() > 25
    for other in HAIR_STYLES:
        if other != style:
            assert (np.abs(picture_of(style) - picture_of(other)) > 30).mean() > 0.01


def test_opening_can_be_read_at_48_pixels_by_most_cameras():
    times_s = np.arange(75) / 25
    opening = np.clip(0.45 + 0.45 * np.sin(2 * np.pi * 2.3 * times_s), 0, 1)
    readings = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        face, head, camera = (
            random_face(rng),
            random_head_movement(rng, 75),
            replace(random_camera(rng, 75), occluder=None),
        )
        crops = render_face(rng, face, head, mouth_of(75, opening=opening), camera, 48).astype(float)
        mouth = crops[window(-0.3, 0.3, MOUTH_V - 0.05, MOUTH_V + 0.35, 48)].reshape(75, -1)
        readings.append(-np.corrcoef(np.sort(mouth, axis=1)[:, :50].mean(axis=1), opening)[0, 1])
    assert np.median(readings) > 0.9
    assert np.mean(np.array(readings) > 0.6) >= 0.9
