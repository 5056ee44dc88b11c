"""A step whose loss was not finite, kept so that it can be run again and looked into.

``runs/NAME/replay/step-12.pt`` holds the weights before the step, the random states and the clips of every part;
``step-12.json`` beside it holds what a reader wants to know: clip ids, stretches, and the loss of each part.
``python train.py --replay runs/NAME/replay/step-12.pt`` runs the step again, clip by clip, and says where it begins.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from avfusion.checkpoint import save_checkpoint
from avfusion.data.batching import Batch, collate
from avfusion.data.examples import Examples, Request
from avfusion.errors import AvfusionError
from avfusion.files import whole_text_file
from avfusion.models import ActiveSpeakerDetector
from avfusion.training.state import Progress, set_random_state
from avfusion.training.step import NotFiniteError, Stepper
from avfusion.training.step_loss import loss_weights, whole_counts

Dealt = Sequence[Sequence[Sequence[Request]]]  # the clips of a step: by process, then by part


def save_replay(
    run_dir: Path, stepper: Stepper, progress: Progress, examples: Examples, dealt: Dealt, error: NotFiniteError
) -> AvfusionError:
    """Keeps a step for :func:`replay`; called by every process, written by the main one.

    Returns:
        The error to end the run with: what was not finite, in which clips, and how to replay them.
    """
    world = stepper.world
    states, losses = world.collect(stepper.random_before), world.collect(error.parts)
    folder = run_dir / "replay"
    path = folder / f"step-{progress.step}.pt"
    tracks = examples.dataset.tracks
    if world.is_main:
        parts = [
            {
                "rank": rank,
                "part": number,
                "loss": str(losses[rank][number]),
                "clips": [
                    {
                        "video_id": tracks[request.track].video_id,
                        "entity_id": tracks[request.track].entity_id,
                        **asdict(request),
                    }
                    for request in part
                ],
            }
            for rank, of_rank in enumerate(dealt)
            for number, part in enumerate(of_rank)
        ]
        summary = {
            "step": progress.step,
            "epoch": progress.epoch,
            "terms": {key: str(value) for key, value in error.terms.items()},
            "grad_norm": str(error.grad_norm),
            "parts": parts,
        }
        kept = {"progress": vars(progress), "replay": summary, "random": states}
        save_checkpoint(path, stepper.model, stepper.config, kept)
        with whole_text_file(path.with_suffix(".json")) as file:
            file.write(json.dumps(summary, indent=1) + "\n")
    total = [f"{key} {value}" for key, value in error.terms.items() if not math.isfinite(value)]
    what = f"the loss is not finite ({', '.join(total)})" if total else f"the gradient's norm is {error.grad_norm}"
    named = sorted({tracks[request.track].entity_id for of_rank in dealt for part in of_rank for request in part})
    some = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    return AvfusionError(
        f"{what} at step {progress.step}, in a batch of {some}; no step was taken."
        f" Look into it with: python train.py --replay {path}"
    )


@dataclass
class ClipReplay:
    """What one clip of a replayed step gave by itself."""

    video_id: str
    entity_id: str
    terms: dict[str, float]
    first_bad: str | None  # where the first number that is not finite appeared: an input or a module


@dataclass
class Replay:
    """What a replayed step gave.

    Attributes:
        terms: each term of the loss, over all parts.
        clips: the clips of parts whose loss was not finite, the bad ones first.
        bad_gradients: parameters whose gradient was not finite.
    """

    terms: dict[str, float]
    clips: list[ClipReplay]
    bad_gradients: list[str]


def replay(stepper: Stepper, examples: Examples, content: Mapping[str, Any], where: Path) -> Replay:
    """Runs a kept step again: each part as it was, then each clip of the parts that were not finite by itself.

    Each process's parts had their own random state and are run with it. A contrast over the whole batch had the frames
    of all processes for candidates and has those of one part here.

    Args:
        stepper: with the kept weights, in one process.
        examples: as in training.
        content: of the ``.pt`` file.
        where: that file.

    Raises:
        AvfusionError: the dataset now has other tracks.
    """
    summary = content["replay"]
    only_contrast = set(summary["terms"]) == {"contrastive"}
    weights = loss_weights(stepper.config, summary["step"], only_contrast)
    weighted = torch.tensor(list(weights.values()), device=stepper.device)
    parts = [(part, _batch(examples, part["clips"], where).to(stepper.device)) for part in summary["parts"]]
    counts = whole_counts([batch for _, batch in parts], stepper.config, list(weights), stepper.world)
    sums = torch.zeros(len(weights), device=stepper.device)
    stepper.model.train()
    stepper.optimizer.zero_grad()
    bad_parts = []
    for part, batch in parts:
        if part["part"] == 0:
            set_random_state(content["random"][part["rank"]], stepper.device)
        terms = stepper.loss(batch, counts)
        (weighted * terms).sum().backward()
        sums += terms.detach()
        if not bool(terms.isfinite().all()):
            bad_parts.append(part)
    named = list(stepper.model.named_parameters())
    bad = [name for name, p in named if p.grad is not None and not bool(p.grad.isfinite().all())]
    # Only now, since each of these draws dropout masks of its own.
    clips = [
        _replay_clip(stepper, examples, clip, list(weights), where) for part in bad_parts for clip in part["clips"]
    ]
    clips.sort(key=lambda clip: all(math.isfinite(value) for value in clip.terms.values()))
    return Replay(dict(zip(weights, sums.tolist(), strict=True)), clips, bad)


def _replay_clip(
    stepper: Stepper, examples: Examples, clip: Mapping[str, Any], wanted: list[str], where: Path
) -> ClipReplay:
    batch = _batch(examples, [clip], where).to(stepper.device)
    counts = whole_counts([batch], stepper.config, wanted, stepper.world)
    with torch.no_grad(), _first_bad(stepper.model) as found:
        terms = dict(zip(wanted, stepper.loss(batch, counts).tolist(), strict=True))
    inputs = {"its picture": batch.crops, "its log-mel": batch.log_mel}
    bad_input = next((name for name, x in inputs.items() if not bool(x.isfinite().all())), None)
    return ClipReplay(clip["video_id"], clip["entity_id"], terms, bad_input or (found[0] if found else None))


def _batch(examples: Examples, clips: Sequence[Mapping[str, Any]], where: Path) -> Batch:
    requests = [Request(**{field.name: clip[field.name] for field in fields(Request)}) for clip in clips]
    for request, clip in zip(requests, clips, strict=True):
        tracks = examples.dataset.tracks
        found = tracks[request.track].entity_id if request.track < len(tracks) else "no track"
        if found != clip["entity_id"]:
            raise AvfusionError(
                f"{where}: track {request.track} of the training split was {clip['entity_id']!r} and is now {found!r};"
                " replay needs the dataset as it was"
            )
    return collate([examples[r] for r in requests], examples.config.crop_size, examples.config.num_mels)


@contextmanager
def _first_bad(model: ActiveSpeakerDetector) -> Iterator[list[str]]:
    """Names of the modules whose output was not finite, in the order in which they finished."""
    found: list[str] = []

    def listen(name: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            tensors = output if isinstance(output, tuple) else (output,)
            if any(isinstance(x, Tensor) and not bool(x.isfinite().all()) for x in tensors):
                found.append(name)

        return hook

    hooks = [module.register_forward_hook(listen(name)) for name, module in model.named_modules() if name]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def as_text(found: Replay) -> str:
    """What a replayed step gave, as a table for the terminal."""
    lines = ["terms: " + ", ".join(f"{key} {value:.6g}" for key, value in found.terms.items())]
    for clip in found.clips:
        terms = ", ".join(f"{key} {value:.6g}" for key, value in clip.terms.items())
        where = f"first in {clip.first_bad}" if clip.first_bad else "finite by itself"
        lines.append(f"  {clip.entity_id} of {clip.video_id}: {terms}; {where}")
    if found.bad_gradients:
        more = f" and {len(found.bad_gradients) - 5} more" if len(found.bad_gradients) > 5 else ""
        lines.append(f"gradients not finite: {', '.join(found.bad_gradients[:5])}{more}")
    if not found.clips and not found.bad_gradients:
        lines.append(
            "the loss and its gradients are finite here: the files, the device or its precision differ, or a contrast"
            " over several processes was not finite; go on with python train.py --resume RUN"
        )
    return "\n".join(lines)
