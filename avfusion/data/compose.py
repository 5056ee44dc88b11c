"""Turns planned scenes into sound and labels: source clips, voices and noises in, scenes out. No file is touched.

Every voice is brought to one level first, so that loudness gives nothing away. A label is 1 where the face's own voice
is active and heard.

Shapes: ``T`` video frames, ``640 T`` samples at 16 kHz, boxes ``(T, 4)`` as fractions of the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.data.compose_plan import ClipFacts, Recipe
from avfusion.media.audio import mix_at_snr
from avfusion.tracks import runs_of_true

Audio = NDArray[np.float32]

REFERENCE_RMS = 0.05  # -26 dB re full scale, of the active part of every voice
ROOM_RMS_RANGE = (0.0005, 0.004)  # of the room behind a face without sound
SILENT_PEAK = 1e-3  # a clip that stays below has no sound to speak of
MAX_GAP_FRAMES = 4  # pauses under 200 ms belong to the speech around them
MIN_STILL_FRAMES = 10
STILL_MARGIN_FRAMES = 3  # lips open before the voice starts and close after it ends
SEAM_SAMPLES = 80  # 5 ms of fading on both sides of the place where turned sound meets itself


@dataclass(frozen=True)
class SourceClip:
    """One talking face with its own sound.

    Attributes:
        facts: who and where from.
        audio: ``(640 T,)`` its sound at :data:`REFERENCE_RMS` (zeros for a face that never speaks).
        speaking: ``(T,)`` bool, where its voice is active.
        boxes_xyxy: ``(T, 4)`` fractions of the picture.
        crops: path of its crops, relative to the dataset's root.
        still_frames: ``(T,)`` numbers of its frames that show it not speaking, in an order without a jump; or empty.
        still_crops: path of those frames' crops; empty where there are none.
    """

    facts: ClipFacts
    audio: Audio
    speaking: NDArray[np.bool_]
    boxes_xyxy: NDArray[np.float32]
    crops: str
    still_frames: NDArray[np.int64]
    still_crops: str


@dataclass(frozen=True)
class SceneTrack:
    """One face of a scene: which crops file, where, when it is the one heard, and which clip of which corpus it is."""

    crops: str
    boxes_xyxy: NDArray[np.float32]
    speaking: NDArray[np.bool_]
    source: str
    clip_id: str


@dataclass(frozen=True)
class SceneVoice:
    """One of two voices: ``(640 T,)`` as it is in the mixture, ``(T,)`` where it speaks, and which face says it."""

    audio: Audio
    speaking: NDArray[np.bool_]
    face: int | None


@dataclass(frozen=True)
class Scene:
    """A composed scene: ``(640 T,)`` sound within -1..1, its one or two faces, and of ``overlap`` both voices alone."""

    audio: Audio
    tracks: tuple[SceneTrack, ...]
    voices: tuple[SceneVoice, ...] = ()


def compose_scene(recipe: Recipe, clips: Mapping[str, SourceClip], load_sound: Callable[[str], Audio]) -> Scene:
    """Makes one scene.

    Args:
        recipe: what was planned.
        clips: the source clips by id.
        load_sound: reads a voice or noise file as 16 kHz mono.

    Returns:
        The scene.
    """
    if recipe.role == "two_faces":
        return _two_faces(recipe, clips[recipe.faces[0]], clips[recipe.faces[1]])
    if recipe.role == "overlap":
        return _overlap(recipe, clips)
    face = clips[recipe.faces[0]]
    rng = np.random.default_rng(recipe.seed)
    num_samples = len(face.speaking) * SAMPLES_PER_VIDEO_FRAME
    heard = recipe.role in ("own_sound", "own_noisy")
    if recipe.role == "silence":
        audio = _room(recipe, num_samples, rng, load_sound)
    else:
        if recipe.sound in clips:
            audio = np.resize(clips[recipe.sound].audio, num_samples)
        elif recipe.sound:
            audio = to_reference_level(_stretch(load_sound(recipe.sound), num_samples, rng))
        else:
            audio = turn(face.audio, round(recipe.shift_s * SAMPLE_RATE))
        if recipe.interferer:
            active = np.repeat(face.speaking, SAMPLES_PER_VIDEO_FRAME) if heard else audible(audio)
            interferer = _stretch(load_sound(recipe.interferer), num_samples, rng)
            if audio[active].any() and interferer.any():
                audio = mix_at_snr(audio, interferer, recipe.snr_db, active).audio
    track = _still_track(face) if recipe.role == "still_face" else _moving_track(face, heard)
    return Scene(_within_one(audio), (track,))


def _two_faces(recipe: Recipe, left: SourceClip, right: SourceClip) -> Scene:
    num_frames = min(len(left.speaking), len(right.speaking))
    num_samples = num_frames * SAMPLES_PER_VIDEO_FRAME
    if recipe.variant == "both":
        ratio = np.float32(10.0 ** (recipe.snr_db / 40.0))  # both stand at the reference level
        audio = left.audio[:num_samples] * ratio + right.audio[:num_samples] / ratio
        tracks = [_moving_track(left, True), _moving_track(right, True)]
    else:
        left_heard = recipe.variant.startswith("left")
        audio = (left if left_heard else right).audio[:num_samples]
        unheard = _still_track if recipe.variant.endswith("still") else _unheard_track
        tracks = (
            [_moving_track(left, True), unheard(right)] if left_heard else [unheard(left), _moving_track(right, True)]
        )
    return Scene(_within_one(audio), _side_by_side(tracks, num_frames))


def _overlap(recipe: Recipe, clips: Mapping[str, SourceClip]) -> Scene:
    faces = [clips[clip_id] for clip_id in recipe.faces]
    num_frames = min(len(face.speaking) for face in faces)
    voices, tracks = [], []
    for number, (face, clip_id) in enumerate(zip(faces, recipe.voices, strict=True)):
        own, said = clip_id == face.facts.clip_id, clips[clip_id]
        gain = np.float32(10.0 ** ((-recipe.snr_db if number else recipe.snr_db) / 40.0))  # from the reference level
        audio = np.resize(said.audio, num_frames * SAMPLES_PER_VIDEO_FRAME) * gain
        voices.append(SceneVoice(audio, np.resize(said.speaking, num_frames), number if own else None))
        tracks.append(_moving_track(face, heard=own))
    mixed = voices[0].audio + voices[1].audio
    scale = np.float32(1.0 / max(1.0, float(np.abs(mixed).max())))
    voices = [replace(voice, audio=voice.audio * scale) for voice in voices]
    return Scene(mixed * scale, _side_by_side(tracks, num_frames), tuple(voices))


def _side_by_side(tracks: Sequence[SceneTrack], num_frames: int) -> tuple[SceneTrack, ...]:
    """Two tracks, each in its half of the picture."""
    placed = []
    for offset, track in zip((0.0, 0.5), tracks, strict=True):
        boxes = track.boxes_xyxy[:num_frames] * np.array([0.5, 1, 0.5, 1], dtype=np.float32)
        boxes = boxes + np.array([offset, 0, offset, 0], dtype=np.float32)
        placed.append(SceneTrack(track.crops, boxes, track.speaking[:num_frames], track.source, track.clip_id))
    return tuple(placed)


def _moving_track(face: SourceClip, heard: bool) -> SceneTrack:
    speaking = face.speaking if heard else np.zeros_like(face.speaking)
    return SceneTrack(face.crops, face.boxes_xyxy, speaking, face.facts.corpus, face.facts.clip_id)


def _unheard_track(face: SourceClip) -> SceneTrack:
    return _moving_track(face, heard=False)


def _still_track(face: SourceClip) -> SceneTrack:
    boxes = face.boxes_xyxy[face.still_frames]
    return SceneTrack(face.still_crops, boxes, np.zeros_like(face.speaking), face.facts.corpus, face.facts.clip_id)


def _room(recipe: Recipe, num_samples: int, rng: np.random.Generator, load_sound: Callable[[str], Audio]) -> Audio:
    """Nothing at all, or the quiet noise of a room."""
    if recipe.variant == "digital":
        return np.zeros(num_samples, dtype=np.float32)
    if recipe.interferer:
        noise = _stretch(load_sound(recipe.interferer), num_samples, rng)
    else:
        noise = rng.standard_normal(num_samples).astype(np.float32)
    rms = np.exp(rng.uniform(*np.log(ROOM_RMS_RANGE)))
    scale = np.float32(rms / max(float(np.sqrt(np.mean(noise**2))), 1e-6))
    return noise * scale


def turn(audio: Audio, num_samples: int) -> Audio:
    """Turns sound in a circle: what leaves at one end comes in at the other, so that no silent edge tells of the shift.

    Args:
        audio: ``(N,)``.
        num_samples: by how much; positive: later. At the seam the sound fades out and in, 5 ms each, against a click.

    Returns:
        ``(N,)``.
    """
    if num_samples % len(audio) == 0:
        return audio
    turned = np.roll(audio, num_samples)
    seam = num_samples % len(audio)  # here the old end, at seam - 1, meets the old beginning
    fade = min(SEAM_SAMPLES, seam, len(audio) - seam)
    if fade > 0:
        ramp = np.linspace(0.0, 1.0, fade, dtype=np.float32)
        turned[seam : seam + fade] *= ramp
        turned[seam - fade : seam] *= ramp[::-1]
    return turned


def active_frames(intervals_s: list[tuple[float, float]], num_frames: int) -> NDArray[np.bool_]:
    """Voice activity per video frame.

    A frame is active where speech fills at least half of its 40 ms; pauses under 200 ms are filled.

    Args:
        intervals_s: start and end of each stretch of speech, in seconds, not overlapping.
        num_frames: ``T``.

    Returns:
        ``(T,)`` bool.
    """
    edges_s = np.arange(num_frames + 1) / VIDEO_HZ
    covered_s = np.zeros(num_frames)
    for start_s, end_s in intervals_s:
        covered_s += np.clip(np.minimum(edges_s[1:], end_s) - np.maximum(edges_s[:-1], start_s), 0.0, None)
    active: NDArray[np.bool_] = covered_s >= 0.5 / VIDEO_HZ - 1e-9
    for start, end in runs_of_true(~active):
        if start > 0 and end < num_frames and end - start <= MAX_GAP_FRAMES:
            active[start:end] = True
    return active


def still_order(speaking: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Frames that show the face not speaking, to the length of the clip: its longest pause, forward and backward.

    Args:
        speaking: ``(T,)`` bool.

    Returns:
        ``(T,)`` frame numbers, neighbors differing by at most one; empty where no pause is long enough.
    """
    num_frames = len(speaking)
    pauses = []
    for start, end in runs_of_true(~speaking):
        first = start + (STILL_MARGIN_FRAMES if start > 0 else 0)
        last = end - (STILL_MARGIN_FRAMES if end < num_frames else 0)
        pauses.append((last - first, first))
    length, first = max(pauses, default=(0, 0))
    if length < MIN_STILL_FRAMES:
        return np.zeros(0, dtype=np.int64)
    position = np.arange(num_frames) % (2 * length - 2)
    return first + np.minimum(position, 2 * length - 2 - position)


