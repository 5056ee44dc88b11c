"""The numbers of a comparison: differences to the first run on the same drawn groups, and means over seeds.

Runs and rows in, plain dictionaries out, as ``comparison.json`` has them. What a run scored by itself is taken from its
report; what is said about two runs is computed here, from their scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from avfusion.config import Scalar
from avfusion.evaluation.groups import independent_groups, names_of_faces
from avfusion.evaluation.join import Joined
from avfusion.evaluation.paired import paired_rows
from avfusion.evaluation.roles import OWN, role_selections, track_groups, track_roles, track_sources
from avfusion.evaluation.seeds import difference_over_seeds, mean_over_seeds
from avfusion.evaluation.subsets import Subset, subsets
from avfusion.offsets import IN_SYNC_ROLES
from avfusion.tracks import FaceTrack
from avfusion.training.side_by_side.runs import AVERAGE_PRECISION, FIGURES, OFFSET_ACCURACY, Run
from avfusion.training.side_by_side.same_rows import SameRows

SEED = 0  # of the bootstrap
ROLE, CORPUS = "role", "corpus"


def settings_that_differ(runs: Sequence[Run]) -> dict[str, list[Scalar]]:
    """Dotted key to its value in every run, where they are not all the same."""
    settings = [run.settings for run in runs]
    columns = {key: [of_run[key] for of_run in settings] for key in settings[0]}
    return {key: values for key, values in columns.items() if any(value != values[0] for value in values)}


def differences(runs: Sequence[Run], rows: SameRows, resamples: int) -> dict[str, Any]:
    """Every run minus the first, over all rows and on each subset.

    Args:
        runs: the first is the one that is subtracted.
        rows: their scores.
        resamples: bootstrap resamples of the groups; 0 for no intervals.

    Returns:
        ``subsets``: kind, name and counts of each subset, and whose speaking rows are in it (its own, or those of the
        roles named, which count in ``num_positive``); ``of_run``: name of a run to its rows
        (:class:`~avfusion.evaluation.paired.PairedRow`), those of all rows first, then in the order of the subsets.
    """
    base = rows.joined[0]
    groups = independent_groups(base.video_id, base.entity_id, track_groups(rows.tracks))
    chosen = telling_subsets(base, rows.tracks)
    beside = {of.role: of.positives for of in role_selections(base, track_roles(rows.tracks), IN_SYNC_ROLES)}
    of_run = {
        run.name: paired_rows(base.speaking, joined.score, base.score, groups, chosen, resamples=resamples, seed=SEED)
        for run, joined in zip(runs[1:], rows.joined[1:], strict=True)
    }
    return {
        "subsets": [
            {**_counts(subset, base), "positives": beside[subset.name] if subset.kind == ROLE else OWN}
            for subset in chosen
        ],
        "of_run": {name: [row.to_dict() for row in found] for name, found in of_run.items()},
    }


def telling_subsets(joined: Joined, tracks: Sequence[FaceTrack]) -> list[Subset]:
    """Roles, corpora and the subsets of every report, as far as they part the rows at all; empty ones are left out.

    A role that never speaks stands beside the speaking rows of the roles that are in sync, as in a run's report.
    """
    _, faces = joined.faces
    corpus = _by_face(joined, names_of_faces(faces, track_sources(tracks), CORPUS))
    found = [
        *(Subset(ROLE, of.role, of.kept) for of in role_selections(joined, track_roles(tracks), IN_SYNC_ROLES)),
        *(Subset(CORPUS, name or "unknown", corpus == name) for name in sorted(set(corpus.tolist()))),
        *subsets(joined),
    ]
    held = [subset for subset in found if subset.kept.any()]
    kinds = [subset.kind for subset in held]
    return [subset for subset in held if kinds.count(subset.kind) > 1]


def seed_rows(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], list[str]]:
    """Runs that differ in nothing but the seed, taken together.

    Returns:
        One row for each setting of which there are two seeds or more: its runs, its seeds, and for each figure the mean
        over them with half its 95 % interval; ``ahead`` is the AP minus that of the first row, seed by seed. Then
        what there is to say about runs that do not count here.
    """
    settings: list[tuple[Mapping[str, Scalar], dict[int, Run]]] = []
    notes = []
    for run in runs:
        own = run.settings
        seeds = next((seeds for known, seeds in settings if known == own), None)
        if seeds is None:
            settings.append((own, {run.seed: run}))
        elif run.seed in seeds:
            notes.append(
                f"{run.name} has the settings and the seed of {seeds[run.seed].name}: in the means over seeds only that"
                " one counts"
            )
        else:
            seeds[run.seed] = run
    several = [seeds for _, seeds in settings if len(seeds) > 1]
    return [_seed_row(seeds, several[0] if index else None) for index, seeds in enumerate(several)], notes


def _seed_row(seeds: Mapping[int, Run], first: Mapping[int, Run] | None) -> dict[str, Any]:
    row: dict[str, Any] = {"runs": [run.name for run in seeds.values()], "seeds": list(seeds)}
    for figure in (*FIGURES, OFFSET_ACCURACY):
        found = _of_seeds(seeds, figure)
        row[figure] = asdict(mean_over_seeds(list(found.values()))) if len(found) == len(seeds) else None
    row["ahead"] = None if first is None else _ahead(seeds, first)
    return row


def _ahead(seeds: Mapping[int, Run], first: Mapping[int, Run]) -> dict[str, Any] | None:
    """AP minus the AP of the first row over the seeds that both have; None where that is one or none."""
    ours, theirs = _of_seeds(seeds, AVERAGE_PRECISION), _of_seeds(first, AVERAGE_PRECISION)
    if len(ours.keys() & theirs.keys()) < 2:
        return None
    return asdict(difference_over_seeds(ours, theirs))


def _of_seeds(seeds: Mapping[int, Run], figure: str) -> dict[str, float]:
    return {str(seed): value for seed, run in seeds.items() if (value := run.figures[figure]) is not None}


def _by_face(joined: Joined, names: Sequence[str]) -> NDArray[np.object_]:
    """``(N,)`` the name of each row's track."""
    face, _ = joined.faces
    return np.array(names, dtype=np.object_)[face]


def _counts(subset: Subset, joined: Joined) -> dict[str, Any]:
    speaking = joined.speaking[subset.kept]
    face, _ = joined.faces
    return {
        "kind": subset.kind,
        "name": subset.name,
        "num_rows": len(speaking),
        "num_positive": int(speaking.sum()),
        "prevalence": float(speaking.mean()),
        "num_tracks": len(np.unique(face[subset.kept])),
    }
