"""The models of this repository and two in the manner of the field's, on the same data in the same trainer.

python benchmarks/models.py OUT --data=FOLDER [--models=small,...] [--seeds=0] [--frames=light_style=200000,...]
                                [--scale=1] [--splits=test] [--train-only | --measure-only]
                                [--section.key=value ...]   passed on to every training

FOLDER is a prepared dataset. Every model is built by its own configuration, sees the same crops (32x32 of the lower
face, so that one CPU core trains them) and has as many face-frames to learn from as about eight minutes of one core
allow it; `small_short` has those of `light_style` and `lr_style`. --frames sets other numbers, --scale multiplies all.
Training takes a share of the training scenes where that is less than one pass, whole passes where it is more. The last
checkpoint is measured on --splits, which have chosen nothing: AP, AUROC, and on the first of them how often a speaking
face is accepted with sound that is not its own. OUT/MODEL-SEED.json has all of it; benchmarks/models_table.py makes the
write-up from such files alone. What is finished is kept, what was begun goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.config import Config, load_config
from avfusion.data.prepared_tables import read_track_rows
from avfusion.errors import CommandParser, UsageError, run_command, split_overrides
from benchmarks.dataset_share import speaking_tracks, write_share
from benchmarks.experiment import (
    ALWAYS,
    RESAMPLES,
    add_which_work,
    check_overrides,
    check_splits,
    check_which_work,
    dataset_facts,
    finished_model,
    keep,
    training_facts,
)
from benchmarks.head_count import average_precisions
from benchmarks.many_runs import REPOSITORY, Run, read_names, read_seeds, train

CLIP_FRAMES = 60
COMMON = [
    *("--data.crop_size=32", "--data.region=[0.2,0.42,0.8,1.0]", f"--data.clip_frames={CLIP_FRAMES}"),
    *("--data.batch_frames=600", "--data.workers=0", "--train.loss.lag_frames=[-1,5]"),
    # A short training on a CPU: no half precision, no average of weights over longer than it, no early end.
    *("--train.precision=float32", "--train.ema=0", "--train.patience=0"),
]
OUR_LOSSES = ["--train.loss.audio=0.2", "--train.loss.video=0.2", "--train.loss.contrastive=0.5"]
VAL_FRAMES = 8000  # looked at after each epoch; nothing is chosen by them


@dataclass(frozen=True)
class Model:
    """A model and how it is trained.

    Attributes:
        config: file of configs/.
        frames: face-frames that it learns from.
        contrasts: half of its epochs are of the contrastive loss alone.
        settings: on top of the file.
    """

    config: str
    frames: int
    contrasts: bool = False
    settings: tuple[str, ...] = ()


MODELS = {
    "small": Model("small", 500_000, contrasts=True),
    "small_short": Model("small", 100_000, contrasts=True),
    # Attention between faces learns from scenes with several.
    "base": Model("ava_base", 70_000, contrasts=True, settings=("--data.faces=3",)),
    "talknet_style": Model("talknet_style", 350_000),
    "light_style": Model("light_style", 100_000),
    "lr_style": Model("lr_style", 100_000),
    "talknet_style_our_losses": Model("talknet_style", 350_000, contrasts=True, settings=(*OUR_LOSSES,)),
    "light_style_our_losses": Model("light_style", 100_000, contrasts=True, settings=(*OUR_LOSSES,)),
    "lr_style_our_losses": Model("lr_style", 100_000, contrasts=True, settings=(*OUR_LOSSES,)),
}
BY_DEFAULT = ("small", "small_short", "base", "talknet_style", "light_style", "lr_style")
CHOSEN_HERE = ("run.dir", "run.seed", "data.root", "data.format", "train.epochs", "train.contrastive_epochs")


@dataclass(frozen=True)
class Plan:
    """How a model gets its face-frames.

    Attributes:
        passes: epochs over the training tracks; a model that contrasts has as many more before them, over the tracks
            in which somebody speaks.
        share: of the training scenes.
        frames: face-frames that come of it, about.
    """

    passes: int
    share: float
    frames: int


def main() -> None:
    """Reads the command line, trains, measures."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("out", type=Path, help="folder of the trainings and their JSON files")
    parser.add_argument("--data", type=Path, required=True, help="a prepared dataset")
    parser.add_argument("--models", default=",".join(BY_DEFAULT), help=f"of {','.join(MODELS)}")
    parser.add_argument("--seeds", default="0", help="with commas between them (default: 0)")
    parser.add_argument("--frames", default="", help="face-frames to learn from, as MODEL=NUMBER with commas")
    parser.add_argument("--scale", type=float, default=1.0, help="times the face-frames of every model (default: 1)")
    parser.add_argument("--splits", default="test", help="measured, with commas between them (default: test)")
    add_which_work(parser)
    overrides, rest = split_overrides(sys.argv[1:])
    options = parser.parse_args(rest)
    check_overrides(overrides, CHOSEN_HERE)
    check_which_work(options)
    names, seeds = read_names("--models", options.models, MODELS), read_seeds(options.seeds)
    if not 0 < options.scale < float("inf"):
        raise UsageError(f"--scale={options.scale:g}: expected a number above 0")
    frames = read_frames(options.frames)
    check_splits(options.data, ["train", "val", *options.splits.split(",")])
    plans = {name: plan_training(options.data, name, options.scale * frames[name]) for name in names}
    for seed in seeds:
        for name in names:
            one = Run(name, seed, options.out / f"{name}-{seed}")
            if not options.measure_only:
                train_one(one, plans[name], options, overrides)
            if one.finished and not options.train_only:
                found = options.out / f"{one.folder.name}.json"
                keep(found, lambda one=one, name=name: measure(one, plans[name], options, overrides))


