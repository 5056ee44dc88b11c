"""Scores a run, or any score file, by the rules of AVA-ActiveSpeaker.

python eval.py runs/NAME [--split=val] [--checkpoint=best] [--out=DIR] [--section.key=value ...]
python eval.py --scores pred.csv --labels gt.csv                 no checkpoint needed
torchrun --nproc-per-node=8 eval.py runs/NAME ...                the scoring shared by several processes
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from contextlib import ExitStack, nullcontext, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any

from avfusion.config import Config, config_from_dict, load_config
from avfusion.errors import CommandParser, UsageError, run_command, split_overrides

if TYPE_CHECKING:
    from avfusion.distributed import World


def main() -> None:
    """Reads the command line and evaluates."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("run", type=Path, nargs="?", help="folder of a run that train.py made")
    parser.add_argument("--split", help="split to score (default: the run's validation split)")
    parser.add_argument("--checkpoint", choices=["best", "last"], help="which checkpoint of the run (default: best)")
    parser.add_argument("--out", type=Path, help="where to write (default: the run folder)")
    parser.add_argument("--scores", type=Path, help="a score file: AVA columns and score")
    parser.add_argument("--labels", type=Path, help="the label file that goes with it: AVA columns")
    overrides, rest = split_overrides(sys.argv[1:])
    options = parser.parse_args(rest)
    if options.scores or options.labels:
        others = options.run or options.split or options.checkpoint or options.out or overrides
        if others or not (options.scores and options.labels):
            raise UsageError("--scores and --labels go together, and without a run folder or other options")
        evaluate_files(options.scores, options.labels)
    elif options.run:
        evaluate_run(options, overrides)
    else:
        raise UsageError("expected the folder of a run, or --scores and --labels; see python eval.py --help")


def evaluate_files(scores: Path, labels: Path) -> None:
    """Prints the figures of a score file as JSON."""
    from avfusion.evaluation.join import join
    from avfusion.evaluation.report import evaluate
    from avfusion.tracks import read_labels, read_scores

    report = evaluate(join(read_labels(labels), read_scores(scores)))
    print(json.dumps(report.to_dict(), indent=2))


def evaluate_run(options: argparse.Namespace, overrides: list[str]) -> None:
    """Scores one split with a run's checkpoint and writes the report."""
    run_dir: Path = options.run
    config_path = run_dir / "config.yaml"
    if not config_path.is_file():
        raise UsageError(f"{run_dir}: no config.yaml there; expected a folder that train.py made")
    from avfusion.checkpoint import read_checkpoint, refuse_another_model

    checkpoint = run_dir / "checkpoints" / f"{options.checkpoint or 'best'}.pt"
    config, content = load_config(config_path, overrides), read_checkpoint(checkpoint)
    own = config_from_dict(content["config"], where=str(checkpoint))
    refuse_another_model(own, config)
    other = [f"data.{key}" for key in read_otherwise(own, config)] + ["checkpoint"] * (options.checkpoint == "last")
    if options.out is None and other:
        raise UsageError(
            f"this would not be the run's own report (other {', '.join(other)}): give --out=FOLDER for it, so that the"
            " one in the run folder stays"
        )

    from avfusion.distributed import join_world
    from avfusion.scoring import pick_device

    with join_world(lambda local_rank: pick_device(config.run.device, local_rank)) as world:
        score_and_report(config, checkpoint, content, options, world)


def score_and_report(
    config: Config, checkpoint: Path, content: dict[str, Any], options: argparse.Namespace, world: World
) -> None:
    """Scores, in every process of torchrun; the main one reports."""
    from avfusion.data.examples import Examples
    from avfusion.data.open import open_dataset
    from avfusion.data.preload import render_ahead
    from avfusion.training.logger import RunLogger
    from avfusion.training.report import report_run
    from avfusion.training.run_folder import hold_run_folder, read_skipped

    run_dir, split = options.run, options.split or config.data.val_split
    with nullcontext() if world.is_main else redirect_stderr(io.StringIO()):  # the main process tells it all
        dataset = open_dataset(config.data, split, kept=read_skipped(run_dir, config.data))
    examples = Examples(dataset, config.data)
    render_ahead(examples)
    out_dir = options.out or run_dir
    logger, held = None, ExitStack()
    if world.is_main:
        try:
            out_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--out={out_dir}: cannot be made ({error.strerror}); give another folder") from error
        # Elsewhere log.jsonl is another one, so W&B shows a run of its own, grouped with the one that was trained.
        elsewhere = out_dir.resolve() != run_dir.resolve()
        if not elsewhere:
            held.enter_context(hold_run_folder(run_dir))
        wandb_id = None if elsewhere else content.get("wandb_id")
        logger = RunLogger(config, out_dir, wandb_id, eval_of=run_dir.resolve().name if elsewhere else None)
    try:
        report_run(checkpoint, config, examples, split, out_dir, logger, command=sys.argv, world=world)
    finally:
        if logger is not None:
            logger.close()
        held.close()


def read_otherwise(own: Config, config: Config) -> list[str]:
    """Keys by which other clips would be scored than the run's own (a dataset that was moved counts as the same)."""
    return [key for key in ("format", "val_split", "synthetic") if getattr(own.data, key) != getattr(config.data, key)]


if __name__ == "__main__":
    sys.exit(run_command(main))
