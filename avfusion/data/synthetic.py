"""Synthetic talkers: face tracks with sound, made from a seed, for training and testing on a CPU in minutes.

Each scene shows one new person. Neither the moving mouth nor the sound decides whether that person is the one heard:
in ``dub`` scenes the mouth speaks one utterance while another, alike in pace and pauses, is heard. What is left to
learn is whether lips and sound belong together. Every voice and face is drawn afresh from (seed, split, index), so no
two splits share one.

Shapes: ``T`` video frames at 25 per second, ``640 T`` sound samples at 16 kHz.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.data.clips import Clip
from avfusion.data.synthetic_face import Face, HeadMovement, random_face, random_head_movement, wander
from avfusion.data.synthetic_picture import render_face
from avfusion.data.synthetic_script import MouthMovement, Script, chew, keep_still, random_script, speak
from avfusion.data.synthetic_voice import Voice, random_voice, render_noise_floor, render_voice
from avfusion.errors import UsageError
from avfusion.tracks import FaceTrack

ROLES = ("speaking", "silent", "dub", "chewing", "off_screen")
_ROLES_OF_TEN = ("speaking",) * 4 + ("dub",) * 3 + ("chewing", "off_screen", "silent")
_ROLE_STREAM, _SCENE_STREAM = 0, 1
MAX_LAG_MS = 80.0


@dataclass(frozen=True)
class SceneTruth:
    """What is exactly known about a scene.

    Attributes:
        role: one of :data:`ROLES`.
        mouth_opening: ``(T,)`` 0 = shut, 1 = wide open.
        mouth_width: ``(T,)`` 0 = round, 1 = spread.
        lag_ms: the sound comes this much later than the mouth movement that makes it; NaN unless the person is heard.
        phones: ``(N,)`` names of the phones heard; empty where nobody is heard.
        phones_s: ``(N, 2)`` start and end of each of them, cut at the ends of the scene like all intervals here.
        syllables_s: ``(K, 2)`` start and end of the syllables heard.
        voice_active_s: ``(P, 2)`` stretches with voice, whoever speaks; between them are pauses above 200 ms.
        blinks_s: times at which the lids are shut.
        voice: the voice heard, None where nobody is.
        face: the face seen.
    """

    role: str
    mouth_opening: NDArray[np.float64]
    mouth_width: NDArray[np.float64]
    lag_ms: float
    phones: tuple[str, ...]
    phones_s: NDArray[np.float64]
    syllables_s: NDArray[np.float64]
    voice_active_s: NDArray[np.float64]
    blinks_s: NDArray[np.float64]
    voice: Voice | None
    face: Face


@dataclass(frozen=True)
class _Scene:
    """A scene before it is rendered."""

    role: str
    heard: Script | None
    lag_ms: float
    voice: Voice
    level: float  # rms of the voice
    floor: float  # rms of the noise floor
    face: Face
    head: HeadMovement
    mouth: MouthMovement
    render_rng: np.random.Generator


def _in_scene(spans_s: NDArray[np.float64], scene_s: float) -> NDArray[np.bool_]:
    """True for the ``(N, 2)`` intervals that touch the scene."""
    touching: NDArray[np.bool_] = (spans_s[:, 1] > 0.0) & (spans_s[:, 0] < scene_s)
    return touching


def _cut(spans_s: NDArray[np.float64], scene_s: float) -> NDArray[np.float64]:
    """Cuts ``(N, 2)`` intervals at the ends of the scene and drops those outside."""
    return np.clip(spans_s[_in_scene(spans_s, scene_s)], 0.0, scene_s)


class SyntheticDataset:
    """Synthetic talkers as a :class:`avfusion.data.clips.ClipDataset`.

    Of every ten scenes four are ``speaking``, three ``dub``, and one each ``chewing``, ``off_screen`` and ``silent``.

    Attributes:
        name: names the dataset in reports.
        tracks: one face track per scene; making them renders neither pictures nor sound.
    """

    name: str
    tracks: Sequence[FaceTrack]

    def __init__(
        self, split: str, num_scenes: int, seed: int = 0, *, crop_size: int = 48, scene_s: float = 3.0
    ) -> None:
        """Plans the scenes.

        Args:
            split: any name; splits of different names share no voice, face or utterance.
            num_scenes: how many scenes; the first ones do not depend on how many follow.
            seed: starts all chance.
            crop_size: side of the face crops in pixels, at least 24.
            scene_s: length of every scene in seconds, at least 0.4.

        Raises:
            UsageError: if a number is out of range or the split has no name.
        """
        for what, found, least in (
            ("num_scenes", num_scenes, 1),
            ("seed", seed, 0),
            ("crop_size", crop_size, 24),
            ("scene_s", scene_s, 0.4),
        ):
            if not found >= least:
                raise UsageError(f"synthetic talkers: {what} is {found}, expected at least {least}; give a larger one")
        if not split:
            raise UsageError("synthetic talkers: the split has no name; give one such as 'train' or 'val'")
        self.name = "synthetic"
        self.split, self.seed, self.crop_size = split, seed, crop_size
        self.num_frames = round(scene_s * VIDEO_HZ)
        self._scene_s = self.num_frames / VIDEO_HZ
        self._times_s = np.arange(self.num_frames) / VIDEO_HZ
        self.tracks = [self._track(index) for index in range(num_scenes)]

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """Renders frames ``first_frame ..`` of track ``index`` with the sound of exactly those frames.

        The whole scene is rendered and cut, so that any part equals the same part of the whole, bit for bit.

        Raises:
            UsageError: if the scene or the stretch does not exist.
        """
        track = self._checked(index)
        end_frame = self.num_frames if num_frames is None else first_frame + num_frames
        if not 0 <= first_frame < end_frame <= self.num_frames:
            raise UsageError(
                f"frames {first_frame}..{end_frame} of {track.entity_id} wanted, but it has {self.num_frames};"
                f" ask for a stretch within 0..{self.num_frames}"
            )
        scene = self._scene(index)
        audio = self._render_sound(scene)
        crops = render_face(scene.render_rng, scene.face, scene.head, scene.mouth, self.crop_size)
        return Clip(
            crops=crops[first_frame:end_frame],
            audio=audio[first_frame * SAMPLES_PER_VIDEO_FRAME : end_frame * SAMPLES_PER_VIDEO_FRAME],
            speaking=track.speaking[first_frame:end_frame],
        )

    def truth(self, index: int) -> SceneTruth:
        """Exact times and parameters of a scene, without rendering it.

        Raises:
            UsageError: if the scene does not exist.
        """
        self._checked(index)
        scene = self._scene(index)
        heard = scene.heard
        phones: tuple[str, ...] = ()
        phones_s = syllables_s = voice_active_s = np.zeros((0, 2))
        if heard is not None:
            every_phone_s = np.stack([heard.edges_s[:-1], heard.edges_s[1:]], axis=1)
            sounding = _in_scene(every_phone_s, self._scene_s) & (np.array(heard.phones) != "rest")
            phones = tuple(heard.phones[n] for n in np.flatnonzero(sounding))
            phones_s = _cut(every_phone_s[sounding], self._scene_s)
            syllables_s = _cut(heard.syllables_s, self._scene_s)
            voice_active_s = _cut(heard.phrases_s, self._scene_s)
        return SceneTruth(
            role=scene.role,
            mouth_opening=scene.mouth.opening,
            mouth_width=scene.mouth.width,
            lag_ms=scene.lag_ms,
            phones=phones,
            phones_s=phones_s,
            syllables_s=syllables_s,
            voice_active_s=voice_active_s,
            blinks_s=scene.head.blinks_s,
            voice=scene.voice if heard else None,
            face=scene.face,
        )

    def _checked(self, index: int) -> FaceTrack:
        if not 0 <= index < len(self.tracks):
            raise UsageError(
                f"scene {index} of split '{self.split}' wanted, but it has {len(self.tracks)};"
                f" ask for 0..{len(self.tracks) - 1}"
            )
        return self.tracks[index]

    def _rng(self, stream: int, number: int) -> np.random.Generator:
        entropy = (self.seed, zlib.crc32(self.split.encode()), stream, number)
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))

    def _role(self, index: int) -> str:
        block, place = divmod(index, len(_ROLES_OF_TEN))
        return _ROLES_OF_TEN[self._rng(_ROLE_STREAM, block).permutation(len(_ROLES_OF_TEN))[place]]

    def _scene(self, index: int) -> _Scene:
        """Draws everything about a scene but noise, the same at every call."""
        role, rng = self._role(index), self._rng(_SCENE_STREAM, index)
        face, voice = random_face(rng), random_voice(rng)
        head = random_head_movement(rng, self.num_frames)
        lag_ms, syllable_hz, articulation = rng.uniform(0.0, MAX_LAG_MS), rng.uniform(3.0, 6.0), rng.uniform(0.75, 1.1)
        # Two utterances of one pace: a dubbed mouth speaks the second while the first is heard.
        first, second = (random_script(rng, self._scene_s, syllable_hz) for _ in range(2))
        someone_else_speaks = role == "off_screen" or (role == "chewing" and index // 10 % 2 == 1)
        if role in ("speaking", "dub"):
            seen = first if role == "speaking" else second
            mouth = speak(seen, self._scene_s, self._times_s + lag_ms / 1000, articulation)
        else:
            mouth = chew(rng, self._times_s) if role == "chewing" else keep_still(self._times_s)
        restless = MouthMovement(
            opening=np.maximum(mouth.opening + wander(rng, self.num_frames, 0.015), 0.0),
            width=mouth.width + wander(rng, self.num_frames, 0.08) + rng.normal(0.0, 0.05),
            sideways=mouth.sideways,
        )
        level = 0.06 * 10 ** (rng.uniform(-6.0, 6.0) / 20)
        return _Scene(
            role=role,
            heard=first if role in ("speaking", "dub") or someone_else_speaks else None,
            lag_ms=lag_ms if role == "speaking" else float("nan"),
            voice=voice,
            level=level,
            floor=level * 10 ** (-rng.uniform(15.0, 35.0) / 20),
            face=face,
            head=head,
            mouth=restless,
            render_rng=rng,
        )

    def _track(self, index: int) -> FaceTrack:
        scene, video_id = self._scene(index), f"{self.split}_{index:05d}"
        speaking = np.zeros(self.num_frames, dtype=bool)
        if scene.role == "speaking" and scene.heard is not None:
            speaking = scene.heard.voiced_at(self._times_s)
        return FaceTrack(
            video_id=video_id,
            entity_id=f"{video_id}:0",
            start_s=0.0,
            speaking=speaking,
            boxes_xyxy=np.tile(np.array([0.25, 0.25, 0.75, 0.75], dtype=np.float32), (self.num_frames, 1)),
            audio_id=video_id,
            role=scene.role,
            source="synthetic",
        )

    def _render_sound(self, scene: _Scene) -> NDArray[np.float32]:
        num_samples = round(self._scene_s * SAMPLE_RATE)
        sound = np.float32(scene.floor) * render_noise_floor(scene.render_rng, num_samples)
        if scene.heard is not None:
            voice = render_voice(scene.render_rng, scene.heard, scene.voice, num_samples)
            sound = sound + np.float32(scene.level) * voice
        return sound / np.float32(max(1.0, float(np.abs(sound).max()) / 0.99))
