"""Who a synthetic talker is to the eye, and how head, eyes and brows move; ``picture`` draws it.

Face units: the origin is the middle of the head, ``u`` to the right, ``v`` down, 1 = about half the height of the head.
Proportions follow head measurements: eyes just above the middle, face about 0.7 wide to each side.
Shapes: ``T`` video frames.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ

HAIR_STYLES = ("short", "buzz", "receding", "curly", "fringe", "bob", "long", "bun")
COLLARS = ("round", "shirt", "jacket", "high")
_STYLE_OF_MEN = (0.44, 0.16, 0.16, 0.14, 0.03, 0.0, 0.05, 0.02)
_STYLE_OF_WOMEN = (0.08, 0.02, 0.0, 0.16, 0.16, 0.22, 0.24, 0.12)


@dataclass(frozen=True)
class Face:
    """What one person looks like. Grey levels in 0..255, lengths in face units, shares in 0..1.

    Attributes:
        skin, hair, cloth, iris: grey levels.
        masculine: 0 = soft features, 1 = marked ones (brow ridge, jaw, neck).
        age: 0 = smooth and young, 1 = lined and old.
        face_width: half width of the face over the cheek bones.
        jaw: 0 = pointed, 1 = square; ``chin`` is the ``v`` of its lower edge.
        cheeks: how much the cheek bones stand out.
        hair_style: one of ``HAIR_STYLES``.
        hair_volume: how far the hair stands out; ``hair_length`` is the ``v`` it falls to.
        hairline: ``v`` of the hair over the forehead; ``parting`` the ``u`` it is combed from.
        brow_height, brow_weight, brow_arch, brow_tilt, brow_darkness: form of the brows.
        eye_size, eye_tilt, eye_space, lashes: form of the eyes; ``eye_space`` is the ``u`` of their middle.
        nose_length, nose_width, mouth_size: proportions around 1.
        upper_lip, lower_lip: thickness of the lips.
        lip_contrast: lips are this share darker than the skin.
        beard, moustache, stubble: darkness, 0 for most.
        glasses: darkness of the frames, 0 for most; ``lens`` is 0 = oblong, 1 = round.
        freckles: strength of spots on the skin.
        collar: one of ``COLLARS``.
        texture_seed: seeds skin, hair and background texture.
    """

    skin: float
    hair: float
    cloth: float
    iris: float
    masculine: float
    age: float
    face_width: float
    jaw: float
    chin: float
    cheeks: float
    hair_style: str
    hair_volume: float
    hair_length: float
    hairline: float
    parting: float
    brow_height: float
    brow_weight: float
    brow_arch: float
    brow_tilt: float
    brow_darkness: float
    eye_size: float
    eye_tilt: float
    eye_space: float
    lashes: float
    nose_length: float
    nose_width: float
    mouth_size: float
    upper_lip: float
    lower_lip: float
    lip_contrast: float
    beard: float
    moustache: float
    stubble: float
    glasses: float
    lens: float
    freckles: float
    collar: str
    texture_seed: int


def random_face(rng: np.random.Generator) -> Face:
    """Draws a face: half are men, of whom one in four has a beard; one in five people wears glasses."""
    man = rng.random() < 0.5
    masculine = rng.uniform(0.55, 1.0) if man else rng.uniform(0.0, 0.35)
    age = rng.random() ** 1.8
    skin = rng.uniform(95.0, 205.0)
    style = str(rng.choice(HAIR_STYLES, p=_STYLE_OF_MEN if man else _STYLE_OF_WOMEN))
    lengths = {"bob": (0.35, 0.75), "fringe": (0.3, 1.3), "long": (1.0, 1.5), "receding": (0.0, 0.15)}.get(
        style, (-0.15, 0.1)
    )
    volume = {
        "curly": (0.08, 0.16) if man else (0.12, 0.28),
        "buzz": (0.01, 0.03),
        "receding": (0.01, 0.03),
        "bun": (0.02, 0.05),
    }
    has_beard, has_stubble, has_moustache = rng.random(3) < [0.25, 0.33, 0.14]
    beard = rng.uniform(0.45, 0.9) if man and has_beard else 0.0
    return Face(
        skin=skin,
        hair=rng.uniform(12.0, 0.7 * skin)
        if rng.random() > age - 0.35
        else rng.uniform(0.7 * skin, 0.55 * skin + 90.0),
        cloth=rng.uniform(20.0, 220.0),
        iris=rng.uniform(18.0, 85.0),
        masculine=masculine,
        age=age,
        face_width=rng.uniform(0.64, 0.72) + 0.02 * masculine,
        jaw=min(max(0.1 + 0.6 * masculine + rng.normal(0.0, 0.18), 0.0), 1.0),
        chin=0.93 + 0.03 * masculine + rng.uniform(-0.05, 0.04),
        cheeks=rng.uniform(0.3, 1.0),
        hair_style=style,
        hair_volume=rng.uniform(*volume.get(style, (0.06, 0.16))),
        hair_length=rng.uniform(*lengths),
        hairline=rng.uniform(-0.7, -0.56),
        parting=float(rng.choice([-1.0, 1.0])) * rng.uniform(0.0, 0.32),
        brow_height=rng.uniform(-0.31, -0.27) + 0.035 * masculine,
        brow_weight=rng.uniform(0.026, 0.04) + 0.016 * masculine,
        brow_arch=rng.uniform(0.5, 1.6) - 0.5 * masculine,
        brow_tilt=rng.normal(0.03, 0.05),
        brow_darkness=rng.uniform(0.65, 1.0),
        eye_size=rng.uniform(0.9, 1.12) - 0.06 * masculine,
        eye_tilt=rng.normal(0.06, 0.06),
        eye_space=rng.uniform(0.285, 0.315),
        lashes=rng.uniform(0.3, 0.6) if man else rng.uniform(0.55, 1.0),
        nose_length=rng.uniform(0.92, 1.08),
        nose_width=rng.uniform(0.85, 1.15) + 0.1 * masculine,
        mouth_size=rng.uniform(0.92, 1.1),
        upper_lip=rng.uniform(0.056, 0.08) - 0.01 * masculine - 0.012 * age,
        lower_lip=rng.uniform(0.085, 0.115) - 0.014 * masculine - 0.016 * age,
        lip_contrast=rng.uniform(0.3, 0.46) - 0.08 * masculine,
        beard=beard,
        moustache=beard if has_beard else (rng.uniform(0.4, 0.85) if man and has_moustache else 0.0),
        stubble=rng.uniform(0.12, 0.3) if man and has_stubble else 0.0,
        glasses=rng.uniform(0.45, 0.9) if rng.random() < 0.2 else 0.0,
        lens=rng.random(),
        freckles=rng.uniform(0.0, 1.0) ** 3,
        collar=str(rng.choice(COLLARS)),
        texture_seed=int(rng.integers(2**32)),
    )


@dataclass(frozen=True)
class HeadMovement:
    """Movement of head, eyes and brows, each ``(T,)``.

    Attributes:
        shift_u, shift_v: in face units.
        zoom: around 1.
        roll: in radians, clockwise in the picture.
        yaw, pitch: in radians; a positive yaw turns the nose to the right of the picture, a positive pitch lowers it.
        gaze: sideways shift of the irises in face units.
        lids: 0 = open, 1 = shut.
        brows: how far the brows are raised, in face units.
        blinks_s: ``(N,)`` times at which the lids are shut.
    """

    shift_u: NDArray[np.float64]
    shift_v: NDArray[np.float64]
    zoom: NDArray[np.float64]
    roll: NDArray[np.float64]
    yaw: NDArray[np.float64]
    pitch: NDArray[np.float64]
    gaze: NDArray[np.float64]
    lids: NDArray[np.float64]
    brows: NDArray[np.float64]
    blinks_s: NDArray[np.float64]


def wander(rng: np.random.Generator, num_frames: int, size: float) -> NDArray[np.float64]:
    """``(T,)`` slow movement of about ``size``: three sines of 0.1..1.2 Hz."""
    times_s = np.arange(num_frames) / VIDEO_HZ
    hz, phase = rng.uniform([0.1, 0.3, 0.7], [0.3, 0.7, 1.2]), rng.random(3)
    waves = np.sin(2 * np.pi * (hz * times_s[:, None] + phase)) * [0.6, 0.3, 0.15]
    total: NDArray[np.float64] = size * waves.sum(axis=1)
    return total


def _blinks(rng: np.random.Generator, num_frames: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lids ``(T,)`` and times ``(N,)`` of blinks every 1..4 s; lids fall within 0.1 s and rise within 0.16 s."""
    times_s = np.arange(num_frames) / VIDEO_HZ
    lids, blinks_s = np.zeros(num_frames), []
    blink_s = rng.uniform(0.0, 2.0)
    while blink_s < num_frames / VIDEO_HZ:
        blinks_s.append(blink_s)
        after_s = times_s - blink_s
        lids = np.maximum(lids, np.clip(1.4 + np.minimum(after_s / 0.07, -after_s / 0.11), 0.0, 1.0))
        blink_s += rng.uniform(1.0, 4.0)
    return lids, np.array(blinks_s)


