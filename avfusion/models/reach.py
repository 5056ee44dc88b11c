"""How far in time the parts of a model reach, and how a causal model spends its look-ahead.

In a causal model the score of video frame ``t`` depends on nothing later than the pictures and the sound of frame
``t + L``, its 40 ms included. What comes after the fusion looks back only, so the encoders and the fusion have all of
``L``: the picture's encoder as many frames as it can use, the sound's as many whole frames, and the fusion window the
rest of the sound, which mostly comes after the mouth.

Sound at 100 Hz: the window of the spectrum at ``10 j`` ms ends at ``10 j + 12.5`` ms, so the fourth of a video frame's
spectra needs 2.5 ms of the next. The encoder therefore sees one spectrum less than it has frames ahead: with none, an
embedding ends with the spectrum before its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, AUDIO_HZ, VIDEO_HZ
from avfusion.config import ModelConfig


@dataclass(frozen=True)
class LookAhead:
    """How far the parts of a model may look ahead; None: as far as they look back.

    Attributes:
        visual_frames: the encoder of pictures.
        audio_frames: the encoder of sound, in audio frames of 10 ms.
        fusion_s: the window of the fusion.
        causal: what comes after looks back only.
    """

    visual_frames: int | None = None
    audio_frames: int | None = None
    fusion_s: float | None = None
    causal: bool = False


def look_ahead(config: ModelConfig) -> LookAhead:
    """Spends the look-ahead of a causal model; for any other nothing is limited."""
    if not config.causal:
        return LookAhead()
    lookahead, encoder = config.lookahead_frames, _encoder_ahead(config)
    # Up to the last of the four embeddings of the frame that the encoder leaves.
    reach_s = (lookahead - encoder) / VIDEO_HZ + (AUDIO_FRAMES_PER_VIDEO_FRAME - 1) / AUDIO_HZ
    window_s = config.fusion.window_s
    return LookAhead(
        visual_frames=lookahead,
        audio_frames=AUDIO_FRAMES_PER_VIDEO_FRAME * encoder - 1,
        fusion_s=reach_s if window_s is None else min(window_s, reach_s),
        causal=True,
    )


def decision_reach(config: ModelConfig) -> tuple[int, int] | None:
    """Embedded frames before and after a frame that what comes after the encoders uses to score it.

    Returns:
        Video frames into the past and into the future; None where the whole scene counts.
    """
    if config.kind != "avfusion":
        return None
    attends = config.modality == "audio_visual" and config.fusion.kind == "cross_attention"
    fusion_s = config.fusion.window_s if attends else 0.0
    temporal_s = config.temporal.window_s if config.temporal.layers else 0.0
    if fusion_s is None or temporal_s is None:
        return None
    fusion, attention = math.ceil(fusion_s * VIDEO_HZ - 1e-6), math.ceil(temporal_s * VIDEO_HZ - 1e-6)
    layers, neighbours = config.temporal.layers, config.temporal.kernel // 2
    if config.causal:
        ahead = min(fusion, config.lookahead_frames - _encoder_ahead(config))
        return fusion + layers * (attention + 2 * neighbours), ahead
    reach = fusion + layers * (attention + neighbours)
    return reach, reach


def _encoder_ahead(config: ModelConfig) -> int:
    """Video frames of the look-ahead that the encoder of sound uses: all, up to its centred reach in whole frames."""
    reach = len(config.audio.channels) + config.audio.temporal_kernel // 2
    return min(config.lookahead_frames, (reach + 1) // AUDIO_FRAMES_PER_VIDEO_FRAME)
