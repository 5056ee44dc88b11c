"""Runs the detector on one clip and keeps what the last fusion layer's heads listened to.

``T`` video frames, ``A = 4 T`` audio frames, ``H`` heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from avfusion.alignment.plots import ClipAlignment
from avfusion.clock import VIDEO_HZ
from avfusion.config import Config
from avfusion.data.batching import collate
from avfusion.data.examples import Examples, Request
from avfusion.models import ActiveSpeakerDetector
from avfusion.models.attention import capture_attention
from avfusion.models.losses import terms_on
from avfusion.tracks import FaceTrack

LONGEST_FIGURE_FRAMES = 250


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
    request = Request(track, 0, min(face.num_frames, LONGEST_FIGURE_FRAMES))
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
