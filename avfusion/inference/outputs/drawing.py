"""Lines, rectangles and text on pictures ``(H, W, 3)`` RGB uint8, in place; whatever lies outside is not drawn.

Text comes from matplotlib's DejaVu Sans, which lies beside every installation: no font has to be found.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

Picture = NDArray[np.uint8]
Color = NDArray[np.uint8]


def fill(picture: Picture, x1: int, y1: int, x2: int, y2: int, color: Color) -> None:
    """Fills ``x1 <= x < x2, y1 <= y < y2``."""
    picture[max(y1, 0) : max(y2, 0), max(x1, 0) : max(x2, 0)] = color


def paste(picture: Picture, patch: Picture, x: int, y: int) -> None:
    """Puts a patch with its left upper corner there."""
    height, width = patch.shape[:2]
    left, top = max(x, 0), max(y, 0)
    right, bottom = min(x + width, picture.shape[1]), min(y + height, picture.shape[0])
    if left < right and top < bottom:
        picture[top:bottom, left:right] = patch[top - y : bottom - y, left - x : right - x]


def frame_box(
    picture: Picture, box: tuple[int, int, int, int], width: int, color: Color, border: Color, dash: int = 0
) -> None:
    """Draws the four sides of a box, inwards from its edges, each stroke with a border of one pixel around it.

    Args:
        picture: to draw on.
        box: x1, y1, x2, y2; may reach beyond the picture.
        width: of the lines in pixels.
        color: of the lines.
        border: of what keeps them apart from the picture.
        dash: length of dashes in pixels; the gaps between them are half as long. 0: solid.
    """
    x1, y1, x2, y2 = box
    rows = ((y1, min(y1 + width, y2)), (max(y2 - width, y1), y2))
    columns = ((x1, min(x1 + width, x2)), (max(x2 - width, x1), x2))
    strokes = [(left, top, right, bottom) for top, bottom in rows for left, right in _dashes(x1, x2, dash)]
    strokes += [(left, top, right, bottom) for left, right in columns for top, bottom in _dashes(y1, y2, dash)]
    for left, top, right, bottom in strokes:
        fill(picture, left - 1, top - 1, right + 1, bottom + 1, border)
    for stroke in strokes:
        fill(picture, *stroke, color)


def _dashes(start: int, end: int, dash: int) -> list[tuple[int, int]]:
    """The dashes of a line, one at either end; the whole of one that is too short for two."""
    length = end - start
    if not dash or length < 3 * dash:
        return [(start, end)]
    count = round((length - dash) / (1.5 * dash))
    step = (length - dash) / count
    return [(start + round(number * step), start + round(number * step) + dash) for number in range(count + 1)]


@lru_cache(maxsize=1024)
def text_patch(text: str, size_px: int, ink: bytes, paper: bytes) -> Picture:
    """A line of text on a plain ground, with half a letter's room at its sides.

    Args:
        text: to be shown.
        size_px: of the letters.
        ink: RGB of the text, three bytes.
        paper: RGB of the ground.

    Returns:
        ``(height, width, 3)``; the height is that of the font, whatever the text is.
    """
    from PIL import Image, ImageDraw

    font = _font(size_px)
    margin = max(2, size_px // 3)
    width = round(font.getlength(text)) + 2 * margin
    height = line_height(size_px)
    image = Image.new("RGB", (width, height), tuple(paper))
    ImageDraw.Draw(image).text((margin, height // 2), text, fill=tuple(ink), font=font, anchor="lm")
    return np.asarray(image).copy()


def line_height(size_px: int) -> int:
    """Height of a patch of text."""
    return round(1.45 * size_px)


def text_width(text: str, size_px: int) -> int:
    """Width of the text alone, in pixels."""
    return round(_font(size_px).getlength(text))


@lru_cache(maxsize=8)
def _font(size_px: int) -> FreeTypeFont:
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans-Bold.ttf", size_px)
