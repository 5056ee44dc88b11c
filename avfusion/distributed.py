"""The processes of one training, as torchrun starts them: who am I, and what do the others have.

Without torchrun there is one process and nothing here does anything. With it, each process has a rank; rank 0 (the main
process) alone writes and logs. Small things (counts, rows of scores, random states) travel over gloo on the CPU
whatever the gradients use. When one process fails, the others learn its cause from the shared store within
seconds and end; one that vanishes without a word (kill -9, a lost machine) is missed by its neighbour.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from avfusion.errors import AvfusionError, UsageError, one_line

Value = TypeVar("Value")

TIMEOUT = timedelta(minutes=30)  # of one collective: the main process scores and writes while the others wait
POLL_S = 2.0
SILENT_S = 40.0  # without a sign of life for this long, a process counts as gone


@dataclass(frozen=True)
class World:
    """The processes of a training and this one's place among them.

    Attributes:
        rank: of this process, from 0.
        size: number of processes.
        local_rank: of this process on its machine, the number of its GPU; None when it is alone.
    """

    rank: int = 0
    size: int = 1
    local_rank: int | None = None
    _control: Any = None  # gloo, for what is small and on the CPU
    _rows: Any = None  # for rows of tensors on the device, apart from the gradients' own collectives

    @property
    def is_main(self) -> bool:
        """Whether this process writes and logs."""
        return self.rank == 0

    def shard(self, items: Sequence[Value]) -> list[Value]:
        """This process's share: every ``size``-th item, each item in exactly one share."""
        return list(items[self.rank :: self.size])

    def broadcast(self, value: Value | None) -> Value:
        """What the main process gives, in every process."""
        box: list[Any] = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, src=0, group=self._control)
        given: Value = box[0]
        return given

    def collect(self, value: Value) -> list[Value]:
        """The values of all processes by rank, in the main process; an empty list in the others."""
        if self.size == 1:
            return [value]
        boxes: list[Any] | None = [None] * self.size if self.is_main else None
        dist.gather_object(value, boxes, dst=0, group=self._control)
        return boxes or []

    def sum(self, values: Tensor) -> Tensor:
        """The sum of a CPU tensor over all processes, float64, the same in each."""
        total = values.to("cpu", torch.float64)
        if self.size > 1:
            total = total.clone()
            dist.all_reduce(total, group=self._control)
        return total

    def gather(self, rows: Tensor) -> Tensor:
        """Rows of all processes one below the other, by rank; gradients flow back to whoever owns a row.

        Args:
            rows: ``(n, ...)`` on the device of the training; ``n`` may differ between processes, the rest may not.
        """
        if self.size == 1:
            return rows
        counts = torch.zeros(self.size, dtype=torch.int64)
        counts[self.rank] = len(rows)
        dist.all_reduce(counts, group=self._control)
        gathered: Tensor = _GatherRows.apply(rows, counts.tolist(), self.rank, self._rows)
        return gathered


ALONE = World()


class _GatherRows(torch.autograd.Function):
    """All rows of all processes; backwards, each process sums what all of them want of its own rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int], rank: int, group: Any) -> Tensor:
        ctx.counts, ctx.rank, ctx.group = counts, rank, group
        longest = max(*counts, 1)
        sent = rows.new_zeros(longest, *rows.shape[1:])
        sent[: len(rows)] = rows
        as_numbers = sent.to(torch.uint8) if rows.dtype == torch.bool else sent
        received = [torch.empty_like(as_numbers) for _ in counts]
        dist.all_gather(received, as_numbers.contiguous(), group=group)
        return torch.cat([part[:count] for part, count in zip(received, counts, strict=True)]).to(rows.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        wanted = grad.contiguous().clone()
        dist.all_reduce(wanted, group=ctx.group)
        first = sum(ctx.counts[: ctx.rank])
        return wanted[first : first + ctx.counts[ctx.rank]], None, None, None


def started_by_torchrun() -> bool:
    """Whether this is one of several processes.

    Raises:
        UsageError: the environment says so, but not which.
    """
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1":
        return False
    if not size.isdigit() or not os.environ.get("RANK", "").isdigit():
        raise UsageError(
            f"WORLD_SIZE={size} without a RANK: start several processes with torchrun --nproc-per-node=N, or unset it"
        )
    return int(size) > 1


def rank_of_torchrun() -> int:
    """This process's rank before :func:`join_world` is called; 0 without torchrun."""
    return int(os.environ.get("RANK", "0")) if started_by_torchrun() else 0


