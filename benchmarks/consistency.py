"""A voice held together over a minute: which window of the temporal block does it, and in which order.

python benchmarks/consistency.py OUT --short=FOLDER --data=FOLDER [--seeds=0,1,2] [--arms=half_attention,...]
                                     [--config=YAML] [--split=test] [--start=5] [--epochs=8]
                                     [--train-only | --measure-only]
                                     [--section.key=value ...]   passed on to the training of every arm (run, model and
                                     what is seen and heard of a clip: to the encoders' as well)

Both are prepared datasets of data_prep.synthesize: --short of short scenes, --data of long ones of the role returning
(somebody talks in view, is then hidden while they or somebody else is heard, and comes back). For each seed the
encoders are trained once on the short scenes (configs/overlaps.yaml, OUT/encoders-SEED: --start epochs of contrast
alone and one of the whole loss, with concatenation). Every arm takes them as they are and trains what comes after them
on whole long scenes. Arms differ in the temporal block alone. The last checkpoint is measured on --split: AP and AUROC
while the person is hidden, where only the voice can tell; in view; and hidden again with other sound
(benchmarks/returning_sounds.py), which says what the score came from.
OUT/ARM-SEED.json has all of it, OUT/encoders-SEED.json what the encoders let through, OUT/oracles.json what could be
known (benchmarks/voice_templates.py); benchmarks/consistency_table.py makes the write-up from such files alone. What
is finished is kept, what was begun goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
from avfusion.config import load_config
from avfusion.errors import CommandParser, run_command, split_overrides
from benchmarks.experiment import (
    ALWAYS,
    ENCODERS,
    add_which_work,
    check_overrides,
    check_splits,
    check_which_work,
    commit,
    dataset_facts,
    finished_model,
    keep,
    precision_of_parts,
    train_and_measure,
    training_facts,
)
from benchmarks.many_runs import REPOSITORY, Run, read_names, read_seeds, train
from benchmarks.returning_frames import Frames, all_frames, parts_of
from benchmarks.returning_sounds import CHANGES, PeopleWithOtherSound, scenes_of
from benchmarks.voice_templates import at_frames, template_scores, true_pitch, voice_map

DEFAULT_CONFIG = REPOSITORY / "configs" / "consistency.yaml"
ENCODERS_CONFIG = REPOSITORY / "configs" / "overlaps.yaml"
WINDOWS = {"half": "0.5", "four": "4", "thirty": "30", "whole": "null"}
ORDERS = {"attention": "attention_first", "convolution": "convolution_first"}


def _arm(window: str, order: str, positions: bool = True) -> list[str]:
    """The settings of an arm; all but ``none`` have the same parameters."""
    return [
        f"--model.temporal.window_s={WINDOWS[window]}",
        f"--model.temporal.order={ORDERS[order]}",
        f"--model.temporal.positions={str(positions).lower()}",
    ]


ARMS = {
    **{f"{window}_{order}": _arm(window, order) for order in ORDERS for window in WINDOWS},
    **{f"{window}_no_positions": _arm(window, "attention", False) for window in WINDOWS},
    "none": ["--model.temporal.layers=0"],
}
CHOSEN_HERE = ("run.dir", "run.seed", "data.root", "train.epochs", "train.contrastive_epochs", "train.encoders")
OF_ENCODERS = ("--run.", "--model.", "--data.crop_size=", "--data.region=", "--data.num_mels=")  # passed on to them too
PEOPLE = "hidden"  # the part that is measured with other sound
LEARNT_SPLIT, LEARNT_SCENES = "train", 60  # where it is learnt what tells voices, at most so many


def main() -> None:
    """Reads the command line, trains, measures."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("out", type=Path, help="folder of the trainings and their JSON files")
    parser.add_argument("--short", type=Path, required=True, help="a prepared dataset of short scenes")
    parser.add_argument("--data", type=Path, required=True, help="a prepared dataset of long scenes (returning)")
    parser.add_argument("--seeds", default="0,1,2", help="with commas between them (default: 0,1,2)")
    parser.add_argument("--arms", default=",".join(ARMS), help=f"of {','.join(ARMS)} (default: all)")
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help="YAML that all arms start from")
    parser.add_argument("--split", default="test", help="measured (default: test)")
    parser.add_argument("--start", type=int, default=5, help="epochs of contrast alone, for the encoders")
    parser.add_argument("--epochs", type=int, default=8, help="epochs of every arm")
    add_which_work(parser)
    overrides, rest = split_overrides(sys.argv[1:])
    options = parser.parse_args(rest)
    check_overrides(overrides, CHOSEN_HERE)
    check_which_work(options)
    arms, seeds = read_names("--arms", options.arms, ARMS), read_seeds(options.seeds)
    check_splits(options.data, ["train", "val", options.split])
    if not options.measure_only:
        check_splits(options.short, ["train", "val"])
        for name in (ENCODERS, *arms):  # an arm's fault is told before the encoders are trained
            load_config(*settings_of(name, seeds[0], options, overrides))
    train_and_measure(
        options,
        arms,
        seeds,
        lambda one, start: train_one(one, options, overrides, start),
        lambda one: measure(one, options, overrides),
    )
    if not options.train_only:
        for seed in seeds:
            start = Run(ENCODERS, seed, options.out / f"{ENCODERS}-{seed}")
            if start.finished:
                keep(options.out / f"{start.folder.name}.json", lambda start=start: measure_encoders(start, options))
        keep(options.out / "oracles.json", lambda: measure_oracles(options))


