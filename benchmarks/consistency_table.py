"""The tables of the experiment on a voice over a minute, from the JSON files of its trainings and nothing else.

python benchmarks/consistency_table.py FOLDER [FOLDER ...] [--into=docs/experiments.md]

A FOLDER holds the files that benchmarks/consistency.py wrote for one dataset. Without --into the tables are printed;
with it they replace what stands between the markers of each folder's name in that file:

    <!-- consistency: NAME -->  ...  <!-- consistency: end -->

Intervals: ± is half the 95 % interval of the mean over seeds (Student's t). In brackets: 95 % bootstrap interval over
scenes of the mean over seeds, every arm on the same draws. AUROC of 0.5 is chance. "Holds": AUROC while hidden
lies above 0.5 by both intervals, and below it by both where the voices are exchanged there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.errors import run_command
from avfusion.evaluation.seeds import mean_over_seeds
from benchmarks import write_up
from benchmarks.consistency import ARMS
from benchmarks.experiment import ENCODERS
from benchmarks.returning_sounds import CHANGES
from benchmarks.write_up import (
    Trainings,
    claim,
    interval_over_groups,
    markdown,
    read_figures,
    with_both,
    with_half,
    write_tables,
)

ALIKE = ("dataset", "short", "splits", "epochs", "steps", "common_settings")
ORACLES = "oracles.json"
CLAIMS = (
    *((f"{window}_attention", "half_attention") for window in ("four", "thirty", "whole")),  # a wider window
    *((f"{window}_convolution", f"{window}_attention") for window in ("half", "four", "thirty", "whole")),  # the order
    *((f"{window}_no_positions", f"{window}_attention") for window in ("half", "four", "thirty", "whole")),
    ("whole_no_positions", "half_no_positions"),
    ("half_attention", "none"),
)
CHANCE = 0.5
Oracles = dict[str, list[dict[str, Any]]]  # what a voice is told by, to the figures while hidden (of each seed)


def main() -> None:
    """Reads the command line and writes or prints the tables."""
    write_tables(__doc__, "consistency", lambda folder: tables(read_trainings(folder), read_oracles(folder)))


def read_trainings(folder: Path) -> Trainings:
    """All trainings of arms in a folder; errors as of :func:`write_up.read_trainings`."""
    beside = (ENCODERS, ORACLES)
    return write_up.read_trainings(folder, ARMS, ALIKE, "benchmarks/consistency.py", beside)


def read_oracles(folder: Path) -> Oracles:
    """What could be known, and what the encoders let through, as far as it is there."""
    found: Oracles = {}
    if (folder / ORACLES).is_file():
        oracles = read_figures(folder / ORACLES)["oracles"]
        found |= {"the true pitch": [oracles["pitch"]], "the sound (log-mel)": [oracles["log_mel"]]}
    encoders = [read_figures(path)["parts"]["hidden"] for path in sorted(folder.glob(f"{ENCODERS}-*.json"))]
    return found | ({"the encoders' embeddings": encoders} if encoders else {})


def tables(trainings: Trainings, oracles: Oracles) -> str:
    """Everything as Markdown."""
    parts = [facts(trainings), oracle_table(oracles), part_table(trainings), differences(trainings)]
    return "\n\n".join(part for part in [*parts, change_table(trainings)] if part) + "\n"


def facts(trainings: Trainings) -> str:
    """What was trained and measured, in a sentence or two."""
    one = next(iter(next(iter(trainings.values())).values()))
    minutes = [run["minutes"] for runs in trainings.values() for run in runs.values()]
    commits = sorted({str(run["commit"]) for runs in trainings.values() for run in runs.values()})
    hidden, of_encoders = one["parts"]["hidden"], one["epochs"]["encoders"]
    before = f" after encoders of {of_encoders}" if of_encoders else ""
    return (
        f"{sum(map(len, trainings.values()))} trainings of {one['steps']} steps ({one['epochs']['arm']} epochs{before}"
        f"); held out ({one['splits']}): {one['tracks']} tracks of "
        f"{hidden['groups']} scenes, {one['parts']['all']['frames']:,} frames. While hidden a voice is heard in "
        f"{hidden['frames']:,} of them ({100 * hidden['prevalence']:.0f} % the person's own), "
        f"{one['parts']['hidden_far']['frames']:,} of these more than 4 s from any in which the person is seen to "
        f"talk. {np.mean(minutes):.1f} minutes a training ({one['machine']}), commit "
        f"{', '.join(f'`{name}`' for name in commits)}."
    )


def oracle_table(oracles: Oracles) -> str:
    """How well the two voices are told apart while hidden by somebody who knows when either was heard in view."""
    rows = [[name, with_both(found), with_both(found, "auroc")] for name, found in oracles.items()]
    return markdown(["own voice or the other one, told by", "AP", "AUROC"], rows) if rows else ""


def part_table(trainings: Trainings) -> str:
    """AP and AUROC of every arm, while hidden and in view."""
    rows = []
    for arm, runs in trainings.items():
        row = [arm, str(len(runs)), f"{next(iter(runs.values()))['parameters']:,}"]
        row += [with_both(of_part(runs, "hidden"), figure) for figure in ("ap", "auroc")]
        row += [half_of(runs, part, "auroc") for part in ("hidden_near", "hidden_far")]
        rows.append([*row, *(half_of(runs, part, "ap") for part in ("visible", "staying", "all"))])
    header = ["arm", "seeds", "parameters", "AP, hidden", "AUROC, hidden", "AUROC within 4 s", "AUROC further"]
    return markdown([*header, "AP in view", "AP beside the face that stays", "AP, all"], rows)


def differences(trainings: Trainings) -> str:
    """Which arms differ while hidden, in words."""
    return "\n".join(
        claim(trainings, arm, other, "hidden", "auroc", "AUROC while hidden")
        for arm, other in CLAIMS
        if arm in trainings and other in trainings
    )


def change_table(trainings: Trainings) -> str:
    """AUROC while hidden with other sound, and what it says of where the score comes from."""
    rows = []
    for arm, runs in trainings.items():
        changed = {change: [run["changed"][change] for run in runs.values()] for change in CHANGES}
        as_is = of_part(runs, "hidden")
        row = [arm, *(with_both(found, "auroc") for found in (as_is, *changed.values()))]
        rows.append([*row, "holds" if holds(as_is, changed["exchanged"]) else "not shown"])
    header = ["arm, AUROC while hidden", "as it is", "silent in view", "other voices in view"]
    return markdown([*header, "voices exchanged while hidden", "a voice remembered"], rows)


def holds(as_is: Sequence[dict[str, Any]], exchanged: Sequence[dict[str, Any]]) -> bool:
    """Above chance as it is, and below where the voices are exchanged, by the intervals over seeds and over scenes."""
    return side_of_chance(as_is) > 0 > side_of_chance(exchanged)


def side_of_chance(found: Sequence[dict[str, Any]]) -> int:
    """1 where AUROC is above chance by both intervals, -1 where it is below; 0 otherwise, and for one seed alone."""
    mean = mean_over_seeds([part["auroc"] for part in found])
    low, high = interval_over_groups(found, "auroc")
    if mean.half_width is None:
        return 0
    low, high = min(low, mean.mean - mean.half_width), max(high, mean.mean + mean.half_width)
    return int(low > CHANCE) - int(high < CHANCE)


def of_part(runs: dict[str, dict[str, Any]], part: str) -> list[dict[str, Any]]:
    """The figures of a part, one for each seed."""
    return [run["parts"][part] for run in runs.values()]


def half_of(runs: dict[str, dict[str, Any]], part: str, figure: str) -> str:
    """Mean over seeds ± half its interval."""
    return with_half(mean_over_seeds([found[figure] for found in of_part(runs, part)]))


if __name__ == "__main__":
    sys.exit(run_command(main))
