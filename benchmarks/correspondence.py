"""Trains the model and its baselines over several seeds, and sets them beside scores that need no training, per role.

python benchmarks/correspondence.py OUT [--seeds=0,1,2] [--models=full,concat,one_head,video,audio]
                                        [--config=YAML] [--section.key=value ...]   passed on to every training
python benchmarks/correspondence.py OUT --table-only                                the table of what is there

Each training is a train.py of its own in OUT/<model>-<seed>; a finished one is kept, a begun one goes on. All best
checkpoints (chosen on the validation split) are then scored on the test split, which nothing else looks at, and
OUT/table.json and OUT/table.md are written. Intervals are explained there and in avfusion/evaluation/{seeds,bootstrap}.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.config import Config, config_from_dict, load_config
from avfusion.errors import CommandParser, UsageError, run_command, split_overrides
from benchmarks.many_runs import REPOSITORY, Run, read_json, read_minutes, read_names, read_seeds, train

DEFAULT_CONFIG = REPOSITORY / "configs" / "synthetic.yaml"
MAIN = "full"
MODELS = {
    MAIN: [],
    "concat": ["--model.fusion.kind=concat"],
    "one_head": ["--model.fusion.heads=1"],
    "video": ["--model.modality=video"],
    "audio": ["--model.modality=audio"],
}
CHOSEN_HERE = ("run.dir", "run.seed", "model.fusion.kind", "model.fusion.heads", "model.modality")
ALWAYS = ["--wandb.mode=disabled", "--report.figures_per_role=0", "--report.offset_accuracy=false"]
SPLIT = "test"


def main() -> None:
    """Reads the command line, trains, and writes the table."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("out", type=Path, help="folder of the trainings and the table")
    parser.add_argument("--seeds", default="0,1,2", help="seeds, with commas between them (default: 0,1,2)")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {','.join(MODELS)} (default: all)")
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help="YAML that all trainings start from")
    parser.add_argument(
        "--table-only",
        action="store_true",
        help="train nothing: finished trainings count as they are",
    )
    overrides, rest = split_overrides(sys.argv[1:])
    options = parser.parse_args(rest)
    runs = plan_runs(options.out, options.models, options.seeds)
    for key in CHOSEN_HERE:
        if any(override.startswith(f"--{key}=") for override in overrides):
            raise UsageError(f"--{key} is chosen for each training; use OUT, --seeds and --models instead")
    if options.table_only:
        if overrides:
            raise UsageError(
                f"--table-only takes the settings of the trainings that are there; leave out {overrides[0]}"
            )
        absent = [run.folder.name for run in runs if not run.finished]
        if 0 < len(absent) < len(runs):
            print(f"{options.out}: left out, as not finished: {', '.join(absent)}", file=sys.stderr)
    else:
        settings = {run: [*ALWAYS, *overrides, *MODELS[run.model], f"--run.seed={run.seed}"] for run in runs}
        configs = {run: load_config(options.config, given) for run, given in settings.items()}  # all, before any work
        for number, run in enumerate(runs, 1):
            print(f"{number}/{len(runs)} {run.folder}", file=sys.stderr)
            train(run, options.config, settings[run], configs[run])
    finished = [run for run in runs if run.finished]
    if not finished:
        raise UsageError(
            f"{options.out}: no finished training of {options.models}; leave out --table-only to train them"
        )
    write_table(options.out, finished)


def plan_runs(out: Path, models: str, seeds: str) -> list[Run]:
    """Every model with every seed, a seed of all models before the next.

    Raises:
        UsageError: a model or a seed that is none, or one that is named twice.
    """
    chosen, numbers = read_names("--models", models, MODELS), read_seeds(seeds)
    return [Run(model, seed, out / f"{model}-{seed}") for seed in numbers for model in chosen]


def write_table(out: Path, runs: list[Run]) -> None:
    """Scores all runs and shortcuts on the test split, and writes ``table.json`` and ``table.md``."""
    from avfusion.data.open import open_dataset
    from avfusion.data.synthetic import HARD_ROLES
    from avfusion.evaluation.benchmark import Benchmark
    from avfusion.offsets import IN_SYNC_ROLES
    from avfusion.shortcuts import score_shortcuts

    config = common_config(runs)
    clips = InMemory(open_dataset(config.data, SPLIT))
    scores: dict[str, dict[str, Any]] = {}
    minutes: dict[str, dict[str, float]] = {}
    for run in sorted(runs, key=lambda run: list(MODELS).index(run.model)):
        scores.setdefault(run.model, {})[run.seed] = score_run(run, config, clips)
        minutes.setdefault(run.model, {})[run.seed] = read_minutes(run)
    scores |= {name: {"": found} for name, found in score_shortcuts(clips).items()}
    benchmark = Benchmark(clips.tracks, IN_SYNC_ROLES, HARD_ROLES, config.report.bootstrap)
    table = benchmark.table(scores, set(MODELS), MAIN, minutes, raw_figures(clips))
    head = {
        "dataset": f"{clips.name} / {SPLIT}",
        "command": shlex.join(["python", *sys.argv]),
        "first_training": first_command(runs[0]),
        "machine": machine(config),
    }
    about = [f"- {key.replace('_', ' ')}: `{value}`" for key, value in head.items()]
    text = "\n".join(["# AP per role", "", *about, "", table.to_markdown()])
    (out / "table.json").write_text(json.dumps({**head, **table.to_dict()}, indent=2) + "\n", encoding="utf-8")
    (out / "table.md").write_text(text, encoding="utf-8")
    print(f"{text}\n  {out / 'table.md'}\n  {out / 'table.json'}")