def train_one(one: Run, options: argparse.Namespace, overrides: list[str], start: Run) -> None:
    """Trains the encoders (``start`` itself) or an arm that starts from them, unless that is done."""
    print(one.folder, file=sys.stderr, flush=True)
    config, settings = settings_of(one.model, one.seed, options, overrides)
    if one != start:
        settings.append(f"--train.encoders={start.folder / 'checkpoints' / 'last.pt'}")
    train(one, config, settings, load_config(config, settings))


def settings_of(name: str, seed: str, options: argparse.Namespace, overrides: list[str]) -> tuple[Path, list[str]]:
    """The YAML file and the settings of the encoders or an arm; where an arm's encoders are is not among them."""
    if name == ENCODERS:
        settings = [*ALWAYS, f"--data.root={options.short}", f"--run.seed={seed}", "--model.contrast=projection"]
        settings += ["--model.fusion.kind=concat", f"--train.contrastive_epochs={options.start}", "--train.epochs=1"]
        return ENCODERS_CONFIG, settings + [override for override in overrides if override.startswith(OF_ENCODERS)]
    settings = [*ALWAYS, f"--data.root={options.data}", *overrides, f"--run.seed={seed}"]
    return options.config, [*settings, f"--train.epochs={options.epochs}", *ARMS[name]]


def measure(one: Run, options: argparse.Namespace, overrides: list[str]) -> dict[str, Any]:
    """All figures of the training of an arm, ready for JSON."""
    from avfusion.alignment.measures.encode_once import encode_once
    from avfusion.data.examples import Examples
    from avfusion.scoring import score_tracks

    model, config, content, device = finished_model(one)
    dataset = open_split(options)
    frames = all_frames(dataset)
    scores = score_tracks(model, Examples(dataset, config.data), config, device)
    people = [index for index, of_track in enumerate(frames) if of_track.person]
    changed = {}
    with encode_once(model.visual) as passes:  # pictures stay
        for change in CHANGES:
            passes.again()
            examples = Examples(PeopleWithOtherSound(dataset, people, change), config.data)
            found = score_tracks(model, examples, config, device)
            changed[change] = precisions(examples.dataset, [frames[index] for index in people], found, (PEOPLE,))
    return {
        **training_facts(one, config, content, model, device),
        "settings": ARMS[one.model],
        "common_settings": overrides,
        "epochs": {"encoders": options.start + 1, "arm": options.epochs},
        **measured_on(options),
        "tracks": len(frames),
        "parts": precisions(dataset, frames, scores),
        "changed": {change: parts[PEOPLE] for change, parts in changed.items()},
    }


