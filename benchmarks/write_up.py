"""Tables of experiments from the JSON files of their trainings and nothing else, put between markers of a page.

Intervals: ± is half the 95 % interval of the mean over seeds (Student's t). In brackets: 95 % bootstrap interval over
groups of scenes of the mean over seeds, every arm on the same draws.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from avfusion.errors import AvfusionError, CommandParser, UsageError
from avfusion.evaluation.seeds import SeedMean, difference_over_seeds, mean_over_seeds
from avfusion.files import whole_text_file

Trainings = dict[str, dict[str, dict[str, Any]]]  # arm to seed to content


def write_tables(description: str | None, experiment: str, tables: Callable[[Path], str]) -> None:
    """Reads the command line and writes or prints the tables.

    Args:
        description: of the command.
        experiment: names the markers.
        tables: all of them as Markdown, for a folder of JSON files.
    """
    parser = CommandParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="JSON files of one dataset")
    parser.add_argument("--into", type=Path, help="a Markdown file with markers")
    options = parser.parse_args()
    for folder in options.folders:
        text = tables(folder)
        if options.into is None:
            print(text)
        else:
            content = options.into.read_text(encoding="utf-8")
            replaced = replace_between(content, experiment, folder.name, text, options.into)
            with whole_text_file(options.into) as file:
                file.write(replaced)
            print(f"  {options.into}: {folder.name}")


def replace_between(content: str, experiment: str, name: str, text: str, path: Path) -> str:
    """The content with the part between the markers of that name replaced.

    Raises:
        UsageError: there are no such markers.
    """
    begin, end = f"<!-- {experiment}: {name} -->\n", f"<!-- {experiment}: end -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(content):
        raise UsageError(f"{path}: expected the lines {begin.strip()} and {end} around the tables; add them")
    return pattern.sub(lambda _: f"{begin}\n{text}\n{end}", content)


def read_trainings(
    folder: Path, arms: Collection[str], alike: Collection[str], writer: str, beside: Collection[str] = ()
) -> Trainings:
    """All trainings of a folder, arms in their usual order.

    Args:
        folder: of JSON files.
        arms: in that order.
        alike: keys that all files must agree in.
        writer: the command that writes the files.
        beside: files whose names begin so are of another kind.

    Raises:
        UsageError: there are none.
        AvfusionError: a file is damaged, or they do not agree.
    """
    found: Trainings = {arm: {} for arm in arms}
    first: dict[str, Any] | None = None
    for path in sorted(folder.glob("*.json")):
        if path.name.startswith(tuple(beside)):
            continue
        content = read_figures(path)
        try:
            arm, seed = content["arm"], str(content["seed"])
            found[arm][seed] = content
        except (KeyError, TypeError) as error:
            raise AvfusionError(f"{path}: no figures of a training ({type(error).__name__}); remove it") from error
        first = first or content
        for key in alike:
            if content[key] != first[key]:
                raise AvfusionError(f"{path}: its {key} differs from that of the other trainings; no table of both")
    if first is None:
        raise UsageError(f"{folder}: no JSON files there; {writer} writes them")
    return {arm: seeds for arm, seeds in found.items() if seeds}


def read_figures(path: Path) -> dict[str, Any]:
    """Reads a file of figures.

    Raises:
        AvfusionError: it is damaged.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AvfusionError(f"{path}: no figures of a training ({type(error).__name__}); remove it") from error
    return content


def compared(
    trainings: Trainings, arm: str, other: str, part: str, figure: str = "ap"
) -> tuple[SeedMean, tuple[float, float]]:
    """The difference of two arms, seed by seed, and its bootstrap interval over groups of scenes.

    Raises:
        AvfusionError: they have no seed in common.
    """
    ours, theirs = trainings[arm], trainings[other]
    common = [seed for seed in ours if seed in theirs]
    if not common:
        raise AvfusionError(f"{arm} and {other} have no seed in common; train both with the same --seeds")
    value = [{seed: runs[seed]["parts"][part][figure] for seed in common} for runs in (ours, theirs)]
    drawn = [
        np.mean([runs[seed]["parts"][part][f"drawn_{figure}"] for seed in common], axis=0) for runs in (ours, theirs)
    ]
    low, high = np.nanquantile(drawn[0] - drawn[1], [0.025, 0.975])
    return difference_over_seeds(value[0], value[1]), (float(low), float(high))


def interval_over_groups(found: Sequence[dict[str, Any]], figure: str = "ap") -> tuple[float, float]:
    """The bootstrap interval over groups of the mean over seeds of one part."""
    low, high = np.nanquantile(np.mean([part[f"drawn_{figure}"] for part in found], axis=0), [0.025, 0.975])
    return float(low), float(high)


def with_both(found: Sequence[dict[str, Any]], figure: str = "ap") -> str:
    """``.651 ± .012 (.600..0.700)`` of the same part in each seed's file."""
    low, high = interval_over_groups(found, figure)
    return f"{with_half(mean_over_seeds([part[figure] for part in found]))} ({low:.3f}..{high:.3f})"


def with_half(found: SeedMean, digits: int = 3, sign: bool = False) -> str:
    """``.651 ± .012``; the mean alone where there is one seed."""
    mean = f"{found.mean:{'+' if sign else ''}.{digits}f}"
    return mean if found.half_width is None else f"{mean} ± {found.half_width:.{digits}f}"


def claim(trainings: Trainings, arm: str, other: str, part: str, figure: str = "ap", what: str = "") -> str:
    """Whether an arm is better than another, in words: only where both intervals leave out 0."""
    found, interval = compared(trainings, arm, other, part, figure)
    half = found.half_width if found.half_width is not None else float("inf")
    clear = abs(found.mean) > half and interval[0] * interval[1] > 0
    word = ("better" if found.mean > 0 else "worse") if clear else "not told apart"
    return (
        f"- `{arm}` against `{other}`, {what or part}: {with_half(found, sign=True)} "
        f"({interval[0]:+.3f}..{interval[1]:+.3f}): **{word}**"
    )


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
