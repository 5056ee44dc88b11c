"""Synthetic talkers as a dataset: face tracks with sound, made from a seed, in memory.

Every scene has new people, drawn from (seed, split, scene), so no two splits share a voice or a face. Nothing is kept:
a scene is planned and rendered again at every read, the same to the last bit.

Shapes: ``T`` video frames at 25 per second, ``640 T`` sound samples at 16 kHz.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np

from avfusion.clock import SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.data.clips import Clip, Skipped
from avfusion.data.synthetic.draft import LAG_MS, Scene
from avfusion.data.synthetic.picture import render_face
from avfusion.data.synthetic.scenes import ROLES, SCENES_PER_BLOCK, plan_scene
from avfusion.data.synthetic.sound import mix, render_voices
from avfusion.data.synthetic.truth import SceneTruth, describe
from avfusion.errors import UsageError
from avfusion.processes import one_numpy_thread
from avfusion.tracks import FaceTrack

_BLOCK = tuple(role for role, count in SCENES_PER_BLOCK.items() for _ in range(count))
MAX_SCENE_S = 600.0

_ROLE_STREAM, _SCENE_STREAM, _SOUND_STREAM, _PICTURE_STREAM = range(4)


class SyntheticDataset:
    """Synthetic talkers as a :class:`avfusion.data.clips.ClipDataset`.

    Every :data:`~avfusion.data.synthetic.scenes.SCENES_PER_BLOCK` scenes hold each role as often as that table says.

    Attributes:
        name: names the dataset in reports.
        tracks: the face tracks of all scenes; making them renders neither pictures nor sound.
        scene_of_track: which scene each track belongs to, and which of its faces it is.
    """

    name: str
    tracks: Sequence[FaceTrack]

    def __init__(
        self,
        split: str,
        num_scenes: int,
        seed: int = 0,
        *,
        crop_size: int = 48,
        scene_s: float = 3.0,
        espeak: float = 0.0,
        roles: Sequence[str] = (),
        lag_ms: Sequence[float] = LAG_MS,
    ) -> None:
        """Plans the scenes.

        Args:
            split: any name; splits of different names share no voice, face or utterance.
            num_scenes: how many scenes; the first ones do not depend on how many follow.
            seed: starts all chance.
            crop_size: side of the face crops in pixels, at least 24.
            scene_s: length of every scene in seconds, at least 0.4.
            espeak: share 0..1 of the voices that come from the espeak-ng library.
            roles: kinds of scene, each as often as it is named; none for the usual mixture.
            lag_ms: the sound comes so much after its mouth, from and to, within the natural range.

        Raises:
            UsageError: if a number is out of range or the split has no name, if a role is unknown, or if espeak-ng is
                asked for and absent.
        """
        for what, found, least in (
            ("num_scenes", num_scenes, 1),
            ("seed", seed, 0),
            ("crop_size", crop_size, 24),
            ("scene_s", scene_s, 0.4),
            ("espeak", espeak, 0.0),
        ):
            if not least <= found < math.inf:
                raise UsageError(f"synthetic talkers: {what} is {found}, expected at least {least}, and finite")
        if espeak > 1:
            raise UsageError(f"synthetic talkers: espeak is {espeak}, expected a share from 0 to 1; give a smaller one")
        if scene_s > MAX_SCENE_S:
            raise UsageError(f"synthetic talkers: scene_s is {scene_s}, expected at most {MAX_SCENE_S}")
        if not (len(lag_ms) == 2 and LAG_MS[0] <= lag_ms[0] <= lag_ms[1] <= LAG_MS[1]):
            raise UsageError(
                f"synthetic talkers: lag_ms is {list(lag_ms)}, expected the least and the most ms by which sound"
                f" follows its mouth, within {LAG_MS[0]:g}..{LAG_MS[1]:g} (what is natural)"
            )
        unknown = [role for role in roles if role not in ROLES]
        if unknown:
            raise UsageError(f"synthetic talkers: {unknown[0]!r} is no role; expected some of {', '.join(ROLES)}")
        if espeak > 0:
            from avfusion.data.synthetic.espeak_library import require_espeak

            require_espeak()
        if not split:
            raise UsageError("synthetic talkers: the split has no name; give one such as 'train' or 'val'")
        self.name = "synthetic"
        self.skipped = Skipped()
        self.split, self.num_scenes, self.seed, self.crop_size, self.espeak = split, num_scenes, seed, crop_size, espeak
        self.num_frames = round(scene_s * VIDEO_HZ)
        self.lag_ms = (float(lag_ms[0]), float(lag_ms[1]))
        self._block = tuple(sorted(roles, key=ROLES.index)) or _BLOCK
        scenes = [self.scene(number) for number in range(num_scenes)]
        self.scene_of_track = [
            (number, face) for number, scene in enumerate(scenes) for face in range(len(scene.faces))
        ]
        self.tracks = [self._track(number, face, scenes[number]) for number, face in self.scene_of_track]

    @one_numpy_thread()
    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """Renders frames ``first_frame ..`` of track ``index`` with the sound of exactly those frames.

        The whole scene is rendered and cut, so that any part equals the same part of the whole, bit for bit, however
        many threads numpy has.

        Raises:
            UsageError: if the track or the stretch does not exist.
        """
        number, face = self._place(index)
        track = self.tracks[index]
        end_frame = self.num_frames if num_frames is None else first_frame + num_frames
        if not 0 <= first_frame < end_frame <= self.num_frames:
            raise UsageError(
                f"frames {first_frame}..{end_frame} of {track.entity_id} wanted, but it has {self.num_frames};"
                f" ask for a stretch within 0..{self.num_frames}"
            )
        scene, rng = self.scene(number), self.sound_rng(number)
        audio, _ = mix(rng, scene, render_voices(rng, scene))
        shown = scene.faces[face]
        grain = self.picture_rng(number, face)
        crops = render_face(grain, shown.face, shown.head, shown.mouth, shown.camera, self.crop_size)
        return Clip(
            crops=crops[first_frame:end_frame],
            audio=audio[first_frame * SAMPLES_PER_VIDEO_FRAME : end_frame * SAMPLES_PER_VIDEO_FRAME],
            speaking=track.speaking[first_frame:end_frame],
        )

    @one_numpy_thread()
    def truth(self, index: int) -> SceneTruth:
        """Everything exactly known about the scene of track ``index``; renders its voices, not its pictures.

        Raises:
            UsageError: if the track does not exist.
        """
        number, _ = self._place(index)
        scene, rng = self.scene(number), self.sound_rng(number)
        voices = render_voices(rng, scene)
        _, scale = mix(rng, scene, voices)
        return describe(self.video_id(number), scene, voices, scale)

    def scene(self, number: int) -> Scene:
        """A scene before it is rendered, the same at every call."""
        role, turn = self._role(number)
        return plan_scene(self._rng(_SCENE_STREAM, number), role, self.num_frames, turn, self.espeak, self.lag_ms)

    def sound_rng(self, number: int) -> np.random.Generator:
        """What the sound of a scene is drawn from: first the voices, then the rest."""
        return self._rng(_SOUND_STREAM, number)

    def picture_rng(self, number: int, face: int) -> np.random.Generator:
        """What the grain of a face of a scene is drawn from."""
        return self._rng(_PICTURE_STREAM, number, face)

    def video_id(self, number: int) -> str:
        """The name of a scene."""
        return f"{self.split}_{number:05d}"

    def _place(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self.tracks):
            raise UsageError(
                f"track {index} of split '{self.split}' wanted, but it has {len(self.tracks)};"
                f" ask for 0..{len(self.tracks) - 1}"
            )
        return self.scene_of_track[index]

    def _rng(self, *stream: int) -> np.random.Generator:
        entropy = (self.seed, zlib.crc32(self.split.encode()), *stream)
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))

    def _role(self, number: int) -> tuple[str, int]:
        """The role of a scene, and how many scenes of that role are counted before it."""
        block, place = divmod(number, len(self._block))
        entry = int(self._rng(_ROLE_STREAM, block).permutation(len(self._block))[place])
        role = self._block[entry]
        return role, block * self._block.count(role) + entry - self._block.index(role)

    def _track(self, number: int, face: int, scene: Scene) -> FaceTrack:
        box = np.array(scene.faces[face].box_xyxy, dtype=np.float32)
        video_id = self.video_id(number)
        return FaceTrack(
            video_id=video_id,
            entity_id=f"{video_id}:{face}",
            start_s=0.0,
            speaking=scene.speaking(face),
            boxes_xyxy=np.tile(box, (self.num_frames, 1)),
            audio_id=video_id,
            role=scene.role,
            source="synthetic",
            lag_ms=scene.faces[face].lag_ms,
        )
