"""Trains an active-speaker detector: load the configuration, build, fit, report.

python train.py [configs/NAME.yaml] [--section.key=value ...]    default: configs/synthetic.yaml
python train.py --resume runs/NAME                               go on where a run stopped
python train.py configs/NAME.yaml --allow-missing                leave out tracks whose files are missing or damaged
python train.py configs/NAME.yaml --print-config                 show the merged configuration
python train.py --replay runs/NAME/replay/step-12.pt             look into a step whose loss was not finite
torchrun --nproc-per-node=8 train.py ...                         one process for each GPU
"""

from __future__ import annotations

import argparse
import io
import sys
from contextlib import ExitStack, redirect_stderr
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from avfusion.config import Config, config_from_dict, load_config, to_yaml, with_overrides
from avfusion.errors import CommandParser, UsageError, one_line, run_command, split_overrides

if TYPE_CHECKING:
    from avfusion.data.clips import ClipDataset
    from avfusion.distributed import World

DEFAULT_CONFIG = Path(__file__).resolve().parent / "configs" / "synthetic.yaml"


def main() -> None:
    """Reads the command line and trains."""
    config_path, overrides, options = parse_arguments(sys.argv[1:])
    if options.replay is not None:
        if config_path or options.resume:
            raise UsageError("--replay takes the failed run's own configuration; leave out everything but overrides")
        replay_step(options.replay, overrides)
        return
    resume_dir: Path | None = options.resume
    if resume_dir is not None:
        if config_path is not None:
            raise UsageError(f"--resume takes the run's own configuration; leave out {config_path}")
        config_path = resume_dir / "config.yaml"
        if not config_path.is_file():
            raise UsageError(f"--resume {resume_dir}: no config.yaml there; expected a folder that train.py made")
        if any(override.startswith("--run.dir=") for override in overrides):
            raise UsageError("--resume names the run's folder; leave out --run.dir")
    try:
        config = load_config(config_path or DEFAULT_CONFIG, overrides)
    except UsageError:
        from avfusion.distributed import rank_of_torchrun

        if rank_of_torchrun():  # every process has the same to say; the main one says it
            sys.exit(2)
        raise
    if options.print_config:
        print(to_yaml(config), end="")
        return
    train(config, (config_path or DEFAULT_CONFIG).stem, resume_dir)


def parse_arguments(arguments: list[str]) -> tuple[Path | None, list[str], argparse.Namespace]:
    """Splits the command line into a YAML file, overrides and options."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("config", type=Path, nargs="?", help="a YAML of configs/")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="folder of the run to go on with")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="runs/NAME/replay/*.pt of a run that stopped")
    parser.add_argument(
        "--allow-missing", action="store_true", help="the same as --data.allow_missing=true: leave out unusable tracks"
    )
    parser.add_argument("--print-config", action="store_true", help="print the merged configuration and stop")
    overrides, rest = split_overrides(arguments)
    options = parser.parse_args(rest)
    if options.allow_missing:
        overrides.append("--data.allow_missing=true")
    if options.config is not None and "=" in str(options.config):
        raise UsageError(f"{options.config}: not a YAML file; a setting is written --section.key=value")
    return options.config, overrides, options


def train(config: Config, config_name: str, resume_dir: Path | None) -> None:
    """Trains, then scores and reports the best checkpoint on the validation split; in every process of torchrun."""
    from avfusion.data.left_out import keep_skipped
    from avfusion.distributed import join_world
    from avfusion.scoring import pick_device
    from avfusion.training.loop import Trainer
    from avfusion.training.report import report_run
    from avfusion.training.run_folder import hold_run_folder, keep_config, make_run_folder

    picked = partial(pick_device, config.run.device)
    with join_world(picked) as world, ExitStack() as held:
        train_set, val_set = open_data(config, resume_dir, world)
        run_dir = None
        if world.is_main:
            run_dir = make_run_folder(config, config_name) if resume_dir is None else resume_dir
            held.enter_context(hold_run_folder(run_dir))
            if resume_dir is None:
                keep_config(config, run_dir)
        run_dir = world.broadcast(run_dir)
        trainer = Trainer(config, run_dir, train_set, val_set, resume=resume_dir is not None, world=world)
        try:
            if world.is_main:
                keep_config(config, run_dir)  # on resume only now: settings that were refused leave no trace
                if config.data.allow_missing:
                    skipped = {config.data.train_split: train_set.skipped, config.data.val_split: val_set.skipped}
                    keep_skipped(run_dir, config.data, skipped)
            best = trainer.fit()
            split, logger = config.data.val_split, trainer.logger
            report_run(best, config, trainer.val_examples, split, run_dir, logger, command=sys.argv, world=world)
        except (KeyboardInterrupt, OSError):  # a full disk among them
            if world.is_main:
                print(f"\ngo on with: python train.py --resume {run_dir}", file=sys.stderr)
            raise
        finally:
            if trainer.logger is not None:
                trainer.logger.close()


def open_data(config: Config, resume_dir: Path | None, world: World) -> tuple[ClipDataset, ClipDataset]:
    """The training and the validation split; all processes leave out the tracks that the main one finds unusable."""
    from avfusion.checkpoint import load_encoders
    from avfusion.data.augment.folders import open_folders
    from avfusion.data.left_out import read_skipped
    from avfusion.data.open import open_splits
    from avfusion.models import build_model
    from avfusion.models.imagenet import fetch_imagenet

    splits = [config.data.train_split, config.data.val_split]
    if world.is_main:
        kept = {} if resume_dir is None else read_skipped(resume_dir, config.data)
        opened = open_splits(config.data, splits, training=True, kept=kept)
        open_folders(config.data.augment)  # a wrong one is told before anything is written
        if config.train.encoders is not None and resume_dir is None:
            model = build_model(config.model, config.data.num_mels)
            for note in load_encoders(model, Path(config.train.encoders), config.data):
                print(f"note: {one_line(note)}", file=sys.stderr)
        elif config.model.visual.weights is not None and resume_dir is None:
            fetch_imagenet()
        world.broadcast({split: dataset.skipped for split, dataset in zip(splits, opened, strict=True)})
    else:
        kept = world.broadcast(None)
        with redirect_stderr(io.StringIO()):  # the main process has told it all
            opened = open_splits(config.data, splits, training=True, kept=kept)
    return opened[0], opened[1]


def replay_step(path: Path, overrides: list[str]) -> None:
    """Runs a step again whose loss was not finite, and says in which clip and where in the model it begins."""
    from avfusion.checkpoint import load_weights, read_checkpoint
    from avfusion.data.examples import Examples
    from avfusion.data.left_out import read_skipped
    from avfusion.data.open import open_splits
    from avfusion.models import build_model
    from avfusion.scoring import pick_device
    from avfusion.training.replay import as_text, replay
    from avfusion.training.step import Stepper

    content = read_checkpoint(path)
    if "replay" not in content:
        raise UsageError(
            f"--replay {path}: a checkpoint, but not of a step that failed; expected runs/NAME/replay/*.pt"
        )
    config = with_overrides(config_from_dict(content["config"], where=str(path)), overrides)
    data, device = config.data, pick_device(config.run.device)
    kept = read_skipped(path.parent.parent, data)
    (train_set,) = open_splits(data, [data.train_split], training=True, kept=kept)
    model = build_model(config.model, data.num_mels).to(device)
    load_weights(model, content["model"], path)
    examples = Examples(train_set, data, augment=True, seed=config.run.seed)
    print(as_text(replay(Stepper(model, config, device, total_steps=1), examples, content, path)))


if __name__ == "__main__":
    sys.exit(run_command(main))
