"""Many tracks at once: scenes are rendered one by one, so processes can share the work.

Rendering is numpy on small arrays. Inside a training it would also fight with torch's threads for the cores: numpy's
matrix products start threads of their own, which wait busily. The processes here keep to one thread each.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence

from avfusion.data.clips import Clip
from avfusion.data.synthetic.dataset import SyntheticDataset
from avfusion.processes import available_cores, one_thread_each

TRACKS_WORTH_A_PROCESS = 100  # one takes a second to start, a track 35 ms
MOST_PROCESSES = 16

_dataset: SyntheticDataset | None = None  # in a rendering process: what it renders


def read_many(dataset: SyntheticDataset, tracks: Sequence[int], processes: int | None = None) -> Iterator[Clip]:
    """Renders whole tracks, in the order asked for; stopping early stops the processes.

    Args:
        dataset: whose tracks.
        tracks: which of them.
        processes: how many processes; None for one a core, fewer where there is little to do.

    Yields:
        The clips, equal to those of ``dataset.read``, bit for bit.
    """
    if processes is None:
        processes = min(available_cores(), MOST_PROCESSES, len(tracks) // TRACKS_WORTH_A_PROCESS)
    if processes < 2:
        yield from map(dataset.read, tracks)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads in whatever state they are
    with one_thread_each():
        pool = context.Pool(processes, _begin, (dataset,))
    with pool:
        yield from pool.imap(_render, tracks, chunksize=4)


def _begin(dataset: SyntheticDataset) -> None:
    global _dataset
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends its processes
    _dataset = dataset


def _render(track: int) -> Clip:
    assert _dataset is not None
    return _dataset.read(track)
