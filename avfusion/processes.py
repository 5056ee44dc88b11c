"""Processes that share a command's work: how many cores there are, and one pool with the care that long work needs.

The processes are spawned, since a fork would copy the threads of torch and of decoders in whatever state they are. They
leave Ctrl-C to the parent, end when it ends however it ends, and use one thread each for numpy's products.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, InvalidStateError, ProcessPoolExecutor
from contextlib import contextmanager
from functools import lru_cache

import threadpoolctl

from avfusion.errors import AvfusionError

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def process_pool(jobs: int, advice: str) -> Iterator[ProcessPoolExecutor]:
    """A pool of ``jobs`` processes, started at once; whatever ends the block early ends the processes at once.

    Args:
        jobs: how many.
        advice: what to do when a process was killed from outside, for the message.

    Raises:
        AvfusionError: a process was killed from outside.
    """
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with one_thread_each(), _no_word_of_cancelled_work(), ProcessPoolExecutor(jobs, context, _begin_process) as pool:
        try:
            _start(pool, jobs)
            yield pool
        except BrokenExecutor as error:
            raise AvfusionError(f"a process was killed from outside (often: no memory left); {advice}") from error
        except BaseException:  # work still to do ends with the processes, and the pool is waited for as always
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
            raise


@contextmanager
def _no_word_of_cancelled_work() -> Iterator[None]:
    """Keeps the pool's own thread from printing a traceback when its processes end while work is cancelled.

    Up to Python 3.12 it tells cancelled work that the pool is broken, which such work refuses (InvalidStateError).
    """
    before = threading.excepthook

    def hook(event: threading.ExceptHookArgs) -> None:
        if not issubclass(event.exc_type, InvalidStateError):
            before(event)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes started inside use one thread for numpy's products: the processes are the parallelism."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def one_numpy_thread() -> Iterator[None]:
    """Products of numpy inside use one thread: several add up in another order, which the last bit would tell."""
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _libraries() -> threadpoolctl.ThreadpoolController:
    import numpy  # noqa: F401 the controller finds libraries that are loaded

    return threadpoolctl.ThreadpoolController()


def _start(pool: ProcessPoolExecutor, jobs: int) -> None:
    """Starts the processes deaf to Ctrl-C, also while they are still loading: the parent hears it and ends them."""
    if threading.current_thread() is not threading.main_thread():
        return  # only there may signals be set; the processes then ignore them once they are loaded
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for _ in range(jobs):
            pool.submit(_nothing)
    finally:
        signal.signal(signal.SIGINT, before)


def _nothing() -> None:
    pass


def _begin_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)
