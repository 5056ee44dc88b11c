"""Cameras: face sizes, occluders that come and go on time; blur, compression and enlargement worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from avfusion.data.synthetic.camera import (
    OCCLUDERS,
    TRAVEL_S,
    Camera,
    Occluder,
    compress,
    cover_up,
    photograph,
    random_camera,
    random_occluder,
    resize,
    soften,
)


def plain_camera(num_frames: int) -> Camera:
    return Camera(48.0, 0.0, 0.0, np.ones(num_frames), blur=0.0, grain=0.0, compression=0.0, occluder=None)


def textured(num_frames: int, size: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (128 + 30 * rng.standard_normal((num_frames, size, size))).astype(np.float32)


def test_face_sizes_are_uniform_in_their_logarithm_and_one_camera_in_eight_is_blocked():
    rng = np.random.default_rng(0)
    cameras = [random_camera(rng, 75) for _ in range(1000)]
    sizes = np.array([camera.face_px for camera in cameras])
    assert 24 <= sizes.min() < 25
    assert 109 < sizes.max() <= 112
    assert abs(np.mean(sizes < np.sqrt(24 * 112)) - 0.5) < 0.05
    occluders = [camera.occluder for camera in cameras if camera.occluder]
    assert 0.09 < len(occluders) / 1000 < 0.165
    assert {occluder.kind for occluder in occluders} == set(OCCLUDERS)
    assert all(0.4 <= occluder.end_s - occluder.start_s <= 1.5 for occluder in occluders)


def test_an_occluder_comes_rests_and_goes():
    occluder = Occluder("cup", 0.98, 2.02, u=0.1, v=0.5, from_u=0.5, from_v=2.1, size=0.4, tilt=0.0, grey=80.0)
    frames, places = occluder.places(75)
    np.testing.assert_array_equal(frames, np.arange(25, 51))  # 1.00 .. 2.00 s
    np.testing.assert_allclose(places[frames == 27], [[0.3, 1.3]])  # 1.08 s: half of its way in
    np.testing.assert_allclose(places[frames == 48], [[0.3, 1.3]])  # 1.92 s: half of its way out
    resting = (frames / 25 >= 0.98 + TRAVEL_S) & (frames / 25 <= 2.02 - TRAVEL_S)
    assert resting.sum() == 16
    np.testing.assert_allclose(places[resting], np.broadcast_to([0.1, 0.5], (16, 2)))


@pytest.mark.parametrize("kind", OCCLUDERS)
def test_an_occluder_hides_the_middle_of_its_place_in_its_time_and_nothing_else(kind: str):
    occluder = replace(random_occluder(np.random.default_rng(2), 75), kind=kind, start_s=1.0, end_s=2.0, u=0.0, v=0.4)
    first, second = np.full((75, 48, 48), 10, np.float32), np.full((75, 48, 48), 240, np.float32)
    cover_up(first, occluder)
    cover_up(second, occluder)
    seen = [frame for frame in range(75) if (first[frame] != 10).any()]
    assert 26 <= min(seen) <= 30  # it needs a moment to reach the picture
    assert 45 <= max(seen) <= 49
    np.testing.assert_allclose(first[31:45, 31:36, 22:26], second[31:45, 31:36, 22:26])  # opaque around u, v
    np.testing.assert_array_equal(first[:, :10], 10)  # the forehead stays free


def test_soften_spreads_a_point_by_hand_worked_shares_and_leaves_flat_pictures_alone():
    point = np.zeros((1, 5, 5), np.float32)
    point[0, 2, 2] = 100
    softened = soften(point, 0.4)[0]
    np.testing.assert_allclose(softened[1:4, 1:4], [[4, 12, 4], [12, 36, 12], [4, 12, 4]], rtol=1e-6)
    assert np.all(softened[[0, -1]] == 0)
    flat = np.full((2, 6, 6), 77, np.float32)
    np.testing.assert_allclose(soften(flat, 0.4), flat, rtol=1e-6)


def test_resize_interpolates_linearly():
    columns = np.broadcast_to(np.array([0, 100], np.float32), (1, 2, 2))
    np.testing.assert_allclose(resize(columns, 4)[0, 1], [0, 25, 75, 100])
    assert resize(columns, 2) is columns


def test_compress_rounds_each_coefficient_of_the_cosine_transform_to_its_step():
    picture = textured(1, 8)
    order, place = np.arange(8)[:, None], np.arange(8)[None, :]
    basis = np.where(order == 0, np.sqrt(1 / 8), 0.5) * np.cos(np.pi * (2 * place + 1) * order / 16)
    before = basis @ picture[0].astype(float) @ basis.T
    after = basis @ compress(picture, 0.45)[0].astype(float) @ basis.T
    for row, column, step in (
        (0, 0, 16),
        (0, 1, 11),
        (1, 0, 12),
        (3, 4, 51),
        (7, 7, 99),
    ):  # at strength 0.45 as printed
        assert after[row, column] == pytest.approx(step * np.round(before[row, column] / step), abs=2e-3)


def test_compression_grows_with_its_strength_and_zero_is_none():
    picture = textured(2, 44)  # not a multiple of 8
    assert compress(picture, 0.0) is picture
    errors = [np.abs(compress(picture, strength) - picture).mean() for strength in (0.05, 0.3, 1.0)]
    assert 0.5 < errors[0] < errors[1] < errors[2]


def test_strong_compression_shows_block_edges():
    ramp = np.broadcast_to(np.linspace(60, 190, 64, dtype=np.float32), (1, 64, 64))
    smooth = ramp + 25 * np.sin(np.arange(64, dtype=np.float32) / 7)
    steps = np.abs(np.diff(compress(smooth, 1.0)[0], axis=1)).mean(axis=0)
    at_edge = np.arange(63) % 8 == 7
    original = np.abs(np.diff(smooth[0], axis=1)).mean(axis=0)
    assert original[at_edge].mean() < 1.3 * original[~at_edge].mean()
    assert steps[at_edge].mean() > 1.5 * steps[~at_edge].mean()


def test_photograph_exposes_and_adds_grain_of_the_given_size():
    camera = replace(plain_camera(20), exposure=np.linspace(0.5, 1.5, 20), grain=3.0)
    crops = photograph(np.random.default_rng(0), np.full((20, 48, 48), 100, np.float32), camera, 48)
    np.testing.assert_allclose(crops.mean(axis=(1, 2)), 100 * camera.exposure, atol=0.4)
    np.testing.assert_allclose(crops.std(axis=(1, 2)), 3.0, atol=0.2)
    first, second = (picture.astype(float) - picture.mean() for picture in crops[:2])
    assert (
        abs((first * second).mean()) < 0.1 * first.std() * second.std()
    )  # the grain of two frames has nothing in common


def test_photograph_without_faults_only_rounds():
    picture = textured(3, 16)
    crops = photograph(np.random.default_rng(0), picture.copy(), plain_camera(3), 16)
    np.testing.assert_allclose(crops, np.clip(picture, 0, 255), atol=0.5001)