def read_frames(text: str) -> dict[str, int]:
    """Face-frames of every model, those of the text in place of the usual ones.

    Raises:
        UsageError: it is no list of models and numbers.
    """
    found = {name: model.frames for name, model in MODELS.items()}
    for part in filter(None, text.split(",")):
        name, _, number = part.partition("=")
        read_names("--frames", name, MODELS)
        if not (number.isdecimal() and int(number) > 0):
            raise UsageError(f"--frames={text}: expected MODEL=NUMBER with commas between them, found {part!r}")
        found[name] = int(number)
    return found


def plan_training(root: Path, name: str, frames: float) -> Plan:
    """Epochs and share of the scenes that give a model about so many face-frames."""
    rows = [row for row in read_track_rows(root) if row.split == "train"]
    speaks = speaking_tracks(root, "train")
    whole = sum(min(row.num_frames, CLIP_FRAMES) for row in rows)
    spoken = sum(min(row.num_frames, CLIP_FRAMES) for row in rows if row.key in speaks)
    return planned(frames, whole + spoken * MODELS[name].contrasts)


def planned(frames: float, frames_a_pass: int) -> Plan:
    """The plan for so many face-frames where a pass over all scenes has ``frames_a_pass``."""
    passes = max(1, round(frames / frames_a_pass))
    share = min(1.0, round(frames / (passes * frames_a_pass), 3)) or 0.001
    return Plan(passes, share, round(passes * share * frames_a_pass))


def train_one(one: Run, plan: Plan, options: argparse.Namespace, overrides: list[str]) -> None:
    """Trains a model, unless that is done."""
    print(one.folder, file=sys.stderr, flush=True)
    val_frames = sum(row.num_frames for row in read_track_rows(options.data) if row.split == "val")
    val_share = min(1.0, round(VAL_FRAMES * min(options.scale, 1.0) / max(val_frames, 1), 3))
    shares = {"train": plan.share, "val": val_share}
    part = write_share(options.data, options.out / "data" / f"train-{plan.share:g}-val-{val_share:g}", shares)
    model = MODELS[one.model]
    path = REPOSITORY / "configs" / f"{model.config}.yaml"
    settings = [*ALWAYS, *COMMON, *model.settings, "--data.format=prepared", f"--data.root={part}"]
    settings += [f"--train.epochs={plan.passes}", f"--train.contrastive_epochs={plan.passes * model.contrasts}"]
    settings += [*overrides, f"--run.seed={one.seed}"]
    train(one, path, settings, load_config(path, settings))


