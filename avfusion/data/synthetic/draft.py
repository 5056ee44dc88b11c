"""A scene being drawn: people who let their voices be heard on the sound's clock and show faces on the picture's.

The picture runs ahead of the sound by the lag of each face. Shapes: ``T`` video frames at 25 per second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.data.synthetic.camera import Camera, random_camera
from avfusion.data.synthetic.face import Face, HeadMovement, random_face, random_head_movement, wander
from avfusion.data.synthetic.mouth import MouthMovement, chew, keep_still, smile, speak, yawn
from avfusion.data.synthetic.script import Script
from avfusion.data.synthetic.voice import Utterance, Voice, make_utterance, random_voice

PICTURE_SIZE_PX = (640, 360)
"""Width and height of the picture that the face boxes lie in."""

LAG_MS = (-40.0, 200.0)
"""The sound comes this much after the mouth movement that makes it, drawn anew for every face: the range of natural
speech (Schwartz and Savariaux 2014, PLoS Comput Biol 10(7): 40 ms audio lead to 200 ms audio lag)."""

SHIFTS_S = ((-1.3, -0.3), (0.45, 1.5))
"""Lag of a sound that does not belong to its picture any more, early and late: 0.25 s or more from what is natural."""

OVERLAP_DB = (-5.0, 5.0)
BACKGROUND_CHANCE = 0.35
BACKGROUND_SNR_DB = (3.0, 20.0)
BACKGROUNDS = ("noise", "music", "babble")

_MARGIN_S = 2.2  # what is said runs this far past both ends of a scene: more than a phrase, so that no end is felt


@dataclass(frozen=True)
class Person:
    """One person of one scene.

    Attributes:
        face, voice: who it is.
        articulation: how far they open the mouth, about 0.75..1.1.
        espeak: everything they say comes from the espeak-ng library.
    """

    face: Face
    voice: Voice
    articulation: float
    espeak: bool


@dataclass(frozen=True)
class HeardVoice:
    """One voice of the sound; ``level`` is its rms while voiced."""

    utterance: Utterance
    level: float


@dataclass(frozen=True)
class ShownFace:
    """One face of the picture.

    Attributes:
        face, head, mouth, camera: all that is drawn.
        motion: what the mouth does: ``speech``, ``other_speech``, ``shifted_speech``, ``chewing``, ``smiling``,
            ``yawning``, ``still``.
        said: what the mouth says, on the picture's clock; None unless it speaks.
        voice: which voice of the scene is this person's, heard in step; None where none is.
        lag_ms: the sound comes this much after the mouth; None where ``voice`` is None.
        shift_ms: the same for words that are heard at the wrong time; None for all others.
        box_xyxy: the face in the picture, fractions.
    """

    face: Face
    head: HeadMovement
    mouth: MouthMovement
    camera: Camera
    motion: str
    said: Script | None
    voice: int | None
    lag_ms: float | None
    box_xyxy: tuple[float, float, float, float]
    shift_ms: float | None = None


@dataclass(frozen=True)
class Scene:
    """A scene before it is rendered.

    Attributes:
        role: a key of :data:`RECIPES`.
        num_frames: ``T``.
        voices: who is heard.
        faces: who is seen.
        background: one of :data:`BACKGROUNDS`, or empty.
        background_level: its rms.
        floor_level: rms of the room noise that is always there.
    """

    role: str
    num_frames: int
    voices: tuple[HeardVoice, ...]
    faces: tuple[ShownFace, ...]
    background: str
    background_level: float
    floor_level: float

    @property
    def scene_s(self) -> float:
        """Length in seconds."""
        return self.num_frames / VIDEO_HZ

    def speaking(self, face: int) -> NDArray[np.bool_]:
        """``(T,)`` True in the frames whose moment lies in a phrase that this face is heard to say."""
        voice = self.faces[face].voice
        if voice is None:
            return np.zeros(self.num_frames, dtype=bool)
        return self.voices[voice].utterance.script.voiced_at(np.arange(self.num_frames) / VIDEO_HZ)


class Draft:
    """A scene being drawn; ``turn`` counts the scenes of its role, so that recipes can balance what they choose."""

    def __init__(
        self, rng: np.random.Generator, num_frames: int, turn: int, espeak: float, lag_ms: tuple[float, float] = LAG_MS
    ) -> None:
        self.rng, self.num_frames, self.turn, self.espeak, self.lags_ms = rng, num_frames, turn, espeak, lag_ms
        self.times_s = np.arange(num_frames) / VIDEO_HZ
        self.start_s, self.end_s = -_MARGIN_S, num_frames / VIDEO_HZ + _MARGIN_S
        self.level = 0.06 * 10 ** (rng.uniform(-6.0, 6.0) / 20)
        self.voices: list[HeardVoice] = []
        self.faces: list[ShownFace] = []
        self.background = ""

    def person(self, *, told_when: bool = False) -> Person:
        """Somebody new; ``told_when`` for one who will speak in given phrases, which espeak-ng cannot keep to."""
        face, voice, articulation = random_face(self.rng), random_voice(self.rng), self.rng.uniform(0.75, 1.1)
        from_library = self.espeak > 0 and self.rng.random() < self.espeak
        return Person(face, voice, articulation, from_library and not told_when)

    def coin(self) -> bool:
        """A fair coin."""
        return bool(self.rng.random() < 0.5)

    def short_phrases(self) -> NDArray[np.float64]:
        """``(P, 2)`` stretches of 0.5..1 s with pauses of 0.25..0.4 s, for several people to speak in."""
        phrases_s, now_s = [], self.start_s - self.rng.uniform(3.0, 5.0)
        while now_s < self.end_s - 1.1:
            end_s = now_s + self.rng.uniform(0.5, 1.0)
            if now_s > self.start_s + 0.15:
                phrases_s.append((now_s, end_s))
            now_s = end_s + self.rng.uniform(0.25, 0.4)
        return np.array(phrases_s)

    def hear(self, person: Person, phrases_s: NDArray[np.float64] | None = None, level_db: float = 0.0) -> int:
        """Lets a person be heard, in given phrases or in phrases of their own; returns the number of the voice."""
        self.voices.append(HeardVoice(self._utterance(person, phrases_s), self.level * 10 ** (level_db / 20)))
        return len(self.voices) - 1

    def show_talking(self, person: Person, voice: int) -> None:
        """Shows the person whose voice it is, lips moving a natural lag before it."""
        lag_ms = self._lag_ms()
        said = self.voices[voice].utterance.script
        self._show_saying(person, "speech", said, lag_ms / 1000, voice)

    def show_saying_else(self, person: Person, phrases_s: NDArray[np.float64] | None = None) -> None:
        """Shows a person who says something that nobody hears, in given phrases or in phrases of their own."""
        said = self._utterance(person, phrases_s).script
        self._show_saying(person, "other_speech", said, self._lag_ms() / 1000)

    def show_quiet(self, person: Person, motion: str = "still") -> None:
        """Shows a person who does not speak: ``still``, ``chewing``, ``smiling`` or ``yawning``."""
        if motion == "still":
            mouth = keep_still(self.times_s)
        else:
            mouth = {"chewing": chew, "smiling": smile, "yawning": yawn}[motion](self.rng, self.times_s)
        self._show(person, mouth, motion)

    def show_out_of_step(self, person: Person) -> None:
        """Lets a person be heard and shows the lips that said it, but at the wrong time."""
        early_or_late = SHIFTS_S[int(self.rng.integers(2))]
        shift_s = self.rng.uniform(*early_or_late)
        reach_s = max(abs(edge) for span in SHIFTS_S for edge in span)
        utterance = self._utterance(person, None, reach_s)
        self.voices.append(HeardVoice(utterance, self.level))
        self._show_saying(person, "shifted_speech", utterance.script, shift_s)
        self.faces[-1] = replace(self.faces[-1], shift_ms=1000 * shift_s)

    def finish(self, role: str) -> Scene:
        """The scene, with its background and its room."""
        rng = self.rng
        chance, kind = rng.random() < BACKGROUND_CHANCE, BACKGROUNDS[int(rng.integers(len(BACKGROUNDS)))]
        snr_db, floor_db = rng.uniform(*BACKGROUND_SNR_DB), rng.uniform(15.0, 35.0)
        background = self.background or (kind if chance and self.voices else "")
        if self.background:
            snr_db = 0.0  # nobody speaks near by: the background is as loud as a voice would be
        return Scene(
            role=role,
            num_frames=self.num_frames,
            voices=tuple(self.voices),
            faces=tuple(self.faces),
            background=background,
            background_level=self.level * 10 ** (-snr_db / 20),
            floor_level=self.level * 10 ** (-floor_db / 20),
        )

    def _lag_ms(self) -> float:
        return float(self.rng.uniform(*self.lags_ms))

    def _utterance(self, person: Person, phrases_s: NDArray[np.float64] | None, beyond_s: float = 0.0) -> Utterance:
        start_s, end_s = self.start_s - beyond_s, self.end_s + beyond_s
        if person.espeak:  # has words and pauses of its own, whatever is asked for
            from avfusion.data.synthetic.espeak import espeak_utterance

            return espeak_utterance(self.rng, person.voice, start_s, end_s)
        return make_utterance(self.rng, person.voice, start_s, end_s, phrases_s)

    def _show_saying(self, person: Person, motion: str, script: Script, lag_s: float, voice: int | None = None) -> None:
        """Shows lips that say a script ``lag_s`` before its own clock."""
        mouth = speak(script, self.times_s + lag_s, person.articulation)
        self._show(person, mouth, motion, script.moved(-lag_s), voice, None if voice is None else 1000 * lag_s)

    def _show(
        self,
        person: Person,
        mouth: MouthMovement,
        motion: str,
        said: Script | None = None,
        voice: int | None = None,
        lag_ms: float | None = None,
    ) -> None:
        rng, frames = self.rng, self.num_frames
        restless = MouthMovement(
            opening=np.where(mouth.opening > 0, np.maximum(mouth.opening + wander(rng, frames, 0.015), 0.0), 0.0),
            width=mouth.width + wander(rng, frames, 0.08) + rng.normal(0.0, 0.05),
            rounding=mouth.rounding,
            teeth=mouth.teeth,
            smile=mouth.smile + wander(rng, frames, 0.06),
            sideways=mouth.sideways,
        )
        camera = random_camera(rng, frames)
        box = self._box(camera.face_px)
        head = random_head_movement(rng, frames)
        self.faces.append(ShownFace(person.face, head, restless, camera, motion, said, voice, lag_ms, box))

    def _box(self, face_px: float) -> tuple[float, float, float, float]:
        """Where the face is: the first face anywhere in the left half of the picture, the second in the right half."""
        width, height = face_px / PICTURE_SIZE_PX[0], face_px / PICTURE_SIZE_PX[1]
        left = 0.5 * (len(self.faces) % 2) + self.rng.uniform(0.0, 0.5 - width)
        top = self.rng.uniform(0.0, 1.0 - height)
        return (left, top, left + width, top + height)
