"""Where sound meets picture: video frames are the queries, audio frames the keys and values.

``N`` face tracks, ``T`` video frames (25 Hz), ``A`` audio frames (100 Hz), ``D`` features.
The residual is the video stream alone, so that sound reaches the classifier through the attention only and its weights
can mean something; ``audio_bypass`` restores the published models' way around it, for comparison.
"""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor, nn

from avfusion.models.attention import MultiHeadCrossAttention
from avfusion.models.layers import FeedForward, keep_real


def pool_to_video_rate(audio: Tensor, num_frames: int, ratio: int = 4) -> Tensor:
    """Averages the audio frames that fall into each video frame: ``(N, A, D) -> (N, T, D)`` with ``A = ratio · T``."""
    return rearrange(audio[:, : num_frames * ratio], "n (t r) d -> n t r d", r=ratio).mean(dim=2)


class CrossAttentionFusion(nn.Module):
    """Each video frame attends to the sound around it (``video_from_audio``).

    Args:
        embed_dim: ``D``.
        num_heads: heads of the attention.
        query_hz: video frames a second.
        key_hz: audio frames a second.
        key_pool: audio frames whose mean is one key; 1 for keys at the rate of the sound.
        window_s: each frame hears this many seconds before and after it; None for all.
        ahead_s: but not more than this many after it; None for as many as before it.
        positions: rotary positions in seconds on queries and keys.
        null_key: a learned key per head with value zero: "no sound belongs to this face now".
        qk_norm: RMS-normed queries and keys.
        audio_bypass: also add the sound of the frame itself around the attention.
        dropout: share of features dropped in training.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        query_hz: float,
        key_hz: float,
        key_pool: int = 1,
        window_s: float | None = 0.5,
        ahead_s: float | None = None,
        positions: bool = True,
        null_key: bool = True,
        qk_norm: bool = True,
        audio_bypass: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        self.video_from_audio = MultiHeadCrossAttention(
            embed_dim,
            num_heads,
            query_hz=query_hz,
            key_hz=key_hz,
            key_pool=key_pool,
            window_s=window_s,
            ahead_s=ahead_s,
            rotary=positions,
            qk_norm=qk_norm,
            null_key=null_key,
            dropout=dropout,
        )
        self.feed_forward = FeedForward(embed_dim, dropout=dropout)
        self.bypass = nn.Linear(embed_dim, embed_dim) if audio_bypass else None

    @property
    def past_frames(self) -> int | None:
        """Video frames before a frame whose sound it hears; None for the whole track."""
        return self.video_from_audio.past_and_ahead(self.video_from_audio.window)[0]

    @property
    def ahead_frames(self) -> int | None:
        """Video frames after it."""
        return self.video_from_audio.past_and_ahead(self.video_from_audio.window)[1]

    def content(self, video: Tensor, audio: Tensor) -> tuple[Tensor, Tensor]:
        """What the heads compare, apart from when it happens: see :meth:`MultiHeadCrossAttention.content`."""
        return self.video_content(video), self.audio_content(audio)

    def video_content(self, video: Tensor) -> Tensor:
        """The first of :meth:`content` alone."""
        return self.video_from_audio.query_content(self.norm(video))

    def audio_content(self, audio: Tensor) -> Tensor:
        """The second of :meth:`content` alone."""
        return self.video_from_audio.key_content(audio)

    def forward(
        self,
        video: Tensor,
        audio: Tensor,
        frame_mask: Tensor | None = None,
        audio_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Fuses ``video`` ``(N, T, D)`` and ``audio`` ``(N, A, D)`` (masks True = real) to ``(N, T, D)``.

        With ``need_weights`` also returns the weights ``(N, H, T, A)``, the null key left out.
        """
        if need_weights:
            heard, weights = self.video_from_audio(self.norm(video), audio, audio_mask, need_weights=True)
            return self._fuse(video, heard, audio, frame_mask), weights
        return self._fuse(video, self.video_from_audio(self.norm(video), audio, audio_mask), audio, frame_mask)

    def _fuse(self, video: Tensor, heard: Tensor, audio: Tensor, frame_mask: Tensor | None) -> Tensor:
        fused = video + heard
        if self.bypass is not None:
            fused = fused + self.bypass(pool_to_video_rate(audio, video.shape[1]))
        return keep_real(fused + self.feed_forward(fused), frame_mask)


class ConcatFusion(nn.Module):
    """The baseline without attention: each frame beside the sound of its own 40 ms."""

    past_frames = ahead_frames = 0

    def __init__(self, embed_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * embed_dim, 2 * embed_dim)
        self.project = nn.Linear(2 * embed_dim, embed_dim)
        self.feed_forward = FeedForward(embed_dim, dropout=dropout)

    def forward(
        self, video: Tensor, audio: Tensor, frame_mask: Tensor | None = None, audio_mask: Tensor | None = None
    ) -> Tensor:
        """Fuses ``video`` ``(N, T, D)`` and ``audio`` ``(N, A, D)`` to ``(N, T, D)``; padded audio is already zero."""
        both = torch.cat([video, pool_to_video_rate(audio, video.shape[1])], dim=-1)
        fused = video + self.project(torch.nn.functional.gelu(self.mix(both)))
        return keep_real(fused + self.feed_forward(fused), frame_mask)


class SumFusion(nn.Module):
    """Nothing learnt: each frame plus the sound of its own 40 ms."""

    past_frames = ahead_frames = 0

    def forward(
        self, video: Tensor, audio: Tensor, frame_mask: Tensor | None = None, audio_mask: Tensor | None = None
    ) -> Tensor:
        """Adds ``video`` ``(N, T, D)`` and ``audio`` ``(N, A, D)`` to ``(N, T, D)``; padded audio is already zero."""
        return keep_real(video + pool_to_video_rate(audio, video.shape[1]), frame_mask)