def audible(audio: Audio) -> NDArray[np.bool_]:
    """Where sound is active: 20 ms stretches within 30 dB of the loudest.

    Args:
        audio: ``(N,)``.

    Returns:
        ``(N,)`` bool; all True where nothing is heard at all.
    """
    block = SAMPLE_RATE // 50
    padded = np.pad(audio, (0, -len(audio) % block)).reshape(-1, block)
    power = np.mean(np.square(padded, dtype=np.float64), axis=1)
    if power.max() == 0.0:
        return np.ones(len(audio), dtype=np.bool_)
    mask: NDArray[np.bool_] = np.repeat(power >= 1e-3 * power.max(), block)[: len(audio)]
    return mask


def to_reference_level(audio: Audio, active: NDArray[np.bool_] | None = None) -> Audio:
    """Scales a voice so that its active part has the level of all others.

    Args:
        audio: ``(N,)``.
        active: ``(N,)`` where it speaks; None finds out by energy.

    Returns:
        ``(N,)``; silence stays as it is.
    """
    mask = audible(audio) if active is None or not active.any() else active
    rms = float(np.sqrt(np.mean(np.square(audio[mask], dtype=np.float64))))
    return audio if rms == 0.0 else (audio * (REFERENCE_RMS / rms)).astype(np.float32)


def _stretch(audio: Audio, num_samples: int, rng: np.random.Generator) -> Audio:
    """A random stretch of a sound, repeated where it is too short."""
    if len(audio) <= num_samples:
        return np.resize(audio, num_samples)
    start = int(rng.integers(len(audio) - num_samples + 1))
    return audio[start : start + num_samples]


def _within_one(audio: Audio) -> Audio:
    peak = float(np.abs(audio).max(initial=0.0))
    return audio / np.float32(peak) if peak > 1.0 else audio
