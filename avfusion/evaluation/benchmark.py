"""From the scores of many contenders on one split to a benchmark's table: AP per role, differences, balance.

Shapes: ``N`` face boxes of all tracks, in the order of the tracks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.evaluation.comparison import (
    Balance,
    Contender,
    Difference,
    Figure,
    balance,
    compare,
    interval_of_difference,
)
from avfusion.evaluation.comparison_text import balance_table, difference_table, main_table, verdicts
from avfusion.evaluation.groups import independent_groups
from avfusion.evaluation.join import Joined, join
from avfusion.evaluation.report import evaluate
from avfusion.evaluation.roles import OWN, per_role, role_selections, track_groups, track_roles
from avfusion.tracks import FaceTrack, LabelTable, ScoreTable

ALL_COLUMN = "all"
Scores = Sequence[NDArray[np.floating[Any]]]  # one (T,) array per track

NOTES = """\
{tracks} tracks of {groups} independent scenes. AP: VOC all-point interpolation, as AVA defines it. A role that speaks
is measured against its own speaking frames, one that never speaks against those of {talkers} (all of its own frames are
negatives then, pauses too: loudness alone is above chance there). Trained rows: mean over
seeds ± half the 95 % interval of that mean (Student's t from the spread of the seeds); the others: value ± half the
95 % bootstrap interval over scenes. Minutes: wall time of one training, data and report included, mean over seeds."""

DIFFERENCE_NOTES = """\
Mean over seeds ± half its 95 % interval (Student's t), and in brackets the 95 % bootstrap interval over scenes of the
difference of the means, both contenders on the same drawn scenes."""

BALANCE_NOTES = """\
Means over whole tracks; a role without heard tracks is set beside those named. A ratio of 1 gives a shortcut
nothing."""


@dataclass(frozen=True)
class BenchmarkTable:
    """All numbers of a benchmark.

    Attributes:
        columns: ``all``, the hard roles, then the others by name.
        chance: column to the AP of a constant score.
        contenders: the rows.
        differences: of the main contender from every other, in the hard roles; empty where there is nothing to compare.
        balances: (role, figure) to heard against unheard tracks, and to where the heard ones come from.
        facts: what the notes need: tracks, groups, talkers, the name of the main contender.
    """

    columns: list[str]
    chance: dict[str, float]
    contenders: list[Contender]
    differences: list[Difference]
    balances: dict[tuple[str, str], tuple[Balance | None, str]]
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and None, as JSON takes them."""
        return {
            **self.facts,
            "columns": self.columns,
            "chance": self.chance,
            "rows": [
                {**asdict(row), "cells": {column: asdict(row.cell(column)) for column in self.columns}}
                for row in self.contenders
            ],
            "differences": [{**asdict(found), "clear": found.clear} for found in self.differences],
            "balance": [
                {"role": role, "figure": figure, "heard_tracks_of": of, **(asdict(found) if found else {})}
                for (role, figure), (found, of) in self.balances.items()
            ],
        }

    def to_markdown(self) -> str:
        """The tables with their notes, verdicts at the end."""
        main = self.facts["main"]
        parts = [NOTES.format(**self.facts), main_table(self.contenders, self.columns, self.chance)]
        if self.differences:
            parts += [f"## How far `{main}` is ahead", DIFFERENCE_NOTES, difference_table(main, self.differences)]
        if self.balances:
            parts += ["## What shortcuts could use: heard against unheard tracks", BALANCE_NOTES]
            parts.append(balance_table(self.balances))
        if self.differences:
            parts.append("\n".join(f"- {line}" for line in verdicts(main, self.differences)))
        return "\n\n".join(parts) + "\n"


class Benchmark:
    """One split, and how its roles are measured.

    Args:
        tracks: of the split.
        reference_roles: roles of plain talkers with their own sound.
        hard_roles: roles in which contenders are compared; those that do not occur do not matter.
        resamples: bootstrap resamples of the groups; 0 for no intervals.
    """

    def __init__(
        self,
        tracks: Sequence[FaceTrack],
        reference_roles: Collection[str],
        hard_roles: Sequence[str],
        resamples: int = 1000,
    ) -> None:
        self.tracks, self.reference_roles, self.resamples = tracks, reference_roles, resamples
        self._roles, self._groups = track_roles(tracks), track_groups(tracks)
        self._labels = LabelTable.from_tracks(tracks)
        found = set(self._roles.values())
        self.hard_roles = [role for role in hard_roles if role in found]

    def table(
        self,
        scores: Mapping[str, Mapping[str, Scores]],
        trained: Collection[str],
        main: str,
        minutes: Mapping[str, Mapping[str, float]],
        raw: Mapping[str, NDArray[np.float64]],
    ) -> BenchmarkTable:
        """Measures everything.

        Args:
            scores: contender to seed to one array per track; a training-free contender has one seed, of any name.
            trained: which contenders are trained.
            main: the contender whose lead is measured; nothing is compared where it is absent.
            minutes: contender to seed to wall time of the training, as far as known.
            raw: figure to one number above 0 per track, of which heard and unheard tracks are compared.
        """
        joined = {name: {seed: self._joined(found) for seed, found in seeds.items()} for name, seeds in scores.items()}
        figures: dict[str, dict[str, dict[str, Figure]]] = {}
        chance: dict[str, float] = {}
        for name, seeds in joined.items():
            figures[name] = {}
            for seed, rows in seeds.items():
                figures[name][seed], chance = self._figures(rows)
        contenders = [Contender(name, name in trained, runs, minutes.get(name, {})) for name, runs in figures.items()]
        others = sorted(set(chance) - {ALL_COLUMN, *self.hard_roles})
        speaking_roles = {track.role for track in self.tracks if track.speaking.any()}
        return BenchmarkTable(
            columns=[ALL_COLUMN, *self.hard_roles, *others],
            chance=chance,
            contenders=contenders,
            differences=self._differences(contenders, joined, main) if main in joined else [],
            balances={
                (role, name): self._balance(role, values) for role in self.hard_roles for name, values in raw.items()
            },
            facts={
                "tracks": len(self.tracks),
                "groups": len(set(self._groups.values())),
                "talkers": " and ".join(sorted(speaking_roles & set(self.reference_roles))) or "all roles",
                "main": main,
            },
        )

    def _joined(self, scores: Scores) -> Joined:
        return join(self._labels, ScoreTable.from_tracks(self.tracks, scores))

    def _figures(self, rows: Joined) -> tuple[dict[str, Figure], dict[str, float]]:
        """Column to AP, and column to chance."""
        whole = evaluate(rows, self.resamples, group_of_entity=self._groups)
        figures = {ALL_COLUMN: Figure(whole.average_precision, whole.average_precision_interval, whole.auroc)}
        chance = {ALL_COLUMN: whole.prevalence}
        for row in per_role(rows, self._roles, self.reference_roles, self.resamples, group_of_entity=self._groups):
            figures[row.role] = Figure(row.average_precision, row.average_precision_interval, row.auroc)
            chance[row.role] = row.chance
        return figures, chance

    def _differences(
        self, contenders: Sequence[Contender], joined: Mapping[str, Mapping[str, Joined]], main: str
    ) -> list[Difference]:
        """The main contender against every other one, in every hard role."""
        any_rows = next(iter(joined[main].values()))
        groups = independent_groups(any_rows.video_id, any_rows.entity_id, self._groups)
        kept_of_role = {
            chosen.role: chosen.kept for chosen in role_selections(any_rows, self._roles, self.reference_roles)
        }
        by_name = {contender.name: contender for contender in contenders}
        found = []
        for role in self.hard_roles:
            kept = kept_of_role[role]
            for name, other in by_name.items():
                seeds = [seed for seed in joined[main] if not other.trained or seed in joined[name]]
                if name == main or not seeds:
                    continue
                ours = [joined[main][seed].score[kept] for seed in seeds]
                theirs = [rows.score[kept] for seed, rows in joined[name].items() if seed in seeds or not other.trained]
                interval = interval_of_difference(any_rows.speaking[kept], ours, theirs, groups[kept], self.resamples)
                found.append(compare(by_name[main], other, role, interval))
        return found

    def _balance(self, role: str, values: NDArray[np.float64]) -> tuple[Balance | None, str]:
        """Heard against unheard tracks of a role; where it has no heard ones, those of the plain talkers."""
        of_role = np.array([track.role == role for track in self.tracks])
        heard = np.array([bool(track.speaking.any()) for track in self.tracks])
        talkers = np.array([track.role in self.reference_roles for track in self.tracks]) & heard
        own = bool((of_role & heard).any())
        kept = of_role if own else of_role | talkers
        groups = np.array([self._groups[track.video_id, track.entity_id] for track in self.tracks], dtype=np.object_)
        names = sorted({track.role for track, used in zip(self.tracks, talkers, strict=True) if used})
        return balance(values[kept], heard[kept], groups[kept], self.resamples), OWN if own else ", ".join(names) or "-"