def local_rank_of_torchrun() -> int | None:
    """This process's place among those of its machine; None without torchrun."""
    return int(os.environ.get("LOCAL_RANK", "0")) if started_by_torchrun() else None


@contextmanager
def join_world(pick_device: Callable[[int | None], torch.device]) -> Iterator[World]:
    """Joins the processes that torchrun started; without torchrun there is nothing to join.

    Args:
        pick_device: gives this process's device, from its place among those of its machine. Gradients of CUDA tensors
            travel over NCCL, all others over gloo.

    Yields:
        The world. An exception inside the block is told to the other processes, which then end too.
    """
    if not started_by_torchrun():
        pick_device(None)
        yield ALONE
        return
    store, rank, size = next(iter(rendezvous("env://", timeout=TIMEOUT)))
    # A connection of its own: while the groups are made, one process may wait on the other for as long as it takes.
    watch = _Watch(PrefixStore("watch", store.clone()), rank, size)
    watch.start()
    try:
        device = pick_device(local_rank_of_torchrun())
        backend = "nccl" if device.type == "cuda" else "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group(
            backend, store=PrefixStore("groups", store), rank=rank, world_size=size, timeout=TIMEOUT
        )
        control, rows = dist.new_group(backend="gloo", timeout=TIMEOUT), dist.new_group(timeout=TIMEOUT)
        yield World(rank, size, local_rank_of_torchrun(), control, rows)
        watch.leave()
    except BaseException as error:
        cause = watch.cause_elsewhere() if isinstance(error, RuntimeError) else None  # often a connection that broke
        if cause is not None:
            raise AvfusionError(f"rank {rank} ends, since {cause}") from error
        watch.tell(error)
        raise
    dist.destroy_process_group()


class _Watch(threading.Thread):
    """Shows a sign of life, looks for the next rank's, and ends this process when another has failed."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        super().__init__(daemon=True)
        self._store, self._rank, self._neighbour = store, rank, (rank + 1) % size
        self._left = threading.Event()

    def tell(self, error: BaseException) -> None:
        """Tells the others why this process ends, unless somebody told a cause before."""
        self._left.set()
        cause = str(error) if isinstance(error, AvfusionError) else f"{type(error).__name__}: {error}"
        with suppress(RuntimeError):  # where the store has gone, whoever held it is known to have ended
            self._say(f"rank {self._rank} on {socket.gethostname()} failed: {cause}")
            time.sleep(POLL_S + 0.5)  # the store may end with this process: the others shall have read it

    def cause_elsewhere(self) -> str | None:
        """Why another process has ended, if it says so within a moment; and this one is then expected to end."""
        until = time.monotonic() + 2 * POLL_S
        while time.monotonic() < until:
            try:
                if self._store.check(["cause"]):
                    self._left.set()
                    return self._store.get("cause").decode()
            except RuntimeError:
                return None
            time.sleep(0.2)
        return None

    def leave(self) -> None:
        """This process has done its part: from now on it is not missed."""
        self._left.set()
        self._store.set(f"left/{self._rank}", "1")

    def run(self) -> None:
        """Until this process leaves: alive every 2 s, and whether the others are."""
        last, since, beat = b"", time.monotonic(), 0
        while True:
            beat += 1
            try:
                self._store.set(f"alive/{self._rank}", str(beat))
                if self._store.check(["cause"]):
                    self._end(self._store.get("cause").decode())
                begun, ended = (self._store.check([f"{what}/{self._neighbour}"]) for what in ("alive", "left"))
                seen = self._store.get(f"alive/{self._neighbour}") if begun and not ended else b""
            except RuntimeError:
                self._end("the process that holds the processes together (rank 0's machine) has gone")
                return
            if seen != last or not seen:
                last, since = seen, time.monotonic()
            elif time.monotonic() - since > SILENT_S:
                cause = f"rank {self._neighbour} has shown no sign of life for {SILENT_S:.0f} s"
                with suppress(RuntimeError):
                    self._say(cause)
                self._end(cause)
            if self._left.wait(POLL_S):
                return

    def _say(self, cause: str) -> None:
        if not self._store.check(["cause"]):
            self._store.set("cause", one_line(cause))

    def _end(self, cause: str) -> None:
        if not self._left.is_set():
            print(f"rank {self._rank}: ends, since {cause}", file=sys.stderr, flush=True)
            os._exit(1)
