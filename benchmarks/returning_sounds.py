"""The same long scenes with other sound: the test of what a score in the hidden stretches comes from.

    silenced     nothing is heard where the person is in view: no voice to remember
    strangers    where the person is in view the same words are said by two other voices: the wrong ones to remember
    exchanged    while hidden the same words are said by each other's voice

Pictures, words and times stay. A score that comes from the voice falls to chance without a voice to remember, and
turns into its opposite where the voices are exchanged. Scenes of the role ``returning``; ``T`` video frames, ``640 T``
samples at 16 kHz.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import SAMPLE_RATE, SAMPLES_PER_VIDEO_FRAME
from avfusion.data.clips import Clip
from avfusion.data.prepared import PreparedDataset
from avfusion.data.synthetic import SyntheticDataset
from avfusion.data.synthetic.draft import HeardVoice
from avfusion.data.synthetic.sound import mix, render_voices
from avfusion.data.synthetic.voice import Voice, random_voice
from avfusion.errors import UsageError
from benchmarks.returning_frames import within

CHANGES = ("silenced", "strangers", "exchanged")
STRANGERS_SEED = 7
Sound = NDArray[np.float32]


def scenes_of(dataset: PreparedDataset) -> SyntheticDataset:
    """The scenes of a split of a prepared dataset, as they were before they were rendered.

    Raises:
        UsageError: the dataset was not made by data_prep.synthesize, or is of another make than it says.
    """
    settings = json.loads((dataset.root / "dataset.json").read_text(encoding="utf-8")).get("settings", {})
    try:
        scenes = SyntheticDataset(
            dataset.split,
            settings["scenes"][dataset.split],
            settings["seed"],
            crop_size=settings["crop_size"],
            scene_s=settings["scene_s"],
            espeak=settings["espeak"],
            roles=settings["roles"],
        )
    except KeyError as error:
        raise UsageError(
            f"{dataset.root}: dataset.json says no {error}; expected one of data_prep.synthesize --roles=returning"
        ) from None
    if [track.entity_id for track in scenes.tracks] != [track.entity_id for track in dataset.tracks]:
        raise UsageError(f"{dataset.root}: its tracks are not those its settings make now; make the dataset again")
    return scenes


def spoken_by(heard: HeardVoice, voice: Voice) -> HeardVoice:
    """The same words at the same times and level, said by another voice."""
    utterance = heard.utterance
    pitch_hz = utterance.pitch_hz * (voice.pitch_hz / utterance.voice.pitch_hz)
    return replace(heard, utterance=replace(utterance, voice=voice, pitch_hz=pitch_hz))


def changed_sound(scenes: SyntheticDataset, number: int, change: str | None) -> Sound:
    """The ``(640 T,)`` sound of a scene after one of ``CHANGES``; None makes it as it is."""
    scene, rng = scenes.scene(number), scenes.sound_rng(number)
    rendered = render_voices(rng, scene)
    if change is not None:
        spans_s = [(cover.start_s, cover.end_s) for face in scene.faces for cover in face.camera.covers]
        times_s = np.arange(scene.num_frames * SAMPLES_PER_VIDEO_FRAME) / SAMPLE_RATE
        hidden = within(np.array(spans_s), times_s)
        if change == "silenced":
            rendered = [np.where(hidden, voice, np.float32(0)) for voice in rendered]
        else:
            own, other = scene.voices
            if change == "strangers":
                draw = np.random.default_rng([STRANGERS_SEED, number])
                voices = random_voice(draw), random_voice(draw)
            else:
                voices = other.utterance.voice, own.utterance.voice
            said = tuple(spoken_by(heard, voice) for heard, voice in zip(scene.voices, voices, strict=True))
            again = render_voices(scenes.sound_rng(number), replace(scene, voices=said))
            changed = hidden if change == "exchanged" else ~hidden
            # Stretches meet in pauses, where both renderings are silent.
            rendered = [np.where(changed, new, old) for new, old in zip(again, rendered, strict=True)]
    sound, _ = mix(rng, scene, rendered)
    return sound


class PeopleWithOtherSound:
    """The tracks of the people of such scenes, with other sound; a :class:`avfusion.data.clips.ClipDataset`.

    Args:
        dataset: of whole scenes.
        tracks: which of its tracks.
        change: one of ``CHANGES``; None for the sound as it is.
    """

    def __init__(self, dataset: PreparedDataset, tracks: Sequence[int], change: str | None) -> None:
        self.name, self.skipped = dataset.name, dataset.skipped
        self.tracks = [dataset.tracks[index] for index in tracks]
        self._dataset, self._indices = dataset, list(tracks)
        self._sounds: list[Sound] | None = None
        if change is not None:
            scenes = scenes_of(dataset)
            self._sounds = [changed_sound(scenes, scenes.scene_of_track[index][0], change) for index in tracks]

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Clip:
        """As of any dataset."""
        clip = self._dataset.read(self._indices[index], first_frame, num_frames)
        if self._sounds is None:
            return clip
        first = first_frame * SAMPLES_PER_VIDEO_FRAME
        return replace(clip, audio=self._sounds[index][first : first + len(clip.audio)])

    def sound(self, index: int) -> Sound:
        """``(640 T,)`` of a whole track."""
        if self._sounds is None:
            return self._dataset.read(self._indices[index]).audio
        return self._sounds[index][: self.tracks[index].num_frames * SAMPLES_PER_VIDEO_FRAME]
