"""Scenes for the page of ``page.py``, made by running models over a dataset's tracks.

A scene is the stretch of one chosen track (its first minute, unless told otherwise) with the tracks of the same video
and sound that are seen in it. Each face is run through the trained model, an untrained one of the same build, and the
trained one with another clip's sound; the first two also with moved sound. Nothing of it needs labels.

Shapes: ``L`` layers, ``H`` heads, ``T`` video frames, ``A`` keys, ``G = 101`` lags from -500 to 500 ms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from avfusion.alignment.capture import AlignedClip, Change, align_tracks, model_warnings
from avfusion.alignment.controls import OtherSound, shifted, untrained
from avfusion.alignment.measures.ablation import score_edited
from avfusion.alignment.probe import pick_probes
from avfusion.alignment.viewer.page import HALF_WIDTH_S, HeadView, ViewerFace, ViewerScene
from avfusion.clock import AUDIO_HZ, SAMPLES_PER_VIDEO_FRAME, VIDEO_HZ
from avfusion.config import Config
from avfusion.data.augment.mixing import looped
from avfusion.data.examples import Example, Examples, Request
from avfusion.errors import AvfusionError
from avfusion.models import ActiveSpeakerDetector
from avfusion.tracks import FaceTrack

SHIFTS_MS = tuple(range(-200, 201, 40))
LONGEST_SCENE_S = 60.0
NUM_SCENES = 4


def build_scenes(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    tracks: Sequence[int] | None = None,
    *,
    words: Sequence[Sequence[str]] = (),
    shifts_ms: Sequence[int] = SHIFTS_MS,
    longest_s: float = LONGEST_SCENE_S,
    first_frames: Sequence[int] = (),
    most_faces: int | None = None,
    move_untrained: bool = True,
) -> list[ViewerScene]:
    """Runs every model and sound that the page can switch to.

    Args:
        model: on ``device``, with cross-attention; in any mode, put back into it.
        examples: without augmentation.
        config: of the model.
        device: where to run.
        tracks: one for each scene; None: some that show a head at work, scenes with several faces first.
        words: for each layer and head, what the figures say of it.
        shifts_ms: by how much the sound is moved; 0 is always run.
        longest_s: a scene ends here.
        first_frames: for each of the tracks the frame with which its scene begins; empty: the first.
        most_faces: so many faces are shown, those that are seen longest; the others are there for the model alone.
        move_untrained: whether the untrained model hears moved sound too, which takes as long again.

    Raises:
        UsageError: the model has no cross-attention.
    """
    all_tracks = examples.dataset.tracks
    chosen = pick_scenes(all_tracks) if tracks is None else list(tracks)
    spans: dict[int, dict[int, tuple[int, int, int]]] = {}
    for track, first_frame in zip(chosen, first_frames or [0] * len(chosen), strict=True):
        if not any(track in span for span in spans.values()):  # seen in an earlier scene already
            spans[track] = faces_beside(all_tracks, track, longest_s, first_frame, most_faces)
    wanted = sorted({index for span in spans.values() for index in span})
    other = OtherSound(examples)
    may_swap = all(_has_partner(other, index) for index in wanted)
    views: dict[int, dict[str, dict[int, HeadView]]] = {index: defaultdict(dict) for index in wanted}
    runs: list[tuple[str, int, ActiveSpeakerDetector, Change | None]] = []
    fresh = untrained(config).to(device)
    for shift in sorted({*shifts_ms, 0}):
        change = shifted(examples, shift) if shift else None
        runs.append(("trained", shift, model, change))
        if move_untrained or not shift:
            runs.append(("untrained", shift, fresh, change))
    if may_swap:
        beside = {index: (track, at - first) for track, span in spans.items() for index, (first, at, _) in span.items()}
        runs.append(("other_sound", 0, model, _OneOtherSound(other, beside)))
    for variant, shift, which, change in runs:
        clips: dict[int, list[AlignedClip]] = defaultdict(list)
        for clip in align_tracks(which, examples, config, device, wanted, change=change, label=f"viewer: {variant}"):
            clips[clip.track].append(clip)
        for index, parts in clips.items():
            views[index][variant][shift] = joined(parts)
    edited = score_edited(model, examples, config, device, wanted)
    without = {index: scores[0] for index, scores in zip(edited.tracks, edited.edited, strict=True)}
    notes = model_warnings(config)
    return [
        _scene(examples, track, spans[track], views, without, other if may_swap else None, words, notes)
        for track in spans
    ]


def pick_scenes(tracks: Sequence[FaceTrack], count: int = NUM_SCENES) -> list[int]:
    """One track for each of ``count`` scenes: of different videos and roles, several faces and both labels first."""
    together: dict[tuple[str, str], int] = defaultdict(int)
    for track in tracks:
        together[track.video_id, track.audio_id] += 1
    probes = pick_probes(tracks, 4 * count)

    def rank(index: int) -> tuple[bool, bool]:
        track = tracks[index]
        return (together[track.video_id, track.audio_id] < 2, not 0.2 < track.speaking.mean() < 0.8)

    chosen: list[int] = []
    # The first probe speaks and pauses, alone or not: the easiest scene to read comes first.
    for index in probes[:1] + sorted(probes[1:], key=rank):
        if len(chosen) < count and tracks[index].video_id not in {tracks[i].video_id for i in chosen}:
            chosen.append(index)
    return chosen


def faces_beside(
    tracks: Sequence[FaceTrack], track: int, longest_s: float, first_frame: int = 0, most_faces: int | None = None
) -> dict[int, tuple[int, int, int]]:
    """The tracks seen during a track, or a stretch of it, itself first.

    Args:
        tracks: of the dataset.
        track: the scene's.
        longest_s: the stretch ends here at the latest.
        first_frame: of the track, with which the stretch begins.
        most_faces: so many are kept, those that are seen longest.

    Returns:
        For each track: its first frame inside the scene, counted in its own frames; the frame of the scene at which
        that stands; and how many frames follow.
    """
    lead = tracks[track]
    frames = min(lead.num_frames - first_frame, round(longest_s * VIDEO_HZ))
    found = {track: (first_frame, 0, frames)}
    for index, other in enumerate(tracks):
        if index == track or (other.video_id, other.audio_id) != (lead.video_id, lead.audio_id):
            continue
        later = round((other.start_s - lead.start_s) * VIDEO_HZ) - first_frame
        first, last = max(later, 0), min(later + other.num_frames, frames)
        if last > first:
            found[index] = (first - later, first, last - first)
    longest = sorted(found, key=lambda index: (index != track, -found[index][2]))[:most_faces]
    return {index: span for index, span in found.items() if index in longest}


def joined(parts: Sequence[AlignedClip]) -> HeadView:
    """The stretches of one track as one view, in lag coordinates."""
    ordered = sorted(parts, key=lambda clip: clip.first_frame)
    maps = [lag_maps(clip.weights, clip.query_s, clip.key_s) for clip in ordered]
    null = [1.0 - clip.weights.sum(axis=-1) for clip in ordered]
    return HeadView(
        np.concatenate(maps, axis=2),
        np.clip(np.concatenate(null, axis=2), 0.0, 1.0).astype(np.float32),
        np.concatenate([clip.scores for clip in ordered]),
    )


def lag_maps(
    weights: NDArray[np.float32],
    query_s: NDArray[np.float64],
    key_s: NDArray[np.float64],
    half_width_s: float = HALF_WIDTH_S,
) -> NDArray[np.float32]:
    """Weights ``(L, H, T, A)`` by lag: ``(L, H, T, G)``, NaN at lags where there is no key.

    Args:
        weights: of frames at ``query_s``, over keys at ``key_s``.
        query_s: ``(T,)`` seconds.
        key_s: ``(A,)`` seconds, 10 ms apart.
        half_width_s: lags from minus to plus this many seconds.
    """
    half = round(half_width_s * AUDIO_HZ)
    nearest = np.rint((query_s - key_s[0]) * AUDIO_HZ).astype(np.int64)
    keys = nearest[:, None] + np.arange(-half, half + 1)
    inside = (keys >= 0) & (keys < len(key_s))
    found = np.take_along_axis(weights, np.clip(keys, 0, len(key_s) - 1)[None, None], axis=-1)
    return np.where(inside, found, np.float32(np.nan))


@dataclass(frozen=True)
class _OneOtherSound:
    """All faces of a scene hear one other sound, the one that the scene's first face would get.

    Attributes:
        other: chooses and cuts it.
        beside: for each track, the first one of its scene and how many frames later it starts.
    """

    other: OtherSound
    beside: Mapping[int, tuple[int, int]]

    def __call__(self, example: Example, track: int) -> Example:
        lead, later = self.beside[track]
        request = example.request
        placed = replace(example, request=replace(request, first_frame=request.first_frame + later))
        return replace(self.other(placed, lead), request=request)


def _has_partner(other: OtherSound, index: int) -> bool:
    try:
        other.partner(index)
    except AvfusionError:
        return False
    return True


def _scene(
    examples: Examples,
    track: int,
    span: Mapping[int, tuple[int, int, int]],
    views: Mapping[int, Mapping[str, Mapping[int, HeadView]]],
    without: Mapping[int, NDArray[np.float32]],
    other: OtherSound | None,
    words: Sequence[Sequence[str]],
    warnings: Sequence[str],
) -> ViewerScene:
    """Puts together what was run for one scene; reads its pictures and sound."""
    dataset = examples.dataset
    lead, (start, _, frames) = dataset.tracks[track], span[track]
    example = examples[Request(track, start, frames)]
    faces = [
        _face(examples, index, first, at, count, views[index], without.get(index))
        for index, (first, at, count) in span.items()
    ]
    other_sound = None
    if other is not None:
        partner = other.partner(track)
        whole = examples.sound_of(partner, 0, dataset.tracks[partner].num_frames)
        other_sound = looped(whole, frames * SAMPLES_PER_VIDEO_FRAME, 0)
    part = f", {_stretch(start, frames)}" if frames < lead.num_frames else ""
    who = f"{len(faces)} faces" if len(faces) > 1 else "1 face"
    return ViewerScene(
        title=" · ".join(text for text in (lead.video_id, lead.role, f"{who}{part}") if text),
        sound=examples.sound_of(track, start, frames),
        log_mel=example.log_mel.numpy(),
        faces=faces,
        other_sound=other_sound,
        other_log_mel=None if other is None else other(example, track).log_mel.numpy(),
        words=words,
        warnings=warnings,
    )


def _stretch(start: int, frames: int) -> str:
    """Which part of its track a scene shows."""
    if start == 0:
        return f"first {frames / VIDEO_HZ:.0f} s"
    return f"{start / VIDEO_HZ:.2f} to {(start + frames) / VIDEO_HZ:.2f} s"


def _face(
    examples: Examples,
    index: int,
    first: int,
    at: int,
    count: int,
    views: Mapping[str, Mapping[int, HeadView]],
    without: NDArray[np.float32] | None,
) -> ViewerFace:
    track = examples.dataset.tracks[index]
    kept = slice(first, first + count)
    return ViewerFace(
        name=track.entity_id,
        speaking=track.speaking[kept],
        views={
            variant: {
                shift: HeadView(view.maps[:, :, kept], view.null_mass[:, :, kept], view.scores[kept])
                for shift, view in shifts.items()
            }
            for variant, shifts in views.items()
        },
        ablated={} if without is None else {"trained": without[..., kept]},
        crops=examples.dataset.read(index, first, count).crops,
        region=examples.config.region,
        first_frame=at,
        role=track.role,
        labelled=track.labelled,
    )
