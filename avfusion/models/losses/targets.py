"""What the losses are computed from beside the detection, and the way to the other processes of a training.

``B`` scenes, ``S`` face tracks in a scene, ``T`` video frames, ``A = 4 T`` audio frames. Masks are boolean, True =
real.

Every term is a total (with gradient) over a count (from labels and masks alone). Both add up over the parts of a batch,
so one batch can be spread over processes and gradient-accumulation parts and still have the loss of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Targets:
    """What the labels say about one part of a batch.

    Attributes:
        speaking: ``(B, S, T)`` bool.
        frame_mask: ``(B, S, T)`` bool.
        audio_mask: ``(B, A)`` bool.
        audio_id: ``(B,)`` int64, equal where two scenes hear the same sound, in whatever process.
        matched: ``(B,)`` bool, False where picture or sound was taken away; None where that is nowhere so.
    """

    speaking: Tensor
    frame_mask: Tensor
    audio_mask: Tensor
    audio_id: Tensor
    matched: Tensor | None = None

    def where_matched(self) -> Targets:
        """The same without the scenes that lack a stream: their frames count as padding."""
        if self.matched is None:
            return self
        by_face, by_sound = self.matched[:, None, None], self.matched[:, None]
        return replace(self, frame_mask=self.frame_mask & by_face, audio_mask=self.audio_mask & by_sound)

    @property
    def spoken(self) -> Tensor:
        """``(B, S, T)`` real frames in which the face is the audible speaker."""
        return self.speaking & self.frame_mask


class Everyone(Protocol):
    """All processes that share a batch."""

    @property
    def rank(self) -> int:
        """Which of them this one is, from 0."""

    def gather(self, rows: Tensor) -> Tensor:
        """``(n, ...)`` of this process to the rows of all, own included; gradients flow back to a row's owner."""


def any_within(present: Tensor, first: int, last: int) -> Tensor:
    """``(..., T)`` bool: whether any of the frames ``t + first .. t + last`` is present, given ``(..., T)`` bool."""
    frames = present.shape[-1]
    until = F.pad(present.long().cumsum(dim=-1), (1, 0))
    step = torch.arange(frames, device=present.device)
    low, high = (step + first).clamp(0, frames), (step + last + 1).clamp(0, frames)
    return until[..., high] > until[..., low]
