"""Trains an active-speaker detector: load the configuration, build, fit, report.

python train.py [configs/NAME.yaml] [--section.key=value ...]    default: configs/synthetic.yaml
python train.py --resume runs/NAME                               go on where a run stopped
python train.py configs/NAME.yaml --allow-missing                leave out tracks whose files are missing or damaged
python train.py configs/NAME.yaml --print-config                 show the merged configuration
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from avfusion.config import Config, load_config, to_yaml
from avfusion.errors import CommandParser, UsageError, run_command, split_overrides

DEFAULT_CONFIG = Path(__file__).resolve().parent / "configs" / "synthetic.yaml"


def main() -> None:
    """Reads the command line and trains."""
    config_path, overrides, options = parse_arguments(sys.argv[1:])
    resume_dir: Path | None = options.resume
    if resume_dir is not None:
        if config_path is not None:
            raise UsageError(f"--resume takes the run's own configuration; leave out {config_path}")
        config_path = resume_dir / "config.yaml"
        if not config_path.is_file():
            raise UsageError(f"--resume {resume_dir}: no config.yaml there; expected a folder that train.py made")
    config = load_config(config_path or DEFAULT_CONFIG, overrides)
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
    """Trains, then scores and reports the best checkpoint on the validation split."""
    from avfusion.data.open import open_splits
    from avfusion.scoring import pick_device
    from avfusion.training.loop import Trainer
    from avfusion.training.report import report_run
    from avfusion.training.run_folder import keep_config, keep_skipped, make_run_folder, read_skipped

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("train.py trains in one process so far: start it with python, not with torchrun")
    splits = [config.data.train_split, config.data.val_split]
    kept = {} if resume_dir is None else read_skipped(resume_dir, config.data)
    train_set, val_set = open_splits(config.data, splits, training=True, kept=kept)
    pick_device(config.run.device)  # before anything is written
    run_dir = make_run_folder(config, config_name) if resume_dir is None else keep_config(config, resume_dir)
    if config.data.allow_missing:
        keep_skipped(run_dir, config.data, {splits[0]: train_set.skipped, splits[1]: val_set.skipped})
    trainer = Trainer(config, run_dir, train_set, val_set, resume=resume_dir is not None)
    try:
        best = trainer.fit()
        report_run(best, config, trainer.val_examples, config.data.val_split, run_dir, trainer.logger, command=sys.argv)
    except KeyboardInterrupt:
        print(f"\ngo on with: python train.py --resume {run_dir}", file=sys.stderr)
        raise
    finally:
        trainer.logger.close()


if __name__ == "__main__":
    sys.exit(run_command(main))
