"""What each head does over a whole dataset: fed clip by clip, in memory that does not hold the clips.

``L`` fusion layers, ``H`` heads, ``W`` lags of 10 ms. What is kept: for every scene (group), role and label the sums
over its frames and three histograms over lags, ``24 W`` bytes a head; and for every frame six float32 numbers a head
(24 bytes x frames x L x H), because medians, ranks and their intervals need them. Weights are never kept.

``figures.py`` says how every figure is defined and makes them of what is kept here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from avfusion.alignment.capture import AlignedClip, Change, align_tracks
from avfusion.alignment.heads.figures import HeadFigures, head_figures, without_null
from avfusion.alignment.heads.lag_frames import LagFrames, lag_frames
from avfusion.alignment.heads.scene_sums import LagMap, SceneSums
from avfusion.alignment.measures.resampling import group_of
from avfusion.alignment.reach import KeyReach
from avfusion.alignment.statistics import Floats
from avfusion.clock import AUDIO_HZ
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.models import ActiveSpeakerDetector


class HeadStatistics:
    """Collects what the heads of one model did, with its own sound or under one control.

    Clips may come in any order and long tracks in stretches: the figures are those of all frames together.

    Args:
        reach: of the model.
        half_width_s: lags that maps show at least, ± seconds; without an end to the reach also those that masses are
            known for.
        null_key: the model has one. Without one what is missing from 1 is rounding, and no figure is made of it.
    """

    def __init__(self, reach: KeyReach, half_width_s: float = 0.5, *, null_key: bool = True) -> None:
        self.reach = reach
        self.null_key = null_key
        self.half = max(reach.farthest or 0, round(half_width_s * AUDIO_HZ))
        self._scenes: dict[tuple[str, str, bool], SceneSums] = {}
        self._maps: dict[bool, LagMap] = {}
        self._num_heads: tuple[int, int] | None = None

    def add(self, clip: AlignedClip, group: str, role: str) -> None:
        """Counts the frames of a clip. Its labels count, so it must have some.

        Args:
            clip: of the same model as all others.
            group: what a bootstrap draws as a whole: tracks of one group are not independent of each other.
            role: what kind of example the track is.

        Raises:
            ValueError: another number of layers or heads than before, or attention beyond the reach.
        """
        num_heads = clip.weights.shape[0], clip.weights.shape[1]
        if self._num_heads not in (None, num_heads):
            raise ValueError(f"clip has (layers, heads) {num_heads}, expected {self._num_heads} like the clips before")
        self._num_heads = num_heads
        for frames in lag_frames(clip, self.reach):
            divergence = frames.divergence()
            for label in (True, False):
                kept = frames.speaking == label
                if kept.any():
                    self._count(frames, kept, divergence[..., kept], (group, role, label))

    def figures(self, resamples: int = 1000, seed: int = 0) -> HeadFigures:
        """All figures with their intervals.

        Args:
            resamples: how often groups are drawn; 0 for no intervals.
            seed: of the draws.

        Raises:
            ValueError: no clip was added.
        """
        if self._num_heads is None:
            raise ValueError("no clip was added, expected at least one")
        no_map = LagMap(np.zeros((*self._num_heads, 2 * self.half + 1)), np.zeros(2 * self.half + 1))
        maps = self._maps.get(True, no_map), self._maps.get(False, no_map)
        found = head_figures(self._scenes, maps, self.reach.farthest is not None, resamples, seed)
        return found if self.null_key else without_null(found)

    def _count(
        self, frames: LagFrames, kept: NDArray[np.bool_], divergence: Floats, key: tuple[str, str, bool]
    ) -> None:
        assert self._num_heads is not None
        label, lags = key[2], 2 * self.half + 1
        if key not in self._scenes:
            self._scenes[key] = SceneSums.empty(*self._num_heads, lags)
        if label not in self._maps:
            self._maps[label] = LagMap(np.zeros((*self._num_heads, lags)), np.zeros(lags))
        scene, lag_map, one = self._scenes[key], self._maps[label], frames.one

        weights, present, speech = frames.weights[:, :, kept], frames.present[kept], frames.speech[kept]
        lag_map.weights += self._fitted(weights.sum(axis=2))
        lag_map.frames += self._fitted(present.sum(axis=0).astype(np.float64))

        shares, value_shares = frames.shares[:, :, kept], frames.value_shares[:, :, kept]
        even = present / present.sum(axis=-1, keepdims=True)
        heard = np.isfinite(one.lag_ms[:, :, kept])
        scene.frames += int(kept.sum())
        scene.heard += heard.sum(axis=-1)
        scene.valued += np.isfinite(frames.value_lag_ms[:, :, kept]).sum(axis=-1)
        scene.shares += self._fitted(np.nansum(shares, axis=2))
        scene.even += self._fitted(np.einsum("lht,tw->lhw", heard.astype(np.float64), even))
        scene.value_shares += self._fitted(np.nansum(value_shares, axis=2))
        scene.on_speech += np.einsum("lhtw,tw->lh", weights, speech.astype(np.float64))
        scene.on_other += np.einsum("lhtw,tw->lh", weights, (present & ~speech).astype(np.float64))
        scene.speech_keys += int(speech.sum())
        scene.other_keys += int((present & ~speech).sum())
        scene.divergence += np.nansum(divergence, axis=-1)
        scene.both_heard += np.isfinite(divergence).sum(axis=-1)
        per_frame = (one.lag_ms, one.width_ms, one.entropy, one.null_mass, frames.value_lag_ms, frames.value_width_ms)
        scene.per_frame.append(np.stack([values[:, :, kept] for values in per_frame]).astype(np.float32))

    def _fitted(self, by_lag: Floats) -> Floats:
        """``(..., W)`` around lag 0 to the lags that are kept."""
        beyond = by_lag.shape[-1] // 2 - self.half
        if beyond >= 0:
            return by_lag[..., beyond : by_lag.shape[-1] - beyond]
        return np.pad(by_lag, [(0, 0)] * (by_lag.ndim - 1) + [(-beyond, -beyond)])


def collect_heads(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    tracks: Sequence[int] | None = None,
    *,
    change: Change | None = None,
    label: str = "alignment",
) -> HeadStatistics:
    """Runs a model over the labelled ones of the tracks and collects what its heads did.

    Args:
        model: in any mode; put back into it afterwards.
        examples: without augmentation.
        config: the model's configuration.
        device: where to run.
        tracks: indices into the dataset; None takes all.
        change: made to each example before the model gets it.
        label: name of the progress bar.

    Raises:
        UsageError: the model has no cross-attention.
    """
    all_tracks = examples.dataset.tracks
    chosen = [i for i in (range(len(all_tracks)) if tracks is None else tracks) if all_tracks[i].labelled]
    statistics = HeadStatistics(KeyReach.of(config.model), null_key=config.model.fusion.null_key)
    for clip in align_tracks(model, examples, config, device, chosen, change=change, label=label):
        statistics.add(clip, group_of(all_tracks[clip.track]), all_tracks[clip.track].role)
    return statistics
