"""`tidegate down`: ask the supervisor to stop, wait, and stop the remaining processes if it does not."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from deploy.local.guard import is_supervisor, kill_marked
from deploy.local.runfile import RunFile, is_locked, read_run, read_state, require_run
from ingest.contract.errors import FatalError

__all__ = ["stop_run"]

BOUND_SECONDS: Final = 180.0
FOUND_SECONDS: Final = 15.0
"""A supervisor that has just started first clears up after the last one, and then says who it is."""


def stop_run(data: Path, notify: Callable[[str], None]) -> dict[str, Any]:
    """Stop the run of a data folder; what was done.

    Raises:
        UnavailableError: nothing runs there.
    """
    if not is_locked(data) and (left := read_run(data)) is not None:
        killed = sum(kill_marked(run_id) for run_id in left.unrecovered)
        _forget(data)
        notify(f"The run of pid {left.pid} had been killed; cleaned up after it ({killed} processes stopped).")
        return {"stopped": True, "recovered": True, "killed": killed}
    run = _find_supervisor(data)
    began = time.monotonic()
    with suppress(ProcessLookupError):
        os.kill(run.pid, signal.SIGTERM)
    graceful = _wait_for_end(data, run, notify)
    if not graceful:
        _force(data, run, notify)
    notify(f"Stopped after {time.monotonic() - began:.1f} s. Data stays in {data}.")
    return {"stopped": True, "recovered": False, "graceful": graceful}


def _find_supervisor(data: Path) -> RunFile:
    """The live run, proved to be the one of this run file: another process may have got an old supervisor's id.

    Raises:
        UnavailableError: nothing runs there.
        FatalError: something holds the folder, and it is not the process that the run file names.
    """
    deadline = time.monotonic() + FOUND_SECONDS
    while not is_supervisor((run := require_run(data)).pid, run.run_id):
        if time.monotonic() > deadline:
            msg = f"{data} is in use, but not by pid {run.pid} from its run.json. Look for a `tidegate up` on this folder."
            raise FatalError(msg)
        time.sleep(0.1)
    return run


def _lives(data: Path, run: RunFile) -> bool:
    """Return whether this very run still holds the folder: the next one may have it already."""
    if not is_locked(data):
        return False
    now = read_run(data)
    return now is None or now.run_id == run.run_id


def _wait_for_end(data: Path, run: RunFile, notify: Callable[[str], None]) -> bool:
    deadline = time.monotonic() + BOUND_SECONDS
    shown = ""
    spoke_at = time.monotonic()
    while _lives(data, run):
        if time.monotonic() > deadline:
            return False
        parts = read_state(data).get("parts", {})
        stopping = ", ".join(name for name, part in parts.items() if part["state"] == "stopping")
        if stopping and (stopping != shown or time.monotonic() - spoke_at > 1.8):
            notify(f"  stopping {stopping}")
            shown, spoke_at = stopping, time.monotonic()
        time.sleep(0.1)
    return True


def _force(data: Path, run: RunFile, notify: Callable[[str], None]) -> None:
    notify(f"The supervisor (pid {run.pid}) did not end within {BOUND_SECONDS:g} s; killing the run.")
    if is_supervisor(run.pid, run.run_id):
        with suppress(ProcessLookupError):
            os.kill(run.pid, signal.SIGKILL)
    kill_marked(run.run_id)
    _forget(data)


def _forget(data: Path) -> None:
    for name in ("run.json", "state.json"):
        (data / name).unlink(missing_ok=True)
