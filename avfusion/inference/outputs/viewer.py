"""``viewer.html``: the inspector's page on the film's own faces: what each head listened to, in a few stretches.

The page is that of ``python -m avfusion.alignment``, made of the crops that were scored. The model runs a dozen times
over what is shown (moved sound, untrained weights, heads left out), so that this is one stretch of six seconds for
every half minute of film, four at most, with at most four faces each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from avfusion.alignment.viewer.page import ViewerScene, write_viewer
from avfusion.alignment.viewer.scenes import build_scenes
from avfusion.clock import FRAME_MS, VIDEO_HZ
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.data.prepared import PreparedDataset
from avfusion.errors import AvfusionError
from avfusion.inference.film_lag import MovedSound
from avfusion.inference.outputs.cut_dataset import CutDataset
from avfusion.inference.outputs.speech import Speech
from avfusion.inference.outputs.stretches import Stretch, telling_stretches
from avfusion.inference.result import Result
from avfusion.models import ActiveSpeakerDetector, context_frames
from avfusion.models.head_edit import cross_attentions

SPLIT = "own"
SCENE_S = 6.0
FILM_S_PER_SCENE = 30.0
MOST_SCENES = 4
MOST_FACES = 4
SHIFTS_MS = (-160, -80, 0, 80, 160)
UNBOUNDED_MARGIN = 20 * VIDEO_HZ  # frames around a stretch, for a model that looks over whole tracks


def write_film_viewer(
    path: Path,
    result: Result,
    speech: Sequence[Speech],
    model: nn.Module,
    config: Config,
    device: torch.device,
    dataset_root: Path,
) -> list[str]:
    """Writes the page, or says why there is none.

    Args:
        path: an ``.html``.
        result: the film and its faces.
        speech: their stretches of speech.
        model: that scored them, on ``device``.
        config: of the model.
        device: where to run.
        dataset_root: the prepared dataset with the crops.

    Returns:
        What a user should know of it, a sentence each.

    Raises:
        AvfusionError: the dataset cannot be read, or lacks a face of the result.
    """
    if not result.faces:
        return [f"{path.name} was left out: there is no face to look at"]
    if not isinstance(model, ActiveSpeakerDetector) or not cross_attentions(model):
        return [f"{path.name} was left out: this model has no attention between picture and sound to look into"]
    duration_s = result.num_frames / VIDEO_HZ
    count = min(1 + int(duration_s // FILM_S_PER_SCENE), MOST_SCENES)
    stretches = telling_stretches(result, speech, count, SCENE_S)
    scenes = _scenes(result, stretches, model, config, device, dataset_root)
    try:
        # Where there is a single scene the page offers no list of them, which would tell its title.
        write_viewer(path, scenes, title=scenes[0].title if len(scenes) == 1 else result.video_id)
    except AvfusionError as error:  # too large, even without any detail
        return [f"{path.name} was left out: {error}"]
    shown_s = sum(stretch.end - stretch.first for stretch in stretches) / VIDEO_HZ
    notes = []
    if shown_s < duration_s - 1 / VIDEO_HZ:
        many = f"{len(stretches)} stretch{'es' if len(stretches) > 1 else ''}"
        notes.append(f"{path.name} shows {many} of the film, {shown_s:.0f} of its {duration_s:.0f} s")
    return notes


def _scenes(
    result: Result,
    stretches: Sequence[Stretch],
    model: ActiveSpeakerDetector,
    config: Config,
    device: torch.device,
    dataset_root: Path,
) -> list[ViewerScene]:
    """The scenes of the page, one for each stretch; their titles tell where in the film they are."""
    dataset = MovedSound(PreparedDataset(dataset_root, SPLIT), result.audio, result.sound_lag_frames)
    places = {track.entity_id: index for index, track in enumerate(dataset.tracks)}
    missing = [face.track.entity_id for face in result.faces if face.track.entity_id not in places]
    if missing:
        raise AvfusionError(
            f"{dataset_root}: no track {missing[0]!r} in split {SPLIT}, expected every face of the film"
        )
    index_of = {number: places[face.track.entity_id] for number, face in enumerate(result.faces)}
    reach = context_frames(config.model)
    cut = CutDataset(dataset, stretches, index_of, UNBOUNDED_MARGIN if reach is None else reach)
    # One process: starting workers takes longer than reading some seconds of crops.
    config = replace(config, data=replace(config.data, workers=0))
    examples = Examples(cut, config.data)
    scenes = build_scenes(
        model,
        examples,
        config,
        device,
        cut.leads,
        shifts_ms=SHIFTS_MS,
        longest_s=SCENE_S,
        first_frames=cut.first_frames,
        most_faces=MOST_FACES,
        move_untrained=False,
    )
    unmoved = "lag taken out" if result.sound_lag_frames else "as recorded"
    return [
        replace(scene, title=_title(result, stretch, scene), unmoved=unmoved)
        for scene, stretch in zip(scenes, stretches, strict=True)
    ]


def _title(result: Result, stretch: Stretch, scene: ViewerScene) -> str:
    """The film, the seconds of it, how many faces are shown, and by how much the sound that is shown was moved."""
    faces = f"{len(scene.faces)} face{'s' if len(scene.faces) > 1 else ''}"
    lag_ms = FRAME_MS * result.sound_lag_frames
    lag = f" · a lag of {lag_ms} ms taken out of the sound" if lag_ms else ""
    return f"{result.video_id} · {stretch.first / VIDEO_HZ:.2f} to {stretch.end / VIDEO_HZ:.2f} s · {faces}{lag}"
