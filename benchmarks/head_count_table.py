"""The tables of the experiment on heads, from the JSON files of its trainings and nothing else.

python benchmarks/head_count_table.py FOLDER [FOLDER ...] [--into=docs/experiments.md]

A FOLDER holds the files that benchmarks/head_count.py wrote for one dataset. Without --into the tables are printed;
with it they replace what stands between the markers of each folder's name in that file:

    <!-- head_count: NAME -->  ...  <!-- head_count: end -->

Intervals: ± is half the 95 % interval of the mean over seeds (Student's t). In brackets: 95 % bootstrap interval over
groups of scenes of the mean over seeds, every arm on the same draws.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from avfusion.evaluation.seeds import SeedMean, difference_over_seeds, mean_over_seeds
from avfusion.files import whole_text_file
from benchmarks.head_count import ARMS

REFERENCE = "heads_4"
CLAIMS = (("heads_4", "heads_1"), ("heads_8", "heads_1"), ("heads_2", "heads_1"))  # several heads against one
Trainings = dict[str, dict[str, dict[str, Any]]]  # arm to seed to content


def main() -> None:
    """Reads the command line and writes or prints the tables."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="JSON files of one dataset")
    parser.add_argument("--into", type=Path, help="a Markdown file with markers")
    options = parser.parse_args()
    for folder in options.folders:
        text = tables(read_trainings(folder))
        if options.into is None:
            print(text)
        else:
            content = options.into.read_text(encoding="utf-8")
            replaced = replace_between(content, folder.name, text, options.into)
            with whole_text_file(options.into) as file:
                file.write(replaced)
            print(f"  {options.into}: {folder.name}")


def replace_between(content: str, name: str, text: str, path: Path) -> str:
    """The content with the part between the markers of that name replaced.

    Raises:
        UsageError: there are no such markers.
    """
    begin, end = f"<!-- head_count: {name} -->\n", "<!-- head_count: end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(content):
        raise UsageError(f"{path}: expected the lines {begin.strip()} and {end} around the tables; add them")
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", content)


def read_trainings(folder: Path) -> Trainings:
    """All trainings of a folder, arms in their usual order.

    Raises:
        UsageError: there are none.
        AvfusionError: a file is damaged, or they are not of one dataset, length and split.
    """
    found: Trainings = {arm: {} for arm in ARMS}
    first: dict[str, Any] | None = None
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            arm, seed = content["arm"], str(content["seed"])
        except (ValueError, KeyError, TypeError) as error:
            raise AvfusionError(f"{path}: no figures of a training ({type(error).__name__}); remove it") from error
        first = first or content
        for key in ("dataset", "splits", "epochs", "steps", "common_settings"):
            if content[key] != first[key]:
                raise AvfusionError(f"{path}: its {key} differs from that of the other trainings; no table of both")
        found[arm][seed] = content
    if first is None:
        raise UsageError(f"{folder}: no JSON files there; benchmarks/head_count.py writes them")
    return {arm: seeds for arm, seeds in found.items() if seeds}


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


def compared(trainings: Trainings, arm: str, other: str, part: str) -> tuple[SeedMean, tuple[float, float]]:
    """The difference of two arms, seed by seed, and its bootstrap interval over groups of scenes."""
    ours, theirs = trainings[arm], trainings[other]
    common = [seed for seed in ours if seed in theirs]
    if not common:
        raise AvfusionError(f"{arm} and {other} have no seed in common; train both with the same --seeds")
    ap = [{seed: runs[seed]["parts"][part]["ap"] for seed in common} for runs in (ours, theirs)]
    drawn = [np.mean([runs[seed]["parts"][part]["drawn_ap"] for seed in common], axis=0) for runs in (ours, theirs)]
    low, high = np.nanquantile(drawn[0] - drawn[1], [0.025, 0.975])
    return difference_over_seeds(ap[0], ap[1]), (float(low), float(high))


def verdicts(trainings: Trainings) -> list[str]:
    """Whether several heads are better than one where two people talk at once, in words."""
    lines = []
    for arm, other in CLAIMS:
        if arm in trainings and other in trainings:
            found, interval = compared(trainings, arm, other, "overlap")
            half = found.half_width if found.half_width is not None else float("inf")
            clear = abs(found.mean) > half and interval[0] * interval[1] > 0
            word = ("better" if found.mean > 0 else "worse") if clear else "not told apart"
            lines.append(
                f"- `{arm}` against `{other}`, two voices: {with_half(found, sign=True)} "
                f"({interval[0]:+.3f}..{interval[1]:+.3f}): **{word}**"
            )
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


def with_half(found: SeedMean, digits: int = 3, sign: bool = False) -> str:
    """``.651 ± .012``; the mean alone where there is one seed."""
    mean = f"{found.mean:{'+' if sign else ''}.{digits}f}"
    return mean if found.half_width is None else f"{mean} ± {found.half_width:.{digits}f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(run_command(main))
