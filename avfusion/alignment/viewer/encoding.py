"""Scenes as JSON for the page: arrays in 8 or 16 bits, deflated; sound as FLAC, pictures as one WebP sheet a second.

A weight ``w`` is kept as ``round(levels * sqrt(w / largest))``, one ``largest`` per scene: the colors are over the
square root too, so small weights keep their shades. At 255 levels a weight is off by at most
``sqrt(w * largest) / 255`` and a little. Maps are kept as differences from frame to frame, which deflate better.

Shapes: ``L`` layers, ``H`` heads, ``T`` video frames, ``G`` lags (10 ms apart, 0 in the middle).
"""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.alignment.viewer.page import VARIANTS, HeadView, ViewerFace, ViewerScene
from avfusion.clock import AUDIO_HZ, SAMPLE_RATE, VIDEO_HZ

MAX_CROP = 96  # pixels; larger crops are made smaller
WEBP_QUALITY = 55
SCORE_LEVELS = 65_535
LAG_MAX_NULL = 0.9  # frames with more null mass than this have no lag
SHEET_FRAMES = VIDEO_HZ


@dataclass(frozen=True)
class SceneMedia:
    """Sound and pictures of a scene, which weigh the same at every :class:`Detail`.

    Attributes:
        sounds: ``own`` and, where there is one, ``other``.
        faces: sheets, and height and width of a frame, of each face.
    """

    sounds: dict[str, Any]
    faces: list[tuple[list[str], list[int] | None]]


@dataclass(frozen=True)
class Detail:
    """How much of a scene is kept; what is not kept is said in words on the page."""

    shifted_levels: int = 255
    shift_step: int = 1
    shifts_of: frozenset[str] = frozenset(VARIANTS)
    left_out: list[str] = field(default_factory=list)


COARSE, SPARSE, TRAINED_ONLY = (
    "fine shades of maps of moved sound",
    "every second shift of the sound",
    "moved sound for all but the trained model",
)
DETAILS = (
    Detail(),
    Detail(63, left_out=[COARSE]),
    Detail(31, left_out=[COARSE]),
    Detail(31, 2, left_out=[COARSE, SPARSE]),
    Detail(31, 2, frozenset({"trained"}), left_out=[COARSE, SPARSE, TRAINED_ONLY]),
)


def color_table() -> str:
    """256 colors of the figures' color map, red, green, blue bytes in base64."""
    from matplotlib import colormaps

    from avfusion.alignment.pictures.clip import COLOR_MAP

    table = np.round(255 * colormaps[COLOR_MAP](np.arange(256))[:, :3]).astype(np.uint8)
    return _base64(table.tobytes())


def encode_media(scene: ViewerScene) -> SceneMedia:
    """Sound and pictures: most of the work, done once."""
    sounds = {"own": _sound(scene.sound, scene.log_mel)}
    if scene.other_sound is not None and scene.other_log_mel is not None:
        sounds["other"] = _sound(scene.other_sound, scene.other_log_mel)
    return SceneMedia(sounds, [([], None) if face.crops is None else _sheets(face.crops) for face in scene.faces])


def encode_scene(scene: ViewerScene, detail: Detail, media: SceneMedia) -> dict[str, Any]:
    """A scene as what ``viewer.js`` reads."""
    trained = [face.views["trained"][0].maps for face in scene.faces]
    every = [view.maps for face in scene.faces for views in face.views.values() for view in views.values()]
    largest = max(float(np.nanmax(maps, initial=0.0)) for maps in every) or 1.0
    seen = np.concatenate([maps[np.isfinite(maps)] for maps in trained])
    # As in the clip figure: the brightest half percent saturates, or one spike would darken every other head.
    bright = max(float(np.percentile(seen, 99.5)) if seen.size else 0.0, 1e-3)
    layers, heads = trained[0].shape[:2]
    return {
        "title": scene.title,
        "unmoved": scene.unmoved,
        "fps": scene.fps,
        "key_hz": AUDIO_HZ,
        "frames": scene.num_frames,
        "layers": layers,
        "heads": heads,
        "lags": trained[0].shape[-1],
        "largest": largest,
        "bright": bright,
        "words": [list(row) for row in scene.words],
        "warnings": list(scene.warnings),
        "sounds": media.sounds,
        "faces": [
            _face(face, largest, detail, *pictures) for face, pictures in zip(scene.faces, media.faces, strict=True)
        ],
    }


