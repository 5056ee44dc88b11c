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
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.config import load_config
from avfusion.errors import CommandParser, UsageError, run_command, split_overrides
from benchmarks.experiment import (
    ALWAYS,
    add_which_work,
    check_overrides,
    check_splits,
    check_which_work,
    dataset_facts,
    finished_model,
    precision_of_parts,
    train_and_measure,
    training_facts,
)
from benchmarks.many_runs import REPOSITORY, Run, read_names, read_seeds, train

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
CHOSEN_HERE = ("run.dir", "run.seed", "data.root", "train.epochs", "train.contrastive_epochs", "train.encoders")
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
    add_which_work(parser)
    overrides, rest = split_overrides(sys.argv[1:])
    options = parser.parse_args(rest)
    check_overrides(overrides, CHOSEN_HERE)
    check_which_work(options)
    arms, seeds = read_names("--arms", options.arms, ARMS), read_seeds(options.seeds)
    load_config(options.config, overrides)  # a wrong key is told before anything is looked for
    check_splits(options.data, ["train", "val", *options.splits.split(",")])
    train_and_measure(
        options,
        arms,
        seeds,
        lambda one, start: train_one(one, options, overrides, start),
        lambda one: measure(one, options, overrides),
    )


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
    from avfusion.data.examples import Examples
    from avfusion.data.open import open_dataset
    from avfusion.scoring import score_tracks

    model, config, content, device = finished_model(one)
    splits = [Examples(open_dataset(config.data, split), config.data) for split in options.splits.split(",")]
    scored = [(examples.dataset, score_tracks(model, examples, config, device)) for examples in splits]
    found = {
        **training_facts(one, config, content, model, device),
        "settings": ARMS[one.model],
        "common_settings": overrides,
        "epochs": {"encoders": options.start + 1, "arm": options.epochs},
        "dataset": dataset_facts(options.data),
        "splits": options.splits,
        **average_precisions(scored),
    }
    if config.model.fusion.kind == "cross_attention":
        found["attention"] = attention_figures(model, splits[0], config, device)
    return found


def average_precisions(scored: list[tuple[Any, list[Any]]]) -> dict[str, Any]:
    """AP where two voices are heard, elsewhere and over all, and the same on drawn groups (the same for every arm).

    Args:
        scored: datasets, each with one array of scores a track.
    """
    from avfusion.alignment.measures.resampling import group_of

    tracks = [track for dataset, _ in scored for track in dataset.tracks]
    speaking = np.concatenate([track.speaking for track in tracks])
    two_voices = np.concatenate([two_voices_at(data, i) for data, _ in scored for i in range(len(data.tracks))])
    names = np.array([group_of(track) for track in tracks for _ in range(track.num_frames)], dtype=np.object_)
    score = np.concatenate([of_track for _, scores in scored for of_track in scores])
    parts = {"overlap": two_voices, "elsewhere": ~two_voices, "all": np.ones_like(two_voices)}
    return {"tracks": len(tracks), "parts": precision_of_parts(speaking, score, names, parts)}


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


if __name__ == "__main__":
    sys.exit(run_command(main))
