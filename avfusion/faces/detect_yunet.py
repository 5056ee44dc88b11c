"""YuNet in OpenCV, with a weights file of the user's.

The file is checked before it is opened: a page that tells of an error, or a pointer of git's large file storage in its
place, is the usual mishap of such a download, and OpenCV's message would not say so.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import UsageError
from avfusion.faces.detect import YUNET_PIP, YUNET_URL, ScaledDetector
from avfusion.files import sha256_of

_OVERLAP = 0.3  # boxes that overlap more are one face
_MOST = 5000


class YuNetDetector(ScaledDetector):
    """The network of 2023 by Wu, Peng and Yu (https://github.com/opencv/opencv_zoo, MIT).

    Args:
        weights: the ONNX file.
        weights_sha256: what it must be.
        longest_side_px: see :class:`avfusion.faces.detect.Detector`.
        min_confidence: likewise.

    Raises:
        UsageError: OpenCV or the file is missing, or it is another file.
    """

    name = "yunet"

    def __init__(self, weights: Path, weights_sha256: str, longest_side_px: int, min_confidence: float) -> None:
        super().__init__(longest_side_px, min_confidence)
        check_weights(weights, weights_sha256)
        try:
            import cv2

            self._network = cv2.FaceDetectorYN.create(
                str(weights), "", (320, 320), max(min_confidence, 0.01), _OVERLAP, _MOST
            )
        except (ImportError, AttributeError) as error:
            raise UsageError(f"YuNet needs OpenCV 4.10 or later ({error}): {YUNET_PIP}") from error
        except cv2.error as error:
            raise UsageError(f"{weights}: OpenCV {cv2.__version__} cannot open it as YuNet's weights") from error

    def _detect(self, picture_rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
        height, width = picture_rgb.shape[:2]
        self._network.setInputSize((width, height))
        _, found = self._network.detect(np.ascontiguousarray(picture_rgb[..., ::-1]))
        if found is None:
            return np.zeros((0, 5), dtype=np.float32)
        boxes = np.concatenate([found[:, :4], found[:, 14:15]], axis=1).astype(np.float32)  # between: eyes, nose, mouth
        boxes[:, 2:4] += boxes[:, :2]
        return boxes


def check_weights(weights: Path, weights_sha256: str) -> None:
    """Refuses a file that is not the one expected.

    Raises:
        UsageError: it is missing or another one.
    """
    if not weights.is_file():
        raise UsageError(f"{weights}: no such file; download YuNet's weights from {YUNET_URL}")
    found = sha256_of(weights)
    if found == weights_sha256.lower():
        return
    with weights.open("rb") as file:
        start = file.read(64)
    what = f"is another file than expected ({weights.stat().st_size} bytes)"
    if start.startswith(b"version https://git-lfs"):
        what = "is a git-lfs pointer, not the weights themselves"
    elif start.lstrip().lower().startswith((b"<!doctype", b"<html")):
        what = "is a web page, not the weights"
    raise UsageError(
        f"{weights} {what}: sha256 {found}, expected {weights_sha256}; download {YUNET_URL} (from "
        "Python weights_sha256 admits weights of your own)"
    )
