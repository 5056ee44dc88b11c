"""Two frame rates meet as published, and only boxes that overlap by more than a half are one face."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import AvfusionError
from avfusion.evaluation.protocols.columbia_labels import read_columbia
from avfusion.evaluation.protocols.columbia_match import (
    covered_share,
    frame_at_25,
    intersection_over_union,
    match,
    scores_by_frame,
)
from tests.evaluation.protocols.columbia_files import score_table, write_labels


@pytest.mark.parametrize(
    ("film_frame", "frame"),
    [
        (0, 0),
        (1, 0),  # 1 / 29.97 * 25 = 0.834
        (2, 1),  # 1.668
        (5, 4),  # 4.170
        (6, 5),  # 5.005
        (30, 25),  # 25.025
        (1198, 999),  # 999.332
        (1199, 1000),  # 1000.167
        (2997, 2500),  # 2500.000: exactly 100 s
        (25472, 21247),  # 21247.914
    ],
)
def test_film_frames_at_29_97_become_frames_at_25(film_frame, frame):
    assert frame_at_25(np.array([film_frame])).tolist() == [frame]


def test_whole_numbers_round_as_the_published_floats_do():
    film_frames = np.arange(0, 200_000)  # 111 minutes
    assert frame_at_25(film_frames).tolist() == [int(n / 29.97 * 25) for n in film_frames.tolist()]


def test_the_two_overlaps_of_a_small_box_in_a_large_one():
    scored, annotated = np.array([[10.0, 10, 60, 60]]), np.array([[0.0, 0, 100, 100]])
    assert intersection_over_union(scored, annotated)[0] == pytest.approx(2500 / 10_000)
    assert covered_share(scored, annotated)[0] == 1.0  # the published code takes this for IoU


def test_boxes_apart_or_without_area_do_not_overlap():
    scored = np.array([[0.0, 0, 10, 10], [5.0, 5, 5, 20]])
    annotated = np.array([[10.0, 0, 20, 10], [0.0, 0, 10, 30]])
    for overlap in (intersection_over_union, covered_share):
        assert overlap(scored, annotated).tolist() == [0.0, 0.0]


def matched(folder, labels, rows, overlap=intersection_over_union):
    return match(read_columbia(write_labels(folder, labels)), scores_by_frame(score_table(rows)), overlap).tolist()


@pytest.mark.parametrize(("right_px", "found"), [(200, -1), (199, 0), (201, -1)])
def test_an_iou_of_exactly_a_half_is_no_match(tmp_path, right_px, found):
    # The annotated box is 100 x 100; the scored one of the same height is 200 wide: 10000 / 20000. All of these
    # fractions are rounded in binary.
    labels = {"bell": [(0, 0, 7, 100, 1)]}
    assert matched(tmp_path, labels, [(0, "a", (0, 7, right_px, 107), 0.9)]) == [found]


@pytest.mark.parametrize(("left_px", "found"), [(50, -1), (49, 0)])
def test_a_covered_share_of_exactly_a_half_is_no_match(tmp_path, left_px, found):
    labels = {"bell": [(0, 0, 7, 100, 1)]}  # the scored box reaches from left_px to left_px + 100
    rows = [(0, "a", (left_px, 7, left_px + 100, 107), 0.9)]
    assert matched(tmp_path, labels, rows, covered_share) == [found]


def test_the_best_of_two_boxes_is_taken_whatever_its_score(tmp_path):
    labels = {"bell": [(0, 0, 0, 100, 1)]}
    rows = [(0, "loose", (0, 0, 100, 60), 0.9), (0, "tight", (0, 0, 100, 90), 0.1)]  # IoU 0.6 and 0.9
    scores = scores_by_frame(score_table(rows))
    found = match(read_columbia(write_labels(tmp_path, labels)), scores, intersection_over_union)
    assert scores.score[found].tolist() == [0.1]


def test_one_scored_face_is_one_speaker_and_the_better_overlap_has_it(tmp_path):
    # IoU with bell 90 / 110, with boll 8000 / 12000: both above a half, so only one may have it.
    labels = {"bell": [(0, 0, 0, 100, 1)], "boll": [(0, 30, 0, 100, 1)]}
    rows = [(0, "a", (10, 0, 110, 100), 0.9)]
    assert matched(tmp_path, labels, rows) == [0, -1]


def test_the_loser_of_a_box_takes_its_second_best(tmp_path):
    # Box a is best for both (IoU 1 with bell, 90 / 110 with boll); boll is left with b, 70 / 130.
    labels = {"bell": [(0, 10, 0, 100, 1)], "boll": [(0, 20, 0, 100, 1)]}
    rows = [(0, "a", (10, 0, 110, 100), 0.9), (0, "b", (50, 0, 150, 100), 0.2)]
    assert matched(tmp_path, labels, rows) == [0, 1]


def test_two_film_frames_on_one_frame_use_the_same_scored_face(tmp_path):
    labels = {"bell": [(0, 0, 0, 100, 1), (1, 0, 0, 100, 0), (2, 0, 0, 100, 1)]}
    assert matched(tmp_path, labels, [(0, "a", (0, 0, 100, 100), 0.9)]) == [0, 0, -1]


def test_neither_order_of_rows_nor_names_of_tracks_matter(tmp_path):
    generator = np.random.default_rng(3)
    labels = {
        name: [(n, int(x), 50, 100, 1) for n, x in enumerate(generator.integers(0, 500, 60))]
        for name in ("bell", "boll", "sick")
    }
    lefts = generator.uniform(0, 500, 400)
    frames = generator.integers(0, 50, 400).tolist()
    rows = [(frames[i], f"t{i}", (x, 50, x + 110, 155), i / 400) for i, x in enumerate(lefts.tolist())]
    read = read_columbia(write_labels(tmp_path, labels))
    results = []
    for order in (np.arange(400), generator.permutation(400)):
        scores = scores_by_frame(score_table([rows[i] for i in order]))
        found = match(read, scores, intersection_over_union)
        results.append(np.where(found >= 0, scores.score[found], -1).tolist())
    assert results[0] == results[1]
    assert 0 < sum(score >= 0 for score in results[0]) < 180


def test_rows_between_frames_go_to_the_nearest_one_and_the_nearer_of_a_track_counts():
    # Frames 3.0, 3.25 and 3.75 (120, 130 and 150 ms): the second is farther from frame 3 than the first.
    box = (0, 0, 100, 100)
    rows = [(3.25, "a", box, 0.2), (3.0, "a", box, 0.1), (3.75, "a", box, 0.3), (3.25, "b", box, 0.4)]
    scores = scores_by_frame(score_table(rows))
    assert sorted(zip(scores.frame.tolist(), scores.score.tolist(), strict=True)) == [(3, 0.1), (3, 0.4), (4, 0.3)]
    assert (scores.num_off_grid, scores.num_superseded) == (3, 1)


BOX = (0, 0, 100, 100)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, "a", BOX, 0.1), (0, "a", BOX, 0.2)], r"pred\.csv: 1 duplicate rows.*'col' at 0\.000 s, 'a' \(line 2\)"),
        ([(0, "a", (0, 0, 64_000, 36_000), 0.1)], r"pred\.csv: the box of .*line 1.*fractions.*not pixels"),
        ([(0, "a", (50, 0, 10, 100), 0.1)], r"pred\.csv: the box of .*line 1.*x1, y1, x2, y2"),
    ],
)
def test_scores_that_cannot_be_matched_are_refused(rows, message):
    with pytest.raises(AvfusionError, match=message):
        scores_by_frame(score_table(rows))


def test_scores_of_two_videos_are_refused():
    both = score_table([(0, "a", BOX, 0.1), (0, "b", BOX, 0.1)])
    both.video_id[1] = "other"
    with pytest.raises(AvfusionError, match=r"pred\.csv: scores of 2 videos \('col', 'other'\)"):
        scores_by_frame(both)
