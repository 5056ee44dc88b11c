"""What is exactly known about a synthetic scene, to the millisecond; written as one JSON file a scene.

All times are in seconds on the sound's clock, which starts with the picture; intervals are cut at the ends of the
scene. Shapes: ``T`` video frames at 25 per second, ``A = 4 T`` audio frames at 100 per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, AUDIO_HZ, SAMPLE_RATE, VIDEO_HZ
from avfusion.data.synthetic.draft import HeardVoice, Scene, ShownFace
from avfusion.data.synthetic.script import Script
from avfusion.data.synthetic.voice import pitch_track

REST = "rest"


@dataclass(frozen=True)
class VoiceTruth:
    """One voice of the sound.

    Attributes:
        entity_id: the face that is heard to say it; empty when the speaker is not seen, or not seen saying it.
        phones: ``(N,)`` names of the phones.
        phones_s: ``(N, 2)`` start and end of each.
        bursts: ``(B,)`` names of the plosives released; ``bursts_s`` ``(B,)`` the times of the releases.
        syllables_s: ``(K, 2)`` syllables.
        active_s: ``(P, 2)`` phrases; between them are pauses of at least 250 ms.
        envelope: ``(A,)`` rms of this voice alone in the mixture, over each step of 10 ms.
        f0_hz: ``(A,)`` fundamental frequency in the middle of each of these steps, 0 where unvoiced.
        level_db: level of its voiced stretches against the first voice of the scene.
        pitch_hz, tract_scale: who it is.
    """

    entity_id: str
    phones: tuple[str, ...]
    phones_s: NDArray[np.float64]
    bursts: tuple[str, ...]
    bursts_s: NDArray[np.float64]
    syllables_s: NDArray[np.float64]
    active_s: NDArray[np.float64]
    envelope: NDArray[np.float64]
    f0_hz: NDArray[np.float64]
    level_db: float
    pitch_hz: float
    tract_scale: float


@dataclass(frozen=True)
class FaceTruth:
    """One face of the picture.

    Attributes:
        entity_id: its track.
        motion: what the mouth does (see ``ShownFace``).
        voice: number of the voice that is heard from it in step; None where there is none.
        lag_ms: the sound comes this much after the mouth; None where ``voice`` is None.
        shift_ms: the same for words heard at the wrong time (role ``shifted``); None for all others.
        speaking: ``(T,)`` the labels.
        mouth_opening, mouth_width: ``(T,)`` 0 shut or round, 1 wide.
        said, said_s: phones that the mouth makes, and ``(N, 2)`` the times at which it makes them in the picture.
        blinks_s: times at which the lids are shut.
        face_px: side of the face in the picture.
        occluded_s: ``(N, 2)`` when something hides part of the face, or all of it.
    """

    entity_id: str
    motion: str
    voice: int | None
    lag_ms: float | None
    shift_ms: float | None
    speaking: NDArray[np.bool_]
    mouth_opening: NDArray[np.float64]
    mouth_width: NDArray[np.float64]
    said: tuple[str, ...]
    said_s: NDArray[np.float64]
    blinks_s: NDArray[np.float64]
    face_px: float
    occluded_s: NDArray[np.float64]


@dataclass(frozen=True)
class SceneTruth:
    """A scene: its role, its voices and its faces.

    Attributes:
        video_id: names the scene.
        role: what kind of scene it is.
        background: ``noise``, ``music``, ``babble`` or empty.
        snr_db: level of the first voice's voiced stretches over the background; NaN without one or the other.
    """

    video_id: str
    role: str
    background: str
    snr_db: float
    voices: tuple[VoiceTruth, ...]
    faces: tuple[FaceTruth, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists, times to 0.01 ms; NaN becomes null."""
        plain = _plain(self)
        assert isinstance(plain, dict)
        return {"video_hz": VIDEO_HZ, "audio_hz": AUDIO_HZ, **plain}


