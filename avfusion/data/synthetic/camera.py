"""How a face is filmed: its size in the source picture, light, blur, grain, compression and what gets in the way.

``photograph`` turns clean grey pictures of native size into the crops a model sees. Compression rounds the DCT of
8 x 8 blocks as JPEG does (ITU-T T.81, table K.1). Places are given in view units: -1..1 across the crop.
Shapes: ``T`` video frames, ``N x N`` native pixels, ``P x P`` crop pixels; grey levels are float32 in 0..255.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.data.synthetic.face import wander

MIN_FACE_PX, MAX_FACE_PX = 24, 112
OCCLUDERS = ("hand", "microphone", "cup")
COVERS = ("board", "turned")  # a plain board, or the back of the head while the person looks away
TRAVEL_S = 0.2  # an occluder comes in and goes away within this time

# ITU-T T.81, table K.1: steps of the luminance coefficients at quality 50.
_STEPS = np.array(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ],
    np.float32,
)


@dataclass(frozen=True)
class Occluder:
    """A thing that hides part of the face for a while.

    Attributes:
        kind: one of ``OCCLUDERS`` or ``COVERS``.
        start_s, end_s: it can be seen between these times only, and is in place ``TRAVEL_S`` after and before them.
        u, v: where its middle rests, in view units.
        from_u, from_v: where it comes from and goes to, outside the view.
        size: half its width in view units.
        tilt: in radians.
        grey: grey level.
    """

    kind: str
    start_s: float
    end_s: float
    u: float
    v: float
    from_u: float
    from_v: float
    size: float
    tilt: float
    grey: float

    def places(self, num_frames: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Frames ``(V,)`` in which it can be seen, and its middle ``(V, 2)`` in view units."""
        times_s = np.arange(num_frames) / VIDEO_HZ
        frames = np.flatnonzero((times_s > self.start_s) & (times_s < self.end_s))
        inside_s = np.minimum(times_s[frames] - self.start_s, self.end_s - times_s[frames])
        share = np.clip(inside_s / TRAVEL_S, 0.0, 1.0)[:, None]
        share = share * share * (3.0 - 2.0 * share)
        return frames, (1.0 - share) * [self.from_u, self.from_v] + share * [self.u, self.v]


@dataclass(frozen=True)
class Camera:
    """How one face is filmed.

    Attributes:
        face_px: side of the square face box in the source picture, 24..112; no crop holds more detail than this.
        light_right, light_down: where the light comes from, -1..1.
        exposure: ``(T,)`` brightness of the whole picture, around 1.
        blur: share of each native pixel that comes from its neighbors.
        grain: standard deviation of the sensor noise in grey levels.
        compression: 0 = none .. 1 = strong, with visible 8 x 8 blocks.
        occluder: what gets in the way, or None.
        covers: what hides the whole mouth now and then.
    """

    face_px: float
    light_right: float
    light_down: float
    exposure: NDArray[np.float64]
    blur: float
    grain: float
    compression: float
    occluder: Occluder | None
    covers: tuple[Occluder, ...] = ()


def random_occluder(rng: np.random.Generator, num_frames: int) -> Occluder:
    """Draws a hand, microphone or cup that stays 0.4..1.5 s, most often before the mouth."""
    start_s = rng.uniform(-0.3, num_frames / VIDEO_HZ - 0.3)
    kind = str(rng.choice(OCCLUDERS))
    side = float(rng.choice([-1.0, 1.0]))
    grey = {"hand": (90.0, 200.0), "microphone": (25.0, 110.0), "cup": (25.0, 235.0)}[kind]
    return Occluder(
        kind=kind,
        start_s=start_s,
        end_s=start_s + rng.uniform(0.4, 1.5),
        u=rng.normal(0.0, 0.08),
        v=rng.uniform(0.42, 0.6),
        from_u=side * rng.uniform(0.0, 0.9),
        from_v=2.2,
        size=rng.uniform(0.38, 0.5) if kind != "microphone" else rng.uniform(0.21, 0.26),
        tilt=side * rng.uniform(0.0, 0.5),
        grey=rng.uniform(*grey),
    )


def random_camera(rng: np.random.Generator, num_frames: int) -> Camera:
    """Draws a camera; face sizes are uniform in their logarithm, one camera in eight sees an occluder."""
    face_px = float(np.exp(rng.uniform(np.log(MIN_FACE_PX), np.log(MAX_FACE_PX))))
    return Camera(
        face_px=face_px,
        light_right=rng.uniform(-0.65, 0.65),
        light_down=rng.uniform(-0.8, 0.1),
        exposure=rng.uniform(0.85, 1.1) + wander(rng, num_frames, 0.02),
        blur=rng.uniform(0.0, 0.45) * float(np.sqrt(face_px / MAX_FACE_PX)),
        grain=rng.uniform(0.5, 4.0),
        compression=rng.random() ** 2 * (0.4 + 0.6 * (face_px > 48)),
        occluder=random_occluder(rng, num_frames) if rng.random() < 1 / 8 else None,
    )


