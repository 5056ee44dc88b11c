"""Does a head follow the sound? The sound is moved by k ms, and the head's mean lag L(k) is fitted by a + b·k.

A head that finds its sound wherever it is moves with it: slope b = 1. One that attends to a fixed distance whatever is
heard there does not move: b = 0, however clean its ridge. ``N`` shifts, ``L`` fusion layers, ``H`` heads, ``G`` groups
of tracks; estimates are ``(..., 3)``: value, low and high end of the 95 % interval over groups.

Only speaking frames count, and only those whose whole window, moved by the largest shift either way, still lies within
the track; of these a head's frames are those in which it hears something at every shift. So the same frames stand
behind a head's lag at every shift, all of them with real sound in the window. A model without a window reaches farther:
then the sound within 0.5 s of the frame is real at every shift, and what lies beyond may be that of the track's ends,
where the moved sound runs out. Shifts that lead out of the window are left out of the fit: no head could follow them. A
causal model hears little after the frame, so of sound that comes later hardly anything is asked.
Source: DESIGN section 8, "shift slope".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.alignment.capture import AlignedClip, align_tracks
from avfusion.alignment.controls import shifted
from avfusion.alignment.measures.encode_once import encode_once
from avfusion.alignment.measures.lags import mean_lags_ms
from avfusion.alignment.measures.resampling import Floats, draws, estimate, estimate_of_sums, group_of, ratio
from avfusion.alignment.reach import KeyReach
from avfusion.clock import VIDEO_HZ
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.errors import AvfusionError
from avfusion.evaluation.groups import group_index
from avfusion.models import ActiveSpeakerDetector
from avfusion.models.head_edit import grid_of_heads
from avfusion.tracks import FaceTrack

SHIFTS_MS = tuple(range(-200, 201, 40))
REACH_S = 0.5  # of models without a window: how much sound around a frame must be real at every shift
BLOCK_FRAMES = 20_000
STILL_MS = 1e-3  # a lag that moves less than this (rms over the shifts) does not move: R² is 0


@dataclass(frozen=True)
class SlopeFit:
    """How the lag of each head moves with the sound. NaN where a head heard nothing or no frame counts.

    Attributes:
        shifts_ms: ``(N,)`` how much later the sound was made.
        lag_ms: ``(N, L, H, 3)`` mean lag over the frames in which the head hears something at every shift.
        slope: ``(L, H, 3)`` b; 0 positional, 1 follows the sound.
        intercept_ms: ``(L, H, 3)`` a.
        r2: ``(L, H, 3)`` share of the lag's movement that the line explains; 0 where the lag does not move.
        num_frames: frames that count, whether or not a head hears something in them.
        num_tracks: tracks that they are in.
        num_groups: groups that the intervals are over.
    """

    shifts_ms: NDArray[np.float64]
    lag_ms: Floats
    slope: Floats
    intercept_ms: Floats
    r2: Floats
    num_frames: int
    num_tracks: int
    num_groups: int


def shift_slope(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    tracks: Sequence[int] | None = None,
    *,
    shifts_ms: Sequence[float] = SHIFTS_MS,
    resamples: int = 1000,
    seed: int = 0,
) -> SlopeFit:
    """Runs the model once for each shift, the picture's encoder once for all of them.

    Memory: 16 bytes for each shift, head and group; for 20,000 frames 8 bytes for each shift and head, and what the
    picture's encoder gives.

    Args:
        model: on ``device``, with cross-attention.
        examples: without augmentation.
        config: of the model.
        device: where to run.
        tracks: which tracks; None for all. Those that never speak, or are too short, are left out.
        shifts_ms: at least two different ones; those beyond the model's reach are left out.
        resamples: of the bootstrap over groups; 0 for no intervals.
        seed: of the bootstrap.

    Raises:
        ValueError: fewer than two different shifts.
        AvfusionError: fewer than two within the model's reach.
    """
    if len(set(shifts_ms)) < 2:
        raise ValueError(f"a slope needs two shifts or more, found {list(shifts_ms)}")
    shifts_ms = within_reach(shifts_ms, config)
    if len(set(shifts_ms)) < 2:
        raise AvfusionError(
            f"fewer than two shifts lie within what the model hears, {KeyReach.of(config.model)} around a frame; give"
            " others with --shifts"
        )
    margin_s = margin_seconds(shifts_ms, config)
    all_tracks = examples.dataset.tracks
    wanted = range(len(all_tracks)) if tracks is None else tracks
    counting = {index: _counting_frames(all_tracks[index], margin_s) for index in wanted}
    chosen = [index for index, frames in counting.items() if frames.any()]
    group, names = group_index(np.array([group_of(all_tracks[index]) for index in chosen], dtype=np.object_))
    group_of_track = dict(zip(chosen, group.tolist(), strict=True))

    sums = np.zeros((len(names), len(shifts_ms), *grid_of_heads(model)))
    counts = np.zeros_like(sums)
    blocks = _blocks(chosen, [all_tracks[index].num_frames for index in chosen])
    for block in tqdm(blocks, desc="moved sound", leave=False, disable=None):
        lags: dict[tuple[int, int], list[Floats]] = defaultdict(list)  # by track and first frame, one for each shift
        with encode_once(model.visual) as passes:
            for shift in shifts_ms:
                passes.again()
                moved = shifted(examples, shift)
                clips = align_tracks(model, examples, config, device, block, change=moved, label=f"sound {shift:+g} ms")
                for clip in clips:
                    lags[clip.track, clip.first_frame].append(_lags_of(clip, counting[clip.track]))
        for (track, _), of_shifts in lags.items():
            by_shift = np.stack(of_shifts)
            heard = np.isfinite(by_shift).all(axis=0)
            sums[group_of_track[track]] += np.where(heard, by_shift, 0.0).sum(axis=-1)
            counts[group_of_track[track]] += heard.sum(axis=-1)
    num_frames = sum(int(counting[index].sum()) for index in chosen)
    return fit_slope(shifts_ms, sums, counts, num_frames, len(chosen), resamples=resamples, seed=seed)


def within_reach(shifts_ms: Sequence[float], config: Config) -> list[float]:
    """The shifts that do not move what belongs to a frame out of its window."""
    inside = KeyReach.of(config.model).holds(np.array(shifts_ms, dtype=np.float64) / 1000)
    return [shift for shift, keep in zip(shifts_ms, inside, strict=True) if keep]


def margin_seconds(shifts_ms: Sequence[float], config: Config) -> float:
    """How far from both ends of its track a frame must be to count."""
    window_s = config.model.fusion.window_s
    return max(abs(shift) for shift in shifts_ms) / 1000 + (REACH_S if window_s is None else window_s)


def fit_slope(
    shifts_ms: Sequence[float],
    sums_ms: Floats,
    counts: Floats,
    num_frames: int,
    num_tracks: int,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> SlopeFit:
    """Fits the lines to sums of lags.

    Args:
        shifts_ms: N of them.
        sums_ms: ``(G, N, L, H)`` sums of the lags of each group's frames.
        counts: ``(G, N, L, H)`` frames behind them.
        num_frames: as in :class:`SlopeFit`.
        num_tracks: as in :class:`SlopeFit`.
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    shifts = np.array(shifts_ms, dtype=np.float64)
    lag = estimate_of_sums([sums_ms, counts], ratio, resamples, seed)
    times = draws(len(sums_ms), resamples, seed)
    drawn = ratio(np.tensordot(times, sums_ms, axes=1), np.tensordot(times, counts, axes=1))
    slope, intercept, r2 = (
        estimate(value[0], of_draws)
        for value, of_draws in zip(_line(shifts, lag[None, ..., 0]), _line(shifts, drawn), strict=True)
    )
    return SlopeFit(shifts, lag, slope, intercept, r2, num_frames, num_tracks, len(sums_ms))


