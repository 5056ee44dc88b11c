"""One head, several heads, no attention: what each makes of two voices at once.

python benchmarks/head_count.py OUT --data=FOLDER [--seeds=0,1,2,3,4] [--arms=heads_1,heads_2,...] [--config=YAML]
                                    [--splits=test] [--start=5] [--epochs=2] [--train-only | --measure-only]
                                    [--section.key=value ...]   passed on to every training

FOLDER is a prepared dataset whose held-out splits hold scenes of two voices with their truth (data_prep.synthesize,
data_prep.compose --overlaps). For each seed the encoders are trained once, without any attention (OUT/encoders-SEED:
--start epochs of contrast alone and one of the whole loss with concatenation); every arm then starts from these and
trains all its weights for the same number of steps. The last checkpoint is measured on --splits, which have chosen
nothing: AP where two voices are heard and elsewhere, and (on the first of them) what each head carries of either voice.
OUT/ARM-SEED.json has all of it; benchmarks/head_count_table.py makes the write-up from such files alone. What is
finished is kept, what was begun goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.config import load_config
from avfusion.errors import CommandParser, UsageError, run_command, split_overrides
from avfusion.files import whole_text_file
from benchmarks.many_runs import REPOSITORY, Run, read_minutes, read_names, read_seeds, train

DEFAULT_CONFIG = REPOSITORY / "configs" / "overlaps.yaml"
ARMS = {
    "heads_1": ["--model.fusion.heads=1"],
    "heads_2": ["--model.fusion.heads=2"],
    "heads_4": ["--model.fusion.heads=4"],
    "heads_8": ["--model.fusion.heads=8"],
    "concat": ["--model.fusion.kind=concat"],
    "no_positions": ["--model.fusion.positions=false"],
    "no_null_key": ["--model.fusion.null_key=false"],
    "audio_bypass": ["--model.fusion.audio_bypass=true"],
    "keys_25hz": ["--model.fusion.key_hz=25"],
}
ENCODERS = "encoders"
ALWAYS = [
    *("--wandb.mode=disabled", "--report.inspect=false", "--report.figures_per_role=0"),
    *("--report.offset_accuracy=false", "--report.bootstrap=0"),
]
CHOSEN_HERE = ("run.dir", "run.seed", "data.root", "train.epochs", "train.contrastive_epochs", "train.encoders")
RESAMPLES = 200
PROBED_TRACKS = 300  # at most; heads are looked at on tracks of two voices alone


def main() -> None:
    """Reads the command line, trains, measures."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("out", type=Path, help="folder of the trainings and their JSON files")
    parser.add_argument("--data", type=Path, required=True, help="a prepared dataset")
    parser.add_argument("--seeds", default="0,1,2,3,4", help="with commas between them (default: 0,1,2,3,4)")
    parser.add_argument("--arms", default=",".join(ARMS), help=f"of {','.join(ARMS)} (default: all)")
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help="YAML that all trainings start from")
    parser.add_argument("--splits", default="test", help="measured, with commas between them (default: test)")
    parser.add_argument("--start", type=int, default=5, help="epochs of contrast alone, for the encoders")
    parser.add_argument("--epochs", type=int, default=2, help="epochs of every arm")
    parser.add_argument("--train-only", action="store_true", help="leave the measuring to another process")
    parser.add_argument("--measure-only", action="store_true", help="measure the trainings that are finished")
    overrides, rest = split_overrides(sys.argv[1:])
    options = parser.parse_args(rest)
    for key in CHOSEN_HERE:
        if any(override.startswith(f"--{key}=") for override in overrides):
            raise UsageError(f"--{key} is chosen for each training; see --help for the options of this command")
    if options.train_only and options.measure_only:
        raise UsageError("--train-only and --measure-only leave nothing to do; give one of them")
    arms, seeds = read_names("--arms", options.arms, ARMS), read_seeds(options.seeds)
    for seed in seeds:
        start = Run(ENCODERS, seed, options.out / f"{ENCODERS}-{seed}")
        if not options.measure_only:
            train_one(start, options, overrides, start)
        for arm in arms:
            one = Run(arm, seed, options.out / f"{arm}-{seed}")
            if not options.measure_only:
                train_one(one, options, overrides, start)
            path = options.out / f"{one.folder.name}.json"
            if one.finished and not options.train_only:
                if not path.is_file():
                    with whole_text_file(path) as file:
                        file.write(json.dumps(measure(one, options, overrides), indent=1) + "\n")
                print(f"  {path}", flush=True)