def _hand(u: NDArray[np.float32], v: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Signed distance and light of a fist: four fingers side by side over the back of a hand and a wrist."""
    finger = np.clip(np.floor((u + 1) * 2), 0, 3)
    top = 0.1 * np.abs(finger - 1.4) - 0.75
    across, above = u - (finger + 0.5) / 2 + 1, np.clip(top - v, 0, None)
    fingers = np.maximum(np.sqrt(across * across + above * above) - 0.29, v - 0.6)
    palm = np.sqrt(np.clip(np.abs(u) - 0.7, 0, None) ** 2 + np.clip(0.55 - v, 0, None) ** 2) - 0.3
    palm += 0.12 * np.clip(v - 0.7, 0, 2)
    apart = np.clip(0.9 - v, 0, 1) * (across / 0.26) ** 2
    light = 1.08 - 0.42 * apart - 0.16 * u - 0.1 * np.clip(v, 0, 2)
    light -= 0.14 * np.exp(-(((v - top - 0.5) / 0.05) ** 2)) - 0.14 * np.exp(
        -(((v - 0.42) / 0.16) ** 2) - 8 * across**2
    )
    light += 0.14 * (np.sqrt((across / 0.13) ** 2 + ((v - top + 0.06) / 0.16) ** 2) < 1)  # nails
    return np.minimum(fingers, palm).astype(np.float32), light.astype(np.float32)


def _microphone(u: NDArray[np.float32], v: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Signed distance and light of a round wire mesh on a handle."""
    ball = np.sqrt(u * u + v * v) - 1
    handle = np.maximum(np.abs(u) - 0.5 + 0.05 * v, 0.7 - v)
    mesh = 0.1 * np.sin(34 * u) * np.sin(34 * v)
    shine = 0.5 * np.exp(-((u + 0.35) ** 2 + (v + 0.4) ** 2) / 0.1)
    light = np.where(
        ball < 0, 0.95 - 0.5 * (u * u + v * v) + mesh + shine, 0.75 - u * u + 0.5 * np.exp(-((u + 0.2) ** 2) / 0.02)
    )
    light -= 0.5 * np.exp(-(((v - 0.95) / 0.12) ** 2))
    return np.minimum(ball, handle).astype(np.float32), light.astype(np.float32)


def _cup(u: NDArray[np.float32], v: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Signed distance and light of a mug with a rim and a handle."""
    body = np.maximum(np.abs(u) - 0.85 + 0.08 * v, np.abs(v - 0.35) - 1.2 + 0.12 * u * u)
    handle = np.abs(np.sqrt(((u - 0.9) / 0.45) ** 2 + ((v - 0.3) / 0.6) ** 2) - 1) * 0.45 - 0.1
    light = 1.05 - 0.45 * u * u + 0.4 * np.exp(-(((u + 0.45) / 0.12) ** 2)) - 0.45 * np.exp(-(((v + 0.78) / 0.06) ** 2))
    return np.minimum(body, handle).astype(np.float32), light.astype(np.float32)


def _board(u: NDArray[np.float32], v: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Signed distance and light of a plain square."""
    return np.maximum(np.abs(u), np.abs(v)) - np.float32(1.0), np.ones(
        np.broadcast_shapes(u.shape, v.shape), np.float32
    )


def _turned(u: NDArray[np.float32], v: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Signed distance and light of a head from behind: hair in strands from the crown down to below the picture."""
    crown = np.sqrt((u / 0.86) ** 2 + np.minimum(v, 0) ** 2) - 1
    strands = 0.1 * np.sin(38 * u + 2 * np.sin(5 * v)) + 0.07 * np.sin(83 * u - 3 * v)
    sheen = 0.25 * np.exp(-(((v + 0.55 - 0.3 * u * u) / 0.14) ** 2))
    return crown.astype(np.float32), (0.95 - 0.5 * u * u + strands + sheen).astype(np.float32)


def cover_up(grey: NDArray[np.float32], occluder: Occluder | None) -> None:
    """Paints the occluder over ``(T, N, N)`` pictures in place, in the frames in which it can be seen."""
    if occluder is None:
        return
    size = grey.shape[1]
    axis = ((np.arange(size) + 0.5) / size * 2 - 1).astype(np.float32)
    edge = 2.5 / size / occluder.size
    cosine, sine = np.float32(np.cos(occluder.tilt)), np.float32(np.sin(occluder.tilt))
    draw = {"hand": _hand, "microphone": _microphone, "cup": _cup, "board": _board, "turned": _turned}[occluder.kind]
    for frame, (middle_u, middle_v) in zip(*occluder.places(len(grey)), strict=True):
        x = (axis[None, :] - np.float32(middle_u)) / np.float32(occluder.size)
        y = (axis[:, None] - np.float32(middle_v)) / np.float32(occluder.size)
        distance, light = draw(cosine * x + sine * y, cosine * y - sine * x)
        covered = np.clip(0.5 - distance / np.float32(edge), 0, 1)
        grey[frame] += (np.clip(occluder.grey * light, 3, 250) - grey[frame]) * covered


def soften(grey: NDArray[np.float32], share: float) -> NDArray[np.float32]:
    """Blurs ``(T, N, N)`` pictures: each pixel takes ``share`` from its neighbors along rows, then along columns."""
    side, middle = np.float32(share / 2), np.float32(1 - share)
    rows = grey * middle
    rows[:, 1:] += grey[:, :-1] * side
    rows[:, :-1] += grey[:, 1:] * side
    rows[:, [0, -1]] += grey[:, [0, -1]] * side
    softened = rows * middle
    softened[:, :, 1:] += rows[:, :, :-1] * side
    softened[:, :, :-1] += rows[:, :, 1:] * side
    softened[:, :, [0, -1]] += rows[:, :, [0, -1]] * side
    return softened


def _cosines() -> NDArray[np.float32]:
    """``(8, 8)`` orthonormal DCT-II, one basis function per row."""
    order, place = np.arange(8)[:, None], np.arange(8)[None, :]
    basis = np.cos(np.pi * (2 * place + 1) * order / 16) / 2
    basis[0] /= np.sqrt(2)
    return basis.astype(np.float32)


def compress(grey: NDArray[np.float32], strength: float) -> NDArray[np.float32]:
    """Rounds the DCT of the 8 x 8 blocks of ``(T, N, N)`` pictures; strength 0 leaves them alone."""
    if strength <= 0:
        return grey
    frames, size, _ = grey.shape
    padding = -size % 8
    padded = np.pad(grey, ((0, 0), (0, padding), (0, padding)), mode="edge") if padding else grey
    full = size + padding
    basis = _cosines()
    steps = np.tile(np.maximum(_STEPS * np.float32(0.1 + 2 * strength), 1), (1, full // 8))
    rows = basis @ padded.reshape(frames, full // 8, 8, full)
    coefficients = (rows.reshape(-1, 8) @ basis.T).reshape(rows.shape)
    coefficients /= steps
    np.rint(coefficients, out=coefficients)
    coefficients *= steps
    rows = basis.T @ coefficients
    picture = (rows.reshape(-1, 8) @ basis).reshape(frames, full, full).astype(np.float32, copy=False)
    return picture[:, :size, :size]


def resize(grey: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Linear resampling of ``(T, N, N)`` pictures to ``(T, P, P)``."""
    native = grey.shape[1]
    if native == size:
        return grey
    place = np.clip((np.arange(size) + 0.5) * native / size - 0.5, 0, native - 1)
    distance = np.abs(place[:, None] - np.arange(native)[None, :])
    weights = np.clip(1 - distance, 0, None).astype(np.float32)
    resized: NDArray[np.float32] = weights @ grey @ weights.T
    return resized


def photograph(
    rng: np.random.Generator, grey: NDArray[np.float32], camera: Camera, crop_size: int
) -> NDArray[np.uint8]:
    """Exposes, blurs, adds grain, compresses and enlarges.

    Args:
        rng: source of the grain.
        grey: ``(T, N, N)`` clean pictures; changed in place.
        camera: how they are filmed.
        crop_size: side ``P`` of the crops in pixels.

    Returns:
        ``(T, P, P)`` uint8 crops.
    """
    grey *= camera.exposure.astype(np.float32)[:, None, None]
    grey = soften(grey, camera.blur)
    pixels = grey[0].size
    grain = np.float32(camera.grain) * rng.standard_normal(3 * pixels, dtype=np.float32)
    for picture, start in zip(grey, rng.integers(2 * pixels, size=len(grey)), strict=True):
        picture += grain[start : start + pixels].reshape(picture.shape)  # another stretch of the noise for each frame
    crops = resize(compress(grey, camera.compression), crop_size)
    levels: NDArray[np.uint8] = np.clip(crops + np.float32(0.5), 0, 255).astype(np.uint8)
    return levels
