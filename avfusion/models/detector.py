"""The active-speaker detector: encoders, fusion, attention between faces, temporal blocks, heads.

``B`` scenes, ``S`` face tracks in a scene, ``T`` video frames, ``A = 4 T`` audio frames, ``M`` mel bins, ``D``
features, ``E`` width of the contrastive space, ``L`` fusion layers, ``H`` heads. Masks are boolean, True = real.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange, repeat
from torch import Tensor, nn
from torch.nn import functional as F

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, AUDIO_HZ, VIDEO_HZ
from avfusion.config import ModelConfig
from avfusion.models.audio import AudioEncoder
from avfusion.models.baselines.light_style import light_parts
from avfusion.models.baselines.lr_style import lr_parts
from avfusion.models.baselines.talknet_style import talknet_parts
from avfusion.models.fusion import ConcatFusion, CrossAttentionFusion, SumFusion, pool_to_video_rate
from avfusion.models.layers import normal_scores
from avfusion.models.pieces import encode
from avfusion.models.reach import look_ahead
from avfusion.models.speaker import SpeakerAttention
from avfusion.models.temporal import TemporalBlock
from avfusion.models.visual import VisualEncoder
from avfusion.models.visual_resnet import ResNetEncoder

PIECE_FRAMES = 500  # of video, that the encoders take at once of a long track


@dataclass
class Detection:
    """What the detector says about a batch.

    Attributes:
        logits: ``(B, S, T)``; the score is their sigmoid.
        audio_logits: ``(B, S, T)``, from the sound alone; one constant where the model does not hear.
        video_logits: ``(B, S, T)``, from the picture alone; one constant where it does not see.
        video_embedding: ``(B, S, T, E)``, unit length.
        audio_embedding: ``(B, T, E)``, unit length, the sound of each video frame's 40 ms.
        audio_embedding_100hz: ``(B, A, E)``, unit length, the sound of each 10 ms; None unless asked for.
        alignment: ``(B, S, L, H, T, A)``, the weights of every fusion layer, the null key left out (its mass is what
            rows lack to 1); None unless asked for, and where no layer attends.
    """

    logits: Tensor
    audio_logits: Tensor
    video_logits: Tensor
    video_embedding: Tensor
    audio_embedding: Tensor
    audio_embedding_100hz: Tensor | None = None
    alignment: Tensor | None = None


class ActiveSpeakerDetector(nn.Module):
    """Scores every face in every frame.

    Args:
        visual: crops ``(N, T, Y, X)`` to ``(N, T, D)``.
        audio: log-mel ``(N, A, M)`` to ``(N, A, D)``.
        fusion: layers of fusion; none of them when ``modality`` is not ``audio_visual``.
        temporal: temporal blocks.
        embed_dim: ``D``.
        contrast_dim: ``E``.
        modality: ``audio_visual``, or a baseline that hears only (``audio``) or sees only (``video``).
        speaker: layers between the faces of a scene, after the fusion; none for faces that do not know of each other.
        contrast_attention: compare sound and picture in the queries and keys of the first fusion layer, where that has
            any, and not in projections; ``E`` is ``D`` then.
        fused_dim: width of what fusion and temporal blocks give; None for ``D``.
    """

    def __init__(
        self,
        visual: nn.Module,
        audio: nn.Module,
        fusion: Sequence[nn.Module],
        temporal: Sequence[nn.Module],
        embed_dim: int,
        contrast_dim: int,
        modality: str = "audio_visual",
        speaker: Sequence[SpeakerAttention] = (),
        contrast_attention: bool = False,
        fused_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.modality, self.embed_dim = modality, embed_dim
        self.visual, self.audio = visual, audio
        self.fusion, self.temporal = nn.ModuleList(fusion), nn.ModuleList(temporal)
        self.speaker = nn.ModuleList(speaker)
        self.head_norm = nn.LayerNorm(fused_dim or embed_dim)
        self.head = nn.Linear(fused_dim or embed_dim, 1)
        self.audio_head, self.video_head = nn.Linear(embed_dim, 1), nn.Linear(embed_dim, 1)
        attends = modality == "audio_visual" and isinstance(fusion[0], CrossAttentionFusion)
        self.contrast_attention = contrast_attention and attends
        if not self.contrast_attention:
            self.video_contrast = nn.Linear(embed_dim, contrast_dim)
            self.audio_contrast = nn.Linear(embed_dim, contrast_dim)
        normal_scores(self.head, self.audio_head, self.video_head)

    def forward(
        self,
        crops: Tensor,
        log_mel: Tensor,
        frame_mask: Tensor | None = None,
        audio_mask: Tensor | None = None,
        need_alignment: bool = False,
        need_audio_100hz: bool = False,
    ) -> Detection:
        """Scores a batch.

        Args:
            crops: ``(B, S, T, Y, X)`` grey, uint8 or float 0..1.
            log_mel: ``(B, 4 T, M)``.
            frame_mask: ``(B, S, T)``.
            audio_mask: ``(B, 4 T)``.
            need_alignment: also return the attention's weights, with gradient; the scores stay the same.
            need_audio_100hz: also return the embedding of the sound at 100 Hz.

        Raises:
            ValueError: picture and sound do not have one length.
        """
        seen, heard = self.embed(crops, log_mel, frame_mask, audio_mask)
        return self.decide(seen, heard, frame_mask, audio_mask, need_alignment, need_audio_100hz)

    def embed(
        self, crops: Tensor, log_mel: Tensor, frame_mask: Tensor | None = None, audio_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the encoders say: pictures ``(B S, T, D)`` and sound ``(B, 4 T, D)``, as :meth:`decide` takes them.

        Raises:
            ValueError: picture and sound do not have one length.
        """
        _, faces, frames = crops.shape[:3]
        if log_mel.shape[1] != frames * AUDIO_FRAMES_PER_VIDEO_FRAME:
            raise ValueError(f"{frames} video frames need {frames * 4} audio frames, found {log_mel.shape[1]}")
        # A baseline of one stream is not slowed down by the other: that one stays empty.
        heard = log_mel.new_zeros(*log_mel.shape[:2], self.embed_dim)
        seen = log_mel.new_zeros(crops.shape[0] * faces, frames, self.embed_dim)
        if self.modality != "video":
            heard = encode(self.audio, log_mel, audio_mask, PIECE_FRAMES * AUDIO_FRAMES_PER_VIDEO_FRAME)
        if self.modality != "audio":
            face_mask = None if frame_mask is None else rearrange(frame_mask, "b s t -> (b s) t")
            seen = encode(self.visual, rearrange(crops, "b s t y x -> (b s) t y x"), face_mask, PIECE_FRAMES)
        return seen, heard

    def decide(
        self,
        seen: Tensor,
        heard: Tensor,
        frame_mask: Tensor | None = None,
        audio_mask: Tensor | None = None,
        need_alignment: bool = False,
        need_audio_100hz: bool = False,
    ) -> Detection:
        """All that comes after the encoders.

        Args:
            seen: ``(B S, T, D)`` pictures; zeros for a model that does not see.
            heard: ``(B, 4 T, D)`` sound; zeros for a model that does not hear.
            frame_mask: as in :meth:`forward`, and so all that follow.
            audio_mask: ``(B, 4 T)``.
            need_alignment: also return the attention's weights.
            need_audio_100hz: also return the embedding of the sound at 100 Hz.
        """
        faces, frames = seen.shape[0] // heard.shape[0], seen.shape[1]
        face_mask = None if frame_mask is None else rearrange(frame_mask, "b s t -> (b s) t")
        heard_by_face = repeat(heard, "b a d -> (b s) a d", s=faces)
        mask_by_face = None if audio_mask is None else repeat(audio_mask, "b a -> (b s) a", s=faces)
        heard_at_frames = pool_to_video_rate(heard, frames)

        x = repeat(heard_at_frames, "b t d -> (b s) t d", s=faces) if self.modality == "audio" else seen
        alignment: list[Tensor] = []
        if self.modality == "audio_visual":
            for layer in self.fusion:
                if need_alignment and isinstance(layer, CrossAttentionFusion):
                    x, weights = layer(x, heard_by_face, face_mask, mask_by_face, need_weights=True)
                    alignment.append(rearrange(weights, "(b s) h t a -> b s h t a", s=faces))
                else:
                    x = layer(x, heard_by_face, face_mask, mask_by_face)
        for between_faces in self.speaker:
            of_scenes = between_faces(rearrange(x, "(b s) t d -> b s t d", s=faces), frame_mask)
            x = rearrange(of_scenes, "b s t d -> (b s) t d")
        for block in self.temporal:
            x = block(x, face_mask)

        seen_content, heard_content = self._content(seen, heard_at_frames)
        heard_content_100hz = self._sound_content(heard) if need_audio_100hz else None

        def by_scene(logits: Tensor) -> Tensor:
            return rearrange(logits, "(b s) t 1 -> b s t", s=faces)

        return Detection(
            logits=by_scene(self.head(self.head_norm(x))),
            audio_logits=repeat(self.audio_head(heard_at_frames), "b t 1 -> b s t", s=faces),
            video_logits=by_scene(self.video_head(seen)),
            video_embedding=rearrange(seen_content, "(b s) t e -> b s t e", s=faces),
            audio_embedding=heard_content,
            audio_embedding_100hz=heard_content_100hz,
            alignment=torch.stack(alignment, dim=2) if alignment else None,
        )

    def _content(self, seen: Tensor, heard: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors that are alike where picture ``(B S, T, D)`` and sound ``(B, T, D)`` of a frame are."""
        layer = self.fusion[0] if self.contrast_attention else None
        if isinstance(layer, CrossAttentionFusion):
            return layer.content(seen, heard)
        return F.normalize(self.video_contrast(seen), dim=-1), self._sound_content(heard)

    def _sound_content(self, heard: Tensor) -> Tensor:
        """The second of :meth:`_content` alone, for sound ``(B, A, D)`` at any rate."""
        layer = self.fusion[0] if self.contrast_attention else None
        if isinstance(layer, CrossAttentionFusion):
            return layer.video_from_audio.key_content(heard)
        return F.normalize(self.audio_contrast(heard), dim=-1)


def build_model(config: ModelConfig, num_mels: int) -> ActiveSpeakerDetector:
    """Builds the detector from its configuration; the blocks themselves take plain numbers.

    Args:
        config: the ``model`` section.
        num_mels: mel bins of the sound, ``data.num_mels``.
    """
    if config.kind != "avfusion":
        return _baseline(config, num_mels)
    dim, dropout, ahead = config.embed_dim, config.dropout, look_ahead(config)
    fusion: list[nn.Module] = []
    if config.modality == "audio_visual":
        for _ in range(config.fusion.layers):
            if config.fusion.kind == "concat":
                fusion.append(ConcatFusion(dim, dropout))
                continue
            if config.fusion.kind == "sum":
                fusion.append(SumFusion())
                continue
            fusion.append(
                CrossAttentionFusion(
                    dim,
                    config.fusion.heads,
                    query_hz=VIDEO_HZ,
                    key_hz=AUDIO_HZ,
                    key_pool=AUDIO_HZ // config.fusion.key_hz,
                    window_s=config.fusion.window_s,
                    ahead_s=ahead.fusion_s,
                    positions=config.fusion.positions,
                    null_key=config.fusion.null_key,
                    qk_norm=config.fusion.qk_norm,
                    audio_bypass=config.fusion.audio_bypass,
                    dropout=dropout,
                )
            )
    temporal = [
        TemporalBlock(
            dim,
            config.temporal.heads,
            hz=VIDEO_HZ,
            window_s=config.temporal.window_s,
            kernel=config.temporal.kernel,
            attention_first=config.temporal.order == "attention_first",
            positions=config.temporal.positions,
            dropout=dropout,
            causal=ahead.causal,
        )
        for _ in range(config.temporal.layers)
    ]
    speaker = [SpeakerAttention(dim, config.speaker.heads, dropout) for _ in range(config.speaker.layers)]
    return ActiveSpeakerDetector(
        _visual_encoder(config),
        AudioEncoder(dim, num_mels, config.audio.channels, config.audio.temporal_kernel, dropout, ahead.audio_frames),
        fusion,
        temporal,
        dim,
        config.contrast_dim,
        config.modality,
        speaker=speaker,
        contrast_attention=config.contrast == "attention",
    )


def _visual_encoder(config: ModelConfig) -> VisualEncoder | ResNetEncoder:
    visual, dim, dropout, ahead = config.visual, config.embed_dim, config.dropout, look_ahead(config).visual_frames
    if visual.kind == "resnet18":
        return ResNetEncoder(dim, visual.temporal_kernel, dropout, ahead, fixed_statistics=visual.weights is not None)
    return VisualEncoder(dim, visual.channels, visual.blocks, visual.temporal_kernel, dropout, ahead)


def _baseline(config: ModelConfig, num_mels: int) -> ActiveSpeakerDetector:
    """A model of the field: the same detector of other parts."""
    fuses = config.modality == "audio_visual"
    if config.kind == "talknet_style":
        parts = talknet_parts(
            _visual_encoder(config),
            config.embed_dim,
            audio_channels=config.audio.channels,
            fusion_heads=config.fusion.heads,
            layers=config.temporal.layers,
            heads=config.temporal.heads,
            fuses=fuses,
            dropout=config.dropout,
        )
    elif config.kind == "lr_style":
        parts = lr_parts(
            config.embed_dim,
            visual_channels=config.visual.channels,
            audio_channels=config.audio.channels,
            layers=config.temporal.layers,
            fuses=fuses,
            dropout=config.dropout,
        )
    else:
        parts = light_parts(
            config.embed_dim,
            visual_channels=config.visual.channels,
            audio_channels=config.audio.channels,
            layers=config.temporal.layers,
        )
    return ActiveSpeakerDetector(
        parts.visual,
        parts.audio,
        [parts.fusion] if fuses else [],
        parts.temporal,
        config.embed_dim,
        config.contrast_dim,
        config.modality,
        contrast_attention=config.contrast == "attention",
        fused_dim=parts.fused_dim,
    )


def context_frames(config: ModelConfig) -> int | None:
    """Video frames before and after a frame that can change its score; None when the whole track can.

    The reach of the encoders (at most 3 frames each), of every fusion window and of every temporal block add up. A
    causal model, whose convolutions see before the frame what others see on either side, reaches further back.
    """
    windows = [config.fusion.window_s] * config.fusion.layers + [config.temporal.window_s] * config.temporal.layers
    if any(window is None for window in windows):
        return None
    reach = math.ceil(sum(window for window in windows if window is not None) * VIDEO_HZ)
    sides = 2 if config.causal else 1
    return reach + sides * (3 + 3 + config.temporal.layers * (config.temporal.kernel // 2))
