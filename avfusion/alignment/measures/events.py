"""The alignment error in milliseconds: a head's lag at sounds whose time is exactly known, against their true lag.

An event is a sound of the face's own voice: a burst (release of a stop) or the onset of a phone. The mouth makes it at
``sound time - lag``; there the head's lag is read, between the two frames around it by a straight line, and compared
with that lag. ``E`` events, ``L`` fusion layers, ``H`` heads; estimates are ``(..., 3)``: value, low and high end of
the 95 % interval over groups of tracks.

Natural lags differ from face to face. A head that ignores the sound has one lag for all of them, so it is compared with
that, in two ways: its own median lag said for every event, and the median of the true lags, than which no constant is
better. A head that follows the sound must beat both; a head whose lags are chance may beat the first.
Source: DESIGN section 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.alignment.capture import AlignedClip, Change, align_tracks
from avfusion.alignment.measures.lags import mean_lags_ms, peak_lags_ms
from avfusion.alignment.measures.resampling import Floats, estimate_of_sums, group_of, ratio
from avfusion.clock import VIDEO_HZ
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.data.scene_truth import face_of, read_truth
from avfusion.data.synthetic.truth import SceneTruth
from avfusion.evaluation.groups import group_index
from avfusion.models import ActiveSpeakerDetector
from avfusion.models.head_edit import grid_of_heads
from avfusion.tracks import FaceTrack

KINDS = ("bursts", "phones")
WITHIN_MS = (20, 40, 100)


@dataclass(frozen=True)
class LagError:
    """How far lags are from the true ones. All ``(L, H, 3)``; NaN where a head heard nothing at every event.

    Attributes:
        mae_ms: mean absolute error.
        within: for 20, 40 and 100 ms, the share of the errors that are no larger.
        constant_mae_ms: mean absolute error of the head's own median lag, said for every event.
        best_mae_ms: mean absolute error of the median true lag of the events that the head heard.
        gain_ms: the smaller one of both, in each draw, minus ``mae_ms``; above 0 where it knows more than one lag.
    """

    mae_ms: Floats
    within: dict[int, Floats]
    constant_mae_ms: Floats
    best_mae_ms: Floats
    gain_ms: Floats


@dataclass(frozen=True)
class EventError:
    """The alignment error of every head.

    Attributes:
        kind: ``bursts`` or ``phones``.
        mean: of the mean lag.
        peak: of the lag of the heaviest key.
        num_heard: ``(L, H)`` events at which the head heard something; the errors are over these.
        num_events: E.
        num_tracks: faces whose voice the events are of.
        num_groups: groups that the intervals are over.
        best_constant_mae_ms: mean absolute error of the median true lag: no head with one lag has a smaller one.
    """

    kind: str
    mean: LagError
    peak: LagError
    num_heard: NDArray[np.int64]
    num_events: int
    num_tracks: int
    num_groups: int
    best_constant_mae_ms: float


@dataclass(frozen=True)
class Events:
    """The events of one face, on its track's clock.

    Attributes:
        picture_s: ``(E,)`` when the mouth makes them.
        lag_ms: how much later they sound.
    """

    picture_s: Floats
    lag_ms: float


@dataclass
class _Found:
    """What was read at events, a row each."""

    group: list[str] = field(default_factory=list)
    true_ms: list[float] = field(default_factory=list)
    mean_ms: list[Floats] = field(default_factory=list)
    peak_ms: list[Floats] = field(default_factory=list)


def events_of(truth: SceneTruth, track: FaceTrack, kind: str = "bursts") -> Events | None:
    """The sounds of a face's own voice; None for a face without a voice in step.

    Args:
        truth: of the scene.
        track: of the face.
        kind: ``bursts``, or ``phones`` for all that begin within the scene.

    Raises:
        ValueError: another kind.
    """
    if kind not in KINDS:
        raise ValueError(f"events of kind {kind!r}, expected one of {', '.join(KINDS)}")
    face = face_of(truth, track.entity_id)
    if face is None or face.voice is None or face.lag_ms is None:
        return None
    voice = truth.voices[face.voice]
    sound_s = voice.bursts_s if kind == "bursts" else voice.phones_s[voice.phones_s[:, 0] > 0.0, 0]
    picture_s = sound_s - track.start_s - face.lag_ms / 1000
    inside = (picture_s >= 0.0) & (picture_s <= (track.num_frames - 1) / VIDEO_HZ)
    return Events(picture_s[inside], face.lag_ms)


def event_error(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    tracks: Sequence[int] | None = None,
    *,
    kind: str = "bursts",
    change: Change | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> EventError | None:
    """Reads the lags at all events of the tracks. Memory: ``16 L H`` bytes for each event.

    Args:
        model: on ``device``, with cross-attention.
        examples: without augmentation.
        config: of the model.
        device: where to run.
        tracks: which tracks; None for all. Those without a voice in step are left out.
        kind: ``bursts`` or ``phones``.
        change: a control; the events stay those of the face's own voice.
        resamples: of the bootstrap over groups; 0 for no intervals.
        seed: of the bootstrap.

    Returns:
        None where no exact truth is known, or nobody says anything.
    """
    grid_of_heads(model)
    all_tracks = examples.dataset.tracks
    events: dict[int, Events] = {}
    wanted = range(len(all_tracks)) if tracks is None else tracks
    known = [index for index in wanted if all_tracks[index].lag_ms is not None]  # spares making the truth of the rest
    for index in tqdm(known, desc="true times", leave=False, disable=None):
        truth = read_truth(examples.dataset, index)
        of_face = None if truth is None else events_of(truth, all_tracks[index], kind)
        if of_face is not None and len(of_face.picture_s):
            events[index] = of_face
    found = _Found()
    clips = align_tracks(model, examples, config, device, list(events), change=change, label=kind) if events else ()
    for clip in clips:
        _read(clip, events[clip.track], group_of(all_tracks[clip.track]), found)
    if not found.group:
        return None
    true_ms, (group, names) = np.array(found.true_ms), group_index(np.array(found.group, dtype=np.object_))
    mean_ms, peak_ms = np.stack(found.mean_ms), np.stack(found.peak_ms)
    return EventError(
        kind=kind,
        mean=lag_error(mean_ms, true_ms, group, resamples, seed),
        peak=lag_error(peak_ms, true_ms, group, resamples, seed),
        num_heard=np.isfinite(mean_ms).sum(axis=0),
        num_events=len(true_ms),
        num_tracks=len(events),
        num_groups=len(names),
        best_constant_mae_ms=float(np.abs(true_ms - np.median(true_ms)).mean()),
    )


def lag_error(
    lag_ms: Floats, true_ms: Floats, group: NDArray[np.int64], resamples: int = 1000, seed: int = 0
) -> LagError:
    """Errors of lags ``(E, L, H)``, NaN where nothing was heard, against true lags ``(E,)`` of groups ``(E,)``."""
    heard = np.isfinite(lag_ms)
    # The median of a head that heard nothing is that of no lag at all.
    median = np.nanmedian(np.where(heard.any(axis=0), lag_ms, 0.0), axis=0)
    true = np.broadcast_to(true_ms[:, None, None], lag_ms.shape)
    best = np.nanmedian(np.where(heard | ~heard.any(axis=0), true, np.nan), axis=0)
    error, constant, least = (np.abs(said - true) for said in (lag_ms, median, best))

    def by_group(values: NDArray[np.floating] | NDArray[np.bool_]) -> Floats:
        sums = np.zeros((group.max() + 1, *values.shape[1:]))
        np.add.at(sums, group, np.where(heard, values, 0.0))
        return sums

    def gain(constants: Floats, leasts: Floats, errors: Floats, counts: Floats) -> Floats:
        return ratio(np.minimum(constants, leasts) - errors, counts)

    counts, errors, constants, leasts = by_group(heard), by_group(error), by_group(constant), by_group(least)
    return LagError(
        mae_ms=estimate_of_sums([errors, counts], ratio, resamples, seed),
        within={
            limit: estimate_of_sums([by_group(error <= limit + 1e-6), counts], ratio, resamples, seed)
            for limit in WITHIN_MS
        },
        constant_mae_ms=estimate_of_sums([constants, counts], ratio, resamples, seed),
        best_mae_ms=estimate_of_sums([leasts, counts], ratio, resamples, seed),
        gain_ms=estimate_of_sums([constants, leasts, errors, counts], gain, resamples, seed),
    )


def at_times(lags_ms: Floats, query_s: Floats, times_s: Floats) -> Floats:
    """Lags between frames: ``(L, H, T)`` at frames ``(T,)`` to ``(L, H, E)`` at times within them.

    By a straight line between the two frames around; where one of them heard nothing, the other's lag, and NaN where
    neither did.
    """
    after = np.clip(np.searchsorted(query_s, times_s), 1, max(len(query_s) - 1, 1))
    after = np.minimum(after, len(query_s) - 1)
    before = np.maximum(after - 1, 0)
    step = np.where(after > before, query_s[after] - query_s[before], 1.0)
    share = np.clip((times_s - query_s[before]) / step, 0.0, 1.0)
    first, second = lags_ms[..., before], lags_ms[..., after]
    first, second = np.where(np.isnan(first), second, first), np.where(np.isnan(second), first, second)
    return np.asarray(first + share * (second - first))


def _read(clip: AlignedClip, events: Events, group: str, found: _Found) -> None:
    """Adds the events whose picture falls into a clip; each event lies in one clip of its track."""
    until_s = clip.query_s[-1] + 1 / VIDEO_HZ - 1e-9  # up to the next clip's first frame
    times_s = events.picture_s[(events.picture_s >= clip.query_s[0] - 1e-9) & (events.picture_s < until_s)]
    mean, peak = (
        at_times(lags(clip.weights, clip.query_s, clip.key_s), clip.query_s, times_s)
        for lags in (mean_lags_ms, peak_lags_ms)
    )
    found.group += [group] * len(times_s)
    found.true_ms += [events.lag_ms] * len(times_s)
    found.mean_ms += list(np.moveaxis(mean, -1, 0))
    found.peak_ms += list(np.moveaxis(peak, -1, 0))