def _line(shifts: Floats, lag: Floats) -> tuple[Floats, Floats, Floats]:
    """Slope, intercept and R² of ``(draws, N, L, H)`` lags by least squares, ``(draws, L, H)`` each."""
    centred = shifts - shifts.mean()
    deviation = lag - lag.mean(axis=1, keepdims=True)
    slope = np.tensordot(deviation, centred, axes=(1, 0)) / np.square(centred).sum()
    left = deviation - slope[:, None] * centred[:, None, None]
    total, rest = np.square(deviation).sum(axis=1), np.square(left).sum(axis=1)
    moves = total > STILL_MS**2 * len(shifts)
    r2 = np.where(moves, 1.0 - np.divide(rest, total, out=np.ones_like(total), where=moves), 0.0)
    return slope, lag.mean(axis=1) - slope * shifts.mean(), np.where(np.isnan(total), np.nan, r2)


def _blocks(tracks: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Tracks whose pictures are kept encoded together: ``BLOCK_FRAMES`` frames at most, one track at least."""
    blocks: list[list[int]] = []
    room = 0
    for track, length in zip(tracks, lengths, strict=True):
        if not blocks or length > room:
            blocks.append([])
            room = BLOCK_FRAMES
        blocks[-1].append(track)
        room -= length
    return blocks


def _counting_frames(track: FaceTrack, margin_s: float) -> NDArray[np.bool_]:
    """``(T,)`` speaking frames at least ``margin_s`` away from both ends of the track."""
    times_s, slack = np.arange(track.num_frames) / VIDEO_HZ, 1e-9
    inside = (times_s >= margin_s - slack) & (times_s <= track.num_frames / VIDEO_HZ - margin_s + slack)
    return track.speaking & inside if track.labelled else np.zeros(track.num_frames, dtype=bool)


def _lags_of(clip: AlignedClip, counting: NDArray[np.bool_]) -> Floats:
    """``(L, H, frames)`` lags of the clip's frames that count."""
    frames = np.flatnonzero(counting[clip.first_frame : clip.first_frame + len(clip.query_s)])
    if not len(frames):
        return np.zeros((*clip.weights.shape[:2], 0))
    return mean_lags_ms(clip.weights[:, :, frames], clip.query_s[frames], clip.key_s)
