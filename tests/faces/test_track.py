"""Facts about tracking, on planted people: identities, gaps, cuts, what is counted, and how often the detector runs."""

from __future__ import annotations

import numpy as np
import pytest

from avfusion.errors import UsageError
from avfusion.faces.track import track_faces
from avfusion.faces.track_records import (
    BETWEEN,
    DETECTED,
    MISSED,
    DetectedTrack,
    TrackReport,
    TrackSettings,
    counted,
)
from tests.faces.planted import SIDE, Person, Stage

CROSSING = {
    "pass each other": (lambda f: 20 + 4 * f, lambda f: 260 - 4 * f),
    "pass fast": (lambda f: 10 + 9 * f, lambda f: 300 - 9 * f),
    "meet and turn back": (lambda f: 20 + 4 * min(f, 55 - f), lambda f: 230 - 4 * min(f, 55 - f)),
    "one walks past a standing one": (lambda f: 120.0, lambda f: 10 + 4 * f),
}


def tracked(stage: Stage, settings: TrackSettings | None = None) -> tuple[list[DetectedTrack], TrackReport]:
    report = TrackReport()
    return list(track_faces(stage.pictures(), stage, settings, report)), report


@pytest.mark.parametrize("looks", [(1, 2), (1, 1)], ids=["unlike", "twins"])
@pytest.mark.parametrize("further_looks", [0.5, 0.0])
@pytest.mark.parametrize("every_frames", [1, 6])
@pytest.mark.parametrize("case", CROSSING)
def test_crossing_people_are_never_swapped(
    case: str, every_frames: int, further_looks: float, looks: tuple[int, int]
) -> None:
    if looks == (1, 1) and case == "pass fast" and every_frames == 6 and not further_looks:
        pytest.skip("twins that move further than their own size from look to look cannot be told")
    people = [Person(at, look) for at, look in zip(CROSSING[case], looks, strict=True)]
    stage = Stage(people, 56)
    tracks, report = tracked(stage, TrackSettings(every_frames, further_looks, shortest_frames=0))
    assert report.tracks >= 2
    for track in tracks:
        assert len(stage.whom(track)) == 1, (track.entity_id, track.start_frame, track.boxes_xyxy_px[:, 0])


def test_boxes_lie_on_lines_between_looks_and_every_frame_says_how_it_was_seen() -> None:
    stage = Stage([Person(lambda f: 20 + 2 * f, 1)], 40)
    (track,), report = tracked(stage, TrackSettings(every_frames=6, further_looks=0))
    assert stage.looks == [0, 6, 12, 18, 24, 30, 36, 39]  # every sixth, and the last
    assert np.flatnonzero(track.seen == DETECTED).tolist() == stage.looks
    assert (np.delete(track.seen, stage.looks) == BETWEEN).all()
    np.testing.assert_allclose(track.boxes_xyxy_px[:, 0], 20 + 2 * np.arange(40), atol=1e-4)
    np.testing.assert_allclose(track.times_s, np.arange(40) / 25)
    grid = track.on_grid(320, 120)
    np.testing.assert_allclose(grid.boxes_xyxy[0], [20 / 320, 40 / 120, 60 / 320, 80 / 120])
    assert (report.tracks, report.track_frames, report.missed_frames, report.looks) == (1, 40, 0, 8)


def test_a_short_gap_is_interpolated_and_marked_and_a_long_one_splits() -> None:
    gap = {(0, frame) for frame in range(20, 30)}
    stage = Stage([Person(lambda f: 50 + f, 1)], 60, gap)
    (track,), report = tracked(stage, TrackSettings(every_frames=1, longest_gap_frames=10))
    assert np.flatnonzero(track.seen == MISSED).tolist() == list(range(20, 30))
    np.testing.assert_allclose(track.boxes_xyxy_px[:, 0], 50 + np.arange(60), atol=1e-4)
    assert report.missed_frames == 10
    assert "10 boxes interpolated where the face was looked for and not found" in report.lines()
    tracks, _ = tracked(stage, TrackSettings(every_frames=1, longest_gap_frames=9))
    assert [(t.start_frame, t.num_frames) for t in tracks] == [(0, 20), (30, 30)]


def test_who_comes_and_goes_between_two_looks_is_found_to_the_frame() -> None:
    stage = Stage([Person(lambda f: 50.0 if 20 <= f < 45 else None, 1)], 80)
    (track,), report = tracked(stage)
    assert (track.start_frame, track.num_frames) == (20, 25)
    assert 0 < report.further_looks < 10


