"""A light model in the manner of LR-ASD: kernels in turn, streams side by side and weighed, a GRU over the whole track.

A block looks with a kernel of 5 and then of 3 within a frame (half as wide between them), then with both along time.
``N`` tracks, ``C`` channels, ``T`` video frames, ``A = 4 T`` audio frames, ``M`` bands, ``Y, X`` the sides of the
picture, ``D`` features.

With the published widths it has the published parameters and multiply-adds. Unlike the published model: norm of each
time step instead of batch norm, log-mel instead of MFCC, sound pooled over pairs of frames, no annealed temperature in
the loss, one dropout for both directions of the GRU.
Source: Liao et al. 2025, "LR-ASD: Lightweight and Robust Network for Active Speaker Detection".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from avfusion.models.baselines.layers import FrameNorm, Parts
from avfusion.models.baselines.light_style import LightAudioEncoder, LightVisualEncoder, TrackGRU
from avfusion.models.fusion import pool_to_video_rate
from avfusion.models.layers import keep_real

KERNELS = (5, 3)


class VisualTurns(nn.Module):
    """A visual block: both kernels within each frame, then both along time at each pixel."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        widths, strides = (in_channels, out_channels // 2, out_channels), (stride, 1)
        self.space = nn.ModuleList(
            nn.Conv2d(before, after, kernel, step, padding=kernel // 2, bias=False)
            for before, after, kernel, step in zip(widths, widths[1:], KERNELS, strides, strict=False)
        )
        self.space_norms = nn.ModuleList(nn.GroupNorm(1, width) for width in widths[1:])
        self.time = nn.ModuleList(
            nn.Conv2d(out_channels, out_channels, (kernel, 1), padding=(kernel // 2, 0), bias=False)
            for kernel in KERNELS
        )
        self.time_norms = nn.ModuleList(nn.GroupNorm(1, out_channels) for _ in KERNELS)

    def forward(self, maps: Tensor, frames: int, mask: Tensor | None) -> Tensor:
        """``(N·T, C, Y, X)``, ``mask`` ``(N, T)`` -> ``(N·T, C', Y/stride, X/stride)``."""
        for convolve, norm in zip(self.space, self.space_norms, strict=True):
            maps = F.relu(norm(convolve(maps)), inplace=True)
        height, width = maps.shape[-2:]
        for convolve, norm in zip(self.time, self.time_norms, strict=True):
            along = _keep(rearrange(maps, "(n t) c y x -> n c t (y x)", t=frames), mask)
            along = rearrange(convolve(along), "n c t (y x) -> (n t) c y x", y=height, x=width)
            maps = F.relu(norm(along), inplace=True)
        return maps


class AudioTurns(nn.Module):
    """An audio block: both kernels over the bands of each time step, then both along time."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        widths = (in_channels, out_channels // 2, out_channels)
        self.bands = nn.ModuleList(
            nn.Conv2d(before, after, (1, kernel), padding=(0, kernel // 2), bias=False)
            for before, after, kernel in zip(widths, widths[1:], KERNELS, strict=False)
        )
        self.bands_norms = nn.ModuleList(FrameNorm(width) for width in widths[1:])
        self.time = nn.ModuleList(
            nn.Conv2d(out_channels, out_channels, (kernel, 1), padding=(kernel // 2, 0), bias=False)
            for kernel in KERNELS
        )
        self.time_norms = nn.ModuleList(FrameNorm(out_channels) for _ in KERNELS)

    def forward(self, maps: Tensor, mask: Tensor | None) -> Tensor:
        """``(N, C, A, M)``, ``mask`` ``(N, A)`` -> ``(N, C', A, M)``."""
        for convolve, norm in zip(self.bands, self.bands_norms, strict=True):
            maps = F.relu(norm(convolve(maps)), inplace=True)
        for convolve, norm in zip(self.time, self.time_norms, strict=True):
            maps = F.relu(norm(convolve(_keep(maps, mask))), inplace=True)
        return maps


class WeighedStreams(nn.Module):
    """Two streams side by side, each channel weighed by what all of them are like in that frame."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(dim, dim, bias=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, both: Tensor) -> Tensor:
        """``(N, T, D)``, and so it comes out."""
        return both * torch.sigmoid(self.norm(self.weigh(both)))


class WeighedFusion(nn.Module):
    """Each frame beside the sound of its own 40 ms, weighed.

    Args:
        embed_dim: ``D`` of either.
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.streams = WeighedStreams(2 * embed_dim)

    def forward(
        self, video: Tensor, audio: Tensor, frame_mask: Tensor | None = None, audio_mask: Tensor | None = None
    ) -> Tensor:
        """Fuses ``video`` ``(N, T, D)`` and ``audio`` ``(N, A, D)`` to ``(N, T, 2 D)``; padded sound is zero."""
        both = torch.cat([video, pool_to_video_rate(audio, video.shape[1])], dim=-1)
        return keep_real(self.streams(both), frame_mask)


class WeighedGRU(nn.Module):
    """A GRU over the real frames of a track whose two directions are weighed.

    Args:
        in_dim: width of what comes in, and, halved, of what comes out.
        layers: one over the other.
        dropout: share of features dropped in training.
    """

    def __init__(self, in_dim: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.track = TrackGRU(in_dim, layers, hidden=in_dim // 4)
        self.streams = WeighedStreams(in_dim // 2)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """``x`` ``(N, T, D)``, ``mask`` ``(N, T)`` True = real -> ``(N, T, D/2)``."""
        return keep_real(self.streams(self.track(self.dropout(x), mask)), mask)


def lr_parts(
    embed_dim: int,
    *,
    visual_channels: Sequence[int],
    audio_channels: Sequence[int],
    layers: int,
    fuses: bool,
    dropout: float,
) -> Parts:
    """The parts of the model.

    Args:
        embed_dim: ``D``.
        visual_channels: of each visual block.
        audio_channels: of each audio block.
        layers: of the GRU.
        fuses: whether it has both streams; else the GRU is over one, and half as wide.
        dropout: share of what the GRU gets that is dropped in training.
    """
    width = 2 * embed_dim if fuses else embed_dim
    return Parts(
        LightVisualEncoder(embed_dim, visual_channels, VisualTurns),
        LightAudioEncoder(embed_dim, audio_channels, AudioTurns),
        WeighedFusion(embed_dim),
        [WeighedGRU(width, layers, dropout)],
        width // 2,
    )


def _keep(maps: Tensor, mask: Tensor | None) -> Tensor:
    """Sets padded time steps of ``(N, C, A, M)`` to zero."""
    return maps if mask is None else maps.masked_fill(~mask[:, None, :, None], 0.0)
