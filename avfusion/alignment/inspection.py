"""What was found out about the heads of one model on one dataset, and how it goes into tables, pictures and JSON.

``inspect.py`` measures it. ``L`` fusion layers, ``H`` heads, ``W`` lags; estimates are ``(L, H, 3)``: value, low and
high end of the 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
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
from avfusion.alignment.verdict import TRAINED, UNTRAINED

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
        """All figures by column, ``(L, H, 3)`` each."""
        found: dict[str, Floats] = dict(self.figures.measures())
        if self.slope is not None:
            found.update(slope=self.slope.slope, slope_r2=self.slope.r2, intercept_ms=self.slope.intercept_ms)
        if self.ablation is not None:
            found.update({f"delta_ap_{kind}": getattr(self.ablation, kind) for kind in ("zero", "uniform", "only")})
        if self.events is not None:
            mean = self.events.mean
            found.update(event_mae_ms=mean.mae_ms, event_constant_ms=mean.constant_mae_ms, event_gain_ms=mean.gain_ms)
            found.update({f"event_within_{limit}": share for limit, share in mean.within.items()})
            found["peak_mae_ms"] = self.events.peak.mae_ms
        if self.probe is not None:
            found.update(probe_target_r2=self.probe.target, probe_interferer_r2=self.probe.interferer)
            found["probe_difference"] = self.probe.difference
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
        seconds: how long each stage took.
    """

    findings: dict[str, ModelFindings]
    num_tracks: int
    num_groups: int
    of_tracks: int
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def rows(self) -> list[HeadRow]:
        """One for each model, layer and head."""
        return head_rows({name: found.measures() for name, found in self.findings.items()})

    @property
    def slopes(self) -> dict[str, SlopeFit]:
        """Of the models that have one."""
        return {name: found.slope for name, found in self.findings.items() if found.slope is not None}

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
