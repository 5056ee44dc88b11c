"""A light model in the manner of Light-ASD: split convolutions, summed streams, a GRU over the whole track.

A block looks with kernels of 3 and of 5 side by side, first within a frame and then along time, and mixes the sum of
both. ``N`` tracks, ``C`` channels, ``T`` video frames, ``A = 4 T`` audio frames, ``M`` bands, ``Y, X`` the sides of the
picture, ``D`` features.

Unlike the published models: norm of each time step instead of batch norm, log-mel instead of MFCC, sound pooled over
pairs of frames, a projection to ``D`` after each encoder, no annealed temperature in the loss; blocks and sum are
Light-ASD's (LR-ASD has its kernels in turn and weighs the channels of both streams: lr_style).
Source: Liao et al. 2023, "A Light Weight Model for Active Speaker Detection".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME
from avfusion.models.baselines.layers import FrameNorm, Parts, at_100_hz
from avfusion.models.fusion import SumFusion
from avfusion.models.layers import keep_real
from avfusion.models.visual import _frames_at_once

KERNELS = (3, 5)


class VisualPath(nn.Module):
    """One kernel size of a visual block: within each frame, then along time at each pixel."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.space = nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=False)
        self.space_norm = nn.GroupNorm(1, out_channels)
        self.time = nn.Conv2d(out_channels, out_channels, (kernel, 1), padding=(kernel // 2, 0), bias=False)
        self.time_norm = nn.GroupNorm(1, out_channels)

    def forward(self, maps: Tensor, frames: int, mask: Tensor | None) -> Tensor:
        """``(N·T, C, Y, X)``, ``mask`` ``(N, T)`` -> ``(N·T, C', Y/stride, X/stride)``."""
        within = F.relu(self.space_norm(self.space(maps)))
        height, width = within.shape[-2:]
        along = rearrange(within, "(n t) c y x -> n c t (y x)", t=frames)
        if mask is not None:
            along = along.masked_fill(~mask[:, None, :, None], 0.0)
        along = rearrange(self.time(along), "n c t (y x) -> (n t) c y x", y=height, x=width)
        return F.relu(self.time_norm(along))


class VisualBlock(nn.Module):
    """Paths of both kernel sizes, summed and mixed."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.paths = nn.ModuleList(VisualPath(in_channels, out_channels, kernel, stride) for kernel in KERNELS)
        self.mix = nn.Conv2d(out_channels, out_channels, 1, bias=False)
        self.norm = nn.GroupNorm(1, out_channels)

    def forward(self, maps: Tensor, frames: int, mask: Tensor | None) -> Tensor:
        """As a path."""
        both = torch.stack([path(maps, frames, mask) for path in self.paths]).sum(dim=0)
        return F.relu(self.norm(self.mix(both)))


class LightVisualEncoder(nn.Module):
    """Grey face crops to embeddings.

    Args:
        embed_dim: ``D``.
        channels: of each block; every block halves the picture (the first by its stride, others by pooling).
        block: makes a block of channels before and after, and a stride.
    """

    def __init__(
        self,
        embed_dim: int,
        channels: Sequence[int] = (32, 64, 128),
        block: Callable[[int, int, int], nn.Module] = VisualBlock,
    ) -> None:
        super().__init__()
        widths = zip((1, *channels), channels, strict=False)
        self.stages = nn.ModuleList(block(*width, 2 if i == 0 else 1) for i, width in enumerate(widths))
        self.project = nn.Linear(channels[-1], embed_dim)
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, crops: Tensor, mask: Tensor | None = None) -> Tensor:
        """``(N, T, Y, X)`` uint8 or float 0..1, ``mask`` ``(N, T)`` True = real -> ``(N, T, D)``."""
        together = max(1, _frames_at_once(crops) // max(1, crops.shape[1]))
        clips = torch.split(crops, together)
        masks = [None] * len(clips) if mask is None else torch.split(mask, together)
        seen = torch.cat([self._seen(*some) for some in zip(clips, masks, strict=True)])
        out: Tensor = self.norm(self.project(rearrange(seen, "(n t) c -> n t c", t=crops.shape[1])))
        return keep_real(out, mask)

    def _seen(self, crops: Tensor, mask: Tensor | None) -> Tensor:
        """What is seen anywhere in each frame, ``(N·T, C)``."""
        pictures = crops.float() / 255 if crops.dtype == torch.uint8 else crops
        maps = rearrange((pictures - 0.45) * 4.0, "n t y x -> (n t) 1 y x")
        for number, stage in enumerate(self.stages):
            maps = stage(maps if number == 0 else F.max_pool2d(maps, 2, ceil_mode=True), crops.shape[1], mask)
        return maps.amax(dim=(2, 3))


class AudioPath(nn.Module):
    """One kernel size of an audio block: over the bands of each time step, then along time."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int) -> None:
        super().__init__()
        self.bands = nn.Conv2d(in_channels, out_channels, (1, kernel), padding=(0, kernel // 2), bias=False)
        self.bands_norm = FrameNorm(out_channels)
        self.time = nn.Conv2d(out_channels, out_channels, (kernel, 1), padding=(kernel // 2, 0), bias=False)
        self.time_norm = FrameNorm(out_channels)

    def forward(self, maps: Tensor, mask: Tensor | None) -> Tensor:
        """``(N, C, A, M)``, ``mask`` ``(N, A)`` -> ``(N, C', A, M)``."""
        within = _keep(F.relu(self.bands_norm(self.bands(maps))), mask)
        return F.relu(self.time_norm(self.time(within)))


class AudioBlock(nn.Module):
    """Paths of both kernel sizes, summed and mixed."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.paths = nn.ModuleList(AudioPath(in_channels, out_channels, kernel) for kernel in KERNELS)
        self.mix = nn.Conv2d(out_channels, out_channels, 1, bias=False)
        self.norm = FrameNorm(out_channels)

    def forward(self, maps: Tensor, mask: Tensor | None) -> Tensor:
        """As a path."""
        both = torch.stack([path(maps, mask) for path in self.paths]).sum(dim=0)
        return F.relu(self.norm(self.mix(both)))


class LightAudioEncoder(nn.Module):
    """Log-mel to embeddings of 40 ms, told at 100 Hz.

    Args:
        embed_dim: ``D``.
        channels: of each block, at least 2; after the first two of them time is halved.
        block: makes a block of channels before and after.
    """

    def __init__(
        self,
        embed_dim: int,
        channels: Sequence[int] = (32, 64, 128),
        block: Callable[[int, int], nn.Module] = AudioBlock,
    ) -> None:
        super().__init__()
        widths = zip((1, *channels), channels, strict=False)
        self.convolutions = nn.ModuleList(block(*width) for width in widths)
        self.project = nn.Linear(channels[-1], embed_dim)
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, log_mel: Tensor, mask: Tensor | None = None) -> Tensor:
        """``(N, A, M)``, ``mask`` ``(N, A)`` True = real -> ``(N, A, D)``."""
        maps = rearrange(log_mel, "n a m -> n 1 a m")
        at_frames = mask
        for number, block in enumerate(self.convolutions):
            maps = block(maps, at_frames)
            if 2**number < AUDIO_FRAMES_PER_VIDEO_FRAME:
                # Nothing is below 0, so padding set to 0 is no maximum where anything is real.
                maps = F.max_pool2d(_keep(maps, at_frames), (2, 1))
                at_frames = None if at_frames is None else rearrange(at_frames, "n (t r) -> n t r", r=2).any(dim=2)
        out: Tensor = self.norm(self.project(rearrange(maps.mean(dim=3), "n c t -> n t c")))
        return at_100_hz(keep_real(out, at_frames))


class TrackGRU(nn.Module):
    """A GRU in both directions over the real frames of a track, as if there were no others.

    Args:
        embed_dim: ``D``.
        layers: one over the other.
        hidden: width of each direction, ``E``; None for ``D``.
    """

    def __init__(self, embed_dim: int, layers: int = 1, hidden: int | None = None) -> None:
        super().__init__()
        self.gru = nn.GRU(embed_dim, hidden or embed_dim, layers, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """``x`` ``(N, T, D)``, ``mask`` ``(N, T)`` True = real -> ``(N, T, 2 E)``, both directions."""
        kind = x.device.type
        # Half precision knows no GRU on CPUs.
        plain = torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()
        with plain:
            return self._whole(x.float()) if mask is None else self._real(x.float(), mask)

    def _whole(self, x: Tensor) -> Tensor:
        out: Tensor = self.gru(x)[0]
        return out

    def _real(self, x: Tensor, mask: Tensor) -> Tensor:
        """Real frames first, in their order; packed by their number; then back to their places."""
        order = mask.int().argsort(dim=1, descending=True, stable=True)
        frames = mask.sum(dim=1).clamp_min(1).cpu()
        real_first = x.gather(1, order[..., None].expand_as(x))
        packed = pack_padded_sequence(real_first, frames, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=x.shape[1])
        back = order.argsort(dim=1)[..., None].expand_as(out)
        return keep_real(out.gather(1, back), mask)


def light_parts(embed_dim: int, *, visual_channels: Sequence[int], audio_channels: Sequence[int], layers: int) -> Parts:
    """The parts of the model.

    Args:
        embed_dim: ``D``.
        visual_channels: of each visual block.
        audio_channels: of each audio block.
        layers: of the GRU.
    """
    return Parts(
        LightVisualEncoder(embed_dim, visual_channels),
        LightAudioEncoder(embed_dim, audio_channels),
        SumFusion(),
        [TrackGRU(embed_dim, layers)],
        2 * embed_dim,
    )


def _keep(maps: Tensor, mask: Tensor | None) -> Tensor:
    """Sets padded time steps of ``(N, C, A, M)`` to zero."""
    return maps if mask is None else maps.masked_fill(~mask[:, None, :, None], 0.0)
