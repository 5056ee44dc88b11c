"""Long tracks pass an encoder in pieces, so that what its layers hold does not grow with the track.

``N`` sequences, ``T`` steps (video or audio frames), ``D`` features. Each piece has the steps around it that the
encoder can reach, so the embeddings are those of the whole track (to rounding). Large tensors come from the system as
fresh pages each time; their making was a third of the time of a track of 16 minutes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def encode(encoder: nn.Module, x: Tensor, mask: Tensor | None, piece_steps: int) -> Tensor:
    """Embeds ``x`` ``(N, T, ...)`` (``mask`` ``(N, T)``, True = real) to ``(N, T, D)``.

    In pieces where no gradient is wanted, the track is longer than two of them, and the encoder says how far it
    reaches (``past_frames`` and ``ahead_frames``).
    """
    past, ahead = getattr(encoder, "past_frames", None), getattr(encoder, "ahead_frames", None)
    if past is None or ahead is None or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return _run(encoder, x, mask)
    length = x.shape[1]
    if length <= 2 * piece_steps:
        return _run(encoder, x, mask)
    pieces = []
    for first in range(0, length, piece_steps):
        last = min(first + piece_steps, length)
        begin, end = max(first - past, 0), min(last + max(ahead, 0), length)
        seen = _run(encoder, x[:, begin:end], None if mask is None else mask[:, begin:end])
        pieces.append(seen[:, first - begin : last - begin])
    return torch.cat(pieces, dim=1)


def _run(encoder: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    out: Tensor = encoder(x, mask)
    return out
