"""Shapes and textures the portrait is painted with, and the room behind it.

Shapes are signed distances (negative inside), turned into the share of each pixel they cover, which smooths their
edges. Coordinates are the face units of ``face`` or -1..1 across a picture; arrays are float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


def cover(distance: Array, edge: float) -> Array:
    """Share of a pixel inside a shape, from the signed distance to its outline (negative inside)."""
    covered: Array = np.clip(np.float32(0.5) - distance * np.float32(1 / edge), 0, 1)
    return covered


def bump(along: Array, down: Array, half_width: float, half_height: float) -> Array:
    """Gaussian hill around the origin, 1 at its top."""
    hill: Array = np.exp(-((along / half_width) ** 2) - (down / half_height) ** 2)
    return hill


def ramp(value: Array, low: float, high: float) -> Array:
    """Smooth step from 0 at ``low`` to 1 at ``high``."""
    share = np.clip((value - low) / (high - low), 0, 1)
    smooth: Array = share * share * (3 - 2 * share)
    return smooth


def ellipse(u: Array, v: Array, half_width: float, half_height: float) -> Array:
    """Signed distance to an ellipse around the origin: exact on its outline, close to it near by."""
    along, down = u / half_width, v / half_height
    reach = np.sqrt(along * along + down * down)
    along, down = along / half_width, down / half_height
    distance: Array = reach * (reach - 1) / np.sqrt(along * along + down * down + np.float32(1e-6))
    return distance


def noise(rng: np.random.Generator, x: Array, y: Array, cells: tuple[float, float]) -> Array:
    """Smooth random field of about unit size at places ``x, y`` in -1..1; ``cells`` bumps lie across each axis."""
    knots = rng.standard_normal((64, 64)).astype(np.float32)
    x, y = (x + 1) * np.float32(cells[0] / 2), (y + 1) * np.float32(cells[1] / 2)
    left, top = np.floor(x).astype(np.intp), np.floor(y).astype(np.intp)
    x, y = x - left.astype(np.float32), y - top.astype(np.float32)
    x, y = x * x * (3 - 2 * x), y * y * (3 - 2 * y)
    right, low = (left + 1) & 63, ((top + 1) & 63) << 6
    left, top = left & 63, (top & 63) << 6
    flat = knots.reshape(-1)
    upper, lower = flat.take(top + left), flat.take(low + left)
    upper += (flat.take(top + right) - upper) * x
    lower += (flat.take(low + right) - lower) * x
    field: Array = np.float32(1.7) * (upper + (lower - upper) * y)
    return field


def draw_room(rng: np.random.Generator, size: int) -> Array:
    """``(size, size)`` room out of focus: a wall with a gradient, panels such as doors or shelves, and a few lights."""
    axis = np.linspace(-1, 1, size, dtype=np.float32)
    u, v = axis[None, :], axis[:, None]
    wall = rng.uniform(30.0, 200.0)
    room = wall * (1 + rng.uniform(-0.25, 0.25) * u + rng.uniform(-0.2, 0.1) * v)
    for _ in range(int(rng.integers(2, 6))):
        middle_u, middle_v, half_u, half_v = rng.uniform([-1.2, -1.2, 0.1, 0.2], [1.2, 1.0, 0.5, 1.2])
        panel = cover(np.abs(u - middle_u) - half_u, 0.16) * cover(np.abs(v - middle_v) - half_v, 0.16)
        room += (rng.uniform(0.3, 1.6) * wall - room) * panel * 0.8
    for _ in range(int(rng.integers(0, 4))):
        middle_u, middle_v, radius = rng.uniform([-1.0, -1.0, 0.06], [1.0, 0.2, 0.16])
        room += rng.uniform(15.0, 70.0) * cover(np.sqrt((u - middle_u) ** 2 + (v - middle_v) ** 2) - radius, 0.08)
    lit: Array = np.clip(room, 8, 245).astype(np.float32)
    return lit
