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
import contextlib
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from avfusion.config import Config, RunConfig, config_from_dict, load_config, to_flat_dict
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command, split_overrides
from avfusion.files import whole_text_file

REPOSITORY = Path(__file__).resolve().parent.parent
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


@dataclass(frozen=True)
class Run:
    """One training: its model, its seed (as text), its folder."""

    model: str
    seed: str
    folder: Path

    @property
    def finished(self) -> bool:
        """Whether train.py came to its end."""
        return (self.folder / "report.json").is_file()


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
    chosen, numbers = models.split(","), seeds.split(",")
    unknown = [name for name in chosen if name not in MODELS]
    if unknown:
        raise UsageError(f"--models={models}: {unknown[0]!r} is none of {', '.join(MODELS)}")
    wrong = [seed for seed in numbers if not (seed.isdecimal() and seed.isascii() and seed == str(int(seed)))]
    if wrong:
        raise UsageError(f"--seeds={seeds}: {wrong[0]!r} is no seed; give whole numbers with commas, such as 0,1,2")
    if len(set(chosen)) < len(chosen) or len(set(numbers)) < len(numbers):
        raise UsageError(f"--models={models} --seeds={seeds}: something is named twice; name each once")
    return [Run(model, seed, out / f"{model}-{seed}") for seed in numbers for model in chosen]


def train(run: Run, config_path: Path, settings: list[str], config: Config) -> None:
    """Trains one run, or goes on with it, unless it is finished; adds up its wall time in ``minutes.json``.

    Raises:
        UsageError: the folder holds a training with other settings.
        AvfusionError: the training failed.
    """
    config_file = run.folder / "config.yaml"
    if config_file.is_file():
        changed = differing_keys(load_config(config_file), config)
        if changed:
            raise UsageError(
                f"{run.folder}: a training with other settings is there ({', '.join(changed)}); choose another OUT or"
                " remove it"
            )
    if run.finished:
        return
    if config_file.is_file():
        arguments = ["--resume", str(run.folder)]
    else:
        arguments = [os.path.relpath(config_path), *settings, f"--run.dir={run.folder}"]
    script = os.path.relpath(REPOSITORY / "train.py")  # the run's report shows the command, which others may repeat
    before = read_minutes(run)
    began = time.monotonic()
    with subprocess.Popen([sys.executable, script, *arguments]) as training:
        code = None
        while code is None:  # noted as it goes, so that a kill loses a quarter of a minute at most
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = training.wait(timeout=15)
            if run.folder.is_dir():
                write_minutes(run, before + (time.monotonic() - began) / 60)
    if code != 0:
        raise AvfusionError(f"{run.folder}: train.py ended with exit code {code}; the same command goes on from there")


def differing_keys(there: Config, asked: Config) -> list[str]:
    """The keys in which two configurations differ, leaving out where a run is written and what it runs on."""
    one, other = (to_flat_dict(replace(config, run=RunConfig(seed=config.run.seed))) for config in (there, asked))
    return [f"{key}: {one[key]}, now {other[key]}" for key in one if one[key] != other[key]]


def read_minutes(run: Run) -> float:
    """Wall time that went into a training so far."""
    path = run.folder / "minutes.json"
    return float(read_json(path)["minutes"]) if path.is_file() else 0.0


def write_minutes(run: Run, minutes: float) -> None:
    """Notes the wall time of a training."""
    with whole_text_file(run.folder / "minutes.json") as file:
        file.write(json.dumps({"minutes": minutes}) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Reads a file that a training wrote.

    Raises:
        AvfusionError: it is damaged.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AvfusionError(f"{path}: damaged ({error}); remove it, and the same command goes on from there") from error
    return content


def write_table(out: Path, runs: list[Run]) -> None:
    """Scores all runs and shortcuts on the test split, and writes ``table.json`` and ``table.md``."""
    from avfusion.data.open import open_dataset
    from avfusion.data.synthetic import HARD_ROLES
    from avfusion.evaluation.benchmark import Benchmark
    from avfusion.shortcuts import score_shortcuts
    from avfusion.training.report import IN_SYNC_ROLES

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
