"""Runs the detector over clips and keeps what every head of its fusion layers listened to.

``L`` fusion layers, ``H`` heads, ``T`` video frames, ``A`` audio frames (keys), ``K`` width per head. Clips come one by
one: no more than a batch is ever in memory, and a long track comes in stretches that are cut as for scoring.
The model is listened to from outside, and only while it runs on a batch; otherwise it is as if nothing were there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from avfusion.alignment.listening import HeardLayer, listen_to_heads
from avfusion.alignment.pictures.clip import ClipAlignment, map_warnings
from avfusion.alignment.reach import KeyReach
from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, AUDIO_HZ, VIDEO_HZ
from avfusion.config import Config
from avfusion.data.batching import Batch, ClipLoader, collate, group_by_length
from avfusion.data.examples import Example, Examples, Request
from avfusion.errors import UsageError
from avfusion.models import ActiveSpeakerDetector, context_frames
from avfusion.models.attention import capture_attention
from avfusion.models.fusion import CrossAttentionFusion
from avfusion.models.losses import terms_on
from avfusion.scoring import CHUNK_FRAMES, Chunk, in_scene, plan_chunks
from avfusion.tracks import FaceTrack

Scores = NDArray[np.float32]

LONGEST_FIGURE_FRAMES = 250
COARSE_WARNING = "keys are 40 ms of sound: the 10 ms within one share its weight, and no lag is known more finely"
BATCH_FRAMES = 1000  # weights need 16 A bytes a frame for 4 heads: 50 MB for a batch of tracks of 30 s

Change = Callable[[Example, int], Example]
"""Takes an example and the index of its track; gives the example that the model gets instead, of the same length."""


@dataclass(frozen=True)
class AlignedClip:
    """One track, or one stretch of a long one, as one model saw it.

    The keys are all that any of the frames can reach, so each frame's weights are complete: where the frames are a
    stretch of a longer track, sound before and after them is among the keys.

    Attributes:
        track: index into the dataset.
        first_frame: first frame of the stretch in the track.
        weights: ``(L, H, T, A)`` attention of every fusion layer, the null key left out.
        value_norms: ``(L, H, A)`` ``‖v_j W_O‖`` of each head.
        head_outputs: ``(L, H, T, K)`` what each head gives to the output projection; None unless asked for.
        scores: ``(T,)`` probabilities that the face is the audible speaker.
        speaking: ``(T,)`` labels.
        query_s: ``(T,)`` times of the frames, in seconds from the start of the track.
        key_s: ``(A,)`` times of the keys on the same clock, 10 ms apart.
        key_speaking: ``(A,)`` whether the frame that a key belongs to is labelled as speaking. By default the frames'
            labels, and False for keys outside of them.
    """

    track: int
    first_frame: int
    weights: NDArray[np.float32]
    value_norms: NDArray[np.float32]
    head_outputs: NDArray[np.float32] | None
    scores: NDArray[np.float32]
    speaking: NDArray[np.bool_]
    query_s: NDArray[np.float64]
    key_s: NDArray[np.float64]
    key_speaking: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def __post_init__(self) -> None:
        if self.key_speaking.size == 0:
            frame = np.floor((self.key_s - self.query_s[0]) * VIDEO_HZ + 1e-6).astype(np.int64)
            inside = (frame >= 0) & (frame < len(self.speaking))
            labels = inside & self.speaking[np.clip(frame, 0, len(self.speaking) - 1)]
            object.__setattr__(self, "key_speaking", labels)
        layers, heads, frames, keys = np.shape(self.weights)
        found = (
            self.query_s.shape, self.speaking.shape, self.scores.shape,
            self.key_s.shape, self.key_speaking.shape, self.value_norms.shape,
        )  # fmt: skip
        if found != ((frames,),) * 3 + ((keys,),) * 2 + ((layers, heads, keys),):
            raise ValueError(
                f"weights (L, H, T, A) are {(layers, heads, frames, keys)}, expected query_s, speaking and scores (T,),"
                f" key_s and key_speaking (A,) and value_norms (L, H, A); found {found}"
            )


def align_tracks(
    model: ActiveSpeakerDetector,
    examples: Examples,
    config: Config,
    device: torch.device,
    tracks: Sequence[int] | None = None,
    *,
    change: Change | None = None,
    head_outputs: bool = False,
    chunk_frames: int = CHUNK_FRAMES,
    label: str = "alignment",
) -> Iterator[AlignedClip]:
    """What every head listened to, over any number of tracks, clip by clip.

    Tracks longer than ``chunk_frames`` come in stretches of at most that many frames. Each stretch runs with the
    model's whole reach around it, so it gives what the whole track would; only a model without that bound (a window of
    None) takes long tracks whole. Clips of like length run together, the longest first: that is their order. Where the
    model's faces know of each other, all who are seen meanwhile are there, as in scoring.

    Args:
        model: in any mode; in evaluation mode while a batch runs, and put back before its clips are handed out.
        examples: without augmentation.
        config: the model's configuration.
        device: where to run.
        tracks: indices into the dataset; None takes all of them, those without labels too.
        change: made to each example before it is batched; with ``data.workers`` it must be picklable.
        head_outputs: also keep what each head gives to the output projection.
        chunk_frames: longest stretch.
        label: name of the progress bar.

    Raises:
        UsageError: the model has no cross-attention.
    """
    if not any(isinstance(layer, CrossAttentionFusion) for layer in model.fusion):
        raise UsageError(
            f"model.modality={config.model.modality} with model.fusion.kind={config.model.fusion.kind} has no heads to"
            " listen to; choose a run with audio_visual and cross_attention"
        )
    all_tracks = examples.dataset.tracks
    chosen = range(len(all_tracks)) if tracks is None else tracks
    reach = context_frames(config.model)
    chunks: dict[Request, list[Chunk]] = defaultdict(list)
    for index in dict.fromkeys(chosen):
        for chunk in plan_chunks(index, all_tracks[index].num_frames, reach, chunk_frames):
            chunks[in_scene(chunk.request, examples, config)].append(chunk)
    batches = group_by_length(list(chunks), BATCH_FRAMES)
    source = examples if change is None else _Changed(examples, change)
    loader = ClipLoader(source, batches, config.data.workers)
    return _aligned(model, loader, chunks, KeyReach.of(config.model), device, head_outputs, label)


def _aligned(
    model: ActiveSpeakerDetector,
    loader: ClipLoader,
    chunks: dict[Request, list[Chunk]],
    key_reach: KeyReach,
    device: torch.device,
    head_outputs: bool,
    label: str,
) -> Iterator[AlignedClip]:
    for batch in tqdm(loader, desc=label, leave=False, disable=None):
        heard, scores = _run(model, batch.to(device), head_outputs)
        for row, request in enumerate(batch.requests):
            for chunk in chunks[request]:
                own = row * batch.crops.shape[1]  # layers hold the faces of a scene one after the other, its own first
                yield _cut_clip(heard, scores[row], batch.speaking[row, 0].numpy(), own, chunk, key_reach)


@torch.inference_mode()
def _run(
    model: ActiveSpeakerDetector, batch: Batch, head_outputs: bool
) -> tuple[list[HeardLayer], NDArray[np.float32]]:
    """One batch through the model: its layers, and scores ``(B, T)``."""
    was_training = model.training
    model.eval()
    try:
        with listen_to_heads(model, head_outputs) as heard:
            out = model(batch.crops, batch.log_mel, batch.frame_mask, batch.audio_mask)
    finally:
        model.train(was_training)
    return heard, out.logits[:, 0].float().sigmoid().cpu().numpy()


def _cut_clip(
    heard: Sequence[HeardLayer],
    scores: NDArray[np.float32],
    speaking: NDArray[np.bool_],
    row: int,
    chunk: Chunk,
    reach: KeyReach,
) -> AlignedClip:
    """The frames of one row of the layers that a chunk keeps, and the keys in their reach; all else left out."""
    request, ratio = chunk.request, AUDIO_FRAMES_PER_VIDEO_FRAME
    first, last = chunk.keep_first - request.first_frame, chunk.keep_last - request.first_frame
    num_keys = request.num_frames * ratio
    before, after = (num_keys if keys is None else keys for keys in (reach.keys_before, reach.keys_after))
    first_key = max(0, first * ratio - before)
    last_key = min(num_keys, (last - 1) * ratio + max(after, ratio - 1) + 1)
    keys = slice(first_key, last_key)

    def stacked(tensors: Sequence[Tensor]) -> NDArray[np.float32]:
        return torch.stack(list(tensors)).numpy()  # a copy, which lets go of the rest of the batch

    outputs = [layer.head_outputs[row, :, first:last] for layer in heard if layer.head_outputs.numel()]
    return AlignedClip(
        track=request.track,
        first_frame=chunk.keep_first,
        weights=stacked([layer.weights[row, :, first:last, keys] for layer in heard]),
        value_norms=stacked([layer.value_norms[row, :, keys] for layer in heard]),
        head_outputs=stacked(outputs) if outputs else None,
        scores=scores[first:last].copy(),
        speaking=speaking[first:last].copy(),
        query_s=np.arange(chunk.keep_first, chunk.keep_last) / VIDEO_HZ,
        key_s=(np.arange(first_key, last_key) + request.first_frame * ratio) / AUDIO_HZ,
        key_speaking=speaking[np.arange(first_key, last_key) // ratio],
    )


class _Changed(Examples):
    """The same examples, from the same memory, each with one change."""

    def __init__(self, examples: Examples, change: Change) -> None:
        vars(self).update(vars(examples))
        self._change = change

    def __getitem__(self, request: Request) -> Example:
        return self._change(super().__getitem__(request), request.track)


@torch.inference_mode()
def capture_clip(
    model: ActiveSpeakerDetector, examples: Examples, track: int, config: Config, device: torch.device
) -> ClipAlignment:
    """The alignment of one track (its first 10 s), with all that a figure shows beside it.

    Args:
        model: on ``device``, with cross-attention fusion.
        examples: without augmentation.
        track: index into the dataset.
        config: of the model.
        device: where to run.
    """
    face = examples.dataset.tracks[track]
    request = in_scene(Request(track, 0, min(face.num_frames, LONGEST_FIGURE_FRAMES)), examples, config)
    batch = collate([examples[request]]).to(device)
    was_training = model.training
    model.eval()
    try:
        with capture_attention(model) as maps:
            out = model(batch.crops, batch.log_mel, batch.frame_mask, batch.audio_mask)
    finally:
        model.train(was_training)
    shown_s, whole_s = request.num_frames / VIDEO_HZ, face.num_frames / VIDEO_HZ
    part = f" (first {shown_s:.0f} s of {whole_s:.0f} s)" if request.num_frames < face.num_frames else ""
    last_layer = f"fusion.{len(model.fusion) - 1}.video_from_audio"
    return ClipAlignment(
        title=face.entity_id + part,
        role=face.role,
        crops=(batch.crops[0, 0] * 255).round().to(torch.uint8).cpu().numpy(),
        log_mel=batch.log_mel[0].cpu().numpy(),
        speaking=face.speaking[: request.num_frames],
        scores=out.logits[0, 0].float().sigmoid().cpu().numpy(),
        weights=maps[last_layer][0].numpy(),
        audio_bypass=config.model.fusion.audio_bypass,
        losses=terms_on(config.train.loss),
    )


def model_warnings(config: Config) -> list[str]:
    """What to know of a model before anything is read out of its maps."""
    coarse = [COARSE_WARNING] if config.model.fusion.key_hz < AUDIO_HZ else []
    return map_warnings(config.model.fusion.audio_bypass, terms_on(config.train.loss)) + coarse


def pick_examples(tracks: Sequence[FaceTrack], per_role: int) -> list[int]:
    """Tracks worth a figure: of each role the first ``per_role`` that are at least a second long.

    Of roles in which somebody speaks, tracks that both speak and pause come first: they show the difference.
    """
    chosen: list[int] = []
    for role in sorted({track.role for track in tracks}):
        of_role = [i for i, t in enumerate(tracks) if t.role == role and t.num_frames >= 25]
        # False sorts first: a share of speaking strictly between 0 and 1 wins over all or nothing.
        of_role.sort(key=lambda i: not 0.2 < tracks[i].speaking.mean() < 0.8)
        chosen.extend(of_role[:per_role])
    return chosen
