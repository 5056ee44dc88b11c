"""The figures of every head over a dataset: how each is defined, and how it is made of sums, histograms and ranks.

A are the weights of a frame on the real keys in its reach, n = 1 - ΣA its null mass, Ã = A / (1 - n), Δt the time of
the key minus the time of the frame, N the number of keys in reach. A frame *hears* where n <= 0.999; others have no Ã.

    lag         L = Σ Ã Δt, ms; median and interquartile range over the frames that hear
    width       sqrt(Σ Ã (Δt - L)²), ms; median over the frames that hear
    entropy     -Σ Ã ln Ã / ln N; median over the frames that hear
    mass        Σ Ã over |Δt - m| <= 20, 40, 100 ms, m the head's median lag over the same frames; mean over those
                (keys are 10 ms apart: ±20 ms holds five of them, or four where m lies between two)
    lift        mass over what equal weights 1 / N on the keys in reach have there, in the same frames: on as many keys
    null mass   n; mean over all frames
    null AUROC  how often n of a frame without speech is larger than n of a speaking frame; equal ones count half
    selectivity ln(mean A on speech keys / mean A on other keys), over all pairs of a frame and a key in its reach;
                a key is a speech key where the face is labelled speaking at the key's time
    redundancy  Jensen-Shannon divergence of the Ã of two heads of a layer, nats, mean over frames where both hear
    value_...   the same of A_ij ‖v_j W_O‖, renormalised to sum 1, in place of Ã

Every figure is an estimate ``(L, H, 3)``: value and the ends of its 95 % interval over groups, NaN where there is none.
In every draw of groups all that a figure depends on is drawn again, the median lag under a mass too.

Source: DESIGN section 8, "Per head"; Kobayashi et al., "Attention is Not Only a Weight", 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from avfusion.alignment.heads.draws import WITHIN_MS, HeadDraws
from avfusion.alignment.heads.scene_sums import LagMap, Scenes
from avfusion.alignment.measures.resampling import Floats
from avfusion.clock import AUDIO_HZ

OFF_SCREEN_ROLES = ("off_screen", "still_face", "moving_face")  # a face that says nothing, and somebody else's voice


@dataclass(frozen=True)
class FrameFigures:
    """Figures over frames of one kind; estimates ``(L, H, 3)``. The file's head defines them.

    Attributes:
        num_frames: frames, whether or not a head hears.
        num_groups: groups they come from.
        heard: share of the frames that hear.
        null_mass: over all of the frames.
        mass_within, lift: by milliseconds: 20, 40 and 100.
    """

    num_frames: int
    num_groups: int
    heard: Floats
    null_mass: Floats
    lag_ms: Floats
    lag_iqr_ms: Floats
    width_ms: Floats
    entropy: Floats
    mass_within: Mapping[int, Floats]
    lift: Mapping[int, Floats]
    value_lag_ms: Floats
    value_lag_iqr_ms: Floats
    value_width_ms: Floats
    value_mass_within: Mapping[int, Floats]
    value_lift: Mapping[int, Floats]


@dataclass(frozen=True)
class PartFigures:
    """Figures over some tracks: all, or those of one role.

    Attributes:
        speaking: over the frames labelled speaking; None where there are none.
        silent: over the other frames; None where there are none.
        null_auroc: NaN where frames are all of one kind.
        selectivity: NaN where keys are all of one kind, or one kind has no attention at all.
        redundancy: ``(L, H, H, 3)``, 0 on the diagonal.
        nearest_head: redundancy with the head of the layer that is most alike; NaN for a head alone.
    """

    speaking: FrameFigures | None
    silent: FrameFigures | None
    null_auroc: Floats
    selectivity: Floats
    redundancy: Floats
    nearest_head: Floats


@dataclass(frozen=True)
class HeadFigures(PartFigures):
    """All figures of one model, or of one control.

    Attributes:
        roles: the same for the tracks of each role.
        num_groups_off_screen: groups that ``null_off_screen`` is over.
        null_off_screen: null mass over the frames in which nobody in view is heard and somebody else is (the roles
            ``off_screen``, ``still_face`` and ``moving_face``); NaN where there are none.
        map_lag_ms: ``(W,)`` lags of the maps.
        map_speaking, map_silent: ``(L, H, W)`` mean A (not Ã: where the null mass is large the map is dark) at each
            lag, over the frames that have a key there; NaN where none has.
    """

    roles: Mapping[str, PartFigures]
    num_groups_off_screen: int
    null_off_screen: Floats
    map_lag_ms: Floats
    map_speaking: Floats
    map_silent: Floats

    def groups(self) -> dict[str, int]:
        """How many groups each of :meth:`measures` is over; the fewer where two kinds of frames are compared."""
        speaking, silent = (0 if part is None else part.num_groups for part in (self.speaking, self.silent))
        found = dict.fromkeys(self.measures(), speaking)
        found.update(null_silent=silent, null_off_screen=self.num_groups_off_screen, redundancy=max(speaking, silent))
        found["null_auroc"] = min(speaking, silent)
        return found

    def measures(self) -> dict[str, Floats]:
        """The figures of :data:`~avfusion.alignment.columns.COLUMNS` that are found here, by name."""
        spoken, nothing = self.speaking, np.full(self.null_auroc.shape, np.nan)
        found = {
            "null_speaking": nothing if spoken is None else spoken.null_mass,
            "null_silent": nothing if self.silent is None else self.silent.null_mass,
            "null_off_screen": self.null_off_screen,
            "null_auroc": self.null_auroc,
            "selectivity": self.selectivity,
            "redundancy": self.nearest_head,
        }
        if spoken is None:
            return found
        found.update(lag_ms=spoken.lag_ms, lag_iqr_ms=spoken.lag_iqr_ms, width_ms=spoken.width_ms)
        found.update(entropy=spoken.entropy, lag_weighted_ms=spoken.value_lag_ms)
        found["width_weighted_ms"] = spoken.value_width_ms
        for within in WITHIN_MS:
            found[f"mass_{within}"], found[f"lift_{within}"] = spoken.mass_within[within], spoken.lift[within]
            found[f"mass_weighted_{within}"] = spoken.value_mass_within[within]
        return found


def head_figures(scenes: Scenes, maps: tuple[LagMap, LagMap], windowed: bool, resamples: int, seed: int) -> HeadFigures:
    """Makes the figures.

    Args:
        scenes: what was kept, of one clip at least.
        maps: of the speaking and of the other frames.
        windowed: no attention lies beyond the lags that are kept.
        resamples: draws of groups.
        seed: of the draws.
    """
    shape = next(iter(scenes.values())).heard.shape
    lags = maps[0].weights.shape[-1]
    off_screen = {key: scene for key, scene in scenes.items() if key[1] in OFF_SCREEN_ROLES and not key[2]}
    unknown = np.full((*shape, 3), np.nan)
    return HeadFigures(
        **vars(_part(scenes, windowed, resamples, seed)),
        roles={
            role: _part({key: s for key, s in scenes.items() if key[1] == role}, windowed, resamples, seed)
            for role in sorted({key[1] for key in scenes})
        },
        num_groups_off_screen=len({group for group, _, _ in off_screen}),
        null_off_screen=HeadDraws(off_screen, resamples, seed).mean("null_mass") if off_screen else unknown,
        map_lag_ms=1000 / AUDIO_HZ * (np.arange(lags) - lags // 2),
        map_speaking=maps[0].mean(),
        map_silent=maps[1].mean(),
    )


def without_null(figures: HeadFigures) -> HeadFigures:
    """The figures of a model without a null key: none about the null mass."""
    roles = {role: _part_without_null(part) for role, part in figures.roles.items()}
    unknown = np.full_like(figures.null_off_screen, np.nan)
    return replace(_part_without_null(figures), roles=roles, null_off_screen=unknown)


PartT = TypeVar("PartT", bound=PartFigures)


def _part_without_null(part: PartT) -> PartT:
    speaking, silent = (
        None if frames is None else replace(frames, null_mass=np.full_like(frames.null_mass, np.nan))
        for frames in (part.speaking, part.silent)
    )
    return replace(part, speaking=speaking, silent=silent, null_auroc=np.full_like(part.null_auroc, np.nan))


def _part(scenes: Scenes, windowed: bool, resamples: int, seed: int) -> PartFigures:
    drawn = HeadDraws(scenes, resamples, seed)
    by_label = [{key: scene for key, scene in scenes.items() if key[2] is label} for label in (True, False)]
    speaking, silent = (_frames(some, windowed, resamples, seed) if some else None for some in by_label)
    redundancy, nearest = drawn.redundancy()
    return PartFigures(speaking, silent, drawn.null_auroc(), drawn.selectivity(), redundancy, nearest)


def _frames(scenes: Scenes, windowed: bool, resamples: int, seed: int) -> FrameFigures:
    drawn = HeadDraws(scenes, resamples, seed)
    lag, lag_iqr, medians = drawn.median_and_range("lag_ms")
    value_lag, value_lag_iqr, value_medians = drawn.median_and_range("value_lag_ms")
    mass, lift = drawn.mass("shares", "heard", medians, windowed)
    value_mass, value_lift = drawn.mass("value_shares", "valued", value_medians, windowed)
    return FrameFigures(
        num_frames=sum(scene.frames for scene in scenes.values()),
        num_groups=drawn.num_groups,
        heard=drawn.ratio_of("heard", "frames"),
        null_mass=drawn.mean("null_mass"),
        lag_ms=lag,
        lag_iqr_ms=lag_iqr,
        width_ms=drawn.median("width_ms"),
        entropy=drawn.median("entropy"),
        mass_within=mass,
        lift=lift,
        value_lag_ms=value_lag,
        value_lag_iqr_ms=value_lag_iqr,
        value_width_ms=drawn.median("value_width_ms"),
        value_mass_within=value_mass,
        value_lift=value_lift,
    )
