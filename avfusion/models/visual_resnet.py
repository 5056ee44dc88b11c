"""Face crops to one embedding per video frame, with the convolutions of ResNet-18.

The stem sees five frames, two on either side of its own: for grey pictures a 3D convolution of 5x7x7 is a 2D one whose
channels are the frames. Everything behind it takes each frame by itself. ``N`` face tracks, ``T`` video frames,
``Y, X`` the sides of the picture, ``D`` features.

Batch norm would let the frames of a batch, padding among them, change each other. So there is group norm within each
frame; or, to start from weights learnt with batch norm, batch norm whose statistics stay those that came with them.
Source: He et al. 2016, "Deep Residual Learning for Image Recognition"; Wu and He 2018, "Group Normalization".
"""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from avfusion.models.layers import TemporalConvolution, keep_real
from avfusion.models.visual import POOLED_SIDE, EveryOther, _frames_at_once, _pooled

STEM_FRAMES = 5
WIDTHS = (64, 128, 256, 512)  # of the four stages, two blocks each
GROUPS = 32
GREY_MEAN, GREY_STD = 0.449, 0.226  # means over the colours of what ImageNet's networks are fed


class FixedNorm(nn.Module):
    """A batch norm whose statistics are given: what one frame becomes depends on no other. Scale and shift are learnt.

    Args:
        channels: ``C``.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """``(N, C, Y, X)``, and so it comes out."""
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias)


def _norm(channels: int, fixed_statistics: bool) -> nn.Module:
    return FixedNorm(channels) if fixed_statistics else nn.GroupNorm(GROUPS, channels)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a skip, which is projected where the width changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, fixed_statistics: bool) -> None:
        super().__init__()
        self.convolve1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.norm1 = _norm(out_channels, fixed_statistics)
        self.convolve2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = _norm(out_channels, fixed_statistics)
        self.skip = (
            nn.Identity()
            if in_channels == out_channels
            else nn.Sequential(
                EveryOther(in_channels, out_channels, stride),
                _norm(out_channels, fixed_statistics),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        """``(N, C, Y, X) -> (N, C', Y/stride, X/stride)``."""
        inner = self.norm2(self.convolve2(F.relu(self.norm1(self.convolve1(x)), inplace=True)))
        return F.relu(inner + self.skip(x), inplace=True)


class ResNetEncoder(nn.Module):
    """Grey face crops to embeddings; each sees ``past_frames`` frames before its own and ``ahead_frames`` after it.

    Both are ``reach_frames`` unless ``ahead_frames`` is given.

    Args:
        embed_dim: ``D``.
        temporal_kernel: frames seen by the convolution over time, odd.
        dropout: share of features dropped in training.
        ahead_frames: 0 or more; None, and at most, the reach of the centred convolutions.
        fixed_statistics: batch norm with given statistics, for weights of ImageNet, instead of group norm.
    """

    def __init__(
        self,
        embed_dim: int,
        temporal_kernel: int = 3,
        dropout: float = 0.0,
        ahead_frames: int | None = None,
        *,
        fixed_statistics: bool = False,
    ) -> None:
        super().__init__()
        self.reach_frames = STEM_FRAMES // 2 + temporal_kernel // 2
        self.ahead_frames = self.reach_frames if ahead_frames is None else min(ahead_frames, self.reach_frames)
        self.past_frames = 2 * self.reach_frames - self.ahead_frames
        self.stem_ahead = min(STEM_FRAMES // 2, self.ahead_frames)
        self.stem_past = STEM_FRAMES - 1 - self.stem_ahead
        self.stem = nn.Sequential(
            nn.Conv2d(STEM_FRAMES, WIDTHS[0], 7, stride=2, padding=3, bias=False),
            _norm(WIDTHS[0], fixed_statistics),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        stages: list[nn.Module] = []
        for before, width in zip((WIDTHS[0], *WIDTHS), WIDTHS, strict=False):
            stages.append(BasicBlock(before, width, 1 if before == width else 2, fixed_statistics))
            stages.append(BasicBlock(width, width, 1, fixed_statistics))
        self.stages = nn.Sequential(*stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.project = nn.Linear(WIDTHS[-1] * POOLED_SIDE**2, embed_dim)
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
        windows = _windows(crops, mask, self.stem_ahead)
        if torch.compiler.is_compiling() or (at_once := _frames_at_once(crops)) >= crops.shape[0] * crops.shape[1]:
            parts = [windows.flatten(0, 1)]
        else:
            parts = [part for clip in windows for part in clip.split(at_once)]
        pooled = torch.cat([_pooled(self.stages(self.stem(rearrange(part, "n y x c -> n c y x")))) for part in parts])
        embedded = self.project(rearrange(pooled, "(n t) p c -> n t (c p)", t=crops.shape[1]))
        out: Tensor = self.norm(self.temporal(embedded, mask))
        return keep_real(out, mask)

    def before_time(self, crops: Tensor, first: int, last: int) -> Tensor:
        """What comes before the convolution over time: frames ``first .. last`` of ``(N, T, Y, X)``, ``(N, T', D)``.

        The frames around them, ``stem_past`` and ``stem_ahead``, are what the stem sees beside them.
        """
        windows = _windows(crops, None, self.stem_ahead)[:, first:last]
        pooled = _pooled(self.stages(self.stem(rearrange(windows, "n t y x c -> (n t) c y x"))))
        out: Tensor = self.project(rearrange(pooled, "(n t) p c -> n t (c p)", n=len(crops)))
        return out

    def over_time(self, embedded: Tensor) -> Tensor:
        """What :meth:`before_time` gives, ``(N, T, D)``, to embeddings ``(N, T, D)``."""
        out: Tensor = self.norm(self.temporal(embedded))
        return out


def _windows(crops: Tensor, mask: Tensor | None, ahead: int) -> Tensor:
    """Each frame among five, ``ahead`` of them after it: ``(N, T, Y, X) -> (N, T, Y, X, 5)``.

    Beyond the real frames there is the grey that all pictures have on average, which is 0.
    """
    pictures = crops.float() / 255 if crops.dtype == torch.uint8 else crops
    pictures = (pictures - GREY_MEAN) / GREY_STD
    if mask is not None:
        pictures = pictures.masked_fill(~mask[..., None, None], 0.0)
    return F.pad(pictures, (0, 0, 0, 0, STEM_FRAMES - 1 - ahead, ahead)).unfold(1, STEM_FRAMES, 1)
