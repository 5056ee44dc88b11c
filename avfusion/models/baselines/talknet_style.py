"""A model in the manner of TalkNet: sound at 25 Hz, cross-attention both ways over the track, then self-attention.

What attends is the one stream, what it finds is added to the other, the attended one. So sound and picture both reach
the classifier around the attention, and the maps need not mean anything. There are no positions: frames find each
other by content alone. ``N`` tracks, ``T`` video frames, ``A = 4 T`` audio frames, ``M`` bands, ``C`` channels, ``D``
features, ``H`` heads.

Unlike the published model: widths as configured (published: 128 features, 8 heads, ResNet-18 for the picture, a
34-layer SE-ResNet for the sound); one block a stage for the sound; log-mel instead of MFCC; norms before each part
instead of after it, and of each time step instead of batch norm.
Source: Tao et al. 2021, "Is Someone Speaking? Exploring Long-term Temporal Features for Audio-visual Active Speaker
Detection"; Hu et al. 2018 for squeeze and excitation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME, AUDIO_HZ, VIDEO_HZ
from avfusion.models.attention import MultiHeadCrossAttention, MultiHeadSelfAttention
from avfusion.models.baselines.layers import FrameNorm, Parts, at_100_hz
from avfusion.models.fusion import CrossAttentionFusion, pool_to_video_rate
from avfusion.models.layers import FeedForward, keep_real

VISUAL_BLOCKS = 5
SQUEEZE = 8


class SeparableBlock(nn.Module):
    """A residual convolution of three frames, by channel, then across channels."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.depthwise = nn.Conv1d(dim, dim, 3, padding=1, groups=dim)
        self.pointwise = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """``x`` ``(N, T, D)``, ``mask`` ``(N, T)`` True = real -> ``(N, T, D)``."""
        near = self.depthwise(keep_real(F.relu(self.norm(x)), mask).transpose(1, 2)).transpose(1, 2)
        mixed: Tensor = self.pointwise(F.relu(near))
        return x + mixed


class TalkNetVisualEncoder(nn.Module):
    """Grey face crops to embeddings: an encoder of frames, then five blocks over time.

    Args:
        frames: crops ``(N, T, Y, X)`` and mask to ``(N, T, D)``.
        embed_dim: ``D``.
    """

    def __init__(self, frames: nn.Module, embed_dim: int) -> None:
        super().__init__()
        self.frames = frames
        self.blocks = nn.ModuleList(SeparableBlock(embed_dim) for _ in range(VISUAL_BLOCKS))
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, crops: Tensor, mask: Tensor | None = None) -> Tensor:
        """``(N, T, Y, X)`` uint8 or float 0..1, ``mask`` ``(N, T)`` True = real -> ``(N, T, D)``."""
        x: Tensor = self.frames(crops, mask)
        for block in self.blocks:
            x = block(x, mask)
        return keep_real(self.norm(x), mask)


class SqueezedBlock(nn.Module):
    """Two 3x3 convolutions and a skip; each channel is weighed by what all channels are like over the whole sound.

    Args:
        in_channels: ``C``.
        out_channels: ``C'``.
        step: time is divided by it; the bands are halved.
    """

    def __init__(self, in_channels: int, out_channels: int, step: int) -> None:
        super().__init__()
        self.step = step
        self.convolve1 = nn.Conv2d(in_channels, out_channels, 3, (step, 2), padding=1, bias=False)
        self.norm1 = FrameNorm(out_channels)
        self.convolve2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = FrameNorm(out_channels)
        self.skip = nn.Conv2d(in_channels, out_channels, 1, bias=False)
        narrow = max(1, out_channels // SQUEEZE)
        self.weigh = nn.Sequential(
            nn.Linear(out_channels, narrow), nn.ReLU(), nn.Linear(narrow, out_channels), nn.Sigmoid()
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """``(N, C, A, M)``, ``mask`` ``(N, A)`` -> ``(N, C', A/step, M/2)`` and ``(N, A/step)``."""
        x = _keep(x, mask)
        mask = None if mask is None else rearrange(mask, "n (t r) -> n t r", r=self.step).any(dim=2)
        inner = _keep(F.relu(self.norm1(self.convolve1(x))), mask)
        inner = _keep(self.norm2(self.convolve2(inner)), mask)
        real = inner.shape[2] if mask is None else mask.sum(dim=1, keepdim=True).clamp_min(1)
        squeezed = inner.mean(dim=3).sum(dim=2) / real
        weighed = inner * self.weigh(squeezed)[:, :, None, None]
        # Picked before the convolution and not by its stride: visual.EveryOther says why.
        return F.relu(weighed + self.skip(x[:, :, :: self.step, ::2])), mask


class TalkNetAudioEncoder(nn.Module):
    """Log-mel to embeddings of 40 ms, told at 100 Hz.

    Args:
        embed_dim: ``D``.
        channels: of each block, at least 2; the first two of them halve time.
    """

    def __init__(self, embed_dim: int, channels: Sequence[int] = (16, 32, 64, 128)) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, channels[0], 3, padding=1, bias=False)
        self.stem_norm = FrameNorm(channels[0])
        widths = zip((channels[0], *channels), channels, strict=False)
        self.convolutions = nn.ModuleList(
            SqueezedBlock(*width, step=2 if 2**i < AUDIO_FRAMES_PER_VIDEO_FRAME else 1)
            for i, width in enumerate(widths)
        )
        self.project = nn.Linear(channels[-1], embed_dim)
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, log_mel: Tensor, mask: Tensor | None = None) -> Tensor:
        """``(N, A, M)``, ``mask`` ``(N, A)`` True = real -> ``(N, A, D)``."""
        maps = F.relu(self.stem_norm(self.stem(_keep(log_mel[:, None], mask))))
        for block in self.convolutions:
            maps, mask = block(maps, mask)
        out: Tensor = self.norm(self.project(rearrange(maps.mean(dim=3), "n c t -> n t c")))
        return at_100_hz(keep_real(out, mask))


