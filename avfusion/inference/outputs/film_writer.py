"""A film with sound that browsers play: H.264 ``yuv420p`` and AAC in MP4, its index in front, 25 pictures a second.

Pictures and sound are taken frame by frame, and nothing is held but what the encoders hold. No B-frames: picture ``n``
stands at ``n / 25`` s, and the sound begins at 0 (what the AAC encoder puts in front is cut by the file's edit list).

Shapes: pictures ``(H, W, 3)`` RGB uint8 of even size, sound ``(C, N)`` float32.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.files import whole_file

# superfast takes two thirds of the time of veryfast, which is most of what drawing a film costs; files are larger.
_PICTURE = {"crf": "22", "preset": "superfast", "bf": "0", "g": str(2 * VIDEO_HZ), "x264-params": "cpu-independent=1"}
_BITS_PER_S = {"mono": 96_000, "stereo": 160_000}
_UNLABELLED = 2  # of FFmpeg's colour properties


class FilmWriter:
    """Writes one film; see :func:`film_writer`.

    Args:
        container: PyAV's, open for writing.
        size: width and height, even.
        colors: PyAV's frame whose colour labels the film gets; its matrix is the one that made the RGB.
        sound: rate in Hz and layout (``mono``, ``stereo``); None for a film without sound.
    """

    def __init__(
        self, container: Any, size: tuple[int, int], colors: Any = None, sound: tuple[int, str] | None = None
    ) -> None:
        self._container = container
        self._picture = container.add_stream("libx264", rate=VIDEO_HZ, options=_PICTURE)
        self._picture.width, self._picture.height, self._picture.pix_fmt = *size, "yuv420p"
        context = self._picture.codec_context
        context.color_range = 1  # limited
        self._matrix = _UNLABELLED
        if colors is not None:
            context.colorspace = self._matrix = int(colors.colorspace or _UNLABELLED)
            context.color_primaries = getattr(colors, "color_primaries", _UNLABELLED)
            context.color_trc = getattr(colors, "color_trc", _UNLABELLED)
        self._sound: Any = None
        if sound is not None:
            rate_hz, layout = sound
            self._sound = container.add_stream("aac", rate=rate_hz, layout=layout)
            self._sound.bit_rate = _BITS_PER_S[layout]
        self.num_pictures = self._num_samples = 0

    def add(self, picture_rgb: NDArray[np.uint8], sound: NDArray[np.float32] | None = None) -> None:
        """Writes the next picture with the sound of its 40 ms."""
        import av

        frame = av.VideoFrame.from_ndarray(picture_rgb, format="rgb24")
        frame = frame.reformat(format="yuv420p", dst_colorspace=self._matrix, dst_color_range=1)
        frame.pts, frame.time_base = self.num_pictures, Fraction(1, VIDEO_HZ)
        self._container.mux(self._picture.encode(frame))
        self.num_pictures += 1
        if self._sound is not None and sound is not None:
            block = av.AudioFrame.from_ndarray(np.ascontiguousarray(sound), format="fltp", layout=self._sound.layout)
            block.sample_rate, block.time_base = self._sound.rate, Fraction(1, self._sound.rate)
            block.pts = self._num_samples
            self._container.mux(self._sound.encode(block))
            self._num_samples += sound.shape[1]

    def finish(self) -> None:
        """Writes what the encoders still hold."""
        for stream in (self._picture, self._sound):
            if stream is not None:
                self._container.mux(stream.encode(None))


@contextmanager
def film_writer(
    path: Path, size: tuple[int, int], colors: Any = None, sound: tuple[int, str] | None = None
) -> Iterator[FilmWriter]:
    """Opens a film to be written; it appears under its name, whole, when the block ends well.

    Args:
        path: an ``.mp4``; replaced if it is there.
        size: width and height, even.
        colors: as for :class:`FilmWriter`.
        sound: likewise.
    """
    import av

    options = {"movflags": "+faststart"}
    with (
        whole_file(path) as part,
        _writable(part) as place,
        av.open(f"file:{place}", "w", format="mp4", options=options) as container,
    ):
        writer = FilmWriter(container, size, colors, sound)
        yield writer
        writer.finish()


@contextmanager
def _writable(part: Path) -> Iterator[Path]:
    """A place that FFmpeg can name: to put the index in front it opens the file once more, by its name."""
    try:
        str(part).encode("utf-8")
    except UnicodeEncodeError:  # a folder whose name is no text: written elsewhere, then moved
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / "overlay.mp4"
            shutil.move(Path(folder) / "overlay.mp4", part)
    else:
        yield part
