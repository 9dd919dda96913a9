"""`tidegate down`: ask the supervisor to stop, wait, and leave nothing behind if it does not."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from deploy.local.guard import kill_marked
from deploy.local.runfile import RunFile, is_locked, read_run, read_state, require_run

__all__ = ["stop_run"]

BOUND_SECONDS: Final = 180.0


def stop_run(data: Path, told: Callable[[str], None]) -> dict[str, Any]:
    """Stop the run of a data folder; what was done.

    Raises:
        UnavailableError: nothing runs there.
    """
    if not is_locked(data) and (left := read_run(data)) is not None:
        killed = kill_marked(left.run_id)
        _forget(data)
        told(f"The run of pid {left.pid} was killed before; its traces are gone now ({killed} processes stopped).")
        return {"stopped": True, "recovered": True, "killed": killed}
    run = require_run(data)
    began = time.monotonic()
    with suppress(ProcessLookupError):
        os.kill(run.pid, signal.SIGTERM)
    graceful = _wait_for_end(data, told)
    if not graceful:
        _force(data, run, told)
    told(f"Stopped after {time.monotonic() - began:.1f} s. Data stays in {data}.")
    return {"stopped": True, "recovered": False, "graceful": graceful}


def _wait_for_end(data: Path, told: Callable[[str], None]) -> bool:
    deadline = time.monotonic() + BOUND_SECONDS
    shown = ""
    spoke_at = time.monotonic()
    while is_locked(data):
        if time.monotonic() > deadline:
            return False
        parts = read_state(data).get("parts", {})
        stopping = ", ".join(name for name, part in parts.items() if part["state"] == "stopping")
        if stopping and (stopping != shown or time.monotonic() - spoke_at > 1.8):
            told(f"  stopping {stopping}")
            shown, spoke_at = stopping, time.monotonic()
        time.sleep(0.1)
    return True


def _force(data: Path, run: RunFile, told: Callable[[str], None]) -> None:
    told(f"The supervisor (pid {run.pid}) did not end within {BOUND_SECONDS:g} s: killing the run.")
    with suppress(ProcessLookupError):
        os.kill(run.pid, signal.SIGKILL)
    kill_marked(run.run_id)
    _forget(data)


def _forget(data: Path) -> None:
    for name in ("run.json", "state.json"):
        (data / name).unlink(missing_ok=True)