def _raises(rng: np.random.Generator, num_frames: int) -> NDArray[np.float64]:
    """``(T,)`` lift of the brows: a few smooth raises, and a little restlessness."""
    times_s = np.arange(num_frames) / VIDEO_HZ
    lift = wander(rng, num_frames, 0.008)
    raise_s = rng.uniform(0.0, 3.0)
    while raise_s < num_frames / VIDEO_HZ:
        lift += rng.uniform(-0.02, 0.055) * np.exp(-(((times_s - raise_s) / rng.uniform(0.12, 0.35)) ** 2))
        raise_s += rng.uniform(0.6, 3.0)
    return lift


def random_head_movement(rng: np.random.Generator, num_frames: int, lively: float = 1.0) -> HeadMovement:
    """Sway, zoom, turns, glances, brows and blinks. Drawn alike for talkers and listeners, they tell nothing.

    Args:
        rng: source of all draws.
        num_frames: number ``T`` of video frames.
        lively: how much the head moves; 0 leaves the pose still, not eyes and brows.
    """
    times_s = np.arange(num_frames) / VIDEO_HZ
    lids, blinks_s = _blinks(rng, num_frames)
    glance = np.floor(times_s / rng.uniform(0.6, 1.6) + rng.random()).astype(int)
    return HeadMovement(
        shift_u=wander(rng, num_frames, 0.05 * lively) + rng.normal(0.0, 0.02),
        shift_v=wander(rng, num_frames, 0.035 * lively) + rng.normal(0.0, 0.02),
        zoom=1.0 + wander(rng, num_frames, 0.025 * lively) + rng.normal(0.0, 0.03),
        roll=wander(rng, num_frames, 0.045 * lively) + rng.normal(0.0, 0.035),
        yaw=np.clip(wander(rng, num_frames, 0.08 * lively) + rng.normal(0.0, 0.12), -0.35, 0.35),
        pitch=np.clip(wander(rng, num_frames, 0.05 * lively) + rng.normal(0.0, 0.05), -0.25, 0.25),
        gaze=rng.uniform(-0.03, 0.03, glance.max() + 1)[glance],
        lids=lids,
        brows=_raises(rng, num_frames),
        blinks_s=blinks_s,
    )
