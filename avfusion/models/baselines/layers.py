"""What the baselines share: their parts, a norm within each time step, and sound told at 100 Hz.

``N`` sequences, ``C`` channels, ``A`` audio frames, ``M`` bands, ``T`` video frames, ``D`` features.

The published models norm over the batch. Here no clip may change another and no frame hear the whole clip by way of a
norm, so each time step is normed by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from einops import rearrange, repeat
from torch import Tensor, nn

from avfusion.clock import AUDIO_FRAMES_PER_VIDEO_FRAME


@dataclass(frozen=True)
class Parts:
    """What a detector is made of.

    Attributes:
        visual: crops ``(N, T, Y, X)`` and mask to ``(N, T, D)``.
        audio: log-mel ``(N, 4 T, M)`` and mask to ``(N, 4 T, D)``.
        fusion: one layer for picture and sound.
        temporal: layers over time.
        fused_dim: width of what they give.
    """

    visual: nn.Module
    audio: nn.Module
    fusion: nn.Module
    temporal: list[nn.Module]
    fused_dim: int


class FrameNorm(nn.GroupNorm):
    """Norm over channels and bands of each time step, with a scale and shift of each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__(1, channels)

    def forward(self, x: Tensor) -> Tensor:
        """``(N, C, A, M)``, and so it comes out."""
        each = super().forward(rearrange(x, "n c a m -> (n a) c m"))
        return rearrange(each, "(n a) c m -> n c a m", a=x.shape[2])


def at_100_hz(x: Tensor) -> Tensor:
    """Sound known every 40 ms, said again for each 10 ms of them: ``(N, T, D) -> (N, 4 T, D)``.

    The detector takes sound at that rate and pools it to the frames of the picture, which gives ``x`` again.
    """
    return repeat(x, "n t d -> n (t r) d", r=AUDIO_FRAMES_PER_VIDEO_FRAME)