def test_further_looks_keep_to_their_allowance() -> None:
    flickering = {(0, frame) for frame in range(200) if frame % 2}
    stage = Stage([Person(lambda f: 50.0, 1)], 200, flickering)
    _, report = tracked(stage, TrackSettings(every_frames=5, further_looks=0.5))
    regular = report.looks - report.further_looks
    assert regular == 41
    assert report.further_looks <= 0.5 * regular + 5  # what was saved at the start: a stride
    assert len(stage.looks) == report.looks


def test_no_track_crosses_a_cut_and_the_shot_is_looked_at_to_its_last_frame() -> None:
    stage = Stage([Person(lambda f: 50.0, 1)], 80, wall=lambda frame: 100 if frame < 33 else 200)
    tracks, report = tracked(stage)
    assert [(t.shot, t.start_frame, t.num_frames) for t in tracks] == [(0, 0, 33), (1, 33, 47)]
    assert [cut.frame for cut in report.cuts] == [33]
    assert {32, 33} <= set(stage.looks)


def test_somebody_else_in_the_same_place_is_another_track() -> None:
    before = Person(lambda f: 50.0 if f < 40 else None, 1)
    after = Person(lambda f: 50.0 if f >= 40 else None, 2)
    tracks, _ = tracked(Stage([before, after], 80))
    assert [(t.start_frame, t.num_frames) for t in tracks] == [(0, 40), (40, 40)]


def test_short_tracks_are_dropped_and_counted_or_kept() -> None:
    stage = Stage([Person(lambda f: 50.0 if 20 <= f < 29 else None, 1), Person(lambda f: 200.0, 2)], 60)
    tracks, report = tracked(stage)
    assert [t.num_frames for t in tracks] == [60]
    assert (report.short, report.short_frames) == (1, 9)
    assert "dropped 1 track shorter than 10 frames (9 boxes)" in report.lines()
    tracks, report = tracked(stage, TrackSettings(shortest_frames=0))
    assert sorted(t.num_frames for t in tracks) == [9, 60]
    assert report.short == 0


def test_uncertain_faces_begin_no_track_and_are_counted() -> None:
    stage = Stage([Person(lambda f: 50.0, 1, confidence=0.6)], 30)
    tracks, report = tracked(stage)
    assert not tracks
    assert report.uncertain == report.looks == 6
    assert "left out 6 single detections, too uncertain to begin a track" in report.lines()
    assert not tracked(stage, TrackSettings(start_confidence=0.5))[0]  # it begins, and is dropped as a whole
    assert tracked(stage, TrackSettings(start_confidence=0.5))[1].weak == 1
    assert len(tracked(stage, TrackSettings(start_confidence=0.5, mean_confidence=0.5))[0]) == 1


def test_two_detections_of_one_face_are_one() -> None:
    class Twice(Stage):
        def __call__(self, picture_rgb):  # type: ignore[no-untyped-def]
            boxes = super().__call__(picture_rgb)
            shifted = boxes - np.array([SIDE / 8, 0, SIDE / 8, 0, 0.1], dtype=np.float32)
            return np.concatenate([boxes, shifted])

    (track,), report = tracked(Twice([Person(lambda f: 50 + f, 1)], 40))
    assert track.num_frames == 40
    assert report.split == 0


@pytest.mark.parametrize("num_frames", [0, 1, 2, 7])
def test_no_face_and_short_films_give_no_track(num_frames: int) -> None:
    tracks, report = tracked(Stage([], num_frames))
    assert not tracks
    assert report.frames == num_frames
    assert next(iter(report.lines())).startswith(f"0 face tracks (0 boxes) in {counted(num_frames, 'frame')},")


def test_a_film_of_one_frame_has_a_track_of_one_frame() -> None:
    (track,), _ = tracked(Stage([Person(lambda f: 50.0, 1)], 1), TrackSettings(shortest_frames=0))
    assert (track.start_frame, track.num_frames, track.seen.tolist()) == (0, 1, [DETECTED])


def test_pictures_are_let_go_while_the_film_runs() -> None:
    import weakref

    stage = Stage([Person(lambda f: 50.0, 1)], 150)
    alive: list[weakref.ref[np.ndarray]] = []
    most = 0

    def film():  # type: ignore[no-untyped-def]
        nonlocal most
        for picture in stage.pictures():
            own = picture.copy()
            alive.append(weakref.ref(own))
            most = max(most, sum(each() is not None for each in alive))
            yield own
            del own

    list(track_faces(film(), stage))
    assert most < 60


def test_settings_that_make_no_sense_are_refused() -> None:
    for settings in ({"every_frames": 0}, {"further_looks": -1.0}, {"shortest_frames": -1}):
        with pytest.raises(UsageError, match="expected a look"):
            TrackSettings(**settings)  # type: ignore[arg-type]
