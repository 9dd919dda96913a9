"""The probe `audit`: proves the balance of what came in, in a process of its own with low priority, one at a time.

Each audit looks at what came since the one before, a quarter of an hour at most. Messages that have only not landed yet are no
loss: the stream's lag has alerts of its own.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ingest.contract.errors import UnavailableError
from monitoring.metrics.families import Samples

__all__ = ["AuditProbe"]

FIRST_SECONDS: Final = 60.0
MOST_WINDOW_SECONDS: Final = 900.0
OVERLAP_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 20
TIMEOUT_SECONDS: Final = 300.0
FIGURES: Final = ("unaccounted", "duplicate_rows", "order_violations", "messages")


class AuditProbe:
    """Runs `tidegate audit` when one is due.

    Args:
        config: the settings file that the audit is given.
        every_seconds: between two audits.
        stop: ends one that runs.
    """

    def __init__(self, config: Path, every_seconds: float, stop: threading.Event) -> None:
        self._config, self._every_seconds, self._stop = config, every_seconds, stop
        self._due_at = time.monotonic() + min(FIRST_SECONDS, every_seconds)
        self._until: float | None = None
        self._samples: Samples = {}
        self.newest: Mapping[str, Any] | None = None

    def look(self) -> Samples:
        """The figures of the newest audit.

        Raises:
            UnavailableError: the one that was due could not be made.
        """
        if time.monotonic() >= self._due_at and not self._stop.is_set():
            self._due_at = time.monotonic() + self._every_seconds
            began, began_at = time.monotonic(), time.time()
            found = self._run(self._window_seconds(began_at))
            if found is not None:
                self._until = began_at
                self._take(found, took=time.monotonic() - began)
        return self._samples

    def _window_seconds(self, now: float) -> float:
        before = self._every_seconds if self._until is None else now - self._until
        return min(MOST_WINDOW_SECONDS, before + OVERLAP_SECONDS)

    def _take(self, found: Mapping[str, Any], *, took: float) -> None:
        lost = max(0, int(found["unaccounted"]) - int(found.get("pending", 0)))
        figures = {
            "unaccounted": lost,
            "duplicate_rows": int(found["duplicate_rows"]),
            "order_violations": int(found["order_violations"]),
            "messages": int(found["received"]),
        }
        self.newest = {"at": time.time(), **figures, "since": found.get("since"), "notes": found.get("notes", [])}
        self._samples = {
            "tidegate_audit_unaccounted_messages": [((), float(lost))],
            "tidegate_audit_duplicate_rows": [((), float(figures["duplicate_rows"]))],
            "tidegate_audit_order_violations": [((), float(figures["order_violations"]))],
            "tidegate_audit_messages": [((), float(figures["messages"]))],
            "tidegate_audit_timestamp_seconds": [((), time.time())],
            "tidegate_audit_duration_seconds": [((), took)],
        }

    def _run(self, window_seconds: float) -> Mapping[str, Any] | None:
        """What the audit found; None where the monitor ends meanwhile."""
        command = [
            *_nice(), sys.executable, "-P", "-m", "deploy.cli", "audit", "--json", "--since", f"{window_seconds:.0f}s",
            "--wait", str(WAIT_SECONDS), "--config", str(self._config),
        ]  # fmt: skip
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            ended = _follow(process, self._stop)
            out, words = process.communicate()
        if not ended:
            return None
        try:
            found: Mapping[str, Any] = json.loads(out)
            found["unaccounted"], found["received"]
        except (ValueError, KeyError, TypeError):
            last = words.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
            message = f"the audit could not be made: {last[0]}"
            raise UnavailableError(message) from None
        return found


def _follow(process: "subprocess.Popen[bytes]", stop: threading.Event) -> bool:
    """Wait for the end; False where it was ended because the monitor ends."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while process.poll() is None:
        if stop.wait(0.2) or time.monotonic() > deadline:
            process.kill()
            process.wait()
            return not stop.is_set()
    return True


def _nice() -> list[str]:
    found = shutil.which("nice") if os.name == "posix" else None
    return [found, "-n", "10"] if found else []
