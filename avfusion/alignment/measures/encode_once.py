"""Spares the encoders' work where the same clips pass a model again and again and only what comes after differs.

The picture's encoder takes most of the time of a pass. Moved sound does not change what it gives, and edited heads
change neither encoder. Memory: the encoders' outputs of one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Passes:
    """Marks where one pass ends and the next, over the same inputs in the same order, begins."""

    def __init__(self, encoders: list[_Recorded]) -> None:
        self._encoders = encoders

    def again(self) -> None:
        """The next inputs are the first ones of a pass."""
        for encoder in self._encoders:
            encoder.place = 0


@contextmanager
def encode_once(*encoders: nn.Module) -> Iterator[Passes]:
    """Inside the block the encoders compute in the first pass and give the same answers in the following ones.

    Yields:
        Its ``again()`` is to be called before each pass. The encoders are as before when the block ends, by an
        exception too.
    """
    before = [vars(encoder).get("forward") for encoder in encoders]
    recorded = [_Recorded(encoder) for encoder in encoders]
    try:
        for encoder, forward in zip(encoders, recorded, strict=True):
            vars(encoder)["forward"] = forward
        yield Passes(recorded)
    finally:
        for encoder, old in zip(encoders, before, strict=True):
            vars(encoder).pop("forward", None)
            if old is not None:
                vars(encoder)["forward"] = old


class _Recorded:
    """An encoder's forward that answers from memory what it was asked before."""

    def __init__(self, encoder: nn.Module) -> None:
        self.place = 0
        self._forward = encoder.forward
        self._answers: list[tuple[torch.Size, Tensor]] = []

    def __call__(self, inputs: Tensor, *masks: Tensor | None) -> Tensor:
        """The encoder's output.

        Raises:
            ValueError: the input has another shape than that of the first pass at this place.
        """
        if self.place == len(self._answers):
            self._answers.append((inputs.shape, self._forward(inputs, *masks)))
        shape, answer = self._answers[self.place]
        if shape != inputs.shape:
            raise ValueError(f"every pass needs the same inputs: found {tuple(inputs.shape)} after {tuple(shape)}")
        self.place += 1
        return answer
