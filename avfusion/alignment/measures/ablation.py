"""Does the model need a head? AP without it, with it made uniform, and with it alone, against AP of the whole model.

*zero*: the head adds nothing. *uniform*: it hears all of its window alike, so that what is lost is where it looks.
*only*: every other head of every layer adds nothing. *none*: no head adds anything, the model is deaf (but for a
bypass). ``L`` fusion layers, ``H`` heads, ``C = 3 L H + 1`` conditions, ``N`` frames; estimates are ``(..., 3)``:
value, low and high end of the 95 % interval over groups of tracks.

ΔAP is AP of the condition minus AP of the whole model on the same frames; both are drawn together, so what is common
to them does not widen the interval.
Source: DESIGN section 8, "ablation ΔAP"; Michel et al., "Are Sixteen Heads Really Better than One?", 2019.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from avfusion.alignment.measures.encode_once import encode_once
from avfusion.alignment.measures.resampling import Floats, draws, estimate, group_of
from avfusion.config import Config
from avfusion.data.batching import Batch, ClipLoader, group_by_length
from avfusion.data.examples import Examples, Request
from avfusion.errors import AvfusionError
from avfusion.evaluation.average_precision import average_precision
from avfusion.evaluation.groups import group_index
from avfusion.evaluation.ranking import Ranking
from avfusion.models import ActiveSpeakerDetector, context_frames
from avfusion.models.head_edit import edit_heads, grid_of_heads
from avfusion.scoring import SCORING_BATCH_FRAMES, Chunk, in_scene, plan_chunks

KINDS = ("zero", "uniform", "only")


@dataclass(frozen=True)
class Ablation:
    """AP of the whole model, and how far it moves when heads are edited.

    Attributes:
        base_ap: ``(3,)`` of the whole model.
        zero: ``(L, H, 3)`` ΔAP without the head; below 0 where the model needs it.
        uniform: ``(L, H, 3)`` ΔAP with equal weights.
        only: ``(L, H, 3)`` ΔAP with this head alone; near 0 where it suffices.
        none: ``(3,)`` ΔAP without any head.
        num_frames: labelled frames.
        num_groups: groups that the intervals are over.
    """

    base_ap: Floats
    zero: Floats
    uniform: Floats
    only: Floats
    none: Floats
    num_frames: int
    num_groups: int


@dataclass(frozen=True)
class EditedScores:
    """Scores of some tracks under every condition.

    Attributes:
        tracks: indices into the dataset.
        base: for each track ``(T,)`` scores of the whole model.
        edited: for each track ``(3, L, H, T)``, in the order of :data:`KINDS`.
        none: for each track ``(T,)``, without any head.
    """

    tracks: list[int]
    base: list[NDArray[np.float32]]
    edited: list[NDArray[np.float32]]
    none: list[NDArray[np.float32]]


def ablate(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    tracks: Sequence[int] | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Ablation:
    """Scores all labelled frames under every condition and compares.

    Args:
        model: on ``device``, with cross-attention; in any mode, put back into it.
        examples: without augmentation.
        config: of the model.
        device: where to run.
        tracks: which tracks; None for all. Those without labels are left out.
        resamples: of the bootstrap over groups; 0 for no intervals.
        seed: of the bootstrap.

    Raises:
        AvfusionError: nobody speaks in any of the tracks.
    """
    all_tracks = examples.dataset.tracks
    wanted = range(len(all_tracks)) if tracks is None else tracks
    labelled = [index for index in wanted if all_tracks[index].labelled]
    if not any(all_tracks[index].speaking.any() for index in labelled):
        raise AvfusionError(
            f"none of the {len(labelled)} labelled tracks speaks: average precision needs speech, take more tracks or "
            "another split"
        )
    scores = score_edited(model, examples, config, device, labelled)
    return compare(
        np.concatenate([all_tracks[index].speaking for index in scores.tracks]),
        np.repeat([group_of(all_tracks[i]) for i in scores.tracks], [all_tracks[i].num_frames for i in scores.tracks]),
        np.concatenate(scores.base),
        np.concatenate(scores.edited, axis=-1),
        np.concatenate(scores.none),
        resamples=resamples,
        seed=seed,
    )


def compare(
    speaking: NDArray[np.bool_],
    groups: NDArray[Any],
    base: NDArray[np.float32],
    edited: NDArray[np.float32],
    none: NDArray[np.float32],
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Ablation:
    """ΔAP from scores.

    Args:
        speaking: ``(N,)`` labels.
        groups: ``(N,)`` what is drawn as a whole.
        base: ``(N,)`` scores of the whole model.
        edited: ``(3, L, H, N)`` scores, in the order of :data:`KINDS`.
        none: ``(N,)`` scores without any head.
        resamples: of the bootstrap.
        seed: of the bootstrap.
    """
    conditions = [base, *edited.reshape(-1, len(base)), none]
    value = np.array([average_precision(speaking, scores) for scores in conditions])
    group, names = group_index(groups)
    rankings = [Ranking(speaking, scores) for scores in conditions]
    times = draws(len(names), resamples, seed)
    drawn = np.full((len(times), len(conditions)), np.nan)
    for number, of_group in enumerate(tqdm(times, desc="ablation: intervals", leave=False, disable=None)):
        weights = of_group[group]
        if weights[~speaking].any():  # no negatives drawn: every AP is 1
            drawn[number] = [ranking.average_precision(weights) for ranking in rankings]
    deltas = estimate(value[1:] - value[0], drawn[:, 1:] - drawn[:, :1])
    by_kind = deltas[:-1].reshape(*edited.shape[:3], 3)
    return Ablation(
        estimate(value[0], drawn[:, 0]), by_kind[0], by_kind[1], by_kind[2], deltas[-1], len(base), len(names)
    )


@torch.inference_mode()
def score_edited(
    model: ActiveSpeakerDetector, examples: Examples, config: Config, device: torch.device, tracks: Sequence[int]
) -> EditedScores:
    """Scores tracks under every condition; the encoders, which no edit touches, run once for each batch.

    Memory: ``4 C`` bytes for each frame, and one batch. Long tracks come in chunks, as in scoring.
    """
    num_layers, num_heads = grid_of_heads(model)
    lengths = {index: examples.dataset.tracks[index].num_frames for index in tracks}
    chunks: dict[Request, list[Chunk]] = defaultdict(list)
    for index, num_frames in lengths.items():
        for chunk in plan_chunks(index, num_frames, context_frames(config.model)):
            chunks[in_scene(chunk.request, examples, config)].append(chunk)
    rows = 3 * num_layers * num_heads + 2
    found = {index: np.full((rows, num_frames), np.nan, np.float32) for index, num_frames in lengths.items()}
    batches = group_by_length(list(chunks), SCORING_BATCH_FRAMES)
    loader = ClipLoader(examples, batches, config.data.workers)
    was_training = model.training
    model.eval()
    try:
        for batch in tqdm(loader, desc="ablation", leave=False, disable=None):
            scores = _every_condition(model, batch.to(device))
            for row, request in enumerate(batch.requests):
                for chunk in chunks[request]:
                    begin = chunk.keep_first - request.first_frame
                    kept = scores[:, row, begin : begin + chunk.keep_last - chunk.keep_first]
                    found[request.track][:, chunk.keep_first : chunk.keep_last] = kept
    finally:
        model.train(was_training)
    shape = (3, num_layers, num_heads, -1)
    of_tracks = [found[index] for index in lengths]
    return EditedScores(
        list(lengths),
        [one[0] for one in of_tracks],
        [one[1:-1].reshape(shape) for one in of_tracks],
        [one[-1] for one in of_tracks],
    )


def _every_condition(model: ActiveSpeakerDetector, batch: Batch) -> NDArray[np.float32]:
    """``(C + 1, B, T)`` scores of a batch: the whole model, each kind of edit of each head, no head."""
    num_layers, num_heads = grid_of_heads(model)
    places = [(layer, head) for layer in range(num_layers) for head in range(num_heads)]
    everybody = set(range(num_heads))
    conditions: list[dict[int, dict[str, set[int]]]] = [{}]  # of each: layer to arguments of edit_heads
    conditions += [{layer: {"zero": {head}}} for layer, head in places]
    conditions += [{layer: {"uniform": {head}}} for layer, head in places]
    conditions += [
        {of: {"zero": everybody - ({head} if of == layer else set())} for of in range(num_layers)}
        for layer, head in places
    ]
    conditions += [{of: {"zero": everybody} for of in range(num_layers)}]
    scores = []
    with encode_once(model.visual, model.audio) as passes:
        for condition in conditions:
            passes.again()
            with ExitStack() as edits:
                for layer, edit in condition.items():
                    edits.enter_context(edit_heads(model, layer, **edit))
                out = model(batch.crops, batch.log_mel, batch.frame_mask, batch.audio_mask)
            scores.append(out.logits[:, 0].float().sigmoid().cpu().numpy())
    return np.stack(scores)
