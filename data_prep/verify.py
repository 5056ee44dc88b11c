"""Checks a dataset before it is trained on.

    python -m data_prep.verify ROOT [--split S] [--fast] [--format prepared|talknet]

Every file is read and decoded (--fast: headers, the end of each sound, and a look into a few files). Prints what is
wrong, how often, where first and what to do, and returns 1; or what there is, and returns 0. Nothing is changed, so it
may be stopped at any time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(lambda: check(parse_arguments(arguments)))


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="python -m data_prep.verify", description=__doc__.split("\n\n")[0])
    parser.add_argument("root", type=Path, metavar="ROOT", help="folder of the dataset")
    parser.add_argument(
        "--split", action="append", metavar="S", help="check this split (may be repeated); default: all"
    )
    parser.add_argument("--fast", action="store_true", help="look into a few files only, as training does: seconds")
    parser.add_argument("--format", choices=["prepared", "talknet"], help="default: what is found at ROOT")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="processes that decode a prepared dataset (default: one a core)"
    )
    return parser.parse_args(arguments)


def check(options: argparse.Namespace) -> None:
    from avfusion.data.verify.findings import findings_table
    from avfusion.data.verify.prepared import verify
    from avfusion.data.verify.result import summary_table
    from avfusion.data.verify.talknet import verify_talknet

    if options.jobs is not None and options.jobs < 1:
        raise UsageError(f"--jobs={options.jobs}: expected at least 1 process")
    root: Path = options.root
    is_talknet = not (root / "dataset.json").is_file() and any(root.glob("csv/*_orig.csv"))
    if (options.format or ("talknet" if is_talknet else "prepared")) == "talknet":
        verification = verify_talknet(root, options.split, fast=options.fast)
    else:
        verification = verify(root, options.split, fast=options.fast, jobs=options.jobs)
    faults = verification.faults
    if verification.findings:
        print(findings_table(verification.findings))
    if faults:
        tracks = len({key for fault in faults for key in fault.tracks})
        total = sum(found.num_tracks for found in verification.summaries)
        raise AvfusionError(
            f"{root} has {len(faults)} kinds of faults, which make {tracks} of {total} tracks unusable: mend it, or "
            "train with --data.allow_missing=true, which leaves such tracks out"
            if tracks
            else f"{root} has {len(faults)} kinds of faults that are no single track's: mend it before training"
        )
    if verification.findings:
        print()
    print(summary_table(verification.summaries, options.fast))
    looked = "headers and a few files" if options.fast else "every file"
    print(f"{root}: no fault found ({looked} looked at)")


if __name__ == "__main__":
    sys.exit(main())
