"""Draws the face of a synthetic talker: grey crops with a mouth, eyes and a head that move.

The head at rest is drawn once on a canvas somewhat finer than the crop, then resampled for every frame with the sway,
zoom, roll and jaw of that frame; eyes and mouth are drawn fresh on top. All edges are anti-aliased signed distances.

Coordinates are the face units of ``synthetic_face``. Shapes: ``T`` frames, ``N x N`` crop pixels, ``M x M`` canvas
pixels; grey levels are float32 in 0..255 until the very end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.data.synthetic_face import Face, HeadMovement
from avfusion.data.synthetic_script import MouthMovement

Array = NDArray[np.floating[Any]]

_VIEW = 1.12  # the crop shows face units -1.12..1.12
_CANVAS = 1.45  # the canvas reaches further, for sway and zoom
_CANVAS_DENSITY = 1.4  # canvas pixels per crop pixel
_MOUTH_V = 0.50
_EYE_U, _EYE_V = 0.31, -0.14


def _cover(distance: Array, edge: float) -> Array:
    """Share of a pixel inside a shape, from the signed distance to its outline (negative inside)."""
    covered: Array = np.clip(np.float32(0.5) - distance / np.float32(edge), 0, 1)
    return covered


def _ellipse(u: Array, v: Array, half_width: Array | float, half_height: Array | float) -> Array:
    """Signed distance to an ellipse around the origin: exact on its outline, close to it near by."""
    along, down = u / half_width, v / half_height
    reach = np.sqrt(along * along + down * down)
    along, down = along / half_width, down / half_height
    distance: Array = reach * (reach - 1) / np.sqrt(along * along + down * down + np.float32(1e-6))
    return distance


def _texture(rng: np.random.Generator, size: int, cells: int) -> Array:
    """``(size, size)`` smooth random field of about unit size, with ``cells`` bumps across."""
    knots = rng.standard_normal((cells + 1, cells + 1)).astype(np.float32)
    position = np.linspace(0, cells - 1e-3, size, dtype=np.float32)
    low = position.astype(np.intp)
    blend = position - low.astype(np.float32)
    blend = blend * blend * (3 - 2 * blend)
    rows = knots[low] * (1 - blend)[:, None] + knots[low + 1] * blend[:, None]
    field: Array = rows[:, low] * (1 - blend) + rows[:, low + 1] * blend
    return field


class _Canvas:
    """The head at rest without eyes and mouth: ``(M, M)`` grey levels, and how far they hide the background."""

    def __init__(self, face: Face, rng: np.random.Generator, size: int) -> None:
        axis = np.linspace(-_CANVAS, _CANVAS, size, dtype=np.float32)
        self.u, self.v = np.broadcast_arrays(axis[None, :], axis[:, None])
        self.side = np.abs(self.u)  # a face is the same on both sides
        self.edge = 1.5 * 2 * _CANVAS / size
        self.grey = np.zeros((size, size), np.float32)
        self.opacity = np.zeros((size, size), np.float32)
        self._draw_hair_and_body(face, rng)
        self._draw_skin(face, rng)
        self._draw_features(face)

    def paint(self, level: Array | float, cover: Array) -> None:
        self.grey += (level - self.grey) * cover
        self.opacity += (1 - self.opacity) * cover

    def darken(self, share: float, cover: Array) -> None:
        self.grey *= 1 - np.float32(share) * cover

    def _draw_hair_and_body(self, face: Face, rng: np.random.Generator) -> None:
        u, v, side, edge = self.u, self.v, self.side, self.edge
        self.strands = face.hair * (1 + 0.15 * _texture(rng, len(u), 14))
        self.cap = _ellipse(u, v + 0.1, face.face_width + face.hair_side, 0.92 + face.hair_top)
        falling = np.maximum(side - face.face_width - face.hair_side, -v - 0.1)
        self.paint(self.strands, _cover(np.maximum(np.minimum(self.cap, falling), v - face.hair_length), edge))
        self.paint(0.7 * face.skin, _cover(np.maximum(side - 0.4, 0.3 - v), edge))  # neck, in the shadow of the chin
        self.paint(face.cloth, _cover(1.3 - v - 0.2 * side, edge))
        if face.hair_length < 0.3:  # ears show
            self.paint(0.85 * face.skin, _cover(_ellipse(side - face.face_width, v + 0.05, 0.09, 0.2), edge))

    def _draw_skin(self, face: Face, rng: np.random.Generator) -> None:
        u, v, side = self.u, self.v, self.side
        jaw = face.face_width * (1 - 0.2 * np.clip(v - 0.1, 0, 1) ** 1.5)
        shading = 1.06 - 0.22 * (u / face.face_width) ** 2 - 0.06 * v + 0.02 * _texture(rng, len(u), 9)
        self.oval = _cover(_ellipse(u, v, jaw, 1.0), self.edge)
        self.paint(face.skin * shading, self.oval)
        self.darken(0.18, _cover(_ellipse(side - _EYE_U, v - _EYE_V + 0.03, 0.24, 0.17), 0.15))  # eye sockets
        self.darken(0.08, _cover(_ellipse(side - 0.44, v - 0.38, 0.1, 0.2), 0.2))  # below the cheek bones
        chin_and_cheeks = 0.42 - v - 0.5 * np.clip(side - 0.3, 0, 1)  # the beard reaches higher at the sides
        self.darken(face.beard, self.oval * _cover(chin_and_cheeks, 0.15))

    def _draw_features(self, face: Face) -> None:
        u, v, side, edge = self.u, self.v, self.side, self.edge
        tip_v = 0.2 * face.nose_length
        ridge = np.maximum(np.abs(u - 0.09) - 0.04 - 0.06 * (v + 0.2), np.abs(v - tip_v / 2 + 0.05) - tip_v / 2 - 0.1)
        self.darken(0.12, _cover(ridge, 0.1))
        self.darken(0.2, _cover(_ellipse(u, v - tip_v - 0.05, 0.16, 0.04), 0.06))  # shadow below the nose
        self.darken(0.45, _cover(_ellipse(side - 0.08, v - tip_v - 0.02, 0.045, 0.028), edge))  # nostrils
        arch = v - face.brow_height - 1.2 * (side - _EYE_U) ** 2
        brow = _ellipse(side - _EYE_U, arch, 0.2, face.brow_weight)
        self.paint(min(face.hair, 0.55 * face.skin), _cover(brow, edge))
        fringe = np.maximum(v - face.hairline - 0.35 * (side - 0.2) ** 2, self.cap)
        self.paint(self.strands, _cover(fringe, edge) * self.oval)
        if face.glasses:
            rims = np.abs(_ellipse(side - _EYE_U, v - _EYE_V, 0.25, 0.19)) - 0.018
            bridge = np.maximum(np.abs(v - _EYE_V + 0.05) - 0.018, side - 0.08)
            self.darken(face.glasses, _cover(np.minimum(rims, bridge), edge))


def _resample(canvas: Array, u: Array, v: Array) -> Array:
    """Bilinear look-up of a ``(C, M, M)`` canvas at ``(T, N, N)`` face coordinates; returns ``(C, T, N, N)``."""
    size = canvas.shape[1]
    scale = np.float32((size - 1) / (2 * _CANVAS))
    x = np.clip((u + np.float32(_CANVAS)) * scale, 0, np.float32(size - 1.01))
    y = np.clip((v + np.float32(_CANVAS)) * scale, 0, np.float32(size - 1.01))
    left, top = x.astype(np.int32), y.astype(np.int32)
    x -= left.astype(np.float32)
    y -= top.astype(np.float32)
    corner = top * size + left
    planes = []
    for plane in canvas.reshape(len(canvas), -1):
        upper = plane.take(corner)
        upper += (plane.take(corner + 1) - upper) * x
        lower = plane.take(corner + size)
        lower += (plane.take(corner + size + 1) - lower) * x
        planes.append(upper + (lower - upper) * y)
    return np.stack(planes)


def _per_frame(track: NDArray[np.float64]) -> Array:
    """``(T,)`` to ``(T, 1, 1)``, ready to meet pixels."""
    return track.astype(np.float32)[:, None, None]


def _pixels_around(size: int, u_low: float, u_high: float, v_low: float, v_high: float) -> tuple[slice, slice]:
    """Crop rows and columns that hold a region of the face, with room for the head's movement."""
    room = 0.17
    limits = [(edge / _VIEW + 1) / 2 * size for edge in (v_low - room, v_high + room, u_low - room, u_high + room)]
    top, bottom, left, right = (int(np.clip(limit, 0, size)) for limit in limits)
    return slice(top, bottom + 1), slice(left, right + 1)


