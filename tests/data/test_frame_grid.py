"""Facts about the 25 fps grid: hand-worked frames, labels and boxes for rows at any stamps."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.data.annotations import Annotation
from avfusion.data.frame_grid import film_on_grid, nearest_frame, to_grid
from avfusion.errors import AvfusionError, UsageError


def entity(times_ms: list[int], speaking: list[bool] | None = None, entity_id: str = "a") -> Annotation:
    """A face that moves right by one hundredth of the picture in 100 ms."""
    times = np.array(times_ms, dtype=np.int64)
    left = times[:, None] / 10_000
    boxes = np.concatenate([left, 0 * left, left + 0.1, 0 * left + 0.2], axis=1).astype(np.float32)
    flags = None if speaking is None else np.array(speaking)
    return Annotation("v", entity_id, times, boxes, flags)


def test_rows_on_the_grid_stay_as_they_are() -> None:
    (piece,) = to_grid(entity([900_000, 900_040, 900_080], [True, False, True]))
    assert (piece.entity_id, piece.start_frame, piece.end_frame, piece.start_s) == ("a", 22_500, 22_503, 900.0)
    assert piece.speaking is not None
    assert piece.speaking.tolist() == [True, False, True]
    np.testing.assert_allclose(piece.boxes_xyxy[:, 0], [90.0, 90.004, 90.008], rtol=1e-6)


def test_rows_at_2997_per_second_take_boxes_between_and_the_label_of_the_nearest_row() -> None:
    # Rows at 0, 33, 67, 100, 133 ms (rounded to 10 as AVA does); frames at 0, 40, 80, 120.
    (piece,) = to_grid(entity([0, 30, 70, 100, 130], [False, True, False, False, True]))
    assert piece.start_frame == 0
    np.testing.assert_allclose(piece.boxes_xyxy[:, 0], [0, 0.004, 0.008, 0.012], atol=1e-6)
    assert piece.speaking is not None
    assert piece.speaking.tolist() == [False, True, False, True]  # 40 -> 30, 80 -> 70, 120 -> 130


def test_rows_at_20_per_second_fill_every_frame() -> None:
    times = list(range(0, 1001, 50))
    (piece,) = to_grid(entity(times, [time >= 500 for time in times]))
    assert piece.num_frames == 26
    assert piece.speaking is not None
    # Frames 12 (480 ms) and 11 (440 ms) are nearest to the rows at 500 and 450.
    assert np.flatnonzero(piece.speaking)[0] == 12


def test_rows_every_fifth_of_a_second_are_one_piece() -> None:
    (piece,) = to_grid(entity([200, 400, 600], [False, True, False]))  # ASW
    assert (piece.start_frame, piece.num_frames) == (5, 11)
    assert piece.speaking is not None
    # 300 ms would be as near to 200 as to 400: frames 7 (280) and 8 (320) tell the two apart.
    assert np.flatnonzero(piece.speaking).tolist() == [3, 4, 5, 6, 7]


def test_a_long_gap_begins_a_new_piece_and_a_short_one_does_not() -> None:
    pieces = to_grid(entity([0, 40, 240, 280, 520, 560, 2000], [True] * 7, "id:1"))
    assert [(p.entity_id, p.start_frame, p.end_frame) for p in pieces] == [
        ("id:1", 0, 8),
        ("id:1#2", 13, 15),
        ("id:1#3", 50, 51),
    ]
    assert len(to_grid(entity([0, 40, 240, 280, 520, 560, 2000]), max_gap_s=2.0)) == 1


def test_a_box_without_area_is_taken_from_the_boxes_around_it() -> None:
    face = entity([0, 40, 80, 120], [False, True, False, True])
    face.boxes_xyxy[1] = [0.9, 0.9, 0.9, 0.9]
    face.boxes_xyxy[3, 3] = 0.0
    (piece,) = to_grid(face)
    np.testing.assert_allclose(piece.boxes_xyxy[:, 0], [0, 0.004, 0.008, 0.008], atol=1e-6)
    assert piece.speaking is not None
    assert piece.speaking.tolist() == [False, True, False, True]
    face.boxes_xyxy[:] = 0.5
    assert to_grid(face)[0].boxes_xyxy.tolist() == [[0.5] * 4] * 4  # nothing to go by: the extraction names the face


def test_one_row_is_one_frame_and_unlabeled_stays_unlabeled() -> None:
    (piece,) = to_grid(entity([61]))
    assert (piece.start_frame, piece.num_frames, piece.speaking) == (2, 1, None)


def test_the_nearest_frame_of_a_tie_is_the_earlier() -> None:
    assert [nearest_frame(time) for time in (0, 19, 20, 21, 60, 61, 900_020)] == [0, 0, 0, 1, 1, 2, 22_500]


def test_a_piece_never_takes_the_name_of_another_entity() -> None:
    apart = entity([0, 40, 1000], entity_id="a")
    assert [t.entity_id for t in film_on_grid([apart, entity([0], entity_id="a#3")])] == ["a", "a#2", "a#3"]
    with pytest.raises(AvfusionError, match="'a#2' like another entity"):
        film_on_grid([apart, entity([0], entity_id="a#2")])


@pytest.mark.parametrize(("step_ms", "apart"), [(500, "0.50"), (1000, "1.00"), (40_000, "40.00")])
def test_rows_that_mostly_stand_farther_apart_than_a_gap_are_refused(step_ms: int, apart: str) -> None:
    times = list(range(0, 11 * step_ms, step_ms))
    with pytest.raises(UsageError, match=rf"rows of a face stand {apart} s apart; more than --max-gap 0.2 begins"):
        film_on_grid([entity(times)])
    (piece,) = film_on_grid([entity(times)], max_gap_s=step_ms / 1000)
    assert piece.num_frames == 10 * step_ms // 40 + 1
    assert len(film_on_grid([entity([0, 40, 80, 3000, 3040, 9000])])) == 3  # gaps alone tell no rate
