"""The pool's processes leave Ctrl-C to the parent, end with it, and one that is killed is told in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from avfusion.errors import AvfusionError
from avfusion.processes import process_pool

ADVICE = "use fewer"


def test_a_killed_process_is_told_and_ctrl_c_is_the_parents_business() -> None:
    def work() -> None:
        with process_pool(1, ADVICE) as pool:
            process = pool.submit(os.getpid).result()
            os.kill(process, signal.SIGINT)
            assert pool.submit(os.getpid).result() == process
            assert pool.submit(os.getenv, "OMP_NUM_THREADS").result() == "1"
            os.kill(process, signal.SIGKILL)
            pool.submit(os.getpid).result()

    with pytest.raises(AvfusionError, match=r"^a process was killed from outside .*; use fewer$"):
        work()


def test_leaving_the_block_by_an_error_ends_the_processes_in_the_middle_of_their_work() -> None:
    process = 0

    def work() -> None:
        nonlocal process
        with process_pool(1, ADVICE) as pool:
            process = pool.submit(os.getpid).result()
            pool.submit(time.sleep, 600)
            raise ValueError("the parent's own")

    with pytest.raises(ValueError, match="the parent's own"):
        work()  # comes back, though a process has work for ten minutes
    assert not _is_alive(process)


def test_processes_end_when_the_parent_is_killed() -> None:
    code = (
        "import os, sys, time\n"
        "from avfusion.processes import process_pool\n"
        "if __name__ == '__main__':\n"
        "    with process_pool(1, '') as pool:\n"
        "        print(pool.submit(os.getpid).result(), flush=True)\n"
        "        pool.submit(time.sleep, 600).result()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        parent.kill()
    for _ in range(600):
        if not _is_alive(process):
            return
        time.sleep(0.1)
    os.kill(process, signal.SIGKILL)
    pytest.fail("the process outlived its parent by a minute")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")