def _draw_eyes(grey: Array, u: Array, v: Array, face: Face, head: HeadMovement, edge: float) -> None:
    """Paints both eyes onto ``(T, n, m)`` pixels in place."""
    side, down = np.abs(u) - np.float32(_EYE_U), v - np.float32(_EYE_V)
    open_share = 1 - _per_frame(head.lids)
    eye = _cover(_ellipse(side, down, 0.165 * face.eye_size, 0.085 * face.eye_size * open_share + 0.012), edge)
    along = u - np.sign(u) * np.float32(_EYE_U) - _per_frame(head.gaze)
    iris = _cover(np.sqrt(along * along + down * down) - np.float32(0.075), edge)
    white = 0.6 * face.skin + 85
    level = white + (face.iris - white) * iris
    level = 0.45 * face.skin + (level - 0.45 * face.skin) * open_share  # shut lids meet in a dark line of lashes
    grey += (level - grey) * eye


def _draw_mouth(grey: Array, u: Array, v: Array, face: Face, mouth: MouthMovement, edge: float) -> None:
    """Paints lips, the dark between them and a row of teeth onto ``(T, n, m)`` pixels in place."""
    opening, width = _per_frame(mouth.opening), _per_frame(mouth.width)
    half_width = face.mouth_size * (0.2 + 0.15 * width - 0.03 * opening)
    half_height = face.mouth_size * 0.23 * opening
    lips = face.lip_weight * (1.15 - 0.3 * width)  # spread lips are thin, round lips are full
    across = u - _per_frame(mouth.sideways)
    # The upper lip hardly moves; the jaw opens the mouth downwards.
    down = v - np.float32(_MOUTH_V) - np.float32(0.8) * half_height
    lip_level = face.skin * (1 - face.lip_contrast)
    outer = _cover(_ellipse(across, down, half_width + 0.7 * lips, half_height + lips), edge)
    grey += (lip_level - grey) * outer
    inner = _cover(_ellipse(across, down, half_width, half_height + 0.014), edge)
    grey += (0.2 * face.skin + 4 - grey) * inner
    upper_teeth = _cover(down + 0.45 * half_height, edge) * np.clip(4 * opening - 0.5, 0, 1)
    grey += (0.55 * face.skin + 75 - grey) * inner * upper_teeth * np.float32(0.75)


