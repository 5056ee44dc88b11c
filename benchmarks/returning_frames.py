"""Which frames of long scenes are hidden, which are seen, and whose voice is heard in them, by the truth of the scene.

For scenes of the role ``returning``: a person who talks in view and hidden, somebody who is never seen, and
a second face that keeps still. ``T`` video frames of a track; masks are boolean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.clock import VIDEO_HZ
from avfusion.errors import AvfusionError, UsageError

NEAR_S = 4.0
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Frames:
    """The frames of a track.

    Attributes:
        person: it is the track of the person, not of the face that keeps still.
        hidden: ``(T,)`` the face cannot be seen.
        own: ``(T,)`` the person's voice is heard.
        other: ``(T,)`` the voice of somebody who is never seen is heard.
        near: ``(T,)`` the person is seen to talk within 4 s before or after.
    """

    person: bool
    hidden: Mask
    own: Mask
    other: Mask
    near: Mask

    @property
    def heard(self) -> Mask:
        """``(T,)`` either voice."""
        return self.own | self.other


def frames_of(dataset: Any, index: int) -> Frames | None:
    """Reads the truth of a track; None for tracks of other roles.

    Raises:
        AvfusionError: a scene of the role has no truth.
    """
    from avfusion.data.scene_truth import face_of, read_truth

    track = dataset.tracks[index]
    if track.role != "returning":
        return None
    truth = read_truth(dataset, index)
    if truth is None:
        raise AvfusionError(f"{track.video_id}: no truth of the scene; make the dataset with data_prep.synthesize")
    own = next(voice for voice in truth.voices if voice.entity_id)
    other = next(voice for voice in truth.voices if not voice.entity_id)
    face = face_of(truth, own.entity_id)
    assert face is not None  # the voice names it
    times_s = track.start_s + np.arange(track.num_frames) / VIDEO_HZ
    hidden, talks = within(face.occluded_s, times_s), within(own.active_s, times_s)
    return Frames(
        person=track.entity_id == own.entity_id,
        hidden=hidden,
        own=talks,
        other=within(other.active_s, times_s),
        near=near(talks & ~hidden, NEAR_S),
    )


def all_frames(dataset: Any) -> list[Frames]:
    """The frames of every track of a dataset of such scenes.

    Raises:
        UsageError: there are other scenes in it.
    """
    found = [frames_of(dataset, index) for index in range(len(dataset.tracks))]
    kept = [frames for frames in found if frames is not None]
    if len(kept) < len(found):
        raise UsageError(f"{dataset.name}: expected scenes of role returning alone; data_prep.synthesize --roles makes")
    return kept


def parts_of(frames: list[Frames]) -> dict[str, Mask]:
    """The parts that are measured, each over the frames of all tracks put end to end.

    ``hidden``: the face cannot be seen and either voice is heard; ``hidden_near`` and ``hidden_far``: the person is
    seen to talk within 4 s of it, or is not. ``visible``: the person in view, either voice heard. ``staying``: the
    hidden stretches again, the hidden person beside the face that stays. ``all``: every frame.
    """

    def joined(mask: Any) -> Mask:
        return np.concatenate([np.asarray(mask(of_track), dtype=bool) for of_track in frames])

    return {
        "hidden": joined(lambda f: f.person & f.hidden & f.heard),
        "hidden_near": joined(lambda f: f.person & f.hidden & f.heard & f.near),
        "hidden_far": joined(lambda f: f.person & f.hidden & f.heard & ~f.near),
        "visible": joined(lambda f: f.person & ~f.hidden & f.heard),
        "staying": joined(lambda f: f.hidden & f.heard),
        "all": joined(lambda f: np.ones_like(f.heard)),
    }


def within(spans_s: NDArray[np.float64], times_s: NDArray[np.float64]) -> Mask:
    """Which of the times ``(T,)`` lie in one of the ``(N, 2)`` intervals ``start <= t < end``."""
    starts, ends = np.asarray(spans_s, dtype=np.float64).reshape(-1, 2).T[:, :, None]
    inside: Mask = ((starts <= times_s) & (times_s < ends)).any(axis=0)
    return inside


def near(mask: Mask, reach_s: float) -> Mask:
    """Frames with a True one within ``reach_s`` before or after, both ends included."""
    reach = round(reach_s * VIDEO_HZ)
    until = np.concatenate([[0], np.cumsum(mask)])
    frames = np.arange(len(mask))
    last, first = np.minimum(frames + reach + 1, len(mask)), np.maximum(frames - reach, 0)
    found: Mask = until[last] > until[first]
    return found
