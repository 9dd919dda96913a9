"""Faults of a part: contexts that hang or crash it, and always let it run again."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psutil

from deploy.local.guard import RUN_ID
from ingest.contract.errors import UnavailableError

__all__ = ["belongs_to_run", "crash_part", "hang_part", "started_at"]

LOOK_SECONDS: Final = 0.2


def belongs_to_run(pid: int | None, run_id: str) -> bool:
    """Return whether this is a process of that run: an id in a file may belong to another process by now."""
    try:
        return pid is not None and psutil.Process(pid).environ().get(RUN_ID) == run_id
    except psutil.Error:
        return False


def started_at(pid: int | None) -> float:
    """Return the start time of this process, in epoch seconds; infinity if there is none."""
    try:
        return float(psutil.Process(pid).create_time()) if pid is not None else float("inf")
    except psutil.Error:
        return float("inf")


@contextmanager
def hang_part(pid: int, run_id: str) -> Iterator[None]:
    """Stop the part's process and all that it started while the block runs.

    They are let go by a process of its own, which does so when this one closes its pipe: by leaving the block, by
    Ctrl-C, or by being killed.

    Raises:
        UnavailableError: it is not a process of the run.
    """
    if not belongs_to_run(pid, run_id):
        msg = f"Process {pid} is not part of this run. See `tidegate status`, and try again."
        raise UnavailableError(msg)
    guard = subprocess.Popen(
        ["sh", "-c", 'cat >/dev/null; kill -s CONT -- "-$0"', str(pid)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        # Each part leads a process group of its own: a JVM below Python hangs with it.
        os.killpg(pid, signal.SIGSTOP)
        yield
    finally:
        guard.communicate()


@contextmanager
def crash_part(pid_now: Callable[[], int | None], run_id: str) -> Iterator[None]:
    """Kill the part, and again after each restart, while the block runs."""
    over = threading.Event()
    killer = threading.Thread(target=_kill_each, args=(pid_now, run_id, over), daemon=True)
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()


def _kill_each(pid_now: Callable[[], int | None], run_id: str, over: threading.Event) -> None:
    while not over.is_set():
        pid = pid_now()
        if pid is not None and belongs_to_run(pid, run_id):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        over.wait(LOOK_SECONDS)
