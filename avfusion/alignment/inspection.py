"""What was found out about the heads of one model on one dataset, and how it goes into tables, pictures and JSON.

``inspect.py`` measures it. ``L`` fusion layers, ``H`` heads, ``W`` lags; estimates are ``(L, H, 3)``: value, low and
high end of the 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from avfusion.alignment.columns import Floats
from avfusion.alignment.heads.figures import FrameFigures, HeadFigures, PartFigures
from avfusion.alignment.measures.ablation import Ablation
from avfusion.alignment.measures.envelope_probe import EnvelopeProbe
from avfusion.alignment.measures.events import EventError
from avfusion.alignment.measures.slope import SlopeFit
from avfusion.alignment.pictures.summary import Condition
from avfusion.alignment.table import HeadRow, as_json, head_rows
from avfusion.alignment.verdict import MIN_GROUPS, TRAINED, UNTRAINED

STRIP_NAMES = {
    "other_sound": "other sound",
    "silence": "no sound",
    "reversed_sound": "reversed",
    "frozen_picture": "frozen face",
}


@dataclass
class ModelFindings:
    """What was measured on one model, or on the trained one under a control; None where it was not or cannot be."""

    figures: HeadFigures
    slope: SlopeFit | None = None
    ablation: Ablation | None = None
    events: EventError | None = None
    probe: EnvelopeProbe | None = None

    def measures(self) -> dict[str, Floats]:
        """All figures by column, ``(L, H, 3)`` each; without intervals where they would be over few groups."""
        groups = self.figures.groups()
        found = {name: _sure(array, groups[name]) for name, array in self.figures.measures().items()}
        if self.slope is not None:
            fit = sure_fit(self.slope)
            found.update(slope=fit.slope, slope_r2=fit.r2, intercept_ms=fit.intercept_ms)
        if self.ablation is not None:
            for kind in ("zero", "uniform", "only"):
                found[f"delta_ap_{kind}"] = _sure(getattr(self.ablation, kind), self.ablation.num_groups)
        if self.events is not None:
            mean = self.events.mean
            of_events = {"event_mae_ms": mean.mae_ms, "event_constant_ms": mean.constant_mae_ms}
            of_events |= {"event_best_ms": mean.best_mae_ms, "event_gain_ms": mean.gain_ms}
            of_events |= {f"event_within_{limit}": share for limit, share in mean.within.items()}
            of_events["peak_mae_ms"] = self.events.peak.mae_ms
            found.update({name: _sure(array, self.events.num_groups) for name, array in of_events.items()})
        if self.probe is not None:
            probe = self.probe
            of_probe = {"target_r2": probe.target, "interferer_r2": probe.interferer, "difference": probe.difference}
            found.update({f"probe_{name}": _sure(array, probe.num_groups) for name, array in of_probe.items()})
        return found

    def basis(self) -> list[str]:
        """How much stands behind the figures of a model, a line for each kind of them."""
        found = []
        if self.slope is not None:
            fit = self.slope
            found.append(f"slope: {fit.num_frames} frames of {fit.num_tracks} tracks, {fit.num_groups} groups")
        if self.ablation is not None:
            found.append(f"ΔAP: {self.ablation.num_frames} frames, {self.ablation.num_groups} groups")
        if self.events is not None:
            events = self.events
            found.append(
                f"true times: {events.num_events} sounds of {events.num_tracks} tracks, {events.num_groups} groups"
            )
        return found


@dataclass
class Inspection:
    """The findings of all models and controls, in the order of the table.

    Attributes:
        findings: by model; ``trained`` first.
        num_tracks: labelled tracks that were looked at.
        num_groups: groups they come from, over which the intervals are.
        of_tracks: labelled tracks of the split.
        notes: what could not be measured, and why.
        warnings: what to know of the model before anything is read out of its figures.
        seconds: how long each stage took.
    """

    findings: dict[str, ModelFindings]
    num_tracks: int
    num_groups: int
    of_tracks: int
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def rows(self) -> list[HeadRow]:
        """One for each model, layer and head."""
        return head_rows({name: found.measures() for name, found in self.findings.items()})

    @property
    def slopes(self) -> dict[str, SlopeFit]:
        """Of the models that have one; without intervals where they would be over few groups."""
        return {name: sure_fit(found.slope) for name, found in self.findings.items() if found.slope is not None}

    @property
    def conditions(self) -> list[Condition]:
        """The strips of the head summary: own sound in both kinds of frames, controls, the untrained model."""
        own = self.findings[TRAINED].figures
        strips = [_strip("speaking", own, True), _strip("silent", own, False)]
        others = [name for name in self.findings if name not in (TRAINED, UNTRAINED)]
        for name in [*others, *(UNTRAINED for _ in range(UNTRAINED in self.findings))]:
            strips.append(_strip(STRIP_NAMES.get(name, name), self.findings[name].figures, True))
        return strips

    @property
    def lags_s(self) -> Floats:
        """``(W,)`` of the strips."""
        return np.asarray(self.findings[TRAINED].figures.map_lag_ms / 1000)

    @property
    def remarks(self) -> list[str]:
        """What stands below the table: warnings, what the figures are over, what was not measured."""
        trained = self.findings[TRAINED].basis()
        over = [f"{TRAINED}, {line}" for line in trained]
        if UNTRAINED in self.findings and (plain := self.findings[UNTRAINED].basis()) != trained:
            over += [f"{UNTRAINED}, {line}" for line in plain]
        return [
            *(f"! {warning}" for warning in self.warnings),
            *over,
            *(f"not measured: {note}" for note in self.notes),
        ]

    def summary(self) -> dict[str, Any]:
        """What ``report.json`` keeps: counts, notes, AP of the whole model, and the rows."""
        ablation = self.findings[TRAINED].ablation
        return {
            "tracks": self.num_tracks,
            "of_tracks": self.of_tracks,
            "groups": self.num_groups,
            "average_precision": None if ablation is None else _listed(ablation.base_ap),
            "without_any_head": None if ablation is None else _listed(ablation.none),
            "notes": self.notes,
            "warnings": self.warnings,
            "basis": self.findings[TRAINED].basis(),
            "seconds": {stage: round(seconds, 1) for stage, seconds in self.seconds.items()},
            "rows": as_json(self.rows),
        }

    def to_dict(self) -> dict[str, Any]:
        """The content of ``heads.json``: the summary, and what is in no row."""
        more: dict[str, Any] = {}
        for name, found in self.findings.items():
            of_model: dict[str, Any] = {
                "roles": {role: _part(part) for role, part in found.figures.roles.items()},
                "redundancy": _listed(found.figures.redundancy),
            }
            if found.slope is not None:
                fit = found.slope
                of_model["shifts"] = {
                    "shifts_ms": _listed(fit.shifts_ms), "lag_ms": _listed(fit.lag_ms),
                    "frames": fit.num_frames, "tracks": fit.num_tracks, "groups": fit.num_groups,
                }  # fmt: skip
            if found.events is not None:
                events = found.events
                of_model["events"] = {
                    "kind": events.kind, "events": events.num_events, "tracks": events.num_tracks,
                    "groups": events.num_groups, "best_constant_mae_ms": events.best_constant_mae_ms,
                    "heard": events.num_heard.tolist(),
                }  # fmt: skip
            if found.probe is not None:
                probe = found.probe
                of_model["envelope_probe"] = {
                    "frames": probe.num_frames, "tracks": probe.num_tracks, "groups": probe.num_groups,
                    "layer_target": _listed(probe.layer_target), "layer_interferer": _listed(probe.layer_interferer),
                    "layer_difference": _listed(probe.layer_difference),
                }  # fmt: skip
            more[name] = of_model
        return {**self.summary(), "models": more}


def sure_fit(fit: SlopeFit) -> SlopeFit:
    """A fit without intervals where they would be over fewer than :data:`MIN_GROUPS` groups."""
    lag, slope, intercept, r2 = (_sure(a, fit.num_groups) for a in (fit.lag_ms, fit.slope, fit.intercept_ms, fit.r2))
    return replace(fit, lag_ms=lag, slope=slope, intercept_ms=intercept, r2=r2)


def _sure(estimate: Floats, num_groups: int) -> Floats:
    """``(..., 3)`` estimates, without intervals where they would be over too few groups."""
    if num_groups >= MIN_GROUPS:
        return estimate
    return np.concatenate([estimate[..., :1], np.full_like(estimate[..., 1:], np.nan)], axis=-1)


def _strip(name: str, figures: HeadFigures, speaking: bool) -> Condition:
    frames = figures.speaking if speaking else figures.silent
    null = np.full(figures.null_auroc.shape[:2], np.nan) if frames is None else frames.null_mass[..., 0]
    return Condition(name, figures.map_speaking if speaking else figures.map_silent, null)


def _part(part: PartFigures) -> dict[str, Any]:
    """The figures of one role, by label."""
    by_label = {"speaking": part.speaking, "silent": part.silent}
    return {
        **{label: _frames(frames) for label, frames in by_label.items() if frames is not None},
        "null_auroc": _listed(part.null_auroc),
        "selectivity": _listed(part.selectivity),
    }


def _frames(figures: FrameFigures) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in fields(figures):
        value = getattr(figures, one.name)
        if isinstance(value, Mapping):
            found |= {f"{one.name}_{key}": _listed(array) for key, array in value.items()}
        else:
            found[one.name] = value if isinstance(value, int) else _listed(value)
    return found


def _listed(array: Floats) -> Any:
    """Nested lists of numbers to six digits after the point; None for NaN."""
    if array.ndim == 0:
        return round(float(array), 6) if math.isfinite(array) else None
    return [_listed(part) for part in array]