def measure_encoders(start: Run, options: argparse.Namespace) -> dict[str, Any]:
    """What the encoder of the sound lets through of a voice."""
    import torch

    model, config, content, device = finished_model(start)
    log_mel = log_mel_features(config.data.num_mels)

    def embeddings(dataset: Any, index: int) -> np.ndarray:
        heard = torch.from_numpy(log_mel(dataset, index))
        with torch.inference_mode():
            embedded: np.ndarray = model.audio(heard[None].to(device), None)[0].float().cpu().numpy()
        return embedded

    return {
        **training_facts(start, config, content, model, device),
        **measured_on(options),
        "parts": {PEOPLE: told_by(options, lambda *track: at_frames(embeddings(*track)))},
    }


def measure_oracles(options: argparse.Namespace) -> dict[str, Any]:
    """What could be known from the true pitch, and from the sound as any model hears it."""
    log_mel = log_mel_features(load_config(options.config, []).data.num_mels)
    oracles = {
        "pitch": told_by(options, true_pitch, learn=False),
        "log_mel": told_by(options, lambda *track: at_frames(log_mel(*track))),
    }
    return {**measured_on(options), "commit": commit(), "oracles": oracles}


def told_by(
    options: argparse.Namespace, features: Callable[[Any, int], np.ndarray], learn: bool = True
) -> dict[str, Any]:
    """AP and AUROC while hidden of templates of the two voices.

    Args:
        options: ``data`` and ``split``.
        features: ``(T, F)`` of a track of a dataset.
        learn: learn on the training split which of the features tell voices.
    """
    from avfusion.data.prepared import PreparedDataset

    def people_of(dataset: Any, at_most: int | None = None) -> tuple[list[int], list[Frames], list[np.ndarray]]:
        frames = all_frames(dataset)
        people = [index for index, of_track in enumerate(frames) if of_track.person][:at_most]
        return people, [frames[index] for index in people], [features(dataset, index) for index in people]

    dataset = open_split(options)
    people, frames, values = people_of(dataset)
    if learn:
        _, others, of_others = people_of(PreparedDataset(options.data, LEARNT_SPLIT), LEARNT_SCENES)
        directions = voice_map(of_others, others)
        values = [of_track @ directions for of_track in values]
    subset = PeopleWithOtherSound(dataset, people, None)
    return precisions(subset, frames, template_scores(values, frames), (PEOPLE,))[PEOPLE]


def log_mel_features(num_mels: int) -> Callable[[Any, int], np.ndarray]:
    """Gives the ``(4 T, M)`` log-mel of a track of a prepared dataset whose scenes begin with their tracks."""
    import torch

    from avfusion.clock import SAMPLES_PER_VIDEO_FRAME
    from avfusion.media.audio import LogMel, read_audio

    to_log_mel = LogMel(num_mels)

    def features(dataset: Any, index: int) -> np.ndarray:
        samples = dataset.tracks[index].num_frames * SAMPLES_PER_VIDEO_FRAME
        sound = read_audio(dataset.root / dataset.rows[index].audio, 0, samples)
        found: np.ndarray = to_log_mel(torch.from_numpy(sound)).numpy()
        return found

    return features


def measured_on(options: argparse.Namespace) -> dict[str, Any]:
    """Which scenes."""
    return {"dataset": dataset_facts(options.data), "short": dataset_facts(options.short), "splits": options.split}


def open_split(options: argparse.Namespace) -> Any:
    """The split that is measured, after a look whether its sound can be made again."""
    from avfusion.data.prepared import PreparedDataset

    dataset = PreparedDataset(options.data, options.split)
    scenes_of(dataset)
    return dataset


def precisions(
    dataset: Any, frames: list[Frames], scores: Sequence[np.ndarray], names: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """AP and AUROC of the parts (all, or those named), with draws of whole scenes that are the same for every arm."""
    from avfusion.alignment.measures.resampling import group_of

    speaking = np.concatenate([track.speaking for track in dataset.tracks])
    groups = [group_of(track) for track in dataset.tracks for _ in range(track.num_frames)]
    parts = {name: mask for name, mask in parts_of(frames).items() if not names or name in names}
    return precision_of_parts(
        speaking, np.concatenate(scores), np.array(groups, dtype=np.object_), parts, draw_auroc=True
    )


if __name__ == "__main__":
    sys.exit(run_command(main))