def measure(one: Run, plan: Plan, options: argparse.Namespace, overrides: list[str]) -> dict[str, Any]:
    """All figures of one training, ready for JSON."""
    from dataclasses import replace

    from avfusion.data.examples import Examples
    from avfusion.data.open import open_dataset
    from avfusion.models.cost import measure_cost
    from avfusion.scoring import score_tracks

    model, config, content, device = finished_model(one)
    config = replace(config, data=replace(config.data, root=str(options.data)))
    splits = [Examples(open_dataset(config.data, split), config.data) for split in options.splits.split(",")]
    scored = [(examples.dataset, score_tracks(model, examples, config, device)) for examples in splits]
    return {
        **training_facts(one, config, content, model, device),
        "config": MODELS[one.model].config,
        "settings": list(MODELS[one.model].settings),
        "common_settings": overrides,
        "crop_size": config.data.crop_size,
        "frames": plan.frames,
        "share": plan.share,
        "epochs": {"contrastive": config.train.contrastive_epochs, "all losses": config.train.epochs},
        "frames_per_s": frames_per_s(one.folder / "log.jsonl"),
        "multiply_adds": measure_cost(config).multiply_adds,
        "dataset": dataset_facts(options.data),
        "splits": options.splits,
        **average_precisions(scored),
        "false_accepts": false_accepts(model, *scored[0], config, device),
    }


def frames_per_s(log: Path) -> float:
    """Face-frames a second of training, the median over its epochs."""
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return round(statistics.median(row["train/frames_per_s"] for row in rows if "train/frames_per_s" in row), 1)


def false_accepts(model: Any, dataset: Any, scores: list[Any], config: Config, device: Any) -> dict[str, Any]:
    """How often a speaking face is accepted with moved sound, another's or none, as the robustness suite has it."""
    from dataclasses import replace

    from avfusion.data.examples import Examples
    from avfusion.offsets import in_sync
    from avfusion.robustness.clips import ChangedClips
    from avfusion.robustness.command import usable_clips
    from avfusion.robustness.conditions import MOVED, all_conditions
    from avfusion.robustness.false_accepts import MISS_RATE, FalseAccepts
    from avfusion.robustness.sounds import Shifted
    from avfusion.scoring import score_tracks

    clips = usable_clips(dataset, "test", config)
    labelled = [index for index, track in enumerate(dataset.tracks) if track.labelled]
    sync = [index for index, track in enumerate(clips.tracks) if in_sync(track)]
    tracks = [clips.tracks[index] for index in sync]
    accepts = FalseAccepts(tracks, [scores[labelled[index]] for index in sync], RESAMPLES)
    uncached = replace(config.data, cache_gb=0.0)  # every condition has clips of its own
    rows = []
    for condition in all_conditions(clips):
        if condition.family not in MOVED:
            continue
        examples = Examples(ChangedClips(clips, condition.change, sync), uncached)
        changed = score_tracks(model, examples, config, device, label=condition.name)
        counting = None
        if isinstance(condition.change, Shifted):
            counting = [condition.change.counts(track.num_frames) for track in tracks]
        head = {"condition": condition.name, "family": condition.family, "severity": condition.severity}
        rows.append(head | accepts.row(changed, counting))
    return {"miss_rate": MISS_RATE, "threshold": accepts.threshold, "tracks": len(tracks), "rows": rows}


if __name__ == "__main__":
    sys.exit(run_command(main))
