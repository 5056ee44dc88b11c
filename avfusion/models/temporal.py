"""Speaker consistency over time: self-attention over seconds and a depthwise convolution over neighbouring frames.

``N`` face tracks, ``T`` video frames, ``D`` features.
Source: Gulati et al. 2020, "Conformer" (attention, then depthwise convolution); the other order is the option of
DESIGN's ``temporal.order``.
"""

from __future__ import annotations

from torch import Tensor, nn

from avfusion.models.attention import MultiHeadSelfAttention
from avfusion.models.layers import FeedForward, TemporalConvolution, keep_real


class TemporalBlock(nn.Module):
    """One block of self-attention and convolution over time, with a feed-forward.

    Args:
        embed_dim: ``D``.
        num_heads: heads of the self-attention.
        hz: frames a second.
        window_s: each frame attends to this many seconds before and after it; None for the whole track.
        kernel: frames of the depthwise convolution, odd.
        attention_first: attention before convolution, or after it.
        positions: rotary positions in seconds on queries and keys. They all turn (the slowest once in 8 s), so what a
            frame looks for far away depends on how far; without them it is found at any distance alike.
        dropout: share of features dropped in training.
        causal: each frame sees those before it only.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        hz: float,
        window_s: float | None = 1.0,
        kernel: int = 5,
        attention_first: bool = True,
        positions: bool = True,
        dropout: float = 0.0,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(embed_dim)
        self.attention = MultiHeadSelfAttention(
            embed_dim,
            num_heads,
            hz=hz,
            window_s=window_s,
            ahead_s=0.0 if causal else None,
            rotary=positions,
            qk_norm=True,
            dropout=dropout,
        )
        self.convolution = TemporalConvolution(embed_dim, kernel, dropout=dropout, ahead=0 if causal else None)
        self.feed_forward = FeedForward(embed_dim, dropout=dropout)
        self.attention_first = attention_first

    @property
    def past_frames(self) -> int | None:
        """Frames before a frame that can change it; None for the whole track."""
        past, _ = self.attention.past_and_ahead(self.attention.window)
        return None if past is None else past + self.convolution.past_frames

    @property
    def ahead_frames(self) -> int | None:
        """Frames after it."""
        _, ahead = self.attention.past_and_ahead(self.attention.window)
        return None if ahead is None else ahead + self.convolution.ahead_frames

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """``x`` ``(N, T, D)``, ``mask`` ``(N, T)`` True = real -> ``(N, T, D)``."""
        if self.attention_first:
            x = self.convolution(self._attend(x, mask), mask)
        else:
            x = self._attend(self.convolution(x, mask), mask)
        return keep_real(x + self.feed_forward(x), mask)

    def _attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        attended: Tensor = self.attention(self.attention_norm(x), mask)
        return x + attended
