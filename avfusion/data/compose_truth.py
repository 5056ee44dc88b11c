"""What is known of a composed scene of two voices, in the form of :mod:`avfusion.data.synthetic.truth`.

Both voices are known alone, so their loudness is exact; when they speak is as good as the labels of their clips.
Phones, pitch and lags of recorded talkers are not known: those lists are empty, those numbers NaN.

Shapes: ``T`` video frames, ``A = 4 T`` audio frames.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.data.compose import Scene, SceneVoice
from avfusion.data.compose_plan import Recipe
from avfusion.data.synthetic.truth import FaceTruth, SceneTruth, VoiceTruth
from avfusion.tracks import runs_of_true


def scene_truth(recipe: Recipe, scene: Scene) -> SceneTruth:
    """Tells which voices are heard and whose they are.

    Args:
        recipe: of an ``overlap``.
        scene: made from it.
    """
    names = [f"{recipe.scene_id}:{number}" for number in range(len(scene.tracks))]
    voice_of = {voice.face: number for number, voice in enumerate(scene.voices) if voice.face is not None}
    levels_db = (0.0, -recipe.snr_db)
    return SceneTruth(
        video_id=recipe.scene_id,
        role=recipe.role,
        background="",
        snr_db=math.nan,
        voices=tuple(
            _voice(voice, "" if voice.face is None else names[voice.face], level_db)
            for voice, level_db in zip(scene.voices, levels_db, strict=True)
        ),
        faces=tuple(
            _face(names[number], voice_of.get(number), track.speaking) for number, track in enumerate(scene.tracks)
        ),
    )


def _voice(voice: SceneVoice, entity_id: str, level_db: float) -> VoiceTruth:
    num_steps = len(voice.speaking) * AUDIO_FRAMES_PER_VIDEO_FRAME
    step = SAMPLES_PER_VIDEO_FRAME // AUDIO_FRAMES_PER_VIDEO_FRAME
    power = np.square(voice.audio.reshape(num_steps, step), dtype=np.float64).mean(axis=1)
    return VoiceTruth(
        entity_id=entity_id,
        phones=(),
        phones_s=_NO_SPANS,
        bursts=(),
        bursts_s=_NO_TIMES,
        syllables_s=_NO_SPANS,
        active_s=np.array(runs_of_true(voice.speaking), dtype=np.float64).reshape(-1, 2) / VIDEO_HZ,
        envelope=np.sqrt(power),
        f0_hz=np.full(num_steps, np.nan),
        level_db=level_db,
        pitch_hz=math.nan,
        tract_scale=math.nan,
    )


def _face(entity_id: str, voice: int | None, speaking: NDArray[np.bool_]) -> FaceTruth:
    return FaceTruth(
        entity_id=entity_id,
        motion="talking",
        voice=voice,
        lag_ms=None,
        shift_ms=None,
        speaking=speaking,
        mouth_opening=_NO_TIMES,
        mouth_width=_NO_TIMES,
        said=(),
        said_s=_NO_SPANS,
        blinks_s=_NO_TIMES,
        face_px=math.nan,
        occluded_s=_NO_SPANS,
    )


_NO_TIMES, _NO_SPANS = np.zeros(0), np.zeros((0, 2))
