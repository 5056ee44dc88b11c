"""Draws what was found onto the pictures of a film: a box and a label for each face, and a strip below the picture.

A face that speaks has a thick box and a label filled with the colour of its score; one that does not, a thin box and a
dark label. A box is dashed where its face was looked for and not found. Colours are those of ``score_colors.py``; dark
borders keep them apart from any picture. The strip tells the time, the colours and who speaks, and hides nothing.

Shapes: pictures ``(H, W, 3)`` RGB uint8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.inference.outputs.drawing import fill, frame_box, line_height, paste, text_patch, text_width
from avfusion.inference.outputs.score_colors import DARK, LIGHT, score_color, score_colors

_QUIET = np.array((150, 156, 163), dtype=np.uint8)  # of text that matters less


@dataclass(frozen=True)
class ShownFace:
    """A face in one frame.

    Attributes:
        name: of its track.
        box_xyxy_px: in pixels of the picture that is drawn on; may reach beyond it.
        score: 0..1.
        speaking: it speaks.
        missed: it was looked for and not found; the box is interpolated.
    """

    name: str
    box_xyxy_px: NDArray[np.float64]
    score: float
    speaking: bool
    missed: bool


class Painter:
    """Draws on the pictures of one film.

    Args:
        width: of its pictures in pixels.
        height: likewise.
        threshold: where speech starts, a mark on the colour scale.
    """

    def __init__(self, width: int, height: int, threshold: float) -> None:
        self.width, self.height, self.threshold = width, height, threshold
        longest = max(width, height)
        self.size_px = max(11, round(longest / 58))
        self.line_px = max(2, round(longest / 420))
        strip = line_height(self.size_px) + 2 * max(2, self.size_px // 4)
        self.strip_px = strip + (strip + height) % 2

    def paint(self, picture: NDArray[np.uint8], frame: int, faces: Sequence[ShownFace]) -> NDArray[np.uint8]:
        """Draws one frame.

        Args:
            picture: ``(H, W, 3)``; is drawn on.
            frame: its number in the film.
            faces: who is seen; those that speak lie on top.

        Returns:
            ``(H + strip, W, 3)`` the picture with the strip below.
        """
        ordered = sorted(faces, key=lambda face: face.speaking)
        for face in ordered:
            self._box(picture, face)
        taken: list[tuple[int, int, int, int]] = []
        for face in reversed(ordered):
            self._label(picture, face, taken)
        return np.concatenate([picture, self._strip(frame, faces)])

    def _box(self, picture: NDArray[np.uint8], face: ShownFace) -> None:
        x1, y1, x2, y2 = (round(float(side)) for side in face.box_xyxy_px)
        box = (x1, y1, max(x2, x1 + 1), max(y2, y1 + 1))
        width = self.line_px + (self.line_px if face.speaking else 0)
        dash = 5 * self.line_px if face.missed else 0
        frame_box(picture, box, width, score_color(face.score), DARK, dash)

    def _label(self, picture: NDArray[np.uint8], face: ShownFace, taken: list[tuple[int, int, int, int]]) -> None:
        x1, y1, x2, y2 = (round(float(side)) for side in face.box_xyxy_px)
        if x2 <= 0 or y2 <= 0 or x1 >= self.width or y1 >= self.height:
            return  # nothing of it is in the picture
        patch = self._label_patch(face)
        place = self._place(patch.shape[1], patch.shape[0], (x1, y1, x2, y2), taken)
        taken.append((*place, place[0] + patch.shape[1], place[1] + patch.shape[0]))
        paste(picture, patch, *place)

    def _label_patch(self, face: ShownFace) -> NDArray[np.uint8]:
        """The label: its name and score, between dark borders."""
        color = score_color(face.score)
        text = f"{_shortened(face.name)} {face.score:.2f}"
        if face.speaking:
            ink, paper = (DARK, color)
        else:
            ink, paper = (LIGHT, DARK)
        inner = text_patch(text, self.size_px, ink.tobytes(), paper.tobytes())
        patch = np.pad(inner, ((1, 1), (1, 1), (0, 0)))
        patch[0], patch[-1], patch[:, 0], patch[:, -1] = DARK, DARK, DARK, DARK
        if not face.speaking:
            patch[-1 - self.line_px : -1, 1:-1] = color
        return patch

    def _place(
        self, width: int, height: int, box: tuple[int, int, int, int], taken: Sequence[tuple[int, int, int, int]]
    ) -> tuple[int, int]:
        """Where a label goes: above its box, else below, else inside; where nothing is covered by it, if there is."""
        x1, y1, x2, y2 = box
        most_x, most_y = max(self.width - width, 0), max(self.height - height, 0)
        x = min(max(x1 - 1, 0), most_x)
        rows = [y1 - height, y2 + 1, y1 + self.line_px, y2 - height - self.line_px]
        spots = [(x, y) for y in rows if 0 <= y <= most_y]
        spots += [(min(max(x2 + 1 - width, 0), most_x), y) for y in rows if 0 <= y <= most_y]
        spots = spots or [(x, min(max(y1, 0), most_y))]  # higher than the picture
        for left, top in spots:
            if not any(
                left < right_ and left + width > left_ and top < bottom_ and top + height > top_
                for left_, top_, right_, bottom_ in taken
            ):
                return left, top
        return spots[0]

    def _strip(self, frame: int, faces: Sequence[ShownFace]) -> NDArray[np.uint8]:
        """The strip ``(strip_px, W, 3)``; what does not fit into a narrow one is left out, the time last."""
        strip = np.empty((self.strip_px, self.width, 3), dtype=np.uint8)
        strip[:] = DARK
        top = (self.strip_px - line_height(self.size_px)) // 2
        left = self._write(strip, f"{_clock(frame)}", 0, top, LIGHT)
        left = self._write(strip, f"frame {frame}", left, top, _QUIET)
        scale_px = 8 * self.size_px
        if left + 1.6 * scale_px < 0.6 * self.width:
            left = self._scale(strip, left + self.size_px, top, scale_px)
        room = self.width - left - self.size_px
        text = self._speakers([face.name for face in faces if face.speaking], room)
        patch = text_patch(text, self.size_px, LIGHT.tobytes(), DARK.tobytes())
        if patch.shape[1] <= room + self.size_px:
            paste(strip, patch, self.width - patch.shape[1], top)
        return strip

    def _scale(self, strip: NDArray[np.uint8], left: int, top: int, width: int) -> int:
        """The colours from 0 to 1 with a mark at the threshold; returns where it ends."""
        left = self._write(strip, "0", left, top, _QUIET)
        middle, half = self.strip_px // 2, max(3, self.size_px // 3)
        strip[middle - half : middle + half, left : left + width] = score_colors(np.linspace(0, 1, width))
        mark = left + round(self.threshold * (width - 1))
        fill(strip, mark - 1, middle - half - 2, mark + 1, middle + half + 2, LIGHT)
        return self._write(strip, "1", left + width, top, _QUIET)

    def _speakers(self, names: Sequence[str], room: int) -> str:
        """Who speaks, as many names as there is room for."""
        if not names:
            return "nobody speaks"
        for count in range(len(names), 0, -1):
            more = f" +{len(names) - count}" if count < len(names) else ""
            text = f"speaking: {', '.join(_shortened(name) for name in names[:count])}{more}"
            if text_width(text, self.size_px) <= room:
                return text
        return f"{len(names)} speaking"

    def _write(self, strip: NDArray[np.uint8], text: str, left: int, top: int, ink: NDArray[np.uint8]) -> int:
        patch = text_patch(text, self.size_px, ink.tobytes(), DARK.tobytes())
        paste(strip, patch, left, top)
        return left + int(patch.shape[1])


def _shortened(name: str) -> str:
    """A name that fits into a label: of a long one the end, which tells tracks of a film apart."""
    return name if len(name) <= 16 else f"…{name[-15:]}"


def _clock(frame: int) -> str:
    """Minutes, seconds and hundredths of a frame."""
    hundredths = frame * 100 // VIDEO_HZ
    hours, minutes = divmod(hundredths // 6000, 60)
    seconds = f"{hundredths % 6000 // 100:02d}.{hundredths % 100:02d}"
    return f"{hours}:{minutes:02d}:{seconds}" if hours else f"{minutes}:{seconds}"
