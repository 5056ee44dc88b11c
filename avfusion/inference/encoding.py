"""Embeddings of a stream as its frames come, equal to those of the whole clip, in bounded memory.

Rows are video frames at 25 Hz, counted from the start of the stream: the crop of a face ``(Y, X)``, or the 640 samples
of a frame's sound; embedded they are ``(D,)``, or the four of a frame's sound ``(4, D)``. An encoder may be a chain of
such stages; each frame passes each of them once, beside the frames that the stage sees before and after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

# Rows (n, ...) and which of them, first .. last, to embed: the others are what they are seen beside.
Stage = Callable[[Tensor, int, int], Tensor]


class Source(Protocol):
    """Where rows come from: they are there up to ``known``, and a little further once the stream has ``ended``."""

    def known(self, ended: bool) -> int:
        """Number of the first row that is not there."""

    def between(self, first: int, last: int, ended: bool) -> Tensor:
        """Rows ``first .. last``, those of them that are there."""

    def forget(self, before: int) -> None:
        """Drops the rows before the given one."""


class Rows:
    """The latest rows of a stream.

    Args:
        first: number of the first row.
        like: ``(0, ...)``, says what rows are like.
    """

    def __init__(self, first: int, like: Tensor) -> None:
        self.first, self.rows = first, like

    @property
    def last(self) -> int:
        """Number of the row that comes next."""
        return self.first + len(self.rows)

    def append(self, rows: Tensor) -> None:
        """Adds rows ``(n, ...)`` at the end."""
        self.rows = torch.cat([self.rows, rows])

    def known(self, ended: bool) -> int:
        """As of any source; an end makes no difference."""
        return self.last

    def between(self, first: int, last: int, ended: bool) -> Tensor:
        """As of any source."""
        return self.rows[max(first - self.first, 0) : max(last - self.first, 0)]

    def forget(self, before: int) -> None:
        """As of any source."""
        gone = min(before, self.last) - self.first
        if gone > 0:
            self.first, self.rows = self.first + gone, self.rows[gone:].clone()  # a view would keep them all


class Encoded:
    """What a stage makes of the rows from ``start`` on, as if nothing had been before.

    Args:
        source: rows of the stream.
        stage: what embeds them.
        past: rows before a row that its embedding depends on.
        ahead: rows after it.
        start: first row.
        like: ``(0, ...)``, says what embeddings are like.
        earlier: embeddings of the same stream from an earlier start, and ``sight``, how many rows after ``start`` it
            matters that there was nothing before; from then on both are the same, and are taken from there.
    """

    def __init__(
        self,
        source: Source,
        stage: Stage,
        past: int,
        ahead: int,
        start: int,
        like: Tensor,
        earlier: tuple[Encoded, int] | None = None,
    ) -> None:
        self.source, self.stage, self.past, self.ahead, self.start = source, stage, past, ahead, start
        self.out = Rows(start, like)
        self.earlier = earlier

    def known(self, ended: bool) -> int:
        """As of any source; at an end nothing has to be waited for."""
        return self.source.known(ended) - (0 if ended else self.ahead)

    def between(self, first: int, last: int, ended: bool) -> Tensor:
        """As of any source; with ``ended`` as if no more rows were to come, though more may come."""
        there = self.out.between(first, last, ended)
        if not ended or last <= self.out.last:
            return there
        rest = self._next(self.known(True), True)
        return torch.cat([there, rest[max(first - self.out.last, 0) : last - self.out.last]])

    def kept(self) -> list[Rows]:
        """All rows in memory."""
        return [self.out, *(self.source.kept() if isinstance(self.source, Encoded) else [])]

    def advance(self, ended: bool = False) -> None:
        """Embeds what can be embedded by now; of a stream that has ended, all the rest."""
        if isinstance(self.source, Encoded):
            self.source.advance(ended)
        last = self.known(ended)
        if self.earlier is not None:
            other, sight = self.earlier
            if other.out.last >= last > self.start + sight:
                self._embed(self.start + sight, ended)
                self.out.append(other.out.between(self.out.last, last, ended))
        self._embed(last, ended)

    def forget(self, before: int) -> None:
        """As of any source; rows that no later embedding depends on go as well."""
        self.out.forget(before)
        self.source.forget(min(self.out.last, self.known(False)) - self.past)

    def _embed(self, last: int, ended: bool) -> None:
        if last > self.out.last:
            self.out.append(self._next(last, ended))

    def _next(self, last: int, ended: bool) -> Tensor:
        """The embeddings that come next, up to ``last``."""
        first = self.out.last
        begin = max(self.start, first - self.past)
        rows = self.source.between(begin, min(last + self.ahead, self.source.known(ended)), ended)
        return self.stage(rows, first - begin, last - begin)
