"""One run of `tidegate audit` in its own process with low priority; polling it never blocks."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ingest.contract.errors import UnavailableError

__all__ = ["AuditRun", "AuditTimeoutError", "audit_command"]

WAIT_SECONDS: Final = 20
KILL_SECONDS: Final = 2.0


class AuditTimeoutError(UnavailableError):
    """The audit was stopped because it took too long; one with a shorter window may finish."""


class AuditRun:
    """A process that runs from its creation on.

    Args:
        command: the command; it writes JSON to stdout.
        timeout_seconds: a run that takes longer is stopped.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self, command: Sequence[str], *, timeout_seconds: float) -> None:
        self.began_at = time.time()
        self._began, self._timeout_seconds = time.monotonic(), timeout_seconds
        # Files instead of pipes: nothing reads while it runs, and a full pipe would block it forever.
        self._out, self._words = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._words
            )  # fmt: skip
        except OSError:
            self._forget()
            raise

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def poll(self) -> Mapping[str, Any] | None:
        """Return the audit's report; None while it runs.

        Raises:
            TooLongError: the audit took too long and was stopped.
            UnavailableError: the audit failed; the message says why.
        """
        if self._process.poll() is None:
            if self.seconds <= self._timeout_seconds:
                return None
            self.close()
            message = f"the audit took longer than {self._timeout_seconds:.0f} s and was stopped"
            raise AuditTimeoutError(message)
        try:
            return self._found()
        finally:
            self._forget()

    def close(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # its disk hangs: it ends when the disk answers again
                self._process.wait(KILL_SECONDS)
        self._forget()

    def _found(self) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = json.loads(_all_of(self._out))
            found["unaccounted"], found["received"]
        except (ValueError, KeyError, TypeError):
            words = _all_of(self._words).decode("utf-8", "replace").strip().splitlines()
            message = f"the audit failed: {words[-1] if words else f'exit code {self._process.returncode}'}"
            raise UnavailableError(message) from None
        return found

    def _forget(self) -> None:
        self._out.close()
        self._words.close()


def audit_command(config: Path, window_seconds: float) -> list[str]:
    """Return the command of `tidegate audit` for the last seconds."""
    return [
        *_nice(), sys.executable, "-P", "-m", "deploy.cli", "audit", "--json", "--since", f"{window_seconds:.0f}s",
        "--wait", str(WAIT_SECONDS), "--config", str(config),
    ]  # fmt: skip


def _all_of(file: Any) -> bytes:
    file.seek(0)
    return bytes(file.read())


def _nice() -> list[str]:
    found = shutil.which("nice") if os.name == "posix" else None
    return [found, "-n", "10"] if found else []
