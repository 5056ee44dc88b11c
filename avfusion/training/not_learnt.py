"""What a training leaves as it began, though the model uses it: said before the first step, and in the report."""

from __future__ import annotations

from avfusion.config import Config
from avfusion.data.companions import Companions
from avfusion.tracks import FaceTrack


def between_faces_not_learnt(config: Config, tracks: list[FaceTrack] | None = None) -> str | None:
    """Why the attention between faces learns nothing; None where it can learn, and where there is none.

    A face alone passes it unchanged, so it needs scenes of several faces. Scoring always takes all faces, with whatever
    weights it has.

    Args:
        config: of the run.
        tracks: of the training split; None to go by the configuration alone.
    """
    layers, faces = config.model.speaker.layers, config.data.faces
    if layers == 0:
        return None
    without = "learns nothing, but scoring uses it as it began; "
    if faces == 1:
        return (
            f"model.speaker.layers={layers} with data.faces=1: scenes of one face, so the attention between faces"
            f" {without}add --data.faces=3, or --model.speaker.layers=0"
        )
    if tracks is None:
        return None
    companions = Companions(tracks)
    if any(companions.seen_with(index, 0, track.num_frames) for index, track in enumerate(tracks)):
        return None
    return (
        f"model.speaker.layers={layers}: no two of the {len(tracks)} training tracks are seen together, so the"
        f" attention between faces {without}train on scenes of several faces, or add --model.speaker.layers=0"
    )
