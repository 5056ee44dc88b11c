"""Facts about the crop rule: what is inside, what is outside, proportions, smoothing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.faces.crop import OUTSIDE_GREY, crop_faces, crop_square, face_squares


def still_boxes(box: tuple[float, float, float, float], num_frames: int = 3) -> NDArray[np.float64]:
    return np.tile(np.array(box, dtype=np.float64), (num_frames, 1))


def noise(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def test_a_box_of_the_crop_size_is_the_picture_itself() -> None:
    frames = noise(3, 60, 80)
    crops = crop_faces(frames, still_boxes((20, 10, 52, 42)), size=32, scale=1.0)
    np.testing.assert_array_equal(crops, frames[:, 10:42, 20:52])


def test_halving_averages_and_places_a_ramp_exactly() -> None:
    ramp = np.tile(np.arange(100, dtype=np.uint8) * 2, (1, 100, 1))
    crops = crop_faces(ramp, still_boxes((20, 20, 84, 84), 1), size=32, scale=1.0)
    # Output pixel k covers input pixels 20 + 2k and 21 + 2k: their mean level is 2 (20.5 + 2k).
    np.testing.assert_array_equal(crops[0, 5], 41 + 4 * np.arange(32))


def test_a_shift_by_half_a_pixel_moves_the_crop_by_half_a_pixel() -> None:
    ramp = np.tile(np.arange(100, dtype=np.uint8) * 2, (100, 1))
    at = [crop_square(ramp, np.array([50.0 + shift, 50.0, 32.0]), 32).astype(int) for shift in (0.0, 0.5, 1.0)]
    assert (at[1] - at[0] == 1).all()
    assert (at[2] - at[0] == 2).all()


def test_the_longer_side_counts_and_proportions_are_kept() -> None:
    frame = np.zeros((1, 200, 200), dtype=np.uint8)
    frame[0, 80:120, 80:120] = 255  # a white square must stay a square
    crop = crop_faces(frame, still_boxes((75, 50, 125, 150), 1), size=50, scale=1.0)[0]
    rows, columns = np.flatnonzero(crop.max(axis=1) > 128), np.flatnonzero(crop.max(axis=0) > 128)
    assert (rows[0], rows[-1], columns[0], columns[-1]) == (15, 34, 15, 34)


def test_beyond_the_border_is_mid_grey_and_inside_is_the_picture() -> None:
    frames = noise(2, 40, 40)
    crops = crop_faces(frames, still_boxes((-16, -8, 16, 24), 2), size=32, scale=1.0)
    np.testing.assert_array_equal(crops[:, 8:, 16:], frames[:, :24, :16])
    assert (crops[:, :8] == OUTSIDE_GREY).all()
    assert (crops[:, :, :16] == OUTSIDE_GREY).all()


def test_a_box_wholly_outside_gives_grey() -> None:
    assert (crop_faces(noise(1, 40, 40), still_boxes((100, 100, 140, 140), 1)) == OUTSIDE_GREY).all()


def test_a_face_larger_than_the_frame_is_padded_on_all_sides() -> None:
    frames = np.full((1, 64, 96), 200, dtype=np.uint8)
    crop = crop_faces(frames, still_boxes((-16, -32, 112, 96), 1), size=64, scale=1.0)[0]
    assert (crop[17:47, 9:55] == 200).all()  # 64 x 96 pixels at half size, edges aside
    assert (crop[:15] == OUTSIDE_GREY).all()
    assert (crop[:, 57:] == OUTSIDE_GREY).all()


def test_flipped_views_give_what_their_copies_give() -> None:
    frames = noise(2, 50, 60, 3)
    boxes = still_boxes((10.3, 5.1, 45.7, 43.9), 2)
    for view in (frames[..., ::-1], frames[:, ::-1], frames[:, :, ::-1], np.asfortranarray(frames)):
        np.testing.assert_array_equal(crop_faces(view, boxes, 48), crop_faces(view.copy(), boxes, 48))


def test_one_wrong_box_does_not_move_the_crop() -> None:
    boxes = still_boxes((10, 10, 50, 60), 40)
    boxes[20] = (200, 200, 210, 210)
    np.testing.assert_allclose(face_squares(boxes, 1.0), np.tile([30.0, 35.0, 50.0], (40, 1)))


def test_steady_movement_is_followed_without_lag() -> None:
    boxes = still_boxes((10, 10, 50, 60), 60) + np.arange(60)[:, None] * np.array([1, 0, 1, 0])
    np.testing.assert_allclose(face_squares(boxes)[15:-15, 0], 30.0 + np.arange(60)[15:-15])


def test_jitter_of_the_detector_is_smoothed_away() -> None:
    jitter = np.random.default_rng(0).normal(0, 2, (200, 4))
    squares = face_squares(still_boxes((100, 100, 200, 230), 200) + jitter)
    assert np.abs(np.diff(squares[:, 0])).max() < 0.5


@pytest.mark.parametrize("box", [(10, 10, 10, 20), (10, 20, 30, 10), (0, 0, np.nan, 5)])
def test_a_box_without_area_is_refused(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match="box 0 is"):
        crop_faces(noise(1, 40, 40), still_boxes(box, 1))


def test_as_many_boxes_as_frames_are_needed() -> None:
    with pytest.raises(ValueError, match="expected"):
        crop_faces(noise(2, 40, 40), still_boxes((1, 1, 9, 9), 3))
