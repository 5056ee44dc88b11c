"""Scores a run, or any score file, by the rules of AVA-ActiveSpeaker and of the field's other benchmarks.

python eval.py runs/NAME [--split=val] [--checkpoint=best] [--out=DIR] [--section.key=value ...]
python eval.py runs/A runs/B runs/C [--split=val] [--out=DIR]    runs side by side
python eval.py runs/NAME --suite=robustness [--out=DIR]          sound moved, replaced, noisy; pictures damaged
python eval.py WEIGHTS.safetensors --data.root=DIR --out=DIR     a checkpoint or released weights alone; --suite too
python eval.py --scores pred.csv --labels gt.csv [--against other.csv] [--conditions=CSV] [--categories=CSV] [--out=DIR]
python eval.py --scores pred.csv --labels gt --protocol=asw|columbia [--out=DIR]
python eval.py --scores pred.csv --diarization [--rttm ref.rttm | --labels gt.csv] [--identities=CSV] [--out=DIR]
torchrun --nproc-per-node=8 eval.py runs/NAME ...                the scoring shared by several processes

With --scores no model is needed: any model's scores can be judged. Of the overrides only --report.bootstrap and
--diarization.* count there.
"""

from __future__ import annotations

import argparse
import io
import sys
from contextlib import ExitStack, nullcontext, redirect_stderr
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from avfusion.config import Config, with_overrides
from avfusion.errors import CommandParser, UsageError, run_command, split_overrides

if TYPE_CHECKING:
    from avfusion.distributed import World


def main() -> None:
    """Reads the command line and evaluates."""
    overrides, rest = split_overrides(sys.argv[1:])
    options = command_line().parse_args(rest)
    if options.scores:
        evaluate_scores(options, overrides)
        return
    for name in ("labels", "against", "protocol", "conditions", "categories", "diarization", "rttm", "identities"):
        if getattr(options, name):
            raise UsageError(f"--{name} belongs to a score file; give that with --scores=CSV")
    if not options.runs:
        raise UsageError("expected the folder of a run, or --scores and --labels; see python eval.py --help")
    if len(options.runs) > 1:
        from avfusion.training.side_by_side import compare_runs

        if options.suite or options.checkpoint:
            raise UsageError("several runs are compared as their reports stand; leave out --suite and --checkpoint")
        compare_runs(options.runs, options.split, options.out, overrides)
    elif options.suite:
        from avfusion.robustness.command import evaluate_robustness

        evaluate_robustness(options.runs[0], options.checkpoint or "best", options.split, options.out, overrides)
    else:
        evaluate_run(options, overrides)