def train_one(one: Run, options: argparse.Namespace, overrides: list[str], start: Run) -> None:
    """Trains the encoders (``start`` itself) or an arm that starts from them, unless that is done."""
    print(one.folder, file=sys.stderr, flush=True)
    settings = [*ALWAYS, f"--data.root={options.data}", *overrides, f"--run.seed={one.seed}"]
    if one == start:
        settings += ["--model.fusion.kind=concat", "--model.contrast=projection"]
        settings += [f"--train.contrastive_epochs={options.start}", "--train.epochs=1"]
    else:
        encoders = start.folder / "checkpoints" / "last.pt"
        settings += [f"--train.epochs={options.epochs}", f"--train.encoders={encoders}", *ARMS[one.model]]
    train(one, options.config, settings, load_config(options.config, settings))


def measure(one: Run, options: argparse.Namespace, overrides: list[str]) -> dict[str, Any]:
    """All figures of one training, ready for JSON."""
    import torch

    import avfusion
    from avfusion.checkpoint import load_model
    from avfusion.data.examples import Examples
    from avfusion.data.open import open_dataset
    from avfusion.scoring import pick_device, score_tracks

    config = load_config(one.folder / "config.yaml", [])
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    device = pick_device(config.run.device)
    model, _, content = load_model(one.folder / "checkpoints" / "last.pt")
    model.to(device)
    splits = [Examples(open_dataset(config.data, split), config.data) for split in options.splits.split(",")]
    scored = [(examples.dataset, score_tracks(model, examples, config, device)) for examples in splits]
    found = {
        "arm": one.model,
        "seed": int(one.seed),
        "settings": ARMS[one.model],
        "common_settings": overrides,
        "epochs": {"encoders": options.start + 1, "arm": options.epochs},
        "steps": int(content["progress"]["step"]),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "minutes": round(read_minutes(one), 2),
        "commit": commit(),
        "versions": {"avfusion": avfusion.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "machine": f"{platform.machine()}, {config.run.threads or torch.get_num_threads()} threads, {device.type}",
        "dataset": dataset_facts(options.data),
        "splits": options.splits,
        **average_precisions(scored),
    }
    if config.model.fusion.kind == "cross_attention":
        found["attention"] = attention_figures(model, splits[0], config, device)
    return found


def dataset_facts(root: Path) -> dict[str, Any]:
    """What ``dataset.json`` says of how the dataset was made, without paths."""
    info = json.loads((root / "dataset.json").read_text(encoding="utf-8"))
    return {"name": info["name"], "settings": info["settings"], "counts": info["counts"]}


def average_precisions(scored: list[tuple[Any, list[Any]]]) -> dict[str, Any]:
    """AP where two voices are heard, elsewhere and over all, and the same on drawn groups (the same for every arm).

    Args:
        scored: datasets, each with one array of scores a track.
    """
    from avfusion.alignment.measures.resampling import draws, group_of
    from avfusion.evaluation.groups import group_index
    from avfusion.evaluation.ranking import Ranking

    tracks = [track for dataset, _ in scored for track in dataset.tracks]
    speaking = np.concatenate([track.speaking for track in tracks])
    two_voices = np.concatenate([two_voices_at(data, i) for data, _ in scored for i in range(len(data.tracks))])
    names = np.array([group_of(track) for track in tracks for _ in range(track.num_frames)], dtype=np.object_)
    score = np.concatenate([of_track for _, scores in scored for of_track in scores])
    group, groups = group_index(names)
    counts = draws(len(groups), RESAMPLES)
    parts = {}
    for name, kept in (("overlap", two_voices), ("elsewhere", ~two_voices), ("all", np.ones_like(two_voices))):
        ranking = Ranking(speaking[kept], score[kept])
        drawn = [ranking.average_precision(times[group[kept]]) for times in counts]
        parts[name] = {
            "ap": ranking.average_precision(),
            "auroc": ranking.auroc(),
            "drawn_ap": [round(float(value), 5) for value in drawn],
            "prevalence": float(speaking[kept].mean()),
            "frames": int(kept.sum()),
            "groups": len(np.unique(group[kept])),
        }
    return {"tracks": len(tracks), "parts": parts}


def two_voices_at(dataset: Any, index: int) -> np.ndarray:
    """``(T,)`` whether two voices or more are active in the middle of each frame; False where no truth is kept."""
    from avfusion.alignment.measures.envelope_probe import OVERLAP_ROLES
    from avfusion.clock import VIDEO_HZ
    from avfusion.data.scene_truth import read_truth

    track = dataset.tracks[index]
    active = np.zeros(track.num_frames, dtype=np.int64)
    truth = read_truth(dataset, index) if track.role in OVERLAP_ROLES else None
    if truth is not None:
        middle_s = track.start_s + (np.arange(track.num_frames) + 0.5) / VIDEO_HZ
        for voice in truth.voices:
            start, end = voice.active_s.T[:, :, None]
            active += ((start <= middle_s) & (middle_s < end)).any(axis=0)
    return active >= 2


def attention_figures(model: Any, examples: Any, config: Any, device: Any) -> dict[str, Any]:
    """Lags, redundancy and ablations of every head, and what it carries of either voice, on tracks of two voices.

    ``r2_*`` of the probe: held-out R² of a head's output for the loudness of the face's own voice and of the other
    one; ``foreign_*``: the same where the model hears another clip, so that only the picture can tell.
    """
    from avfusion.alignment.controls import CONTROLS
    from avfusion.alignment.heads.collect import collect_heads
    from avfusion.alignment.measures.ablation import ablate
    from avfusion.alignment.measures.envelope_probe import OVERLAP_ROLES, envelope_probe

    tracks = examples.dataset.tracks
    overlapping = [index for index, track in enumerate(tracks) if track.role in OVERLAP_ROLES]
    chosen = overlapping[:: -(-len(overlapping) // PROBED_TRACKS)]
    what = (model, examples, config, device, chosen)
    heads = collect_heads(*what).figures(resamples=0)
    ablation = ablate(*what, resamples=0)
    heard = envelope_probe(*what, resamples=0)
    foreign = envelope_probe(*what, change=CONTROLS["other_sound"](examples), resamples=0)
    if heads.speaking is None or heard is None or foreign is None:
        raise UsageError("the test split has too few speaking tracks of two voices with their truth: make more scenes")
    last = -1  # the layer that is read; there is one
    pairs = np.triu_indices(heads.redundancy.shape[1], 1)
    return {
        "tracks": len(chosen),
        "lag_ms": values(heads.speaking.lag_ms[last]),
        "lag_iqr_ms": values(heads.speaking.lag_iqr_ms[last]),
        "width_ms": values(heads.speaking.width_ms[last]),
        "null_speaking": values(heads.speaking.null_mass[last]),
        "null_auroc": values(heads.null_auroc[last]),
        "divergence_nats": [round(float(value), 5) for value in heads.redundancy[last][pairs][:, 0]],
        "ap": float(ablation.base_ap[0]),
        "zero": values(ablation.zero[last]),
        "uniform": values(ablation.uniform[last]),
        "only": values(ablation.only[last]),
        "none": float(ablation.none[0]),
        "r2_own": values(heard.target[last]),
        "r2_other": values(heard.interferer[last]),
        "foreign_own": values(foreign.target[last]),
        "foreign_other": values(foreign.interferer[last]),
        "layer": {
            "r2_own": float(heard.layer_target[last, 0]),
            "r2_other": float(heard.layer_interferer[last, 0]),
            "foreign_own": float(foreign.layer_target[last, 0]),
            "foreign_other": float(foreign.layer_interferer[last, 0]),
        },
        "probed_frames": heard.num_frames,
        "probed_groups": heard.num_groups,
    }


def values(estimates: np.ndarray) -> list[float | None]:
    """The values of ``(H, 3)`` estimates, None for NaN."""
    return [None if np.isnan(value) else round(float(value), 5) for value in estimates[:, 0]]


def commit() -> str | None:
    """The commit that is checked out, with a + where files differ from it; None outside of a repository."""
    git = ["git", "-C", str(REPOSITORY)]
    try:
        name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("AVFUSION_COMMIT")
    return name.strip() + ("+" if changed.stdout.strip() else "")


if __name__ == "__main__":
    sys.exit(run_command(main))
