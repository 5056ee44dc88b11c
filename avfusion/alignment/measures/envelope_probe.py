"""Whose voice does a head carry where two are heard at once? What its output tells of the loudness of each.

From what a head adds before W_O in a frame, a ridge regression tells the loudness (in dB, over 40 ms) of the face's own
voice at the sound that belongs to the frame, and of the other voices at the same instant. It is fitted on some scenes
and judged on others. R² to the own voice above R² to the others: the head carries the voice that fits the mouth.
``N`` frames, ``L`` fusion layers, ``H`` heads, ``K`` width per head; estimates are ``(..., 3)``: value, low and high
end of the 95 % interval over groups of tracks.

A head can know from the picture alone that somebody speaks, and show it by how much it attends; the same probe with
another clip's sound (``change``) measures how much of its R² is that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.alignment.capture import Change, align_tracks
from avfusion.alignment.measures.resampling import Floats, draws, estimate, group_of
from avfusion.clock import AUDIO_HZ, VIDEO_HZ
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.data.scene_truth import face_of, read_truth
from avfusion.data.synthetic.truth import SceneTruth
from avfusion.evaluation.groups import group_index
from avfusion.models import ActiveSpeakerDetector
from avfusion.models.head_edit import grid_of_heads
from avfusion.tracks import FaceTrack

OVERLAP_ROLES = ("overlap", "overlap_off_screen")
FLOOR_DB = -60.0  # full scale; voices lie at about -25
FOLDS = 5
FEWEST_GROUPS = 3  # one to judge on, one to choose the penalty on, one to fit
PENALTIES = np.geomspace(1e-4, 10.0, 6)  # of the mean squared error over standardized inputs


@dataclass(frozen=True)
class EnvelopeProbe:
    """R² on scenes that the regression has not seen; below 0 where it tells less than the mean does.

    Attributes:
        target: ``(L, H, 3)`` of the face's own voice.
        interferer: ``(L, H, 3)`` of all other voices together.
        difference: ``(L, H, 3)`` the first minus the second.
        layer_target: ``(L, 3)`` from the outputs of all heads of a layer together.
        layer_interferer: ``(L, 3)``.
        layer_difference: ``(L, 3)``.
        num_frames: N.
        num_tracks: faces.
        num_groups: groups (scenes) that folds and intervals are over.
    """

    target: Floats
    interferer: Floats
    difference: Floats
    layer_target: Floats
    layer_interferer: Floats
    layer_difference: Floats
    num_frames: int
    num_tracks: int
    num_groups: int


def envelope_probe(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    tracks: Sequence[int] | None = None,
    *,
    change: Change | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> EnvelopeProbe | None:
    """Probes the faces that are heard in scenes of overlapping voices. Memory: ``4 L H K`` bytes for each frame.

    Args:
        model: on ``device``, with cross-attention.
        examples: without augmentation.
        config: of the model.
        device: where to run.
        tracks: which tracks; None for all. Those of other roles or without a voice in step are left out.
        change: a control; what is to be told stays the loudness of the scene's own voices.
        resamples: of the bootstrap over groups; 0 for no intervals.
        seed: of folds and bootstrap.

    Returns:
        None where no such scene has exact truth, or fewer than three groups have.
    """
    grid_of_heads(model)
    all_tracks = examples.dataset.tracks
    wanted = range(len(all_tracks)) if tracks is None else tracks
    overlapping = [i for i in wanted if all_tracks[i].role in OVERLAP_ROLES]
    loudness: dict[int, Floats] = {}
    for index in tqdm(overlapping, desc="envelopes", leave=False, disable=None):
        truth = read_truth(examples.dataset, index)
        of_face = None if truth is None else loudness_of(truth, all_tracks[index])
        if of_face is not None:
            loudness[index] = of_face
    if len({group_of(all_tracks[index]) for index in loudness}) < FEWEST_GROUPS:
        return None
    outputs, told, groups = [], [], []
    clips = align_tracks(
        model, examples, config, device, list(loudness), change=change, head_outputs=True, label="envelope probes"
    )
    for clip in clips:
        assert clip.head_outputs is not None
        of_clip = loudness[clip.track][clip.first_frame : clip.first_frame + len(clip.query_s)]
        known = np.isfinite(of_clip).all(axis=1)
        outputs.append(rearrange(clip.head_outputs[:, :, known], "l h t k -> t l h k"))
        told.append(of_clip[known])
        groups += [group_of(all_tracks[clip.track])] * int(known.sum())
    group, _ = group_index(np.array(groups, dtype=np.object_))
    return probe(np.concatenate(outputs), np.concatenate(told), group, len(loudness), resamples=resamples, seed=seed)


def loudness_of(truth: SceneTruth, track: FaceTrack) -> Floats | None:
    """Loudness of a face's own voice and of the others together, at the sound that belongs to each frame.

    Where the lag of the sound is not known (recorded talkers) it is taken as none.

    Returns:
        ``(T, 2)`` in dB of full scale, at least -60; NaN where the sound lies outside the scene. None for a face
        without a voice in step, or without another voice.
    """
    face = face_of(truth, track.entity_id)
    if face is None or face.voice is None or len(truth.voices) < 2:
        return None
    power = np.stack([np.square(voice.envelope) for voice in truth.voices])
    own, others = power[face.voice], np.delete(power, face.voice, axis=0).sum(axis=0)
    sound_s = track.start_s + np.arange(track.num_frames) / VIDEO_HZ + (face.lag_ms or 0.0) / 1000
    return np.stack([loudness_db(own, sound_s), loudness_db(others, sound_s)], axis=1)


def loudness_db(power: Floats, times_s: Floats) -> Floats:
    """Loudness of ``(A,)`` powers of 10 ms steps, over the 40 ms around each time; NaN where they are not inside."""
    edges_s = np.arange(len(power) + 1) / AUDIO_HZ
    energy = np.append(0.0, np.cumsum(power)) / AUDIO_HZ
    begin_s, end_s = times_s - 0.5 / VIDEO_HZ, times_s + 0.5 / VIDEO_HZ
    mean = (np.interp(end_s, edges_s, energy) - np.interp(begin_s, edges_s, energy)) * VIDEO_HZ
    level = 10 * np.log10(np.maximum(mean, 10 ** (FLOOR_DB / 10)))
    inside = (begin_s >= -1e-9) & (end_s <= edges_s[-1] + 1e-9)
    return np.asarray(np.where(inside, level, np.nan))


def probe(
    outputs: NDArray[np.floating],
    told: Floats,
    group: NDArray[np.int64],
    num_tracks: int,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> EnvelopeProbe:
    """Fits and judges the regressions.

    Args:
        outputs: ``(N, L, H, K)`` what each head adds before W_O.
        told: ``(N, 2)`` loudness of the own voice and of the others.
        group: ``(N,)`` numbers of groups from 0, three of them at least.
        num_tracks: as in :class:`EnvelopeProbe`.
        resamples: of the bootstrap.
        seed: of folds and bootstrap.
    """
    num_layers, num_heads = outputs.shape[1:3]
    num_groups = int(group.max()) + 1
    fold = np.random.default_rng(seed).permutation(num_groups)[group] % min(FOLDS, num_groups)
    times = draws(num_groups, resamples, seed)

    def judged(inputs: NDArray[np.floating]) -> Floats:
        """``(3, 3)``: own, others and their difference."""
        errors, spread = np.zeros((2, num_groups, 2))
        for array, squares in zip((errors, spread), _held_out(inputs.astype(np.float64), told, fold), strict=True):
            np.add.at(array, group, squares)
        value, drawn = _r2(errors.sum(axis=0)[None], spread.sum(axis=0)[None]), _r2(times @ errors, times @ spread)
        return np.stack([estimate(part(value)[0], part(drawn)) for part in (_first, _second, _difference)])

    by_head = np.array([[judged(outputs[:, at, head]) for head in range(num_heads)] for at in range(num_layers)])
    together = np.array([judged(rearrange(outputs[:, at], "n h k -> n (h k)")) for at in range(num_layers)])
    return EnvelopeProbe(
        target=by_head[:, :, 0],
        interferer=by_head[:, :, 1],
        difference=by_head[:, :, 2],
        layer_target=together[:, 0],
        layer_interferer=together[:, 1],
        layer_difference=together[:, 2],
        num_frames=len(told),
        num_tracks=num_tracks,
        num_groups=num_groups,
    )


def _first(r2: Floats) -> Floats:
    return r2[:, 0]


def _second(r2: Floats) -> Floats:
    return r2[:, 1]


def _difference(r2: Floats) -> Floats:
    return np.asarray(r2[:, 0] - r2[:, 1])


def _r2(errors: Floats, spread: Floats) -> Floats:
    return np.asarray(1.0 - np.divide(errors, spread, out=np.full(errors.shape, np.nan), where=spread > 0))


def _held_out(inputs: Floats, told: Floats, fold: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Squared errors ``(N, 2)`` of regressions fitted on the other folds, and of the mean of those folds.

    The penalty is chosen for each of the two by leaving out each of the fitted folds once more.
    """
    inputs, told = inputs - inputs.mean(axis=0), told - told.mean(axis=0)  # for the digits only
    rows = np.concatenate([np.ones((len(inputs), 1)), inputs, told], axis=1)
    folds = range(int(fold.max()) + 1)
    moments = np.stack([rows[fold == one].T @ rows[fold == one] for one in folds])
    errors, spread = np.empty_like(told), np.empty_like(told)
    for held in folds:
        rest = [one for one in folds if one != held]
        tried = np.zeros((len(PENALTIES), 2))
        for inner in rest:
            for number, lines in enumerate(_ridge(moments[[one for one in rest if one != inner]].sum(axis=0))):
                tried[number] += np.einsum("ic,ij,jc->c", lines, moments[inner], lines)
        best = tried.argmin(axis=0)
        lines = _ridge(moments[rest].sum(axis=0))[best, :, [0, 1]].T
        here, there = fold == held, fold != held
        errors[here] = np.square(rows[here] @ lines)
        spread[here] = np.square(told[here] - told[there].mean(axis=0))
    return errors, spread


def _ridge(moments: Floats) -> Floats:
    """For each penalty, both regressions as columns that give the errors of rows ``[1, x, y1, y2]``: ``(P, D + 3, 2)``.

    Args:
        moments: ``(D + 3, D + 3)`` sum of the products of such rows.
    """
    count, size = moments[0, 0], len(moments) - 3
    mean = moments[0, 1:] / count
    spread = moments[1:, 1:] / count - np.outer(mean, mean)
    scale = np.sqrt(np.maximum(np.diag(spread)[:size], 0.0))
    scale = np.where(scale > 1e-9 * (1.0 + np.abs(mean[:size])), scale, np.inf)  # an input that never changes
    values, vectors = np.linalg.eigh(spread[:size, :size] / np.outer(scale, scale))
    along = vectors.T @ (spread[:size, size:] / scale[:, None])
    lines = np.zeros((len(PENALTIES), size + 3, 2))
    for number, penalty in enumerate(PENALTIES):
        slopes = vectors @ (along / (np.maximum(values, 0.0) + penalty)[:, None]) / scale[:, None]
        lines[number, 0] = mean[:size] @ slopes - mean[size:]
        lines[number, 1:-2] = -slopes
        lines[number, -2:] = np.eye(2)
    return lines
