"""The tables of the experiment on heads, from the JSON files of its trainings and nothing else.

python benchmarks/head_count_table.py FOLDER [FOLDER ...] [--into=docs/experiments.md]

A FOLDER holds the files that benchmarks/head_count.py wrote for one dataset. Without --into the tables are printed;
with it they replace what stands between the markers of each folder's name in that file:

    <!-- head_count: NAME -->  ...  <!-- head_count: end -->

Intervals: ± is half the 95 % interval of the mean over seeds (Student's t). In brackets: 95 % bootstrap interval over
groups of scenes of the mean over seeds, every arm on the same draws.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.errors import run_command
from avfusion.evaluation.seeds import mean_over_seeds
from benchmarks import write_up
from benchmarks.head_count import ARMS
from benchmarks.write_up import Trainings, claim, compared, markdown, with_half, write_tables

REFERENCE = "heads_4"
CLAIMS = (("heads_4", "heads_1"), ("heads_8", "heads_1"), ("heads_2", "heads_1"))  # several heads against one
ALIKE = ("dataset", "splits", "epochs", "steps", "common_settings")


def main() -> None:
    """Reads the command line and writes or prints the tables."""
    write_tables(__doc__, "head_count", lambda folder: tables(read_trainings(folder)))


def read_trainings(folder: Path) -> Trainings:
    """All trainings of a folder; errors as of :func:`write_up.read_trainings`."""
    return write_up.read_trainings(folder, ARMS, ALIKE, "benchmarks/head_count.py")


def tables(trainings: Trainings) -> str:
    """Everything as Markdown."""
    return "\n\n".join([facts(trainings), ap_table(trainings), *verdicts(trainings), head_table(trainings)]) + "\n"


def facts(trainings: Trainings) -> str:
    """What was trained and measured, in a sentence or two."""
    seeds = next(iter(trainings.values()))
    one = next(iter(seeds.values()))
    parts, minutes = one["parts"], [run["minutes"] for runs in trainings.values() for run in runs.values()]
    commits = sorted({str(run["commit"]) for runs in trainings.values() for run in runs.values()})
    return (
        f"{sum(map(len, trainings.values()))} trainings of {one['steps']} steps ({one['epochs']['arm']} epochs from "
        f"encoders of {one['epochs']['encoders']}); held out ({one['splits']}): {one['tracks']} tracks, "
        f"{parts['all']['frames']:,} frames, {parts['overlap']['frames']:,} of them with two voices at once "
        f"({parts['overlap']['groups']} groups, "
        f"{100 * parts['overlap']['prevalence']:.0f} % speaking; elsewhere "
        f"{100 * parts['elsewhere']['prevalence']:.0f} %). {np.mean(minutes):.1f} minutes a training ({one['machine']})"
        f", commit {', '.join(f'`{name}`' for name in commits)}."
    )


def ap_table(trainings: Trainings) -> str:
    """AP of every arm, and how far it is from the reference."""
    rows = []
    for arm, runs in trainings.items():
        parameters = next(iter(runs.values()))["parameters"]
        cells = [arm, str(len(runs)), f"{parameters:,}"]
        cells += [with_half(mean_over_seeds([run["parts"][part]["ap"] for run in runs.values()])) for part in PARTS]
        cells += [difference(trainings, arm, REFERENCE, part) for part in ("overlap", "elsewhere")]
        rows.append(cells)
    header = ["arm", "seeds", "parameters", "AP, two voices", "AP elsewhere", "AP, all"]
    header += [f"two voices, minus {REFERENCE}", f"elsewhere, minus {REFERENCE}"]
    return markdown(header, rows)


PARTS = ("overlap", "elsewhere", "all")


def difference(trainings: Trainings, arm: str, other: str, part: str) -> str:
    """Mean over the common seeds ± half its interval, and the interval over groups."""
    if arm == other or other not in trainings:
        return "-"
    found, interval = compared(trainings, arm, other, part)
    return f"{with_half(found, sign=True)} ({interval[0]:+.3f}..{interval[1]:+.3f})"


def verdicts(trainings: Trainings) -> list[str]:
    """Whether several heads are better than one where two people talk at once, in words."""
    lines = [
        claim(trainings, arm, other, "overlap", what="two voices")
        for arm, other in CLAIMS
        if arm in trainings and other in trainings
    ]
    return ["\n".join(lines)] if lines else []


def head_table(trainings: Trainings) -> str:
    """What heads carry and how they differ, means over seeds."""
    rows = []
    for arm, runs in trainings.items():
        found = [run["attention"] for run in runs.values() if "attention" in run]
        if found:
            rows.append([arm, *(cell(found) for cell in HEAD_COLUMNS.values())])
    return markdown(["arm", *HEAD_COLUMNS], rows)


def over_seeds(value: Callable[[dict[str, Any]], float], digits: int = 2) -> Callable[[Sequence[dict[str, Any]]], str]:
    """A column: one number of each training, as mean ± half its interval."""

    def cell(found: Sequence[dict[str, Any]]) -> str:
        numbers = [value(attention) for attention in found]
        kept = [number for number in numbers if np.isfinite(number)]
        return with_half(mean_over_seeds(kept), digits) if kept else "-"

    return cell


def gained(attention: dict[str, Any], voice: str) -> np.ndarray:
    """R² of every head for a voice, less what the picture alone tells; nothing below 0 counts as more than nothing."""
    heard, foreign = (np.array(attention[f"{kind}_{voice}"], dtype=np.float64) for kind in ("r2", "foreign"))
    return np.maximum(heard, 0) - np.maximum(foreign, 0)


def spread(numbers: Sequence[float | None]) -> float:
    """Largest minus smallest; NaN for one alone."""
    known = [number for number in numbers if number is not None]
    return max(known) - min(known) if len(known) > 1 else float("nan")


HEAD_COLUMNS: dict[str, Callable[[Sequence[dict[str, Any]]], str]] = {
    "own voice, best head": over_seeds(lambda a: float(gained(a, "own").max())),
    "other voice, best head": over_seeds(lambda a: float(gained(a, "other").max())),
    "own voice, all heads": over_seeds(lambda a: a["layer"]["r2_own"] - max(a["layer"]["foreign_own"], 0.0)),
    "other voice, all heads": over_seeds(lambda a: a["layer"]["r2_other"] - max(a["layer"]["foreign_other"], 0.0)),
    "own minus other: spread over heads": over_seeds(
        lambda a: spread(list(gained(a, "own") - gained(a, "other"))),
    ),
    "divergence of two heads, nats": over_seeds(
        lambda a: float(np.mean(a["divergence_nats"])) if a["divergence_nats"] else float("nan")
    ),
    "lag: spread over heads, ms": over_seeds(lambda a: spread(a["lag_ms"]), 0),
    "ΔAP, worst loss of one head": over_seeds(lambda a: min(a["zero"]), 3),
    "ΔAP without any": over_seeds(lambda a: a["none"], 3),
}


if __name__ == "__main__":
    sys.exit(run_command(main))