def command_line() -> CommandParser:
    """What may be given."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "runs", type=Path, nargs="*", metavar="RUN", help="folder of a run that train.py made, or weights alone"
    )
    parser.add_argument("--split", help="split to score (default: the run's validation split)")
    parser.add_argument("--checkpoint", choices=["best", "last"], help="which checkpoint of the run (default: best)")
    parser.add_argument("--out", type=Path, help="where to write (default: the run folder; of --scores: nowhere)")
    parser.add_argument("--suite", choices=["robustness"], help="measure this, not the report")
    parser.add_argument("--scores", type=Path, help="a score file: AVA columns and score, or a folder of CSVs")
    parser.add_argument("--labels", type=Path, help="the labels that go with it, a file or a folder")
    parser.add_argument("--against", type=Path, help="a second score file of the same rows, to compare with")
    parser.add_argument("--protocol", choices=["ava", "asw", "columbia"], help="rules and label format (default: ava)")
    parser.add_argument("--conditions", type=Path, help="labels of AVA-Speech: figures per condition of the sound")
    parser.add_argument("--categories", type=Path, help="CSV of video_id,category: figures per category")
    parser.add_argument("--diarization", action="store_true", help="turn the scores into who speaks when")
    parser.add_argument("--rttm", type=Path, help="reference of the diarization, a file or a folder")
    parser.add_argument("--identities", type=Path, help="CSV of video_id,entity_id,speaker: whose face a track shows")
    return parser


def evaluate_scores(options: argparse.Namespace, overrides: list[str]) -> None:
    """Judges a score file, of any model."""
    if options.runs or options.split or options.checkpoint or options.suite:
        raise UsageError("--scores goes without the folder of a run, --split, --checkpoint and --suite")
    other = [text for text in overrides if not text.startswith(("--report.bootstrap=", "--diarization."))]
    if other:
        raise UsageError(f"{other[0]}: a score file is judged by --report.bootstrap and --diarization.* alone")
    config = with_overrides(Config(), overrides)
    protocol = options.protocol or "ava"
    if options.diarization:
        from avfusion.evaluation.diarization.command import evaluate_diarization
        from avfusion.evaluation.diarization.segments import Segmentation

        if options.against or options.conditions or options.categories or options.protocol:
            raise UsageError("--diarization goes with --rttm or --labels, --identities and --out alone")
        rules = Segmentation(**asdict(config.diarization))
        reference = (options.rttm, options.labels, options.identities)
        evaluate_diarization(options.scores, rules, *reference, options.out, config.report.bootstrap, sys.argv)
        return
    of_speech = [text for text in overrides if text.startswith("--diarization.")]
    if options.rttm or options.identities or of_speech:
        raise UsageError(f"{of_speech[0] if of_speech else '--rttm and --identities'}: only with --diarization; add it")
    if not options.labels:
        raise UsageError("--scores needs --labels, or --diarization; see python eval.py --help")
    if protocol == "ava":
        from avfusion.evaluation.score_files import evaluate_files

        evaluate_files(
            options.scores,
            options.labels,
            against=options.against,
            conditions=options.conditions,
            categories=options.categories,
            out=options.out,
            resamples=config.report.bootstrap,
            command=sys.argv,
        )
        return
    if options.against or options.conditions or options.categories:
        raise UsageError(f"--against, --conditions and --categories go with --protocol=ava, not with {protocol}")
    from avfusion.evaluation.protocols.command import evaluate_protocol

    evaluate_protocol(protocol, options.scores, options.labels, options.out, config.report.bootstrap, sys.argv)


def evaluate_run(options: argparse.Namespace, overrides: list[str]) -> None:
    """Scores one split with a run's checkpoint and writes the report."""
    run_dir: Path = options.runs[0]
    from avfusion.checkpoint import read_run
    from avfusion.data.identity import read_otherwise

    checkpoint, config, own, content = read_run(run_dir, options.checkpoint or "best", overrides, options.out)
    if options.out is None or options.out.resolve() == run_dir.resolve():
        other = read_otherwise(own, config, run_dir) + ["checkpoint"] * (options.checkpoint == "last")
        if other:
            raise UsageError(
                f"this would not be the run's own report (other {', '.join(other)}): give --out=FOLDER for it, so that"
                " the one in the run folder stays"
            )

    import torch

    from avfusion.distributed import join_world
    from avfusion.scoring import pick_device

    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    with join_world(lambda local_rank: pick_device(config.run.device, local_rank)) as world:
        score_and_report(config, checkpoint, content, options, world)


def score_and_report(
    config: Config, checkpoint: Path, content: dict[str, Any], options: argparse.Namespace, world: World
) -> None:
    """Scores, in every process of torchrun; the main one reports."""
    from avfusion.data.examples import Examples
    from avfusion.data.left_out import read_skipped
    from avfusion.data.open import open_dataset
    from avfusion.data.preload import render_ahead
    from avfusion.training.logger import RunLogger
    from avfusion.training.report import report_run
    from avfusion.training.run_folder import hold_run_folder

    run_dir, split = options.runs[0], options.split or config.data.val_split
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


if __name__ == "__main__":
    sys.exit(run_command(main))
