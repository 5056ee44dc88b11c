"""Face crops to one embedding per video frame.

Split in space and time, as small ASD models do: 2D convolutions over each frame (with what changed since the frame
before and until the frame after as extra channels, so that motion is seen before the picture is pooled), then one
convolution over time. ``N`` face tracks, ``T`` video frames, ``Y, X`` the sides of the picture, ``D`` features.
Source of the split: Liao et al. 2023, "A Light Weight Model for Active Speaker Detection".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    Where a gradient is wanted they are picked as means over one pixel: the gradient of a slice has its channels first
    in memory, and what it is added to has them last, which slowed down all that came below.
    """

    def __init__(self, in_channels: int, out_channels: int, step: int) -> None:
        super().__init__(in_channels, out_channels, 1, bias=False)
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        """``(N, C, Y, X) -> (N, C', Y/step, X/step)``."""
        every_other = F.avg_pool2d(x, 1, self.step) if x.requires_grad else x[:, :, :: self.step, :: self.step]
        return super().forward(every_other)


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
        return F.relu(inner.add_(self.skip(x)), inplace=True)


class VisualEncoder(nn.Module):
    """Grey face crops to embeddings; each sees ``past_frames`` frames before its own and ``ahead_frames`` after it.

    Both are ``reach_frames`` unless ``ahead_frames`` is given. With 0 the stem gets the change before the last one
    where it otherwise gets what changes until the next frame.

    Args:
        embed_dim: ``D``.
        channels: channels of the stem and of each stage; every one of them halves the picture.
        blocks: residual blocks a stage.
        temporal_kernel: frames seen by the convolution over time, odd.
        dropout: share of features dropped in training.
        ahead_frames: 0 or more; None, and at most, the reach of the centred convolutions.
    """

    def __init__(
        self,
        embed_dim: int,
        channels: Sequence[int] = (16, 32, 64, 96),
        blocks: int = 1,
        temporal_kernel: int = 5,
        dropout: float = 0.0,
        ahead_frames: int | None = None,
    ) -> None:
        super().__init__()
        self.reach_frames = STEM_REACH_FRAMES + temporal_kernel // 2
        self.ahead_frames = self.reach_frames if ahead_frames is None else min(ahead_frames, self.reach_frames)
        self.past_frames = 2 * self.reach_frames - self.ahead_frames
        self.stem_ahead = min(STEM_REACH_FRAMES, self.ahead_frames)
        self.stem_past = 2 * STEM_REACH_FRAMES - self.stem_ahead
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
        self.temporal = TemporalConvolution(
            embed_dim, temporal_kernel, dropout=dropout, ahead=self.ahead_frames - self.stem_ahead
        )
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, crops: Tensor, mask: Tensor | None = None) -> Tensor:
        """Encodes face crops.

        Args:
            crops: ``(N, T, Y, X)`` grey levels, uint8 0..255 or float 0..1.
            mask: ``(N, T)``, True = real.

        Returns:
            ``(N, T, D)``.
        """
        if torch.compiler.is_compiling():  # a graph for all lengths counts no frames
            pooled = self._seen(crops, mask)
        else:
            pooled = torch.cat([self._seen(*part) for part in self._parts(crops, mask)])
        embedded = self.project(rearrange(pooled, "(n t) p c -> n t (c p)", t=crops.shape[1]))
        out: Tensor = self.norm(self.temporal(embedded, mask))
        return keep_real(out, mask)

    def before_time(self, crops: Tensor, first: int, last: int) -> Tensor:
        """What comes before the convolution over time: frames ``first .. last`` of ``(N, T, Y, X)``, ``(N, T', D)``.

        The frames around them, ``stem_past`` and ``stem_ahead``, are what the stem compares them with.
        """
        pooled = self._seen(crops, None, first, last)
        out: Tensor = self.project(rearrange(pooled, "(n t) p c -> n t (c p)", n=len(crops)))
        return out

    def over_time(self, embedded: Tensor) -> Tensor:
        """What :meth:`before_time` gives, ``(N, T, D)``, to embeddings ``(N, T, D)``."""
        out: Tensor = self.norm(self.temporal(embedded))
        return out

    def _parts(self, crops: Tensor, mask: Tensor | None) -> Iterator[tuple[Tensor, Tensor | None, int, int]]:
        """Some clips, or some frames of one clip at a time: crops and mask, the first frame to see, the one after."""
        if crops.device.type == "cpu":
            _keep_freed_memory()
        at_once, frames = _frames_at_once(crops), crops.shape[1]
        together = max(1, at_once // max(1, frames))
        clips = torch.split(crops, together)
        masks = [None] * len(clips) if mask is None else torch.split(mask, together)
        size = -(-frames // max(1, -(-frames // at_once)))  # parts of one size, but for the last
        for some, real in zip(clips, masks, strict=True):
            for first in range(0, max(1, frames), max(1, size)):
                last = min(first + size, frames)
                begin, end = max(0, first - self.stem_past), min(frames, last + self.stem_ahead)
                around = None if real is None else real[:, begin:end]
                yield some[:, begin:end], around, first - begin, last - begin

    def _seen(self, crops: Tensor, mask: Tensor | None, first: int = 0, last: int | None = None) -> Tensor:
        """What the convolutions see in each of 9 places: frames ``first .. last`` of ``(N, T, Y, X)``, ``(N·T, 9, C)``.

        Coarse places are kept: which part of the face moves matters.
        """
        return _pooled(self.stages(self.stem(_maps(crops, mask, self.stem_ahead, first, last))))


def _frames_at_once(crops: Tensor) -> int:
    """How many frames of ``(N, T, Y, X)`` pass the convolutions together: on a CPU as many as its cache can hold.

    Frames are independent: however they are parted, what comes out is the same (to rounding).
    """
    clips, frames, height, width = crops.shape
    if crops.device.type != "cpu":
        return max(1, clips * frames)
    return max(1, CACHED_PIXELS * torch.get_num_threads() // (height * width))


def _keep_freed_memory() -> None:
    """Has the C library keep what the maps of one part took for those of the next.

    glibc gives freed memory at the end of its heap back to the system once it is twice as much as the largest block
    that came from the system by itself and was freed, up to 32 MB; here is one of nearly that size, never written to.
    Fresh pages for every part took a quarter of the time.
    """
    torch.empty(31 << 20, dtype=torch.uint8)


def _maps(crops: Tensor, mask: Tensor | None, ahead: int, first: int, last: int | None) -> Tensor:
    """Frames ``first .. last`` of crops ``(N, T, Y, X)`` as the stem takes them: ``(N·T', 3, Y, X)``."""
    pictures = crops.float().div_(255) if crops.dtype == torch.uint8 else crops
    pictures = (pictures - 0.45) * 4.0
    if mask is not None:
        pictures = pictures.masked_fill(~mask[..., None, None], 0.0)
    return rearrange(_with_motion(pictures, mask, ahead, first, last), "n t c y x -> (n t) c y x")


def _with_motion(pictures: Tensor, mask: Tensor | None, ahead: int, first: int = 0, last: int | None = None) -> Tensor:
    """The picture, what changed since the frame before, and what changes until the next: ``(N, T', 3, Y, X)``.

    With ``ahead`` 0 the third is what had changed in the frame before. At the ends of the real frames nothing changes.
    Of frames ``first .. last``; channels are last in memory, each written there at once.
    """
    held = torch.cat([pictures[:, :1], pictures], dim=1)
    since = (held[:, 1:] - held[:, :-1]) * MOTION_GAIN
    if mask is not None:
        real = torch.cat([mask[:, :1], mask], dim=1)
        since = since.masked_fill(~(real[:, 1:] & real[:, :-1])[..., None, None], 0.0)
    other = F.pad(since, (0, 0, 0, 0, 0, 1))[:, 1:] if ahead else F.pad(since, (0, 0, 0, 0, 1, 0))[:, :-1]
    seen = pictures[:, first:last]
    maps = seen.new_empty(*seen.shape, STEM_CHANNELS)
    for channel, values in enumerate((seen, since[:, first:last], other[:, first:last])):
        maps[..., channel] = values
    return rearrange(maps, "n t y x c -> n t c y x")


def _pooled(maps: Tensor) -> Tensor:
    """Means over 3 x 3 places, those of ``F.adaptive_avg_pool2d``: ``(N, C, Y, X) -> (N, 9, C)``.

    As a product with a matrix of zeros and ones: on a CPU the gradient of torch's own pooling is several times as slow
    on maps with their channels last, and on CUDA it differs from run to run.
    """
    height, width = maps.shape[-2:]
    rows, columns = _places(height, maps.device), _places(width, maps.device)
    within = (rows[:, None, :, None] & columns[None, :, None, :]).reshape(POOLED_SIDE**2, height * width)
    sums = within.to(maps.dtype) @ rearrange(maps, "n c y x -> n (y x) c")
    return sums / within.sum(dim=1, keepdim=True)


def _places(side: int, device: torch.device) -> Tensor:
    """Which of ``side`` pixels each of 3 places is the mean of: ``(3, side)`` bool."""
    place, pixel = torch.arange(POOLED_SIDE, device=device)[:, None], torch.arange(side, device=device)
    return (pixel >= place * side // POOLED_SIDE) & (pixel < -(-(place + 1) * side // POOLED_SIDE))