def first_command(run: Run) -> str:
    """A command line that repeats a training."""
    command = str(read_json(run.folder / "report.json")["command"])
    return f"train.py {run.folder / 'config.yaml'}" if "--resume" in command else command


def common_config(runs: list[Run]) -> Config:
    """The configuration of the first run, once all are known to read the same data.

    Raises:
        UsageError: some read other data.
    """
    from avfusion.checkpoint import read_checkpoint

    configs = []
    for run in runs:
        path = run.folder / "checkpoints" / "best.pt"
        configs.append(config_from_dict(read_checkpoint(path)["config"], where=str(path)))
        if configs[-1].data != configs[0].data:
            raise UsageError(f"{run.folder}: its data section differs from that of {runs[0].folder}; no table of both")
    return configs[0]


class InMemory:
    """A dataset whose clips are read once and kept; synthetic talkers are all rendered at the first read."""

    def __init__(self, dataset: Any) -> None:
        self.name, self.tracks, self.skipped, self._dataset = dataset.name, dataset.tracks, dataset.skipped, dataset
        self._clips: dict[int, Any] = {}

    def read(self, index: int, first_frame: int = 0, num_frames: int | None = None) -> Any:
        """As :class:`avfusion.data.clips.ClipDataset`."""
        from avfusion.clock import SAMPLES_PER_VIDEO_FRAME
        from avfusion.data.clips import Clip
        from avfusion.data.synthetic import SyntheticDataset
        from avfusion.data.synthetic.parallel import read_many

        if not self._clips and isinstance(self._dataset, SyntheticDataset):
            self._clips = dict(enumerate(read_many(self._dataset, range(len(self.tracks)))))
        if index not in self._clips:
            self._clips[index] = self._dataset.read(index)
        whole = self._clips[index]
        last = len(whole.crops) if num_frames is None else first_frame + num_frames
        sound = slice(first_frame * SAMPLES_PER_VIDEO_FRAME, last * SAMPLES_PER_VIDEO_FRAME)
        return Clip(whole.crops[first_frame:last], whole.audio[sound], whole.speaking[first_frame:last])


def score_run(run: Run, config: Config, clips: InMemory) -> Any:
    """Scores the best checkpoint of a run on every track, and keeps the scores in its folder."""
    import torch

    from avfusion.checkpoint import load_model
    from avfusion.data.examples import Examples
    from avfusion.scoring import pick_device, score_tracks
    from avfusion.tracks import ScoreTable, write_scores

    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    device = pick_device(config.run.device)
    model, own, _ = load_model(run.folder / "checkpoints" / "best.pt")
    examples = Examples(clips, replace(config.data, cache_gb=0.0))
    scores = score_tracks(model.to(device), examples, own, device, label=str(run.folder))
    path = run.folder / "scores" / f"{SPLIT}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_scores(path, ScoreTable.from_tracks(clips.tracks, scores))
    return scores


def raw_figures(clips: InMemory) -> dict[str, Any]:
    """What shortcuts are made of, one number per track: mouth motion (grey levels), rms of the whole scene's sound."""
    import numpy as np

    from avfusion.shortcuts import mouth_energy

    whole = [clips.read(index) for index in range(len(clips.tracks))]
    return {
        "mouth motion": np.array([mouth_energy(clip.crops).mean() for clip in whole]),
        "sound rms": np.array([np.sqrt(np.mean(clip.audio.astype(np.float64) ** 2)) for clip in whole]),
    }


def machine(config: Config) -> str:
    """What the figures were made on, as far as times depend on it."""
    import torch

    from avfusion.scoring import pick_device

    device = pick_device(config.run.device).type
    threads = config.run.threads or torch.get_num_threads()
    return f"{platform.machine()}, {os.cpu_count()} CPU cores, {threads} threads, {device}, torch {torch.__version__}"


if __name__ == "__main__":
    sys.exit(run_command(main))
