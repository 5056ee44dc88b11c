"""Scenes for the viewer whose heads do exactly what was planted.

Head 1 follows the sound at +60 ms, head 2 stays at -100 ms, head 3 hears nothing while nobody speaks and follows at
0 ms else, head 4 is spread out; further heads stay elsewhere.
The sound has one click at 1.5 s, above half of full scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from avfusion.alignment.viewer.page import HeadView, ViewerFace, ViewerScene

LAGS_MS = np.arange(-500, 501, 10)
SHIFTS = tuple(range(-200, 201, 40))
CLICK_S = 1.5
FOLLOWS, STAYS, GATED, SPREAD = range(4)


def planted_view(
    speaking: NDArray[np.bool_], heads: int, shift_ms: int, variant: str, seed: int, first_frame: int, scene_frames: int
) -> HeadView:
    rng = np.random.default_rng(seed)
    frames = len(speaking)
    times_s = (first_frame + np.arange(frames)) / 25
    centres = np.empty((heads, frames))
    widths = np.full(heads, 40.0)
    trained = variant == "trained"
    for head in range(heads):
        follows = trained and head in (FOLLOWS, GATED)
        place = {FOLLOWS: 60, STAYS: -100, GATED: 0, SPREAD: 0}.get(head, -300 + 90 * head)
        centres[head] = place + (shift_ms if follows else 0) + 15 * np.sin(times_s * 7 + head)
        widths[head] = 300 if head == SPREAD else 40
    if not trained:
        centres[:] = 200 * np.sin(np.arange(heads))[:, None]
        widths[:] = 160
    maps = np.exp(-0.5 * ((LAGS_MS - centres[..., None]) / widths[:, None, None]) ** 2)
    maps *= 1 + 0.1 * rng.random(maps.shape)
    null = np.full((heads, frames), 0.1)
    if trained:
        null[GATED : GATED + 1] = np.where(speaking, 0.05, 0.95)
    maps *= (1 - null)[..., None] / maps.sum(-1, keepdims=True)
    keys_s = times_s[:, None] + LAGS_MS / 1000
    maps[:, (keys_s < -1e-6) | (keys_s > scene_frames / 25 - 0.01 + 1e-6)] = np.nan
    scores = np.clip(np.where(speaking, 0.9, 0.1) + 0.05 * np.sin(times_s * 9), 0, 1)
    if variant != "trained":
        scores = np.full(frames, 0.5) + 0.02 * np.sin(times_s)
    return HeadView(maps[None].astype(np.float32), null[None].astype(np.float32), scores.astype(np.float32))


def planted_scene(
    seconds: float = 6, heads: int = 4, faces: int = 2, title: str = "planted", shifts: Sequence[int] = SHIFTS
) -> ViewerScene:
    frames = round(25 * seconds)
    made = []
    for face in range(faces):
        first = 25 * face  # the second face comes a second later
        times_s = np.arange(first, frames) / 25
        speaking = np.sin(2 * np.pi * (times_s - 0.3) / 2.6 + np.pi * face) > 0
        views = {
            variant: {
                shift: planted_view(speaking, heads, shift, variant, face, first, frames)
                for shift in (shifts if variant != "other_sound" else (0,))
            }
            for variant in ("trained", "untrained", "other_sound")
        }
        base = views["trained"][0].scores
        without = np.stack([np.clip(base - 0.6 * (head == FOLLOWS) * speaking, 0, 1) for head in range(heads)])
        made.append(
            ViewerFace(
                name=f"{title}:{face}",
                role="own_sound" if face == 0 else "overlap",
                speaking=speaking,
                views=views,
                ablated={"trained": without[None].astype(np.float32)},
                crops=_faces(speaking, times_s, face),
                region=(0.2, 0.45, 0.8, 1.0),
                first_frame=first,
            )
        )
    sound, log_mel = _sound(frames, made[0].speaking)
    words = ["follows the sound (slope 0.99, R² 1.00), 60 ms after the picture, ΔAP −0.21", "positional (slope 0.00)"]
    words += ["follows the sound (slope 0.97, R² 0.99) while somebody speaks, else null", "idle (ΔAP 0.000)"]
    words += ["positional (slope 0.00)"] * heads
    return ViewerScene(
        title=title,
        sound=sound,
        log_mel=log_mel,
        faces=made,
        other_sound=sound[::-1].copy(),
        other_log_mel=log_mel[::-1].copy(),
        words=[words[:heads]],
    )


def _faces(speaking: NDArray[np.bool_], times_s: NDArray[np.float64], seed: int) -> NDArray[np.uint8]:
    """An oval with two eyes and a mouth that opens with speech, on grain as of a camera."""
    down, right = np.mgrid[:48, :48] / 48.0
    face = np.where(((right - 0.5) / 0.36) ** 2 + ((down - 0.5) / 0.46) ** 2 < 1, 190.0, 70.0 + 40 * seed)
    for eye in (0.36, 0.64):
        face[((right - eye) / 0.06) ** 2 + ((down - 0.4) / 0.035) ** 2 < 1] = 40
    opening = np.where(speaking, 0.03 + 0.06 * np.abs(np.sin(times_s * 14)), 0.012)
    mouth = ((right - 0.5) / 0.14) ** 2 + ((down - 0.74) / opening[:, None, None]) ** 2 < 1
    grain = np.random.default_rng(seed).normal(0, 5, (len(speaking), 48, 48))
    return np.clip(np.where(mouth, 60, face) + grain, 0, 255).astype(np.uint8)


def _sound(frames: int, speaking: NDArray[np.bool_]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(3)
    loud = np.zeros(frames, dtype=bool)
    loud[: len(speaking)] = speaking
    envelope = np.repeat(np.where(loud, 0.1, 0.005), 640) * (1 + np.sin(np.arange(640 * frames) / 16000 * 28))
    sound = (envelope * rng.normal(0, 0.7, 640 * frames)).clip(-0.4, 0.4)
    click = round(CLICK_S * 16000)
    sound[click : click + 40] = 0.8
    power = np.repeat(np.log(envelope.reshape(-1, 160).mean(1) + 1e-3)[:, None], 64, axis=1)
    log_mel = power + 0.4 * rng.normal(size=power.shape) + np.cos(np.arange(64) / 5)
    return sound.astype(np.float32), log_mel.astype(np.float32)
