"""Measures the heads of one model on one dataset: attention, controls, moved sound, ablation, true times.

The trained model and an untrained one of the same build go through the same measurements; the controls (other sound,
silence, reversed sound, frozen picture) are the trained model with one thing about its clips changed. Each measurement
streams over the clips, so memory does not grow with them beyond a few numbers a frame.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from avfusion.alignment.capture import model_warnings
from avfusion.alignment.controls import CONTROLS, untrained
from avfusion.alignment.heads.collect import collect_heads
from avfusion.alignment.inspection import Inspection, ModelFindings
from avfusion.alignment.measures.ablation import ablate
from avfusion.alignment.measures.envelope_probe import FEWEST_GROUPS, envelope_probe
from avfusion.alignment.measures.events import event_error
from avfusion.alignment.measures.resampling import group_of
from avfusion.alignment.measures.slope import SHIFTS_MS, SlopeFit, margin_seconds, shift_slope, within_reach
from avfusion.alignment.reach import KeyReach
from avfusion.alignment.verdict import MIN_GROUPS, TRAINED, UNTRAINED
from avfusion.config import Config
from avfusion.data.examples import Examples
from avfusion.errors import AvfusionError, UsageError
from avfusion.models import ActiveSpeakerDetector
from avfusion.models.head_edit import grid_of_heads
from avfusion.tracks import FaceTrack

FIRST_ROLES = ("solo", "overlap")


def inspect_run(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    *,
    tracks: Sequence[int] | None = None,
    shifts_ms: Sequence[float] = SHIFTS_MS,
    resamples: int = 1000,
    say: Callable[[str], None] = lambda _: None,
) -> Inspection:
    """Measures all that can be measured of a model's heads.

    Args:
        model: trained, on ``device``, with cross-attention.
        examples: of the split, without augmentation.
        config: of the model.
        device: where to run.
        tracks: which tracks; None for all. Those without labels are left out.
        shifts_ms: by which the sound is moved for the slope.
        resamples: of the bootstrap; 0 for no intervals, and then no head is said to follow anything.
        say: told which stage begins.

    Raises:
        UsageError: the model has no cross-attention.
        AvfusionError: no track has labels.
    """
    grid_of_heads(model)
    all_tracks = examples.dataset.tracks
    chosen = [i for i in (range(len(all_tracks)) if tracks is None else tracks) if all_tracks[i].labelled]
    if not chosen:
        raise AvfusionError(
            f"{examples.dataset.name}: none of its {len(all_tracks)} tracks has labels; the heads' figures need "
            "speaking and silent frames, choose another --split"
        )
    stages = _Stages(say, total=2 * 5 + len(CONTROLS))
    findings: dict[str, ModelFindings] = {}
    for name, one in ((TRAINED, model), (UNTRAINED, untrained(config).to(device))):
        what = (one, examples, config, device, chosen)
        with stages(f"{name}: attention", needed=True):
            collected = collect_heads(*what, label=f"{name}: attention")
            found = findings[name] = ModelFindings(collected.figures(resamples))
        with stages(f"{name}: sound moved"):
            found.slope = shift_slope(*what, shifts_ms=shifts_ms, resamples=resamples)
            for note in _slope_notes(name, found.slope, shifts_ms, config):
                stages.note(note)
        with stages(f"{name}: heads left out"):
            found.ablation = ablate(*what, resamples=resamples)
        with stages(f"{name}: true times"):
            found.events = event_error(*what, resamples=resamples)
            if found.events is None:
                stages.note("true times: of no voice of these tracks is it known exactly when it makes a sound")
        with stages(f"{name}: overlapping voices"):
            found.probe = envelope_probe(*what, resamples=resamples)
            if found.probe is None:
                stages.note(
                    f"overlapping voices: fewer than {FEWEST_GROUPS} groups of these tracks hold a voice known exactly "
                    "beside another one"
                )
    for name, control in CONTROLS.items():
        label = f"control: {name.replace('_', ' ')}"
        with stages(label):
            of_control = collect_heads(model, examples, config, device, chosen, change=control(examples), label=label)
            findings[name] = ModelFindings(of_control.figures(resamples))
    num_groups = len({group_of(all_tracks[index]) for index in chosen})
    if num_groups < MIN_GROUPS:
        stages.note(f"intervals: {num_groups} groups of tracks, claims need {MIN_GROUPS}; take more tracks")
    missing = {track.role for track in all_tracks if track.labelled} - {all_tracks[index].role for index in chosen}
    if missing:
        stages.note(f"roles {', '.join(sorted(missing))}: none of the {len(chosen)} tracks; take more tracks")
    return Inspection(
        findings,
        num_tracks=len(chosen),
        num_groups=num_groups,
        of_tracks=sum(track.labelled for track in all_tracks),
        notes=stages.notes,
        warnings=model_warnings(config),
        seconds=stages.seconds,
    )


def choose_tracks(tracks: Sequence[FaceTrack], limit: int | None) -> list[int] | None:
    """At most ``limit`` labelled tracks that stand for all: of each role as many, spread evenly over its tracks.

    Where there are fewer than roles, those that speak come first, above all ``solo`` and ``overlap``: without speech
    hardly anything can be measured. For the same reason a role's only track is one that speaks.

    Returns:
        Indices in the dataset's order; None, which stands for all tracks, where there are no more than that.
    """
    labelled = [index for index, track in enumerate(tracks) if track.labelled]
    if limit is None or len(labelled) <= limit:
        return None
    by_role: dict[str, list[int]] = {}
    for index in labelled:
        by_role.setdefault(tracks[index].role, []).append(index)
    talking = {role: [i for i in of_role if tracks[i].speaking.any()] for role, of_role in by_role.items()}
    in_turn = sorted(by_role, key=lambda role: (not talking[role], *(role != first for first in FIRST_ROLES), role))
    quota = dict.fromkeys(by_role, 0)
    while sum(quota.values()) < limit:
        for role in in_turn:
            if quota[role] < len(by_role[role]) and sum(quota.values()) < limit:
                quota[role] += 1
    alone = {role: talking[role] for role in by_role if quota[role] == 1 and talking[role]}
    held = by_role | alone
    chosen = [of_role[n * len(of_role) // quota[role]] for role, of_role in held.items() for n in range(quota[role])]
    return sorted(chosen)


def _slope_notes(name: str, fit: SlopeFit, shifts_ms: Sequence[float], config: Config) -> list[str]:
    """Why a slope was not measured, or not on all shifts."""
    label = f"{name}: sound moved"
    kept = within_reach(shifts_ms, config)
    notes = []
    if beyond := [f"{shift:+g}" for shift in shifts_ms if shift not in kept]:
        heard = KeyReach.of(config.model)
        notes.append(f"sound moved by {', '.join(beyond)} ms: the model hears {heard} around a frame, and no further")
    if not fit.num_frames:
        margin_s = margin_seconds(kept, config)
        why = f"no speaking frame is {margin_s:g} s away from both ends of its track; give smaller --shifts"
        return [*notes, f"{label}: {why}"]
    if deaf := [f"{layer + 1}.{head + 1}" for layer, head in np.argwhere(np.isnan(fit.slope[..., 0]))]:
        why = "in none of the frames that count something is heard at every shift"
        notes.append(f"{label}: head {', '.join(deaf)}: {why}")
    return notes


@dataclass
class _Stages:
    """Says which stage runs, times it, and notes what could not be done."""

    say: Callable[[str], None]
    total: int
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Notes something, once."""
        if text not in self.notes:
            self.notes.append(text)

    @contextmanager
    def __call__(self, label: str, *, needed: bool = False) -> Iterator[None]:
        """One stage. Where the data do not allow it, a note says why, unless without it there is no table."""
        self.say(f"{len(self.seconds) + 1}/{self.total} {label}")
        started = time.monotonic()
        try:
            yield
        except AvfusionError as error:
            if needed or isinstance(error, UsageError):
                raise
            self.notes.append(f"{label}: {error}")
        finally:
            self.seconds[label] = time.monotonic() - started