def mean_lags_ms(view: HeadView, frames: NDArray[np.bool_]) -> NDArray[np.float64]:
    """``(L, H)`` medians over the chosen frames of the mean lag; NaN for a head that hears almost nothing there.

    Only the lags that the maps hold count.
    """
    weights = np.nan_to_num(view.maps[:, :, frames].astype(np.float64))
    lags_ms = 1000.0 / AUDIO_HZ * (np.arange(weights.shape[-1]) - weights.shape[-1] // 2)
    mass = weights.sum(axis=-1)
    heard = (view.null_mass[:, :, frames] <= LAG_MAX_NULL) & (mass > 0)
    lag = np.where(heard, weights @ lags_ms / np.where(mass > 0, mass, 1.0), np.nan)
    enough = heard.sum(axis=-1) > frames.sum() / 2  # a few frames say little of a head
    medians = np.full(lag.shape[:2], np.nan)
    for place in zip(*np.nonzero(enough), strict=True):
        medians[place] = np.nanmedian(lag[place])
    return medians


def shift_slopes(lags_ms: Mapping[int, NDArray[np.float64]]) -> NDArray[np.float64] | None:
    """``(L, H)`` ms that the lag moves per ms that the sound moves, by least squares; None for fewer than 3 shifts."""
    if len(lags_ms) < 3:
        return None
    shifts = np.array(sorted(lags_ms), dtype=np.float64)
    lags = np.stack([lags_ms[int(shift)] for shift in shifts], axis=-1)
    centred = shifts - shifts.mean()
    slopes: NDArray[np.float64] = (lags * centred).sum(axis=-1) / (centred**2).sum()
    return slopes


def _face(
    face: ViewerFace, largest: float, detail: Detail, sheets: list[str], shape: list[int] | None
) -> dict[str, Any]:
    views: dict[str, Any] = {}
    lags: dict[str, Any] = {}
    slopes: dict[str, Any] = {}
    for variant in [name for name in VARIANTS if name in face.views]:
        shifts = sorted(face.views[variant])
        largest_shift_s = max(abs(shift) for shift in shifts) / 1000
        frames = _lag_frames(face.speaking, largest_shift_s)
        of_shift = {shift: mean_lags_ms(face.views[variant][shift], frames) for shift in shifts}
        lags[variant] = {str(shift): _plain(values) for shift, values in of_shift.items()}
        slope = shift_slopes(of_shift)
        slopes[variant] = None if slope is None else _plain(slope, 3)
        place = shifts.index(0)
        kept = shifts[place % detail.shift_step :: detail.shift_step] if variant in detail.shifts_of else [0]
        views[variant] = {
            str(shift): _view(face.views[variant][shift], largest, detail.shifted_levels if shift else 255)
            for shift in kept
        }
    heard = np.isfinite(face.views["trained"][0].maps[0, 0])  # (T, G): lags at which there is a key
    return {
        "name": face.name,
        "role": face.role,
        "first": face.first_frame,
        "frames": len(face.speaking),
        "labelled": face.labelled,
        "speaking": pack(face.speaking.astype(np.uint8)),
        "lag_from": pack(heard.argmax(axis=1).astype(np.uint8)),
        "lag_to": pack((heard.shape[1] - heard[:, ::-1].argmax(axis=1)).astype(np.uint8)),
        "region": [float(edge) for edge in face.region],
        "crop": shape,
        "sheets": sheets,
        "sheet_frames": SHEET_FRAMES,
        "views": views,
        "lags_ms": lags,
        "slopes": slopes,
        "ablated": {variant: pack(_score_levels(scores)) for variant, scores in face.ablated.items()},
    }


def _lag_frames(speaking: NDArray[np.bool_], margin_s: float) -> NDArray[np.bool_]:
    """Frames over which a head's lag is taken: speaking ones whose sound stays inside when it is moved, else others."""
    inside = np.zeros(len(speaking), dtype=bool)
    margin = round(margin_s * VIDEO_HZ)
    inside[margin : max(len(speaking) - margin, margin)] = True
    for frames in (speaking & inside, speaking, inside):
        if frames.any():
            return frames
    return np.ones(len(speaking), dtype=bool)


def _view(view: HeadView, largest: float, levels: int) -> dict[str, Any]:
    shares = np.sqrt(np.clip(np.nan_to_num(view.maps), 0.0, largest) / largest)
    maps = np.round(levels * shares).astype(np.uint8).swapaxes(-1, -2)  # (L, H, G, T): a row of the picture is a lag
    null = np.round(255 * np.clip(view.null_mass, 0, 1)).astype(np.uint8)
    return {
        "levels": levels,
        "maps": pack(maps, differences=True),
        "null": pack(null),
        "scores": pack(_score_levels(view.scores)),
    }


def _score_levels(scores: NDArray[np.float32]) -> NDArray[np.uint16]:
    levels: NDArray[np.uint16] = np.round(SCORE_LEVELS * np.clip(scores, 0.0, 1.0)).astype(np.uint16)
    return levels


def pack(array: NDArray[Any], *, differences: bool = False) -> dict[str, Any]:
    """An array of uint8 or uint16, deflated, in base64; ``differences``: along the last axis, modulo 256."""
    kept = array
    if differences:
        kept = array.copy()
        kept[..., 1:] -= array[..., :-1]
    little = kept.astype(kept.dtype.newbyteorder("<"), copy=False)
    return {
        "type": {1: "u8", 2: "u16"}[array.dtype.itemsize],
        "shape": list(array.shape),
        "differences": differences,
        "data": _base64(zlib.compress(np.ascontiguousarray(little).tobytes(), 6)),
    }


def _sound(samples: NDArray[np.float32], log_mel: NDArray[np.float32]) -> dict[str, Any]:
    """FLAC of 16 bits, and the log-mel in 255 shades between its 1st and 99.5th percentile."""
    import soundfile

    buffer = io.BytesIO()
    soundfile.write(buffer, np.clip(samples, -1, 1), SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    dark, light = np.percentile(log_mel, [1, 99.5])
    shades = np.round(255 * np.clip((log_mel - dark) / max(light - dark, 1e-6), 0, 1)).astype(np.uint8)
    return {"flac": _base64(buffer.getvalue()), "log_mel": pack(shades.T, differences=True)}


def _sheets(crops: NDArray[np.uint8]) -> tuple[list[str], list[int]]:
    """One WebP per second, its frames side by side; and height and width of a frame."""
    from PIL import Image

    height, width = crops.shape[1:]
    factor = min(1.0, MAX_CROP / max(height, width))
    size = (max(round(width * factor), 1), max(round(height * factor), 1))
    sheets = []
    for first in range(0, len(crops), SHEET_FRAMES):
        frames = [Image.fromarray(crop) for crop in crops[first : first + SHEET_FRAMES]]
        sheet = np.concatenate([np.asarray(frame.resize(size) if factor < 1 else frame) for frame in frames], axis=1)
        buffer = io.BytesIO()
        Image.fromarray(sheet).convert("RGB").save(buffer, "WEBP", quality=WEBP_QUALITY, method=4)
        sheets.append(_base64(buffer.getvalue()))
    return sheets, [size[1], size[0]]


def _plain(values: NDArray[np.float64], digits: int = 1) -> list[list[float | None]]:
    return [[round(float(value), digits) if np.isfinite(value) else None for value in row] for row in values]


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
