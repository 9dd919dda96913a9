"""Nothing outlives the supervisor, not even after `kill -9`: a small process waits for its end and clears up.

Every process of a run carries the run's id in its environment. The guard holds the reading end of a pipe whose only
writer is the supervisor; when that end closes, it stops whatever still carries the id. No list of processes is passed
around, so none can be out of date, and children of children are found as well.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

from deploy.settings import child_environment

__all__ = ["RUN_ID", "kill_marked", "marked", "start_guard"]

RUN_ID = "TIDEGATE_RUN_ID"


def marked(run_id: str) -> list[psutil.Process]:
    """Every process of the run, except the one that asks."""
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _carries(process, run_id)]


def _carries(process: psutil.Process, run_id: str) -> bool:
    try:
        return bool(process.environ().get(RUN_ID) == run_id and process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, OSError):
        return False


def kill_marked(run_id: str, *, grace_seconds: float = 5.0, spare: Iterable[int] = ()) -> int:
    """Ask every process of the run to stop, kill what is still there after the grace; returns how many were found."""
    spared = set(spare)
    found = [process for process in marked(run_id) if process.pid not in spared]
    for process in found:
        _signal(process.terminate)
    psutil.wait_procs(found, timeout=grace_seconds)
    deadline = time.monotonic() + grace_seconds
    # A process may have started another one meanwhile: look again until nothing is left.
    while (
        left := [process for process in marked(run_id) if process.pid not in spared]
    ) and time.monotonic() < deadline:
        for process in left:
            _signal(process.kill)
        psutil.wait_procs(left, timeout=1.0)
    return len(found)


def _signal(act: Callable[[], None]) -> None:
    with suppress(psutil.Error, OSError):
        act()


def start_guard(run_id: str) -> "subprocess.Popen[bytes]":
    """Start the guard of a run; it ends by itself when this process ends or closes the guard's stdin."""
    environment = child_environment(run_id)
    del environment[RUN_ID]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "deploy.local.guard", run_id],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environment, cwd="/", start_new_session=True,
    )  # fmt: skip


def main() -> None:
    """Wait for the end of the supervisor, then leave nothing of its run."""
    while sys.stdin.buffer.read(1):
        pass
    kill_marked(sys.argv[1])


if __name__ == "__main__":
    main()
