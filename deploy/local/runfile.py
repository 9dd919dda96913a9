"""The run file, by which every command finds an embedded run and a second `up` is rejected.

While a run lives, its supervisor holds a lock on the data folder. The kernel drops the lock with the process. So a run file
without a lock is from a run that was killed, and the next start takes over.
"""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from deploy.settings_file import write_private
from ingest.contract.errors import FatalError, UnavailableError
from lakehouse.lock import is_flocked

__all__ = ["CREDENTIALS", "DataLock", "RunFile", "is_locked", "read_run", "read_state", "require_run"]

CREDENTIALS: Final = "credentials.json"
"""File of the broker's user, which each run's folder has."""


@dataclass(slots=True)
class RunFile:
    """Content of `run.json`: who runs, on which ports, with which settings file."""

    run_id: str
    pid: int
    started_at: float
    ports: dict[str, int] = field(default_factory=dict)
    parts: dict[str, int | None] = field(default_factory=dict)
    config: str = "config.toml"
    part_configs: list[str] = field(default_factory=list)
    """Settings files of a secured run's parts. Each has the logins of one part; `config` has those of the commands."""
    credentials: str = CREDENTIALS
    has_access_list: bool = False
    """Whether the broker has users with rights of their own, so that `device login` can add some."""
    recovers: list[str] = field(default_factory=list)
    """Ids of killed runs that this one clears up after, until it has."""

    @property
    def configs(self) -> list[str]:
        """All settings files of the run."""
        return [self.config, *self.part_configs]

    @property
    def unrecovered(self) -> list[str]:
        """Run ids whose processes may still be there once this run is gone without a stop."""
        return [*self.recovers, self.run_id]

    def write(self, data: Path) -> None:
        """Replace run.json at once."""
        write_private(data / "run.json", json.dumps(asdict(self), indent=2) + "\n")


class DataLock:
    """The lock on the data folder; held until `release` or the end of the process."""

    def __init__(self, data: Path) -> None:
        self._handle = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._handle)
            run = read_run(data)
            who = f"pid {run.pid}" if run else "another process"
            msg = (
                f"A running `tidegate up` ({who}) already uses {data}. See `tidegate status`, stop it with `tidegate down`, or "
                "start a second run with another --data and --port-offset 100."
            )
            raise FatalError(msg) from error

    def release(self) -> None:
        """Let the next run in."""
        os.close(self._handle)


def is_locked(data: Path) -> bool:
    """Return whether a supervisor lives on this data folder."""
    return is_flocked(data)


def read_run(data: Path) -> RunFile | None:
    """The run file, or None where there is none (or no whole one)."""
    with suppress(OSError, ValueError, TypeError):
        return RunFile(**json.loads((data / "run.json").read_text("utf-8")))
    return None


def require_run(data: Path) -> RunFile:
    """The live run of this data folder.

    Raises:
        UnavailableError: nothing runs there.
    """
    deadline = time.monotonic() + 2.0
    while is_locked(data):
        # The lock is taken a moment before the file is written.
        if (run := read_run(data)) is not None or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    else:
        run = None
    if run is None:
        msg = f"Nothing runs on {data}. Start it with `tidegate up`, or name its folder with --data or TIDEGATE_DATA."
        raise UnavailableError(msg)
    return run


def read_state(data: Path) -> Mapping[str, Any]:
    """Return the supervisor's last view of its parts; empty if it has not looked yet."""
    with suppress(OSError, ValueError):
        state: Mapping[str, Any] = json.loads((data / "state.json").read_text("utf-8"))
        return state
    return {}
