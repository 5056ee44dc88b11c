"""Face crops to one embedding per video frame.

Split in space and time, as small ASD models do: 2D convolutions over each frame (with what changed since the frame
before and until the frame after as extra channels, so that motion is seen before the picture is pooled), then one
convolution over time. ``N`` face tracks, ``T`` video frames, ``Y, X`` the sides of the picture, ``D`` features.
Source of the split: Liao et al. 2023, "A Light Weight Model for Active Speaker Detection".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from avfusion.models.layers import TemporalConvolution, keep_real

STEM_REACH_FRAMES = 1
STEM_CHANNELS = 3
MOTION_GAIN = 4.0  # differences between frames are small beside the picture; this brings them to like size
POOLED_SIDE = 3
CACHED_PIXELS = 320_000  # of input, whose maps stay in a core's cache from layer to layer: fastest of those tried


class EveryOther(nn.Conv2d):
    """A 1x1 convolution of every ``step``-th pixel, which are picked before it and not by its stride.

    On processors with AVX2 and no AVX-512, oneDNN's gradient of a strided 1x1 convolution of fewer than 8 channels
    writes beyond its memory: github.com/uxlfoundation/oneDNN issue 6035, seen with torch 2.14.1.
    """

    def __init__(self, in_channels: int, out_channels: int, step: int) -> None:
        super().__init__(in_channels, out_channels, 1, bias=False)
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        """``(N, C, Y, X) -> (N, C', Y/step, X/step)``."""
        return super().forward(x[:, :, :: self.step, :: self.step])


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a skip; normalised within each frame, so frames stay independent."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.convolve1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(1, out_channels)
        self.convolve2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(1, out_channels)
        self.skip = EveryOther(in_channels, out_channels, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """``(N·T, C, Y, X) -> (N·T, C', Y/stride, X/stride)``."""
        inner = self.norm2(self.convolve2(F.relu(self.norm1(self.convolve1(x)), inplace=True)))
        return F.relu(inner + self.skip(x), inplace=True)


class VisualEncoder(nn.Module):
    """Grey face crops to embeddings; each sees at most ``reach_frames`` frames before and after its own.

    Args:
        embed_dim: ``D``.
        channels: channels of the stem and of each stage; every one of them halves the picture.
        blocks: residual blocks a stage.
        temporal_kernel: frames seen by the convolution over time, odd.
        dropout: share of features dropped in training.
    """

    def __init__(
        self,
        embed_dim: int,
        channels: Sequence[int] = (16, 32, 64, 96),
        blocks: int = 1,
        temporal_kernel: int = 5,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(STEM_CHANNELS, channels[0], 3, stride=2, padding=1, bias=False),
            nn.GroupNorm(1, channels[0]),
            nn.ReLU(inplace=True),
        )
        stages: list[nn.Module] = []
        for in_channels, out_channels in pairwise(channels):
            stages.append(ResidualBlock(in_channels, out_channels, stride=2))
            stages.extend(ResidualBlock(out_channels, out_channels, stride=1) for _ in range(blocks - 1))
        self.stages = nn.Sequential(*stages)
        self.project = nn.Linear(channels[-1] * POOLED_SIDE**2, embed_dim)
        self.temporal = TemporalConvolution(embed_dim, temporal_kernel, dropout=dropout)
        self.norm = nn.LayerNorm(embed_dim)
        self.reach_frames = STEM_REACH_FRAMES + temporal_kernel // 2

    def forward(self, crops: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encodes face crops.

        Args:
            crops: ``(N, T, Y, X)`` grey levels, uint8 0..255 or float 0..1.
            mask: ``(N, T)``, True = real.

        Returns:
            ``(N, T, D)``.
        """
        at_once = _frames_at_once(crops)
        together = max(1, at_once // max(1, crops.shape[1]))
        clips = torch.split(crops, together)
        masks = [None] * len(clips) if mask is None else torch.split(mask, together)
        pooled = torch.cat([self._seen(*some, at_once) for some in zip(clips, masks, strict=True)])
        embedded = self.project(rearrange(pooled, "(n t) p c -> n t (c p)", t=crops.shape[1]))
        out: Tensor = self.norm(self.temporal(embedded, mask))
        return keep_real(out, mask)

    def _seen(self, crops: Tensor, mask: Tensor | None, at_once: int) -> Tensor:
        """What the convolutions see in each of 9 places, ``(N, T, Y, X) -> (N·T, 9, C)``, so many frames at once."""
        pictures = crops.float() / 255 if crops.dtype == torch.uint8 else crops
        pictures = (pictures - 0.45) * 4.0
        if mask is not None:
            pictures = pictures.masked_fill(~mask[..., None, None], 0.0)
        maps = rearrange(_with_motion(pictures, mask), "n t c y x -> (n t) c y x")
        parts = maps.contiguous(memory_format=torch.channels_last).chunk(max(1, -(-len(maps) // at_once)))
        # Coarse places are kept: which part of the face moves matters.
        return torch.cat([_pooled(self.stages(self.stem(part))) for part in parts])


def _frames_at_once(crops: Tensor) -> int:
    """How many frames of ``(N, T, Y, X)`` pass the convolutions together: on a CPU as many as its cache can hold.

    Frames are independent: however they are parted, what comes out is the same (to rounding).
    """
    clips, frames, height, width = crops.shape
    if crops.device.type != "cpu" or torch.compiler.is_compiling():
        return max(1, clips * frames)
    return max(1, CACHED_PIXELS * torch.get_num_threads() // (height * width))


def _with_motion(pictures: Tensor, mask: Tensor | None) -> Tensor:
    """The picture, what changed since the frame before, and what changes until the next: ``(N, T, 3, Y, X)``.

    At the ends of the real frames nothing changes.
    """
    change = (pictures[:, 1:] - pictures[:, :-1]) * MOTION_GAIN
    if mask is not None:
        change = change.masked_fill(~(mask[:, 1:] & mask[:, :-1])[..., None, None], 0.0)
    since, until = F.pad(change, (0, 0, 0, 0, 1, 0)), F.pad(change, (0, 0, 0, 0, 0, 1))
    return torch.stack([pictures, since, until], dim=2)


def _pooled(maps: Tensor) -> Tensor:
    """Means over 3 x 3 places, those of ``F.adaptive_avg_pool2d``: ``(N, C, Y, X) -> (N, 9, C)``.

    As a product with a matrix of zeros and ones: on a CPU the gradient of torch's own pooling is several times as slow
    on maps with their channels last, and on CUDA it differs from run to run.
    """
    height, width = maps.shape[-2:]
    each = torch.eye(height * width, device=maps.device).view(-1, 1, height, width)
    within = F.adaptive_avg_pool2d(each, POOLED_SIDE).flatten(1).T > 0  # which pixels each place is the mean of
    sums = within.to(maps.dtype) @ rearrange(maps, "n c y x -> n (y x) c")
    return sums / within.sum(dim=1, keepdim=True)
