"""The tables that set models side by side, from the JSON files of their trainings and nothing else.

python benchmarks/models_table.py FOLDER [FOLDER ...] [--into=docs/experiments.md]

A FOLDER holds the files that benchmarks/models.py wrote for one dataset. FOLDER/../speed.json, where there is one, is
what benchmarks/speed.py --json wrote: CPU time, measured in one run. Without --into the tables are printed; with it
they replace what stands between the markers of each folder's name in that file:

    <!-- models: NAME -->  ...  <!-- models: end -->

Intervals: ± is half the 95 % interval of the mean over seeds (Student's t; none for one seed). In brackets: 95 %
bootstrap interval over groups of scenes of the mean over seeds, every model on the same draws.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.errors import AvfusionError, run_command
from avfusion.evaluation.seeds import mean_over_seeds
from benchmarks import write_up
from benchmarks.models import MODELS
from benchmarks.write_up import Trainings, compared, markdown, with_both, with_half, write_tables

ALIKE = ("dataset", "splits", "common_settings", "crop_size")
REFERENCE = "small"
CLAIMS = (
    *(("small", other) for other in ("talknet_style", "light_style", "lr_style")),
    *(("small_short", other) for other in ("light_style", "lr_style")),  # with as many face-frames
    ("base", "small"),
)
SPEED_FILE = "speed.json"
SHIFTS_MS = (80, 240, 800)
OTHER, SILENCE = "another clip's sound", "missing sound"
Speeds = Mapping[str, Mapping[str, float]]


def main() -> None:
    """Reads the command line and writes or prints the tables."""
    write_tables(__doc__, "models", tables_of)


def tables_of(folder: Path) -> str:
    """Everything as Markdown, for a folder of JSON files."""
    trainings = write_up.read_trainings(folder, MODELS, ALIKE, "benchmarks/models.py")
    path = folder.parent / SPEED_FILE
    return tables(trainings, read_speeds(path) if path.is_file() else {})


def tables(trainings: Trainings, of_speed: Speeds) -> str:
    """Everything as Markdown."""
    parts = [facts(trainings), cost_table(trainings, of_speed), quality_table(trainings), claims(trainings)]
    return "\n\n".join(part for part in parts if part) + "\n"


def facts(trainings: Trainings) -> str:
    """What was trained and measured, in a sentence or two."""
    runs = [run for seeds in trainings.values() for run in seeds.values()]
    one, overlap = runs[0], runs[0]["parts"]["overlap"]
    whole = one["parts"]["all"]
    commits, machines = (sorted({str(run[key]) for run in runs}) for key in ("commit", "machine"))
    side, many = one["crop_size"], "s" * (len(runs) != 1)
    return (
        f"{len(runs)} training{many} on crops of {side}x{side}; held out ({one['splits']}): {one['tracks']} tracks, "
        f"{whole['frames']:,} frames, {100 * whole['prevalence']:.0f} % speaking, {whole['groups']} groups; "
        f"{overlap['frames']:,} frames have two voices. False accepts over {one['false_accepts']['tracks']} tracks in "
        f"step. {', '.join(machines)}; commit {', '.join(f'`{name}`' for name in commits)}."
    )


def cost_table(trainings: Trainings, of_speed: Speeds) -> str:
    """Size, multiply-adds, CPU time where it was measured, and what the training took."""
    rows = []
    for name, runs in trainings.items():
        found = list(runs.values())
        one = found[0]
        speed = of_speed.get(name) or of_speed.get(one["config"], {})
        rows.append(
            [
                name,
                f"{one['parameters'] / 1e6:.2f} M",
                f"{one['multiply_adds'] / 1e6:.1f} M",
                *(f"{speed[key]:.3f}" if key in speed else "-" for key in ("inference_ms", "training_ms")),
                str(one["steps"]),
                f"{one['frames']:,}",
                f"{np.mean([run['frames_per_s'] for run in found]):,.0f}",
                f"{np.mean([run['minutes'] for run in found]):.1f}",
            ]
        )
    header = ["model", "parameters", "multiply-adds a face-frame", "CPU ms a face-frame", "CPU ms, training"]
    return markdown([*header, "steps", "face-frames learnt from", "training frames/s (wall)", "minutes (wall)"], rows)


def read_speeds(path: Path) -> dict[str, dict[str, float]]:
    """CPU ms per face-frame by model, of inference and of a training step, as benchmarks/speed.py --json keeps them.

    Raises:
        AvfusionError: the file holds something else.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {row["name"]: {key: float(row[key]) for key in ("inference_ms", "training_ms")} for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        raise AvfusionError(f"{path}: not what benchmarks/speed.py --json writes ({type(error).__name__})") from error


def quality_table(trainings: Trainings) -> str:
    """AP, AUROC and false accepts of every model."""
    rows = []
    for name, runs in trainings.items():
        found = list(runs.values())
        whole, overlap = ([run["parts"][part] for run in found] for part in ("all", "overlap"))
        rows.append(
            [
                name,
                str(len(found)),
                with_both(whole),
                with_both(overlap),
                with_half(mean_over_seeds([part["auroc"] for part in whole])),
                minus_reference(trainings, name),
                *(accepted([false_accept(run, shift) for run in found]) for shift in (*SHIFTS_MS, OTHER, SILENCE)),
            ]
        )
    header = ["model", "seeds", "AP", "AP, two voices", "AUROC", f"AP minus {REFERENCE}"]
    header += [f"accepted, sound ±{shift} ms" for shift in SHIFTS_MS]
    return markdown([*header, "accepted, another's sound", "accepted, no sound"], rows)


def minus_reference(trainings: Trainings, name: str) -> str:
    """The difference in AP, with both intervals."""
    if name == REFERENCE or REFERENCE not in trainings:
        return "-"
    found, (low, high) = compared(trainings, name, REFERENCE, "all")
    return f"{with_half(found, sign=True)} ({low:+.3f}..{high:+.3f})"


def false_accept(run: Mapping[str, Any], which: int | str) -> float:
    """The rate of one training with sound moved by so many ms (mean of both ways), or under a named condition."""
    rates = [
        row["false_accept_rate"]
        for row in run["false_accepts"]["rows"]
        if (abs(row["severity"] or 0) == which if isinstance(which, int) else row["family"] == which)
    ]
    known = [rate for rate in rates if rate is not None]
    return float(np.mean(known)) if known else float("nan")


def accepted(rates: Sequence[float]) -> str:
    """Of the seeds' rates that are known, in percent."""
    known = [100 * rate for rate in rates if np.isfinite(rate)]
    return f"{with_half(mean_over_seeds(known), 0)} %" if known else "-"


def claims(trainings: Trainings) -> str:
    """Which model is better, in words; with one seed by the interval over groups alone, and then it is said."""
    lines = []
    for name, other in CLAIMS:
        if name not in trainings or other not in trainings:
            continue
        found, (low, high) = compared(trainings, name, other, "all")
        single = found.half_width is None
        clear = low * high > 0 and (single or abs(found.mean) > (found.half_width or 0.0))
        word = ("ahead" if found.mean > 0 else "behind") if clear else "not told apart"
        alone = ", one seed" if single else ""
        lines.append(
            f"- `{name}` against `{other}`: {with_half(found, sign=True)} ({low:+.3f}..{high:+.3f}{alone}): **{word}**"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_command(main))
