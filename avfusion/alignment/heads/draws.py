"""Figures of heads on all draws of groups at once, from what is kept of each scene.

``G`` groups, ``R`` draws, ``L`` fusion layers, ``H`` heads, ``W`` lags of 10 ms. Inside, arrays open with an axis of
``1 + R``: the value on all groups, then the draws. What comes out are estimates ``(L, H, 3)``. ``figures.py``
defines the figures.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from avfusion.alignment.heads.ranks import drawn_auroc, drawn_quantiles
from avfusion.alignment.heads.scene_sums import PER_FRAME, Scenes
from avfusion.alignment.measures.resampling import Floats, draws, estimate, ratio
from avfusion.clock import AUDIO_HZ
from avfusion.evaluation.ranking import Ranking

WITHIN_MS = (20, 40, 100)
STEP_MS = 1000 / AUDIO_HZ
ROUNDING = 1e-3  # of a step: a lag kept as float32 lies beside the step that it is


class HeadDraws:
    """The groups of some scenes, and the draws of them.

    Args:
        scenes: one at least.
        resamples: R; 0, or fewer than two groups, for no intervals.
        seed: of the draws.
    """

    def __init__(self, scenes: Scenes, resamples: int, seed: int) -> None:
        names = sorted({group for group, _, _ in scenes})
        number = {name: index for index, name in enumerate(names)}
        self.num_groups = len(names)
        self._counts = draws(len(names), resamples, seed)
        self._weights = np.concatenate([np.ones((1, len(names))), self._counts])
        self._scenes = [(number[group], scene) for (group, _, _), scene in scenes.items()]
        lengths = [scene.frames for _, scene in self._scenes]
        self._group_of_frame = np.repeat([group for group, _ in self._scenes], lengths)
        self._silent_frame = np.repeat([not speaking for _, _, speaking in scenes], lengths)

    def ratio_of(self, over: str, under: str) -> Floats:
        """The ratio of two sums over frames."""
        return _estimate(_ratio(self._sums(over), self._sums(under)))

    def mean(self, name: str) -> Floats:
        """The mean over all frames of one of the numbers of each frame, where no frame lacks it."""
        column = PER_FRAME.index(name)
        sums = [np.sum([part[column].sum(-1, dtype=np.float64) for part in s.per_frame], 0) for _, s in self._scenes]
        return _estimate(_ratio(self._drawn(sums), self._sums("frames")))

    def median_and_range(self, name: str) -> tuple[Floats, Floats, Floats]:
        """Median and interquartile range over the frames that have the number, and ``(1 + R, L, H)`` medians."""
        found = self._quantiles(name, (0.25, 0.5, 0.75))
        return _estimate(found[..., 1]), _estimate(found[..., 2] - found[..., 0]), found[..., 1]

    def median(self, name: str) -> Floats:
        """The median over the frames that have the number."""
        return _estimate(self._quantiles(name, (0.5,))[..., 0])

    def mass(
        self, name: str, frames: str, medians: Floats, windowed: bool
    ) -> tuple[dict[int, Floats], dict[int, Floats]]:
        """Mean share of the attention near the head's median lag, and its lift over equal weights, by milliseconds.

        Args:
            name: which histogram.
            frames: how many frames are in it.
            medians: ``(1 + R, L, H)`` ms.
            windowed: the histogram holds everything; otherwise what lies partly beyond it is not known.
        """
        until, even_until = (self._sums(histogram, cumulated=True) for histogram in (name, "even"))
        counted, heard = self._sums(frames), self._sums("heard")
        lags = until.shape[-1] - 1
        mass, lift = {}, {}
        for within_ms in WITHIN_MS:
            first = np.ceil((medians - within_ms) / STEP_MS - ROUNDING) + lags // 2
            end = np.floor((medians + within_ms) / STEP_MS + ROUNDING) + lags // 2 + 1
            known = np.isfinite(medians) & (windowed | ((first >= 0) & (end <= lags)))
            held = _ratio(np.where(known, _between(until, first, end), np.nan), counted)
            mass[within_ms] = _estimate(held)
            lift[within_ms] = _estimate(_ratio(held, _ratio(_between(even_until, first, end), heard)))
        return mass, lift

    def null_auroc(self) -> Floats:
        """How well the null mass tells frames without speech from speaking ones."""
        scores, silent = self._frames("null_mass"), self._silent_frame
        found = np.empty((len(self._weights), *scores.shape[:2]))
        for layer, head in np.ndindex(scores.shape[:2]):
            found[0, layer, head] = Ranking(silent, scores[layer, head]).auroc()
            found[1:, layer, head] = drawn_auroc(silent, scores[layer, head], self._group_of_frame, self._counts)
        return _estimate(found)

    def selectivity(self) -> Floats:
        """The logarithm of mean weight on speech keys over mean weight on other keys."""
        on_speech = _ratio(self._sums("on_speech"), self._sums("speech_keys"))
        on_other = _ratio(self._sums("on_other"), self._sums("other_keys"))
        times = _ratio(on_speech, on_other)
        return _estimate(np.log(times, out=np.full(times.shape, np.nan), where=times > 0))

    def redundancy(self) -> tuple[Floats, Floats]:
        """``(L, H, H, 3)`` mean divergence of every two heads of a layer, and ``(L, H, 3)`` the least for each head."""
        found = _ratio(self._sums("divergence"), self._sums("both_heard"))
        others = np.where(np.eye(found.shape[-1], dtype=bool), np.nan, found)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a head alone in its layer
            nearest = np.nanmin(others, axis=-1)
        return _estimate(found), _estimate(nearest)

    def _quantiles(self, name: str, shares: tuple[float, ...]) -> Floats:
        """``(1 + R, L, H, len(shares))`` quantiles over the frames that have the number."""
        values = self._frames(name)
        found = np.empty((len(self._weights), *values.shape[:2], len(shares)))
        for layer, head in np.ndindex(values.shape[:2]):
            of_head = values[layer, head]
            real = of_head[~np.isnan(of_head)].astype(np.float64)
            found[0, layer, head] = np.quantile(real, shares) if len(real) else np.nan
            found[1:, layer, head] = drawn_quantiles(of_head, self._group_of_frame, self._counts, shares)
        return found

    def _sums(self, name: str, cumulated: bool = False) -> Floats:
        """``(1 + R, ...)`` totals of what is kept under a name; cumulated over lags, ``W + 1`` of them, by wish."""
        kept = [getattr(scene, name) for _, scene in self._scenes]
        return self._drawn([_cumulated(histogram) for histogram in kept] if cumulated else kept)

    def _drawn(self, of_scenes: list[Floats]) -> Floats:
        by_group = np.zeros((self.num_groups, *np.shape(of_scenes[0])))
        for (group, _), of_scene in zip(self._scenes, of_scenes, strict=True):
            by_group[group] += of_scene
        return np.tensordot(self._weights, by_group, axes=1)

    def _frames(self, name: str) -> NDArray[np.float32]:
        """``(L, H, T)`` one number of each frame, all scenes end to end."""
        column = PER_FRAME.index(name)
        return np.concatenate([part[column] for _, scene in self._scenes for part in scene.per_frame], axis=-1)


def _estimate(found: Floats) -> Floats:
    return estimate(found[0], found[1:])


def _ratio(over: Floats, under: Floats) -> Floats:
    """``over / under``, where ``under`` may lack the axes of layer and head; NaN where nothing is under it."""
    wide = under.reshape(under.shape + (1,) * (over.ndim - under.ndim))
    return ratio(over, np.broadcast_to(wide, over.shape))


def _cumulated(histogram: Floats) -> Floats:
    """``(..., W)`` to ``(..., W + 1)``: the total before each lag, and of all."""
    return np.pad(histogram.cumsum(axis=-1), [(0, 0)] * (histogram.ndim - 1) + [(1, 0)])


def _between(until: Floats, first: Floats, end: Floats) -> Floats:
    """The total over lags ``first .. end - 1`` of :func:`_cumulated`; whatever where they are NaN."""
    ends = [np.nan_to_num(edge).clip(0, until.shape[-1] - 1).astype(np.int64)[..., None] for edge in (end, first)]
    above, below = (np.take_along_axis(until, edge, axis=-1)[..., 0] for edge in ends)
    return np.asarray(above - below)
