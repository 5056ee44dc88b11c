"""Two small layers that several encoders share.

``N`` sequences, ``T`` steps (video or audio frames), ``D`` features. Nothing here mixes the sequences of a batch, and
masked steps are set to zero before every convolution over time, so that padding acts exactly like the end of the clip.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def keep_real(x: Tensor, mask: Tensor | None) -> Tensor:
    """Sets padded steps of ``x`` ``(..., T, D)`` to zero; ``mask`` ``(..., T)``, True = real."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0.0)


def first_steps(maps: Tensor, steps: int) -> Tensor:
    """``(N, C, T', ...)`` cut to its first ``steps``: after padding by more than half a kernel, who sees less ahead."""
    return maps if maps.shape[2] == steps else maps[:, :, :steps]


class FeedForward(nn.Sequential):
    """Norm, expansion, GELU, projection: the residual branch ``(N, T, D) -> (N, T, D)``."""

    def __init__(self, dim: int, expansion: int = 2, dropout: float = 0.0) -> None:
        super().__init__(
            nn.LayerNorm(dim),
            nn.Linear(dim, expansion * dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(expansion * dim, dim),
            nn.Dropout(dropout),
        )


class TemporalConvolution(nn.Module):
    """A residual convolution over time: each step sees ``kernel // 2`` neighbours on either side, or fewer ahead.

    Depthwise over time, then a feed-forward over features.

    Args:
        dim: features.
        kernel: width over time in steps, odd.
        expansion: how much wider the feed-forward is inside.
        dropout: share of features dropped in training.
        ahead: how many of the ``kernel`` steps seen come after a step's own, 0 to ``kernel // 2``; None is the latter.

    Raises:
        ValueError: the kernel is even, so it has no centre.
    """

    def __init__(
        self, dim: int, kernel: int, expansion: int = 2, dropout: float = 0.0, ahead: int | None = None
    ) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"temporal kernel must be odd to be centred on its frame, found {kernel}")
        self.ahead_frames = kernel // 2 if ahead is None else ahead
        self.past_frames = kernel - 1 - self.ahead_frames
        self.depthwise = nn.Conv1d(dim, dim, kernel, padding=self.past_frames, groups=dim)
        self.feed_forward = FeedForward(dim, expansion, dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """``x`` ``(N, T, D)``, ``mask`` ``(N, T)`` True = real -> ``(N, T, D)``."""
        near = first_steps(self.depthwise(keep_real(x, mask).transpose(1, 2)), x.shape[1])
        mixed: Tensor = self.feed_forward(near.transpose(1, 2))
        return x + mixed


def normal_scores(*linears: nn.Linear) -> None:
    """Starts classifier heads near zero logits, so that the first loss is ln 2."""
    for linear in linears:
        nn.init.normal_(linear.weight, std=0.01)
        torch.nn.init.zeros_(linear.bias)
