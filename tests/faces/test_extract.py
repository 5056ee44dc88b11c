"""Facts about cutting faces out of a film: the right pictures, the rule of whole tracks, nothing beyond the end."""

from __future__ import annotations

import itertools
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.errors import AvfusionError
from avfusion.faces.crop import crop_faces
from avfusion.faces.extract import extract_tracks
from avfusion.media.decode import read_retimed
from avfusion.tracks import GridTrack

NUM_FRAMES = 40


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 frames; in frame ``i`` the left half is ``20 + 5 i`` grey and the right half textured."""
    path = tmp_path_factory.mktemp("film") / "-x.mkv"
    rng = np.random.default_rng(0)
    texture = rng.integers(60, 200, (64, 48)).astype(np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "ultrafast", "crf": "8", "bf": "0"})
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for index in range(NUM_FRAMES):
            picture = np.empty((64, 96), dtype=np.uint8)
            picture[:, :48], picture[:, 48:] = 20 + 5 * index, np.roll(texture, index, axis=0)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="gray").reformat(format="yuv420p")))
        container.mux(stream.encode(None))
    return path


def track(entity_id: str, start: int, num_frames: int, left: float = 0.1, size: float = 0.2) -> GridTrack:
    boxes = np.tile(np.array([left, 0.3, left + size, 0.6], dtype=np.float32), (num_frames, 1))
    boxes[:, [0, 2]] += 0.002 * np.arange(num_frames, dtype=np.float32)[:, None]
    return GridTrack(entity_id, start, boxes)


def crops_of(film: Path, tracks: list[GridTrack], size: int) -> dict[str, NDArray[np.uint8]]:
    """All crops of each track, which must come in their order."""
    crops: dict[str, list[NDArray[np.uint8]]] = {}
    for piece, index, crop in extract_tracks(film, tracks, size):
        assert index == len(crops.setdefault(piece.entity_id, []))
        crops[piece.entity_id].append(crop)
    return {entity_id: np.stack(some) for entity_id, some in crops.items()}


def test_crops_equal_those_of_the_whole_film_in_memory(film: Path) -> None:
    tracks = [
        track("late", 20, 20, 0.6),
        track("whole", 0, NUM_FRAMES, 0.5),
        track("one", 7, 1),
        track("over", 3, 9, -0.1),
    ]
    found = crops_of(film, tracks, 32)
    frames = read_retimed(film).frames
    for piece in tracks:
        boxes_px = piece.boxes_xyxy.astype(np.float64) * np.array([96, 64, 96, 64])
        expected = crop_faces(frames[piece.start_frame : piece.end_frame], boxes_px, 32)
        np.testing.assert_array_equal(found[piece.entity_id], expected)


def test_each_crop_shows_its_own_frame(film: Path) -> None:
    (crops,) = crops_of(film, [track("left", 5, 30, left=0.15, size=0.1)], 16).values()
    level: NDArray[np.float64] = crops[:, 6:10, 6:10].mean(axis=(1, 2))
    np.testing.assert_allclose(level, 20 + 5 * np.arange(5, 35), atol=2)


def test_crops_come_one_by_one_while_the_film_runs(film: Path) -> None:
    found = extract_tracks(film, [track("a", 2, 3), track("b", 3, 30)], 16)
    order = [(piece.entity_id, index) for piece, index, _ in itertools.islice(found, 6)]
    assert order == [("a", 0), ("a", 1), ("b", 0), ("a", 2), ("b", 1), ("b", 2)]


def test_a_face_whose_boxes_have_no_area_is_named(film: Path) -> None:
    nowhere = GridTrack("flat:1", 3, np.tile(np.array([0.2, 0.3, 0.2, 0.6], dtype=np.float32), (5, 1)))
    with pytest.raises(AvfusionError, match=r"face 'flat:1' at 0\.12 s: box 0 is .* expected finite x1 < x2"):
        list(extract_tracks(film, [nowhere], 16))


def test_a_stamp_rounded_to_the_frame_after_the_last_shows_the_last_picture(film: Path) -> None:
    (crops,) = crops_of(film, [track("end", 35, 6, left=0.15, size=0.1)], 16).values()
    np.testing.assert_allclose(crops[5].astype(int), crops[4].astype(int), atol=2)


@pytest.mark.parametrize(("start", "num_frames", "until"), [(35, 7, "1.64"), (500, 2, "20.04")])
def test_a_track_beyond_the_end_is_an_error_that_names_it(film: Path, start: int, num_frames: int, until: str) -> None:
    with pytest.raises(AvfusionError, match=rf"face 'late:1' is annotated until {until} s, .* ends at 1\.60 s"):
        list(extract_tracks(film, [track("good", 0, 3), track("late:1", start, num_frames)], 16))
