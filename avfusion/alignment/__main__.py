"""Asks of every attention head of a run: what does it listen to, and does the model need it?

python -m avfusion.alignment runs/NAME [--split=val] [--checkpoint=best] [--out=DIR] [--section.key=value ...]

Writes RUN/alignment/: heads.csv, heads.json, heads.md, pictures, viewer.html; prints the table. docs/alignment.md says
how to read them.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command, split_overrides

if TYPE_CHECKING:
    import torch

    from avfusion.config import Config
    from avfusion.data.examples import Examples
    from avfusion.models import ActiveSpeakerDetector


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the overrides of the configuration.

    Raises:
        UsageError: what cannot be understood.
    """
    parser = CommandParser(
        prog="python -m avfusion.alignment", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("run", type=Path, help="folder of a run that train.py made, or weights alone")
    parser.add_argument("--split", help="split to look at (default: the run's validation split)")
    parser.add_argument("--checkpoint", choices=["best", "last"], default="best", help="which checkpoint of the run")
    parser.add_argument("--out", type=Path, help="where to write (default: alignment/ in the run folder)")
    parser.add_argument(
        "--tracks", type=int, help="look at no more than this many tracks, all roles alike (default: all)"
    )
    parser.add_argument("--clip", action="append", metavar="ENTITY", help="draw this track, and show it in the viewer;"
                        " may be given again (default: one of each role drawn, a few shown)")  # fmt: skip
    parser.add_argument("--shifts", metavar="MS,MS", help="by how much the sound is moved (default: -200,-160,..,200)")
    parser.add_argument("--no-viewer", action="store_true", help="write no viewer.html")
    parser.add_argument("--viewer-mb", type=float, default=15.0, metavar="MB",
                        help="largest size of viewer.html (default: 15; 0: none)")  # fmt: skip
    parser.add_argument("--vector", action="store_true", help="write pictures as SVG and PDF too")
    overrides, rest = split_overrides(_joined(arguments))
    options = parser.parse_args(rest)
    if options.tracks is not None and options.tracks < 1:
        raise UsageError(f"--tracks={options.tracks}: expected 1 or more")
    if not (math.isfinite(options.viewer_mb) and options.viewer_mb >= 0):
        raise UsageError(f"--viewer-mb={options.viewer_mb:g}: expected a size in MB above 0, or 0 for no page")
    options.shifts = _shifts(options.shifts)
    return options, overrides


def main() -> None:
    """Reads the command line, loads the run, measures, writes, prints."""
    options, overrides = parse(sys.argv[1:])
    from avfusion.checkpoint import model_of, read_run
    from avfusion.models.head_edit import grid_of_heads

    path, config, _, content = read_run(options.run, options.checkpoint, overrides, options.out)
    model, _ = model_of(content, path)
    grid_of_heads(model)  # a model without heads is told before anything is read
    import torch

    from avfusion.data.examples import Examples
    from avfusion.data.open import open_dataset
    from avfusion.data.preload import render_ahead
    from avfusion.scoring import pick_device

    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    split = options.split or config.data.val_split
    examples = Examples(open_dataset(config.data, split), config.data)
    clips = named_tracks(examples, options.clip or [])
    render_ahead(examples)
    inspect(model, examples, config, pick_device(config.run.device), split, clips, options)


def inspect(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    split: str,
    clips: list[int],
    options: argparse.Namespace,
) -> None:
    """Measures, writes into the folder, and prints the table and the paths; the page comes last.

    A page that cannot be made as small as it shall be is said and left out: the rest stands, and so the command has
    not failed.
    """
    from avfusion.alignment.inspect import choose_tracks, inspect_run
    from avfusion.alignment.inspection_files import PAGE, head_words, write_inspection
    from avfusion.alignment.pictures.write_clips import draw_clips
    from avfusion.alignment.table import as_json, as_text
    from avfusion.alignment.viewer.page import write_viewer
    from avfusion.alignment.viewer.scenes import build_scenes

    dataset = examples.dataset
    suffix = "" if split == config.data.val_split else f"-{split}"
    folder: Path = options.out or options.run / f"alignment{suffix}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made ({error.strerror}); give another folder with --out") from error
    model.to(device)
    measured = choose_tracks(dataset.tracks, options.tracks)
    inspection = inspect_run(
        model, examples, config, device, tracks=measured,
        shifts_ms=options.shifts, resamples=config.report.bootstrap, say=tell,
    )  # fmt: skip
    tell("pictures")
    files = write_inspection(
        inspection, folder, f"{dataset.name} / {split}", options.run / "log.jsonl", vector=options.vector
    )
    words = head_words(inspection)
    drawn = draw_clips(
        model, examples, config, device, folder, clips, among=measured, words=words[-1], vector=options.vector
    )
    print(as_text(as_json(inspection.rows)))
    print(f"\n{inspection.num_tracks} of {inspection.of_tracks} labelled tracks, {inspection.num_groups} groups")
    for note in inspection.notes:
        print(f"not measured: {note}")
    for path in [*files.tables, *files.pictures, *files.vectors, *drawn]:
        print(f"  {path}", flush=True)
    if options.no_viewer or options.viewer_mb == 0:
        return
    tell("viewer")
    scenes = build_scenes(model, examples, config, device, clips or None, words=words)
    page = folder / PAGE
    try:
        write_viewer(page, scenes, title=options.run.resolve().name, max_mb=options.viewer_mb)
    except AvfusionError as error:
        tell(f"no page of scenes: {error} (--viewer-mb)")
        return
    print(f"  {page}")


def named_tracks(examples: Examples, names: list[str]) -> list[int]:
    """Indices of tracks by their ``entity_id``.

    Raises:
        UsageError: there is no such track.
    """
    import difflib

    numbers = {track.entity_id: index for index, track in enumerate(examples.dataset.tracks)}
    for name in names:
        if name not in numbers:
            near = difflib.get_close_matches(name, numbers, n=1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"the first of its {len(numbers)} is {next(iter(numbers))!r}"
            )
            raise UsageError(f"--clip={name}: {examples.dataset.name} has no such track; {hint}")
    return [numbers[name] for name in names]


def tell(stage: str) -> None:
    """Says on stderr what is being done."""
    print(stage, file=sys.stderr, flush=True)


def _joined(arguments: list[str]) -> list[str]:
    """``--shifts -200,200`` as one argument: argparse takes a word that begins with a minus for an option."""
    found: list[str] = []
    for argument in arguments:
        if found and found[-1] == "--shifts":
            found[-1] += f"={argument}"
        else:
            found.append(argument)
    return found


def _shifts(text: str | None) -> list[float]:
    from avfusion.alignment.measures.slope import SHIFTS_MS

    if text is None:
        return [float(shift) for shift in SHIFTS_MS]
    try:
        shifts = sorted({float(part) for part in text.split(",")})
    except ValueError:
        shifts = []
    if len(shifts) < 2 or not all(abs(shift) <= 1000 for shift in shifts):  # of "nan" nothing is true
        raise UsageError(
            f"--shifts={text}: expected two or more different numbers of ms up to ±1000, such as -200,0,200"
        )
    return shifts


if __name__ == "__main__":
    sys.exit(run_command(main))
