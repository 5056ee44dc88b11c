"""Draws the face of a synthetic talker: grey crops in which head, eyes, brows, mouth and jaw move.

The still portrait (``portrait``) is made once, somewhat finer than the picture, and looked up for every frame with the
sway, zoom, turn and jaw of that frame; eyes and mouth are drawn fresh on top, then ``camera`` takes the picture.
Coordinates are the face units of ``face``. Shapes: ``T`` frames, ``t`` frames of one chunk, ``N x N`` native pixels,
``n x m`` pixels of a region, ``M x M`` pixels of the portrait; grey levels are float32 in 0..255 until the very end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from avfusion.data.synthetic.camera import Camera, cover_up, photograph
from avfusion.data.synthetic.drawing import Array, cover, draw_room
from avfusion.data.synthetic.face import Face, HeadMovement
from avfusion.data.synthetic.mouth import MouthMovement
from avfusion.data.synthetic.portrait import EYE_V, MOUTH_V, REACH, Portrait

VIEW, VIEW_V = 1.1, 0.06  # the crop shows u = -VIEW..VIEW and v = VIEW_V - VIEW..VIEW_V + VIEW
_DENSITY = 1.4  # portrait pixels per picture pixel
_CHUNK_PIXELS = 60_000  # frames are drawn in chunks of about so many pixels, which the processor's cache holds


def _per_frame(track: NDArray[np.float64]) -> Array:
    """``(t,)`` to ``(t, 1, 1)``, ready to meet pixels."""
    return track.astype(np.float32)[:, None, None]


def _look_up(picture: Array, corner: NDArray[np.intp], x: Array, y: Array) -> Array:
    """Bilinear values of an ``(M, M)`` picture at ``(t, N, N)`` places ``x, y`` right of and below flat ``corner``."""
    size, flat = len(picture), picture.reshape(-1)
    upper, lower = flat.take(corner), flat.take(corner + size)
    corner = corner + 1
    right = flat.take(corner)
    right -= upper
    right *= x
    upper += right
    right = flat.take(corner + size)
    right -= lower
    right *= x
    lower += right
    lower -= upper
    lower *= y
    upper += lower
    return upper


def _places(u: Array, v: Array, size: int) -> tuple[NDArray[np.intp], Array, Array]:
    """Flat index of the portrait pixel at the upper left of each face coordinate, and the rest in 0..1."""
    scale = np.float32((size - 1) / (2 * REACH))
    x = np.clip((u + np.float32(REACH)) * scale, 0, np.float32(size - 1.01))
    y = np.clip((v + np.float32(REACH)) * scale, 0, np.float32(size - 1.01))
    left, top = x.astype(np.intp), y.astype(np.intp)
    x -= left
    y -= top
    return top * size + left, x.astype(np.float32), y.astype(np.float32)


def _nearest(picture: Array, u: Array, v: Array) -> Array:
    """Values of an ``(M, M)`` picture at the pixels nearest to face coordinates."""
    size = len(picture)
    scale, middle = np.float32((size - 1) / (2 * REACH)), np.float32(size / 2)
    index = np.clip(v * scale + middle, 0, size - 1).astype(np.int32)
    index *= size
    index += np.clip(u * scale + middle, 0, size - 1).astype(np.int32)
    values: Array = picture.reshape(-1).take(index)
    return values


def _region(u: Array, v: Array, half_width: float, top: float, bottom: float) -> tuple[slice, slice, slice]:
    """Rows and columns of ``(t, N, N)`` face coordinates that show ``|u| < half_width`` and ``top < v < bottom``.

    Looks at every third pixel each way and leaves room for those between.
    """
    u, v = u[:, ::3, ::3], v[:, ::3, ::3]
    inside = (np.abs(u) < half_width) & (v > top) & (v < bottom)
    rows, columns = np.flatnonzero(inside.any(axis=(0, 2))), np.flatnonzero(inside.any(axis=(0, 1)))
    if not len(rows):
        return slice(0), slice(0), slice(0)
    rows, columns = 3 * rows[[0, -1]], 3 * columns[[0, -1]]
    return slice(None), slice(max(rows[0] - 2, 0), rows[1] + 3), slice(max(columns[0] - 2, 0), columns[1] + 3)


def _draw_eyes(grey: Array, u: Array, v: Array, face: Face, head: HeadMovement, light: float, edge: float) -> None:
    """Paints both eyes with their lids onto ``(t, n, m)`` pixels in place."""
    lids, size = _per_frame(head.lids), np.float32(face.eye_size)
    side = np.abs(u) - np.float32(face.eye_space)
    down = v - np.float32(EYE_V) + np.float32(face.eye_tilt) * side
    along = side / (np.float32(0.15) * size)
    almond = 1 - along * along
    lower = np.float32(0.04) * size * almond
    opened = np.float32(-0.07 + 0.012 * face.age) * size * almond * (1 - np.float32(0.18) * along)
    upper = opened + (np.float32(0.85) * lower - opened) * lids
    eye = cover(np.maximum(upper - down, down - lower), edge)

    gaze = np.sign(u) * side - _per_frame(head.gaze)
    fall = down + np.float32(0.012)
    radius = np.sqrt(gaze * gaze + fall * fall)
    white = (0.55 * face.skin + 92) * (1 - 0.3 * np.clip(along * along, 0, 1))
    level = white + (face.iris * 0.7 - white) * cover(radius - np.float32(0.072), edge)
    level += (face.iris * 0.6 + 18) * cover(radius - np.float32(0.056), edge) * cover(-fall, 0.08)
    level += (8 - level) * cover(radius - np.float32(0.029), edge)
    level *= 0.7 + 0.3 * np.clip((down - upper) / np.float32(0.05), 0, 1)  # shadow of the upper lid
    glint = np.sqrt((gaze - np.float32(0.03 * light)) ** 2 + (fall + np.float32(0.026)) ** 2)
    level += (235 - level) * cover(glint - np.float32(0.017), edge)
    grey += (level - grey) * eye

    near = np.clip(1.25 - np.abs(along), 0, 0.25) * 4
    lash = cover(np.abs(down - upper + np.float32(0.006)) - np.float32(0.006 + 0.008 * face.lashes), edge)
    grey *= 1 - np.float32(0.62 + 0.23 * face.lashes) * lash * near
    grey *= 1 - np.float32(0.28) * cover(np.abs(down - lower) - np.float32(0.006), edge) * near
    crease = np.abs(down - np.float32(1.1) * opened + np.float32(0.04)) - np.float32(0.006)
    grey *= 1 - np.float32(0.3) * cover(crease, 1.5 * edge) * near * (1 - 0.6 * lids)


def _mouth_shape(face: Face, mouth: MouthMovement, frames: slice) -> dict[str, Array]:
    """Measures of the mouth in face units for the frames of one chunk, each ``(t, 1, 1)``."""
    names = ("opening", "width", "rounding", "teeth", "smile", "sideways")
    shape = {name: _per_frame(getattr(mouth, name)[frames]) for name in names}
    opening, rounding, size = shape["opening"], shape["rounding"], np.float32(face.mouth_size)
    half_width = 0.175 + 0.155 * shape["width"] - 0.035 * rounding + 0.05 * shape["smile"] - 0.02 * opening
    shape["half_width"] = size * np.maximum(half_width, np.float32(0.09))
    shape["inner_width"] = shape["half_width"] * (1 - 0.3 * rounding - 0.06 * np.minimum(opening * 3, np.float32(1)))
    shape["height"] = size * 0.4 * opening
    shape["upper_lip"] = face.upper_lip * (1 + 0.4 * rounding - 0.3 * shape["smile"])
    lower_lip = face.lower_lip * (1 + 0.35 * rounding - 0.25 * shape["smile"] - 0.1 * opening)
    shape["lower_lip"] = np.minimum(lower_lip, 0.62 * shape["half_width"])
    shape["oval"] = np.minimum(0.15 + 0.6 * rounding + 0.6 * opening, np.float32(1))
    shape["drop"] = 0.23 * opening
    return shape


def _arch(along: Array, oval: Array) -> tuple[Array, Array, Array]:
    """Curve of a lip over ``along`` = -1..1: a lens with pointed corners (``oval`` 0) to nearly an ellipse (1).

    Returns:
        ``along`` squared (at most 2.5), the height of the curve (1 in the middle, 0 at the corners, negative outside),
        and the size of its slope.
    """
    square = np.minimum(along * along, np.float32(2.5))
    height = 1 - square + oval * square * (0.5 - square * (0.125 + 0.375 * square))
    slope = (2 + oval * (square * (0.5 + 2.25 * square) - 1)) * np.abs(along)
    return square, height, slope


def _between(upper: Array, lower: Array, down: Array, rise: Array, fall: Array) -> Array:
    """Signed distance to what lies between two curves, from their vertical distances and their slopes."""
    above, below = (upper - down) / np.sqrt(1 + rise * rise), (down - lower) / np.sqrt(1 + fall * fall)
    distance: Array = np.maximum(above, below)
    return distance


def _draw_mouth(
    grey: Array, u: Array, v: Array, face: Face, shape: dict[str, Array], light: float, edge: float
) -> None:
    """Paints lips, the dark between them, teeth and tongue onto ``(t, n, m)`` pixels in place."""
    height, half_width, inner_width = shape["height"], shape["half_width"], shape["inner_width"]
    across = u - shape["sideways"]
    square, outer, steep = _arch(across / half_width, shape["oval"])
    # The jaw opens the mouth downwards: its corners sink, the upper lip hardly moves.
    down = v - np.float32(MOUTH_V) - 0.16 * height + (0.012 + 0.07 * shape["smile"]) * square
    bow = 1 - np.float32(0.3) * np.exp(-square * 30) + np.float32(0.1) * square
    top, bottom = 0.36 * height + shape["upper_lip"], 0.64 * height + shape["lower_lip"]
    steep /= half_width
    lips = _between(-top * outer * bow, bottom * outer, down, top * steep, bottom * steep)
    inner_square, inner, steep = _arch(across / inner_width, shape["oval"])
    steep *= height / inner_width
    upper, lower = -0.36 * height * inner, 0.64 * height * inner
    gap = _between(upper, lower, down, 0.36 * steep, 0.64 * steep)
    # Shut lips meet in a dark line that ends at the corners.
    gap += inner_width * np.maximum(inner_square - 1, 0) - np.float32(0.012) * np.clip(2 - 2 * inner_square, 0, 1)

    below = (down - bottom * outer - np.float32(0.05)) / np.float32(0.05)
    grey *= 1 - np.float32(0.16) * np.exp(-below * below) * np.clip(1 - square, 0, 1)
    corner = (np.sqrt(square) - np.float32(1.05)) * half_width / np.float32(0.035)
    beside = down / np.float32(0.04)
    grey *= 1 - (0.2 + 0.2 * np.clip(shape["smile"], 0, 1)) * np.exp(-corner * corner - beside * beside)

    skin = face.skin * (1 + 0.25 * light * across)
    is_upper = cover(down - 0.14 * height * inner, edge)
    shine = (down - lower) / shape["lower_lip"] - np.float32(0.45)
    glow = np.float32(0.28) * np.exp(-shine * shine * 8 - square * 3)
    level: Array = (0.5 * grey + 0.4 * skin) * (1 - face.lip_contrast) * (1 + glow - (0.12 + glow) * is_upper)
    grey += (level - grey) * cover(lips, edge)
    level = _inside_mouth(face, shape, across, down - upper, lower - down, inner_square, edge)
    grey += (level - grey) * cover(gap, edge)


def _inside_mouth(
    face: Face, shape: dict[str, Array], across: Array, from_upper: Array, from_lower: Array, square: Array, edge: float
) -> Array:
    """Grey levels between the lips: dark, the tongue below, the upper teeth hanging down as far as they show."""
    height, shown = shape["height"], shape["teeth"]
    level: Array = np.float32(0.07 * face.skin + 5) + np.zeros_like(across)
    tongue = (0.3 * height - from_lower) / (0.16 * height + np.float32(0.02)) - 0.4 * square
    level += (0.36 * face.skin) * np.clip(tongue, 0, 1) * np.clip(3 * height - 0.3, 0, 1)
    teeth = cover(from_upper - shown * (0.075 + 0.02 * square), edge)
    teeth *= np.clip(shown * 2.5, 0, 1) * np.clip(shape["opening"] * 12, 0, 1)
    apart = 1 - np.float32(0.16) * cover(np.abs((across * 14) % 1 - 0.5) - 0.05, 14 * edge)
    tooth = min(0.38 * face.skin + 135, 236) * (1 - 0.35 * np.minimum(square, 1)) * apart
    level += (tooth - level) * teeth
    return level


def _warp_jaw(u: Array, v: Array, shape: dict[str, Array], chin: float) -> tuple[Array, Array]:
    """Where the portrait shows what stands at ``u, v`` while jaw and cheeks move."""
    drop = shape["drop"]
    below = np.clip((v - np.float32(MOUTH_V - 0.08)) / (chin - MOUTH_V + 0.08 + drop), 0, 1)
    beside = np.clip(3.6 - np.abs(u) * 5, 0, 1)  # hair and background stay where they are
    moved = below * beside * np.clip((np.float32(1.62) - v) / np.float32(0.4), 0, 1)
    cheek = np.clip(1 - ((np.abs(u) - 0.38) / 0.2) ** 2, 0, 1) * np.clip(1 - ((v - 0.36) / 0.26) ** 2, 0, 1)
    # A wide mouth draws the cheeks long and narrow, a smile lifts them.
    narrow = 1 + 0.06 * shape["opening"] * beside * np.clip(1 - ((v - MOUTH_V) / 0.35) ** 2, 0, 1)
    return u * narrow - shape["sideways"] * moved, v - drop * moved + 0.05 * shape["smile"] * cheek


def _draw_chunk(
    portrait: Portrait, room: Array, face: Face, head: HeadMovement, shape: dict[str, Array], light: float
) -> Array:
    """Draws ``(t, N, N)`` clean pictures."""
    size = len(room)
    axis = (((np.arange(size) + 0.5) / size * 2 - 1) * VIEW).astype(np.float32)
    x = axis[None, None, :] - _per_frame(head.shift_u)
    y = axis[None, :, None] + np.float32(VIEW_V) - _per_frame(head.shift_v)
    cosine, sine = _per_frame(np.cos(head.roll) / head.zoom), _per_frame(np.sin(head.roll) / head.zoom)
    u: Array = cosine * x + sine * y
    v: Array = cosine * y - sine * x
    # Turning moves near points more than far ones: the features slide over the outline of the head.
    depth = _nearest(portrait.depth, u, v)
    u -= _per_frame(np.sin(head.yaw)) * depth
    v -= _per_frame(np.sin(head.pitch)) * depth

    source_u, source_v = u.copy(), v.copy()
    region = _region(u, v, 1.0, face.brow_height - 0.2, face.brow_height + 0.2)
    lift = np.clip(1 - ((v[region] - np.float32(face.brow_height)) / np.float32(0.2)) ** 2, 0, 1)
    source_v[region] += _per_frame(head.brows) * lift
    region = _region(u, v, 1.0, 0.1, 1.7)
    source_u[region], source_v[region] = _warp_jaw(u[region], v[region], shape, face.chin)
    corner, right, below = _places(source_u, source_v, len(portrait.grey))
    grey = _look_up(portrait.grey, corner, right, below)
    # Where a soft edge met nothing the portrait holds level times opacity: what is missing is that much room.
    grey += room * (1 - _look_up(portrait.opacity, corner, right, below))

    edge = 1.25 * 2 * VIEW / size
    region = _region(u, v, face.eye_space + 0.22, EYE_V - 0.16, EYE_V + 0.1)
    _draw_eyes(grey[region], u[region], v[region], face, head, light, edge)
    if portrait.glare is not None:
        grey[region] += portrait.glare.reshape(-1).take(corner[region])
    region = _region(u, v, 0.48, MOUTH_V - 0.18, MOUTH_V + 0.55)
    _draw_mouth(grey[region], u[region], v[region], face, shape, light, edge)
    return grey


def render_face(
    rng: np.random.Generator, face: Face, head: HeadMovement, mouth: MouthMovement, camera: Camera, crop_size: int
) -> NDArray[np.uint8]:
    """Draws one person over ``T`` frames.

    Args:
        rng: source of the sensor noise; everything else is in the other arguments.
        face: who it is.
        head: how head, eyes and brows move.
        mouth: how the mouth moves.
        camera: how it is filmed.
        crop_size: side of the crops in pixels.

    Returns:
        ``(T, crop_size, crop_size)`` uint8 grey crops.
    """
    native = min(round(camera.face_px), crop_size)
    textures = np.random.Generator(np.random.PCG64(face.texture_seed))
    portrait = Portrait(face, camera, textures, round(_DENSITY * native * REACH / VIEW))
    room = draw_room(textures, native)
    num_frames = len(head.roll)
    grey = np.empty((num_frames, native, native), np.float32)
    step = max(1, _CHUNK_PIXELS // native**2)
    for start in range(0, num_frames, step):
        frames = slice(start, start + step)
        moves = {name: getattr(head, name)[frames] for name in head.__dataclass_fields__}
        shape = _mouth_shape(face, mouth, frames)
        grey[frames] = _draw_chunk(portrait, room, face, HeadMovement(**moves), shape, camera.light_right)
    for occluder in (camera.occluder, *camera.covers):
        cover_up(grey, occluder)
    return photograph(rng, grey, camera, crop_size)
