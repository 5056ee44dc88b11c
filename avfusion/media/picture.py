"""A decoder's pictures made ready: deinterlaced, of one size, turned upright, as arrays or as frames to encode.

Shapes: ``(H, W)`` grey or ``(H, W, 3)`` RGB uint8; frames to encode are 8-bit ``yuv420p`` of even size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Deinterlacer:
    """Passes progressive pictures through; from the first interlaced one on, FFmpeg's bwdif fills the missing lines.

    One picture comes out for each that goes in, at its time, a little later than it went in. Only pictures that are
    flagged interlaced are changed.

    Attributes:
        used: whether any picture was interlaced.
    """

    def __init__(self) -> None:
        self.used = False
        self._graph: Any = None
        self._format: tuple[Any, ...] = ()

    def push(self, frame: Any) -> Iterator[Any]:
        """Takes a picture, yields those that are ready."""
        if self._graph is None and not frame.interlaced_frame:
            yield frame
            return
        kind = (frame.width, frame.height, frame.format.name, frame.time_base)
        if kind != self._format:
            yield from self.finish()
            self._graph, self._format, self.used = _bwdif(frame), kind, True
        self._graph.push(frame)
        yield from self._ready()

    def finish(self) -> Iterator[Any]:
        """Yields what is still inside."""
        if self._graph is not None:
            self._graph.push(None)
            yield from self._ready()
            self._graph = None

    def _ready(self) -> Iterator[Any]:
        import av

        while True:
            try:
                yield self._graph.pull()
            except (BlockingIOError, av.EOFError):
                return


def _bwdif(frame: Any) -> Any:
    from av.filter import Graph

    graph = Graph()
    source = graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base)
    graph.link_nodes(
        source, graph.add("bwdif", "mode=send_frame:parity=auto:deint=interlaced"), graph.add("buffersink")
    ).configure()
    return graph


def upright(frame: Any, color: bool, size: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """A picture as an array, turned as the file says.

    Args:
        frame: PyAV's.
        color: RGB instead of grey.
        size: width and height to scale the stored picture to; None leaves it.
    """
    pixel_format = "rgb24" if color else "gray"
    quarter_turns = round(frame.rotation / 90) % 4  # phones store sideways pictures and say so
    if size is not None and (frame.width, frame.height) != size:
        frame = frame.reformat(width=size[0], height=size[1], format=pixel_format)
    picture: NDArray[np.uint8] = frame.to_ndarray(format=pixel_format)
    return np.rot90(picture, quarter_turns) if quarter_turns else picture


def even_yuv420p(frame: Any, quarter_turns: int, size: tuple[int, int]) -> Any:
    """A picture as an 8-bit ``yuv420p`` frame of limited range and even size, turned upright.

    Args:
        frame: PyAV's, of any format.
        quarter_turns: counterclockwise.
        size: width and height of the stored pictures; one that differs is scaled.

    Returns:
        PyAV's frame; an odd height or width has its last row or column repeated.
    """
    import av
    from av.video.reformatter import ColorRange

    frame = frame.reformat(width=size[0], height=size[1], format="yuv420p", dst_color_range=ColorRange.MPEG)
    if quarter_turns % 4 == 0 and size[0] % 2 == 0 and size[1] % 2 == 0:
        return frame
    luma, *chroma = (np.rot90(_plane(plane), quarter_turns) for plane in frame.planes)
    height, width = luma.shape
    even = av.VideoFrame(width + width % 2, height + height % 2, "yuv420p")
    planes = [np.pad(luma, ((0, height % 2), (0, width % 2)), mode="edge"), *chroma]
    for plane, values in zip(even.planes, planes, strict=True):
        rows = np.zeros((plane.height, plane.line_size), dtype=np.uint8)
        rows[:, : plane.width] = values
        plane.update(rows)
    return even


def _plane(plane: Any) -> NDArray[np.uint8]:
    rows = np.frombuffer(plane, dtype=np.uint8).reshape(-1, plane.line_size)
    return rows[: plane.height, : plane.width]
