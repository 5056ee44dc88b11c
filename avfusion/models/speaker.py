"""Between the faces of a frame: each asks the others, and a learned token for whoever is off screen.

``B`` scenes, ``S`` face tracks, ``T`` video frames, ``D`` features, ``H`` heads. Masks are boolean, True = real.

One voice is mostly one person's: how well another face fits the sound tells about this one. Faces of a frame are a
set: no positions, any ``S`` at any time, and the faces in another order give the scores in that order. The token's
value is zero, like that of the null key: a face that gives it all its weight, and a face alone, stays exactly as it
was.

Source of the set attention: Lee et al. 2019, "Set Transformer"; of attention between speakers for this task: Wang et
al. 2023, "LoCoNet".
"""

from __future__ import annotations

import math

import torch
from einops import rearrange
from torch import Tensor, nn

from avfusion.models.attention_parts import AttentionModule, HeadNorm, head_dim
from avfusion.models.dot_product import attend
from avfusion.models.layers import keep_real


class SpeakerAttention(AttentionModule):
    """Multi-head attention from every face of a frame to the other faces of that frame and to the off-screen token.

    Args:
        embed_dim: ``D``.
        num_heads: ``H``.
        dropout: share of weights dropped in training.

    Raises:
        ValueError: ``D`` is not a multiple of ``H``.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.pre_norm = nn.LayerNorm(embed_dim)
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.norm = HeadNorm(num_heads)
        self.off_screen_key = nn.Parameter(torch.randn(num_heads, head_dim(embed_dim, num_heads, False)))
        self.out = nn.Linear(embed_dim, embed_dim, bias=False)  # what attends to nothing adds nothing
        nn.init.normal_(self.out.weight, std=0.1 / math.sqrt(embed_dim))  # at first a face is hardly changed by others

    @property
    def past_frames(self) -> int | None:
        """Frames before a frame that can change it: none; None where the whole track is wanted."""
        return None if self.watched else 0

    @property
    def ahead_frames(self) -> int | None:
        """Frames after it."""
        return self.past_frames

    def forward(
        self, x: Tensor, mask: Tensor | None = None, need_weights: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Adds to every face what it takes from the others.

        Args:
            x: ``(B, S, T, D)``.
            mask: ``(B, S, T)``, True where the face is there.
            need_weights: also return the weights.

        Returns:
            ``(B, S, T, D)``, zero where a face is not there; with ``need_weights`` also ``(B, T, H, S, S)``, asking
            face by asked face, whose rows lack what the token takes.
        """
        scenes, faces, frames = x.shape[:3]
        if faces == 1 and not self._wants_weights(need_weights):
            return keep_real(x, mask)
        at_frames = rearrange(self.pre_norm(x), "b s t d -> (b t) s d")
        query, key, value = rearrange(
            self.qkv(at_frames), "n s (three h k) -> three n h s k", three=3, h=self.num_heads
        ).unbind(0)
        query, key = self.norm(query, key)
        others = ~torch.eye(faces, dtype=torch.bool, device=x.device)
        there = others.expand(scenes * frames, 1, faces, faces)
        if mask is not None:
            there = there & rearrange(mask, "b s t -> (b t) 1 1 s")
        attended, weights = attend(
            query,
            key,
            value,
            there,
            null_key=self.off_screen_key,
            need_weights=self._wants_weights(need_weights),
            dropout=self.dropout if self.training else 0.0,
        )
        taken = self.out(rearrange(attended, "n h s k -> n s (h k)"))
        output = keep_real(x + rearrange(taken, "(b t) s d -> b s t d", b=scenes), mask)
        weights = None if weights is None else rearrange(weights, "(b t) h s o -> b t h s o", b=scenes)
        return self._answer(output, weights, need_weights)