class TalkNetFusion(CrossAttentionFusion):
    """Picture asks sound and is added to it, sound asks picture and is added to that; both side by side.

    Args:
        embed_dim: ``D``.
        num_heads: ``H`` of either attention.
        dropout: share of weights and features dropped in training.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            query_hz=VIDEO_HZ,
            key_hz=AUDIO_HZ,
            key_pool=AUDIO_FRAMES_PER_VIDEO_FRAME,
            window_s=None,
            positions=False,
            null_key=False,
            qk_norm=False,
            dropout=dropout,
        )
        self.audio_from_video = MultiHeadCrossAttention(embed_dim, num_heads, dropout=dropout)
        self.video_feed_forward = FeedForward(embed_dim, expansion=4, dropout=dropout)

    def forward(
        self,
        video: Tensor,
        audio: Tensor,
        frame_mask: Tensor | None = None,
        audio_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Fuses ``video`` ``(N, T, D)`` and ``audio`` ``(N, A, D)`` (masks True = real) to ``(N, T, 2 D)``.

        With ``need_weights`` also returns the weights of ``video_from_audio`` ``(N, H, T, A)``, the same for the four
        audio frames of a video frame.
        """
        asking, weights = self.norm(video), None
        if need_weights:
            found_in_audio, weights = self.video_from_audio(asking, audio, audio_mask, need_weights=True)
        else:
            found_in_audio = self.video_from_audio(asking, audio, audio_mask)
        heard = pool_to_video_rate(audio, video.shape[1])
        seen = video + self.audio_from_video(heard, asking, frame_mask)
        heard = heard + found_in_audio
        both = [heard + self.feed_forward(heard), seen + self.video_feed_forward(seen)]
        fused = keep_real(torch.cat(both, dim=-1), frame_mask)
        return fused if weights is None else (fused, weights)


class WholeTrackAttention(nn.Module):
    """Self-attention over the whole track without positions, and a feed-forward.

    Args:
        dim: features.
        num_heads: heads.
        dropout: share of weights and features dropped in training.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = MultiHeadSelfAttention(dim, num_heads, dropout=dropout)
        self.feed_forward = FeedForward(dim, expansion=4, dropout=dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """``x`` ``(N, T, D)``, ``mask`` ``(N, T)`` True = real -> ``(N, T, D)``."""
        x = x + self.attention(self.attention_norm(x), mask)
        return keep_real(x + self.feed_forward(x), mask)


def talknet_parts(
    frames: nn.Module,
    embed_dim: int,
    *,
    audio_channels: Sequence[int],
    fusion_heads: int,
    layers: int,
    heads: int,
    fuses: bool,
    dropout: float,
) -> Parts:
    """The parts of the model.

    Args:
        frames: encoder of the picture that comes before the blocks over time.
        embed_dim: ``D``.
        audio_channels: of each audio block.
        fusion_heads: of the cross-attention.
        layers: of self-attention.
        heads: of self-attention.
        fuses: whether it has both streams; else the self-attention is over one, and half as wide.
        dropout: share of weights and features dropped in training.
    """
    width = 2 * embed_dim if fuses else embed_dim
    return Parts(
        TalkNetVisualEncoder(frames, embed_dim),
        TalkNetAudioEncoder(embed_dim, audio_channels),
        TalkNetFusion(embed_dim, fusion_heads, dropout),
        [WholeTrackAttention(width, heads, dropout) for _ in range(layers)],
        width,
    )


def _keep(maps: Tensor, mask: Tensor | None) -> Tensor:
    """Sets padded time steps of ``(N, C, A, M)`` to zero."""
    return maps if mask is None else maps.masked_fill(~mask[:, None, :, None], 0.0)