def _soften(grey: Array, share: float) -> Array:
    """Blurs ``(T, N, N)`` pictures: each pixel takes ``share`` from its neighbors along rows, then along columns."""
    side, middle = np.float32(share / 2), np.float32(1 - share)
    padded = np.pad(grey, ((0, 0), (1, 1), (1, 1)), mode="edge")
    rows = padded[:, 1:-1] * middle + (padded[:, :-2] + padded[:, 2:]) * side
    softened: Array = rows[:, :, 1:-1] * middle + (rows[:, :, :-2] + rows[:, :, 2:]) * side
    return softened


def render_face(
    rng: np.random.Generator, face: Face, head: HeadMovement, mouth: MouthMovement, crop_size: int
) -> NDArray[np.uint8]:
    """Draws one person over ``T`` frames.

    Args:
        rng: source of the sensor noise.
        face: who it is.
        head: how head and eyes move.
        mouth: how the mouth moves.
        crop_size: side of the pictures in pixels.

    Returns:
        ``(T, crop_size, crop_size)`` uint8 grey crops.
    """
    textures = np.random.Generator(np.random.PCG64(face.texture_seed))
    canvas = _Canvas(face, textures, round(_CANVAS_DENSITY * crop_size * _CANVAS / _VIEW))
    background = face.background + 22 * _texture(textures, crop_size, 4)

    axis = (((np.arange(crop_size) + 0.5) / crop_size * 2 - 1) * _VIEW).astype(np.float32)
    x = axis[None, None, :] - _per_frame(head.shift_u)
    y = axis[None, :, None] - _per_frame(head.shift_v)
    cosine, sine = _per_frame(np.cos(head.roll) / head.zoom), _per_frame(np.sin(head.roll) / head.zoom)
    u, v = cosine * x + sine * y, cosine * y - sine * x
    # A dropping jaw stretches what lies below the mouth and swings with it.
    below = np.maximum(v - np.float32(_MOUTH_V), 0)
    jaw_v = v - below * _per_frame(0.2 * mouth.opening / (1 + 0.2 * mouth.opening))
    jaw_u = u - _per_frame(mouth.sideways) * np.minimum(4 * below, 1)
    head_grey, opacity = _resample(np.stack([canvas.grey, canvas.opacity]), jaw_u, jaw_v)
    # Where a soft edge met nothing the canvas holds level times opacity: what is missing is that much background.
    grey = head_grey + background * (1 - opacity)

    edge = 1.3 * 2 * _VIEW / crop_size
    rows, columns = _pixels_around(crop_size, -0.5, 0.5, _EYE_V - 0.1, _EYE_V + 0.1)
    _draw_eyes(grey[:, rows, columns], u[:, rows, columns], v[:, rows, columns], face, head, edge)
    rows, columns = _pixels_around(crop_size, -0.5, 0.5, _MOUTH_V - 0.1, _MOUTH_V + 0.5)
    _draw_mouth(grey[:, rows, columns], u[:, rows, columns], v[:, rows, columns], face, mouth, edge)

    light = 1 + face.light_right * axis[None, None, :] + face.light_down * axis[None, :, None]
    grey = _soften(grey * light * _per_frame(head.exposure), face.blur)
    grey += np.float32(face.grain) * rng.standard_normal(grey.shape, dtype=np.float32)
    crops: NDArray[np.uint8] = np.clip(grey + np.float32(0.5), 0, 255).astype(np.uint8)
    return crops