def describe(video_id: str, scene: Scene, voices: list[NDArray[np.float32]], scale: float) -> SceneTruth:
    """Collects the truth of a scene.

    Args:
        video_id: names the scene.
        scene: the scene.
        voices: each voice by itself, ``(640 T,)``, as ``sound.render_voices`` makes them.
        scale: the factor by which the mixture was scaled.
    """
    level = scene.voices[0].level if scene.voices else math.nan
    speaker = {face.voice: f"{video_id}:{number}" for number, face in enumerate(scene.faces)}
    return SceneTruth(
        video_id=video_id,
        role=scene.role,
        background=scene.background,
        snr_db=20 * math.log10(level / scene.background_level) if scene.background and scene.voices else math.nan,
        voices=tuple(
            _voice_truth(scene, voice, speaker.get(number, ""), sound * np.float32(scale))
            for number, (voice, sound) in enumerate(zip(scene.voices, voices, strict=True))
        ),
        faces=tuple(_face_truth(scene, number, f"{video_id}:{number}") for number in range(len(scene.faces))),
    )


def _voice_truth(scene: Scene, voice: HeardVoice, entity_id: str, sound: NDArray[np.float32]) -> VoiceTruth:
    script = voice.utterance.script
    phones, phones_s = _phones(script, scene.scene_s)
    bursts, bursts_s = script.bursts()
    inside = (bursts_s >= 0.0) & (bursts_s < scene.scene_s)
    steps = scene.num_frames * AUDIO_FRAMES_PER_VIDEO_FRAME
    power = np.square(sound.reshape(steps, SAMPLE_RATE // AUDIO_HZ), dtype=np.float64).mean(axis=1)
    return VoiceTruth(
        entity_id=entity_id,
        phones=phones,
        phones_s=phones_s,
        bursts=tuple(name for name, within in zip(bursts, inside, strict=True) if within),
        bursts_s=bursts_s[inside],
        syllables_s=cut(script.syllables_s, scene.scene_s),
        active_s=cut(script.phrases_s, scene.scene_s),
        envelope=np.sqrt(power),
        f0_hz=pitch_track(voice.utterance, steps, at_s=0.5 / AUDIO_HZ).astype(np.float64),
        level_db=20 * math.log10(voice.level / scene.voices[0].level),
        pitch_hz=voice.utterance.voice.pitch_hz,
        tract_scale=voice.utterance.voice.tract_scale,
    )


def _face_truth(scene: Scene, number: int, entity_id: str) -> FaceTruth:
    face: ShownFace = scene.faces[number]
    said, said_s = ((), np.zeros((0, 2))) if face.said is None else _phones(face.said, scene.scene_s)
    hiding = [face.camera.occluder] if face.camera.occluder else []
    hidden_s = [(occluder.start_s, occluder.end_s) for occluder in (*hiding, *face.camera.covers)]
    return FaceTruth(
        entity_id=entity_id,
        motion=face.motion,
        voice=face.voice,
        lag_ms=face.lag_ms,
        shift_ms=face.shift_ms,
        speaking=scene.speaking(number),
        mouth_opening=face.mouth.opening,
        mouth_width=face.mouth.width,
        said=said,
        said_s=said_s,
        blinks_s=face.head.blinks_s,
        face_px=float(face.camera.face_px),
        occluded_s=cut(np.array(hidden_s, dtype=np.float64).reshape(-1, 2), scene.scene_s),
    )


def cut(spans_s: NDArray[np.float64], scene_s: float) -> NDArray[np.float64]:
    """Cuts ``(N, 2)`` intervals at the ends of the scene and drops those outside."""
    return np.clip(spans_s[_touches(spans_s, scene_s)], 0.0, scene_s)


def _touches(spans_s: NDArray[np.float64], scene_s: float) -> NDArray[np.bool_]:
    touching: NDArray[np.bool_] = (spans_s[:, 1] > 0.0) & (spans_s[:, 0] < scene_s)
    return touching


def _phones(script: Script, scene_s: float) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """The phones of a script that touch the scene, without its rests, and their intervals."""
    spans_s = np.stack([script.edges_s[:-1], script.edges_s[1:]], axis=1)
    kept = _touches(spans_s, scene_s) & (np.array(script.phones) != REST)
    return tuple(script.phones[n] for n in np.flatnonzero(kept)), cut(spans_s[kept], scene_s)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype == bool else _plain(np.round(value.astype(np.float64), 5).tolist())
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 5)
    return value
