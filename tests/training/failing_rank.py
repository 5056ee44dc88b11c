"""Two processes of which one fails in its own way: ``python failing_rank.py raises|vanishes|freezes`` (as rank 0 or 1).

The other one waits for it in a collective, as it would in the middle of a step. No launcher watches over them.
"""

from __future__ import annotations

import os
import signal
import sys

import torch

from avfusion import distributed
from avfusion.distributed import join_world
from avfusion.errors import AvfusionError, run_command


def main() -> None:
    how = sys.argv[1]
    distributed.SILENT_S = 4.0
    with join_world(lambda _: torch.device("cpu")) as world:
        print(f"rank {world.rank} joined", flush=True)
        if world.rank == 1:
            if how == "raises":
                raise AvfusionError("clip_7 cannot be read")
            os.kill(os.getpid(), signal.SIGKILL if how == "vanishes" else signal.SIGSTOP)
        print(f"sum {world.sum(torch.ones(1)).item()}", flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))
