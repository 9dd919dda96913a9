"""Guard of a run: a small process that waits for the end of the supervisor and then stops every process of the run.

This also works after `kill -9`. Every process of a run has the run's id in its environment. The guard has the reading end of a
pipe whose only writer is the supervisor. When the pipe closes, the guard stops every process with that id. So no list of
processes can be out of date, and children of children are found too.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

from deploy.settings import child_environment

__all__ = ["RUN_ID", "Guard", "find_marked_processes", "is_supervisor", "kill_marked"]

RUN_ID = "TIDEGATE_RUN_ID"
MODULE = "deploy.local.guard"

logger = logging.getLogger("tidegate.deploy.guard")


def find_marked_processes(run_id: str, *, variable: str = RUN_ID) -> list[psutil.Process]:
    """Every process of the run, except the one that asks."""
    others = (process for process in psutil.process_iter() if process.pid != os.getpid())
    return [process for process in others if _carries(process, run_id, variable)]


def _carries(process: psutil.Process, run_id: str, variable: str) -> bool:
    try:
        return bool(process.environ().get(variable) == run_id and process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, OSError):
        return False


def kill_marked(run_id: str, *, grace_seconds: float = 5.0, spare: Iterable[int] = (), variable: str = RUN_ID) -> int:
    """Ask every process of the run to stop, kill what is still there after the grace; returns how many were found.

    `variable` of their environment holds the id.
    """
    spared = set(spare)
    found = [process for process in find_marked_processes(run_id, variable=variable) if process.pid not in spared]
    for process in found:
        _signal(process.terminate)
    psutil.wait_procs(found, timeout=grace_seconds)
    deadline = time.monotonic() + grace_seconds
    # A process may have started another one in between: look again until nothing is left.
    while (
        left := [process for process in find_marked_processes(run_id, variable=variable) if process.pid not in spared]
    ) and time.monotonic() < deadline:
        for process in left:
            _signal(process.kill)
        psutil.wait_procs(left, timeout=1.0)
    return len(found)


def _signal(act: Callable[[], None]) -> None:
    with suppress(psutil.Error, OSError):
        act()


def is_supervisor(pid: int, run_id: str) -> bool:
    """Return whether this process is the run's supervisor: the guard of that run is its child.

    A process id alone proves nothing: the one in a run file may belong to a foreign process by now.
    """
    try:
        children = psutil.Process(pid).children()
    except psutil.Error:
        return False
    return any(_guards(child, run_id) for child in children)


def _guards(process: psutil.Process, run_id: str) -> bool:
    try:
        return bool(process.cmdline()[-2:] == [MODULE, run_id])
    except psutil.Error:
        return False


class Guard:
    """The guard of this process's run, from the first moment of the run until `end`."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._process = self._start()

    def watch(self) -> None:
        """Start the guard again if it was killed."""
        if self._process.poll() is not None:
            logger.warning("the guard of this run (pid %d) ended; starting a new one", self._process.pid)
            self._process = self._start()

    def end(self, *, wait_seconds: float = 30.0) -> None:
        """Let it clear up what is left of the run, and wait for its end."""
        assert self._process.stdin is not None  # noqa: S101 - it was opened as a pipe
        with suppress(OSError, subprocess.TimeoutExpired):
            self._process.stdin.close()
            self._process.wait(wait_seconds)

    def _start(self) -> "subprocess.Popen[bytes]":
        # Without the mark: it must not stop itself. It ends when this process ends or closes the pipe.
        environment = {name: value for name, value in child_environment(self._run_id).items() if name != RUN_ID}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, self._run_id],
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
