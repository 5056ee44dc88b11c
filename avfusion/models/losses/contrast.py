"""The contrast between the picture and the sound of a frame: InfoNCE in both directions.

``B`` scenes, ``S`` face tracks, ``T`` video frames, ``A = 4 T`` audio frames, ``E`` width of the contrastive space,
``R`` sounds per video frame: 1, or with ``contrast_hz`` 100 the 4 audio frames of its 40 ms. Frames that are compared
stand in ``G`` groups of ``N`` anchors and ``M`` candidates: one group of all tracks, or one group per track.

Anchors are the frames whose label says that face and voice belong together. Positive: the sounds of all natural lags
(``lag_frames``) of the same track together, of which one fits. Negatives: the other real frames of the clip, or of the
batch. Left out of the negatives: the video frame before the natural lags and the one after them, whose sound is nearly
the same (40 ms on either side: 1 sound, or at 100 Hz 4), and other tracks that hear the same sound. With
``contrast_frames: speaking`` only speaking frames are candidates, as positives and as negatives, so telling speech from
silence helps nothing; an anchor none of whose natural lags is a speaking frame then does not count.

Source: van den Oord et al. 2018 (InfoNCE); Miech et al. 2020 (MIL-NCE) for several positives of which one fits; Jung et
al. 2024 (TalkNCE) for the speaking frames as anchors, and, with ``negatives: clip``, as the only candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange, repeat
from torch import Tensor

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, AUDIO_HZ
from avfusion.config import LossConfig
from avfusion.models.detector import Detection
from avfusion.models.losses.targets import Everyone, Targets, any_within

NEVER = -1e4  # a similarity of no weight at all; not infinite, which would make gradients of padded rows NaN
FAR_BELOW = 60.0  # exp(-60) vanishes beside 1 in float32
TRACKS_PER_PROCESS = 2**32  # more than any part of a batch holds


def contrast_counts(targets: Targets, config: LossConfig) -> Tensor:
    """``(2,)`` anchors that have a positive: video frames, then sounds."""
    roles = _roles(targets, config)
    return torch.stack([roles.video_anchor.sum(), roles.audio_anchor.sum()]).float()


def contrast_totals(
    detection: Detection, targets: Targets, config: LossConfig, everyone: Everyone | None = None
) -> Tensor:
    """-ln of what falls to the positives, summed over the anchors.

    Args:
        detection: its embeddings, ``audio_embedding_100hz`` with ``contrast_hz`` 100.
        targets: labels and masks.
        config: of the losses.
        everyone: with ``negatives: batch``, all processes whose frames are candidates; None for this part alone.
            Then there are two gathers, whatever this part holds.

    Returns:
        ``(2,)``: video to sound, and sound to video.

    Raises:
        ValueError: the detector did not give the embeddings that ``contrast_hz`` needs.
    """
    roles = _roles(targets, config)
    faces = targets.speaking.shape[1]
    sounds = repeat(_sounds(detection, config), "b t r e -> b s t r e", s=faces)
    video = detection.video_embedding.float()
    if config.negatives == "clip":
        groups = _by_track(video, sounds, roles)
    else:
        groups = _in_one_group(video, sounds, targets, roles, everyone)
    video_anchors, audio_anchors, video_candidates, audio_candidates = groups
    first, last = config.lag_frames
    return torch.stack(
        [
            _one_way(video_anchors, audio_candidates, first, last, config.temperature),
            _one_way(audio_anchors, video_candidates, -last, -first, config.temperature),
        ]
    )


def _sounds(detection: Detection, config: LossConfig) -> Tensor:
    """``(B, T, R, E)`` embeddings of the sounds of each video frame."""
    if config.contrast_hz != AUDIO_HZ:
        return detection.audio_embedding.float()[:, :, None]
    if detection.audio_embedding_100hz is None:
        raise ValueError(
            "contrast_hz is 100 and the detection has no audio_embedding_100hz: call the detector with"
            " need_audio_100hz=True (needs_audio_100hz tells when)"
        )
    return rearrange(detection.audio_embedding_100hz.float(), "b (t r) e -> b t r e", r=AUDIO_FRAMES_PER_VIDEO_FRAME)


@dataclass(frozen=True)
class _Roles:
    """Which frames are compared: ``(B, S, T)`` bool of the picture, ``(B, S, T, R)`` of the sound."""

    video_candidate: Tensor
    audio_candidate: Tensor
    video_anchor: Tensor
    audio_anchor: Tensor


def _roles(targets: Targets, config: LossConfig) -> _Roles:
    """Candidates, and the speaking ones among them that have a positive within reach."""
    first, last = config.lag_frames
    video = targets.spoken if config.contrast_frames == "speaking" else targets.frame_mask
    audio = video[..., None]
    if config.contrast_hz == AUDIO_HZ:
        heard = rearrange(targets.audio_mask, "b (t r) -> b 1 t r", r=AUDIO_FRAMES_PER_VIDEO_FRAME)
        audio = audio & heard
    return _Roles(
        video_candidate=video,
        audio_candidate=audio,
        video_anchor=targets.spoken & any_within(audio.any(dim=-1), first, last),
        audio_anchor=audio & (targets.spoken & any_within(video, -last, -first))[..., None],
    )


@dataclass(frozen=True)
class _Frames:
    """Frames of one stream.

    Attributes:
        vectors: ``(G, N, E)``.
        track: ``(G, N)`` integers, one per face track; this and the rest may be 1 wide where they are all alike.
        step: ``(G, N)`` integers, the video frame of the track that it belongs to.
        sound: ``(G, N)`` integers, equal where the same sound is heard.
        counted: ``(G, N)`` bool: as an anchor, whether it is one; as a candidate, whether it may be compared.
    """

    vectors: Tensor
    track: Tensor
    step: Tensor
    sound: Tensor
    counted: Tensor


_Groups = tuple[_Frames, _Frames, _Frames, _Frames]  # anchors of video and audio, candidates of video and audio


def _by_track(video: Tensor, sounds: Tensor, roles: _Roles) -> _Groups:
    """A group per track: plain batched products, nothing picked out."""
    frames, per_frame = sounds.shape[2:4]
    seen = rearrange(video, "b s t e -> (b s) t e")
    heard = rearrange(sounds, "b s t r e -> (b s) (t r) e")
    step = torch.arange(frames, device=video.device)[None]
    heard_step = repeat(step, "1 t -> 1 (t r)", r=per_frame)
    alike = step.new_zeros(1, 1)

    def frames_of(vectors: Tensor, steps: Tensor, counted: Tensor) -> _Frames:
        return _Frames(vectors, alike, steps, alike, counted.flatten(2).flatten(0, 1))

    return (
        frames_of(seen, step, roles.video_anchor),
        frames_of(heard, heard_step, roles.audio_anchor),
        frames_of(seen, step, roles.video_candidate),
        frames_of(heard, heard_step, roles.audio_candidate),
    )


def _in_one_group(video: Tensor, sounds: Tensor, targets: Targets, roles: _Roles, everyone: Everyone | None) -> _Groups:
    """All tracks together, those of the other processes among the candidates; only frames that matter are picked."""
    scenes, faces, frames = targets.speaking.shape
    device = video.device
    tracks = torch.arange(scenes * faces, device=device) + (
        0 if everyone is None else everyone.rank * TRACKS_PER_PROCESS
    )
    track = repeat(tracks, "(b s) -> b s t", b=scenes, t=frames)
    step = torch.arange(frames, device=device).expand(scenes, faces, frames)
    sound = repeat(targets.audio_id, "b -> b s t", s=faces, t=frames)

    picked = roles.video_candidate
    # Picture and sound of a frame travel as one row, so that there is one gather with a gradient: two would have to run
    # backwards in the same order in every process.
    vectors = torch.cat([video[..., None, :], sounds], dim=-2)[picked]
    facts = torch.cat([torch.stack([track, step, sound], dim=-1), roles.audio_candidate.long()], dim=-1)[picked]
    video_anchor, audio_anchor = roles.video_anchor[picked], roles.audio_anchor[picked]
    all_vectors, all_facts = (
        (vectors, facts) if everyone is None else (everyone.gather(vectors), everyone.gather(facts))
    )

    def frames_of(vectors: Tensor, facts: Tensor) -> _Frames:
        track, step, sound = facts[:, :3].T.contiguous()[:, None].unbind(0)
        return _Frames(vectors[None], track, step, sound, step.new_ones(1, 1, dtype=torch.bool))

    def seen(vectors: Tensor, facts: Tensor, chosen: Tensor | None = None) -> _Frames:
        vectors, facts = (vectors, facts) if chosen is None else (vectors[chosen], facts[chosen])
        return frames_of(vectors[:, 0], facts)

    def heard(vectors: Tensor, facts: Tensor, chosen: Tensor) -> _Frames:
        owner, which = chosen.nonzero(as_tuple=True)
        return frames_of(vectors[owner, which + 1], facts[owner])

    return (
        seen(vectors, facts, video_anchor),
        heard(vectors, facts, audio_anchor),
        seen(all_vectors, all_facts),
        heard(all_vectors, all_facts, all_facts[:, 3:] > 0),
    )


def _one_way(anchors: _Frames, candidates: _Frames, first: int, last: int, temperature: float) -> Tensor:
    """Sum over the anchors of -ln of what falls to the candidates ``first .. last`` video frames after them."""
    similarity = anchors.vectors @ candidates.vectors.mT / temperature
    step, now = candidates.step[:, None, :], anchors.step[:, :, None]
    same_track = anchors.track[:, :, None] == candidates.track[:, None, :]
    same_sound = anchors.sound[:, :, None] == candidates.sound[:, None, :]
    allowed = candidates.counted[:, None, :]
    positive = same_track & (step >= now + first) & (step <= now + last) & allowed
    neighbours = (step == now + first - 1) | (step == now + last + 1)
    left_out = torch.where(same_track, neighbours, same_sound) | ~allowed
    share = _logsumexp_over(positive, similarity) - _logsumexp_over(~left_out, similarity)
    return -torch.where(anchors.counted, share, 0.0).sum()


def _logsumexp_over(chosen: Tensor, similarity: Tensor) -> Tensor:
    """``(G, N)`` logsumexp over the chosen entries of ``(G, N, M)``; finite, and of no meaning, where none is.

    The others come 60 below the largest chosen one, where they vanish in the sum and their exponential is still a
    normal number: many processors take ten times as long for one that is not.
    """
    largest = similarity.detach().masked_fill(~chosen, NEVER)
    if largest.shape[-1] == 0:
        return similarity.sum(dim=-1)
    return torch.where(chosen, similarity, largest.amax(dim=-1, keepdim=True) - FAR_BELOW).logsumexp(dim=-1)
