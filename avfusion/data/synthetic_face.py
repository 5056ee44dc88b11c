"""Who a synthetic talker is to the eye, and how head and eyes move; ``synthetic_picture`` draws it.

Face units: the origin is the middle of the face, ``u`` to the right, ``v`` down, 1 = half the height of the face.
Shapes: ``T`` video frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ


@dataclass(frozen=True)
class Face:
    """What one person looks like, under one light. Grey levels in 0..255, lengths in face units.

    Attributes:
        skin, hair, cloth, iris: grey levels.
        lip_contrast: lips are this share darker than the skin.
        face_width: half width of the face oval.
        hair_top, hair_side: how far the hair stands out; ``hair_length`` is the ``v`` it falls to.
        hairline: ``v`` of the hair over the forehead.
        brow_height, brow_weight, eye_size, nose_length, mouth_size, lip_weight: proportions around their means.
        beard: darkness of the lower face, 0 for most.
        glasses: darkness of the frames, 0 for most.
        background: grey level behind the head.
        light_right, light_down: slope of the light, share per face unit.
        blur: share of each pixel that comes from its neighbors.
        grain: standard deviation of the sensor noise.
        texture_seed: seeds skin, hair and background texture.
    """

    skin: float
    hair: float
    cloth: float
    iris: float
    lip_contrast: float
    face_width: float
    hair_top: float
    hair_side: float
    hair_length: float
    hairline: float
    brow_height: float
    brow_weight: float
    eye_size: float
    nose_length: float
    mouth_size: float
    lip_weight: float
    beard: float
    glasses: float
    background: float
    light_right: float
    light_down: float
    blur: float
    grain: float
    texture_seed: int


def random_face(rng: np.random.Generator) -> Face:
    """Draws a face; about one in six has a beard, one in six wears glasses."""
    skin = rng.uniform(95.0, 205.0)
    return Face(
        skin=skin,
        hair=rng.uniform(15.0, 0.85 * skin),
        cloth=rng.uniform(20.0, 220.0),
        iris=rng.uniform(20.0, 90.0),
        lip_contrast=rng.uniform(0.18, 0.38),
        face_width=rng.uniform(0.7, 0.82),
        hair_top=rng.uniform(0.04, 0.16),
        hair_side=rng.uniform(0.02, 0.14),
        hair_length=rng.uniform(0.5, 1.2) if rng.random() < 0.45 else rng.uniform(-0.4, 0.0),
        hairline=rng.uniform(-0.72, -0.5),
        brow_height=rng.uniform(-0.40, -0.33),
        brow_weight=rng.uniform(0.03, 0.06),
        eye_size=rng.uniform(0.9, 1.15),
        nose_length=rng.uniform(0.9, 1.15),
        mouth_size=rng.uniform(0.88, 1.12),
        lip_weight=rng.uniform(0.05, 0.085),
        beard=rng.uniform(0.2, 0.45) if rng.random() < 1 / 6 else 0.0,
        glasses=rng.uniform(0.4, 0.8) if rng.random() < 1 / 6 else 0.0,
        background=rng.uniform(35.0, 215.0),
        light_right=rng.uniform(-0.22, 0.22),
        light_down=rng.uniform(-0.1, 0.1),
        blur=rng.uniform(0.1, 0.45),
        grain=rng.uniform(1.0, 4.0),
        texture_seed=int(rng.integers(2**32)),
    )


@dataclass(frozen=True)
class HeadMovement:
    """Movement of head and eyes, each ``(T,)``.

    Attributes:
        shift_u, shift_v: in face units.
        zoom: around 1.
        roll: in radians.
        gaze: sideways shift of the irises in face units.
        lids: 0 = open, 1 = shut.
        exposure: brightness of the whole picture, around 1.
        blinks_s: ``(N,)`` times at which the lids are shut.
    """

    shift_u: NDArray[np.float64]
    shift_v: NDArray[np.float64]
    zoom: NDArray[np.float64]
    roll: NDArray[np.float64]
    gaze: NDArray[np.float64]
    lids: NDArray[np.float64]
    exposure: NDArray[np.float64]
    blinks_s: NDArray[np.float64]


def wander(rng: np.random.Generator, num_frames: int, size: float) -> NDArray[np.float64]:
    """``(T,)`` slow movement of about ``size``: three sines of 0.1..1.2 Hz."""
    times_s = np.arange(num_frames) / VIDEO_HZ
    hz, phase = rng.uniform([0.1, 0.3, 0.7], [0.3, 0.7, 1.2]), rng.random(3)
    waves = np.sin(2 * np.pi * (hz * times_s[:, None] + phase)) * [0.6, 0.3, 0.15]
    total: NDArray[np.float64] = size * waves.sum(axis=1)
    return total


def random_head_movement(rng: np.random.Generator, num_frames: int) -> HeadMovement:
    """Sway, zoom, roll, glances and blinks. They are drawn alike for talkers and listeners, so they tell nothing."""
    times_s = np.arange(num_frames) / VIDEO_HZ
    lids, blinks_s = np.zeros(num_frames), []
    blink_s = rng.uniform(0.0, 2.0)
    while blink_s < num_frames / VIDEO_HZ:
        blinks_s.append(blink_s)
        lids = np.maximum(lids, np.clip(1.7 - np.abs(times_s - blink_s) / 0.07, 0.0, 1.0))
        blink_s += rng.uniform(1.0, 4.0)
    glance = np.floor(times_s / rng.uniform(0.6, 1.6) + rng.random()).astype(int)
    return HeadMovement(
        shift_u=wander(rng, num_frames, 0.05) + rng.normal(0.0, 0.02),
        shift_v=wander(rng, num_frames, 0.04) + rng.normal(0.0, 0.02),
        zoom=1.0 + wander(rng, num_frames, 0.03) + rng.normal(0.0, 0.03),
        roll=wander(rng, num_frames, 0.05) + rng.normal(0.0, 0.03),
        gaze=rng.uniform(-0.03, 0.03, glance.max() + 1)[glance],
        lids=lids,
        exposure=1.0 + wander(rng, num_frames, 0.02),
        blinks_s=np.array(blinks_s),
    )
