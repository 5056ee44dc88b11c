"""How fast an epoch went, how much of it was waiting for data, and how much memory it took at most."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

MEGABYTE = 2**20


class Throughput:
    """Clocks one epoch of this process, from when it is made.

    Args:
        device: of the training.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began = time.monotonic()
        self._waited_s = 0.0
        self.frames = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time spent inside counts as waiting for data."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._waited_s += time.monotonic() - began

    def numbers(self, frames: float) -> dict[str, float]:
        """Frames a second, share of the time spent waiting for data, peak memory.

        Args:
            frames: real face-frames learnt from, over all processes.
        """
        seconds = max(time.monotonic() - self._began, 1e-9)
        numbers = {"frames_per_s": frames / seconds, "data_wait_percent": 100 * self._waited_s / seconds}
        peak = peak_memory_mb()
        if peak is not None:
            numbers["peak_memory_mb"] = peak
        if self._device.type == "cuda":
            numbers["peak_gpu_memory_mb"] = torch.cuda.max_memory_allocated(self._device) / MEGABYTE
        return numbers


def peak_memory_mb() -> float | None:
    """The most memory that this process has held so far, in MiB; its workers have their own. None on Windows."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / MEGABYTE if sys.platform == "darwin" else peak / 1024  # bytes there, KiB elsewhere
