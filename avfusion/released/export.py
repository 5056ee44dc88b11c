"""Turns a checkpoint of a training into weights to hand out, and checks that they score as it does.

python -m avfusion.released.export RUN/checkpoints/best.pt --facts=JSON --commit=HASH [--out=FILE]

Where training kept an average of the weights, that is written: it is what was validated. Numbers stay float32; 0.83 M
of them take 3.3 MB. Scores are the checkpoint's to the last bit, unless the facts give a ``level``: then the logit of
the speaking score becomes ``scale * logit + offset``, which moves its level and changes no order
(benchmarks/score_level.py). Paths of the machine that trained do not come along. The facts are a JSON object: see
``configs/released.json`` and REQUIRED below; size of the model, epoch, dataset and validation figures of the run are
added.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import avfusion
from avfusion.checkpoint import load_model
from avfusion.config import Config
from avfusion.errors import AvfusionError, CommandParser, UsageError, run_command
from avfusion.files import sha256_of
from avfusion.models import ActiveSpeakerDetector
from avfusion.models.cost import measure_cost
from avfusion.models.export_form import ExportForm, SceneSizes, largest_difference
from avfusion.released import RELEASED
from avfusion.weights import SUFFIX, write_weights

REQUIRED = {
    "name": str,  # of the model
    "licence": str,  # of the weights
    "data": list,  # objects of OF_DATA: everything it was trained on
    "talkers": dict,  # trained_on and chosen_on: lists of corpus/talker, the faces it has learnt or was chosen on
}
OF_DATA = ("name", "licence", "source", "use")
CHECKED = (SceneSizes(1, 1, 1), SceneSizes(2, 2, 33, masked=True), SceneSizes(1, 1, 120))


def main() -> None:
    """Reads the command line, writes the file, prints what it is."""
    parser = CommandParser(
        prog="python -m avfusion.released.export", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="of a run, as a rule checkpoints/best.pt")
    parser.add_argument("--facts", type=Path, required=True, metavar="JSON", help="data, licences, talkers")
    parser.add_argument("--commit", required=True, help="of the code that trained it")
    parser.add_argument("--out", type=Path, default=RELEASED, help="where to (default: into the package)")
    options = parser.parse_args()
    if options.out.suffix != SUFFIX:
        raise UsageError(f"--out={options.out}: expected a name that ends in {SUFFIX}")
    told = read_facts(options.facts)
    model, config, content = load_model(options.checkpoint)
    if level := told.get("level"):
        set_level(model, level["scale"], level["offset"])
    facts = told | {"commit": options.commit, **facts_of(model, config, content, options.checkpoint)}
    write(options.out, model, config, content, facts)
    size_mb = options.out.stat().st_size / 1e6
    print(f"{options.out}: {size_mb:.2f} MB, {facts['parameters']:,d} parameters, sha256 {sha256_of(options.out)}")
    moved = f"; level moved by {level['scale']:g} * logit + {level['offset']:g}" if level else ", to the last bit"
    print(f"  scores are those of {options.checkpoint}{moved}")


def read_facts(path: Path) -> dict[str, Any]:
    """What whoever trained it tells.

    Raises:
        UsageError: the file is no JSON object, or lacks one of :data:`REQUIRED`.
    """
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--facts={path}: cannot be read as JSON ({error}); see configs/released.json") from error
    if not isinstance(facts, dict):
        raise UsageError(f"--facts={path}: expected a JSON object, found a {type(facts).__name__}")
    for name, kind in REQUIRED.items():
        if not isinstance(facts.get(name), kind) or not facts[name]:
            raise UsageError(f"--facts={path}: expected {name!r}, a {kind.__name__} with something in it")
    if not isinstance(facts["talkers"].get("trained_on"), list):
        raise UsageError(f"--facts={path}: talkers: expected trained_on, a list of corpus/talker, and maybe chosen_on")
    for one in facts["data"]:
        if not (isinstance(one, dict) and all(isinstance(one.get(name), str) for name in OF_DATA)):
            raise UsageError(f"--facts={path}: data: expected objects with {', '.join(OF_DATA)}, found {one}")
    level = facts.get("level")
    if level is not None and not (isinstance(level, dict) and _is_level(level)):
        raise UsageError(
            f"--facts={path}: level: expected an object with a scale above 0, an offset, and set_on, what they were set"
            f" on; found {level}"
        )
    return facts


def _is_level(level: Mapping[str, Any]) -> bool:
    numbers = [level.get("scale"), level.get("offset")]
    finite = all(isinstance(one, (int, float)) and math.isfinite(one) for one in numbers)
    return finite and level["scale"] > 0 and isinstance(level.get("set_on"), str)


@torch.no_grad()
def set_level(model: ActiveSpeakerDetector, scale: float, offset: float) -> None:
    """Makes the logit of the speaking score ``scale * logit + offset``, in the last layer."""
    assert isinstance(model.head, nn.Linear)
    model.head.weight.mul_(scale)
    model.head.bias.mul_(scale).add_(offset)


def facts_of(
    model: ActiveSpeakerDetector, config: Config, content: Mapping[str, Any], checkpoint: Path
) -> dict[str, Any]:
    """What can be told from the checkpoint and from the run around it."""
    facts: dict[str, Any] = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "multiply_adds_per_face_frame": measure_cost(config).multiply_adds,
        "averaged_weights": bool(content.get("ema")),
        "epoch": content["progress"]["epoch"],
        "seed": config.run.seed,
        "versions": {"avfusion": avfusion.__version__, "torch": torch.__version__},
        "checkpoint_sha256": sha256_of(checkpoint),
    }
    report = checkpoint.parent.parent / "report.json"
    if report.is_file():
        try:
            found = json.loads(report.read_text(encoding="utf-8"))
            whole = found["all"]
            facts["validation"] = {
                "dataset": {key: value for key, value in found["data"].items() if key != "root"},
                "split": found["split"],
                "average_precision": whole["average_precision"],
                "average_precision_interval": whole["average_precision_interval"],
            }
        except (ValueError, KeyError, TypeError) as error:
            raise AvfusionError(
                f"{report}: no report of this run ({error!r}); make it again: python eval.py {report.parent}"
            ) from error
    return facts


def without_paths(config: Config) -> Config:
    """The configuration without what names places of one machine."""
    augment = replace(config.data.augment, noise_folder=None, music_folder=None, babble_folder=None)
    return replace(
        config,
        run=replace(config.run, dir=None),
        data=replace(config.data, root=None, augment=augment),
        train=replace(config.train, encoders=None),
        wandb=replace(config.wandb, entity=None, name=None),
    )


def write(
    path: Path, model: ActiveSpeakerDetector, config: Config, content: Mapping[str, Any], facts: Mapping[str, Any]
) -> None:
    """Writes beside the place, loads what was written, scores with it, and only then puts it in its place.

    Raises:
        AvfusionError: what was written does not score as the model does.
    """
    draft = path.with_name(f"draft-{path.name}")
    progress = {key: int(content["progress"].get(key, 0)) for key in ("epoch", "step")}
    about = {"config": asdict(without_paths(config)), "progress": progress, "facts": dict(facts)}
    write_weights(draft, model.state_dict(), about)
    try:
        difference = difference_of(model, load_model(draft)[0], config)
        if difference != 0.0:
            raise AvfusionError(
                f"{path}: not written: what was read back scores otherwise, by up to {difference:.1e}, expected 0"
            )
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@torch.inference_mode()
def difference_of(model: ActiveSpeakerDetector, other: ActiveSpeakerDetector, config: Config) -> float:
    """The largest difference of two models' outputs over random scenes of :data:`CHECKED` sizes."""
    worst = 0.0
    for sizes in CHECKED:
        inputs = sizes.inputs(config.data.crop_size, config.data.num_mels)
        found, expected = (ExportForm(one)(*inputs) for one in (other, model))
        worst = max(worst, largest_difference(found, expected, inputs[2]))
    return worst


if __name__ == "__main__":
    sys.exit(run_command(main))
