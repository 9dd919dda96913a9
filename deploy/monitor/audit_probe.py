"""The probe `audit`: proves the balance of received messages with audits, each in its own process, one at a time.

A look starts an audit that is due and returns the newest figures, however long the audit takes. Each audit reaches back to the
time that the one before has proven. This covers outages in which no audit could run, or in which messages did not land.
Messages that have only not landed yet are not a loss: the stream's lag has its own alerts.

A finding is reported until an audit that reaches back to it finds nothing. Such a look back grows longer with time, so the next
one follows only after twenty times its duration; in between, audits of new time run as usual.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from deploy.monitor.audit_finding import AuditFinding, BalanceFaults, FindingFile, FinishedAudit
from ingest.contract.errors import UnavailableError
from monitoring.metrics.families import Samples

__all__ = ["AuditProbe", "AuditRun", "AuditTimeoutError", "audit_command"]

FIRST_SECONDS: Final = 60.0
MOST_WINDOW_SECONDS: Final = 6 * 3600.0
OVERLAP_SECONDS: Final = 60.0
TIMEOUT_SECONDS: Final = 900.0
LOOK_BACK_SHARE: Final = 0.05
"""Maximum share of the time for audits that look back at a finding."""
WAIT_SECONDS: Final = 20
KILL_SECONDS: Final = 2.0

Start = Callable[[float], "AuditRun"]
"""(window in seconds) -> a running audit."""


class AuditTimeoutError(UnavailableError):
    """The audit was stopped because it took too long; one with a shorter window may finish."""


class AuditRun:
    """A process of low priority that audits from its creation on; polling it never blocks.

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
            AuditTimeoutError: the audit took too long and was stopped.
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


class AuditProbe:
    """Probe that starts `tidegate audit` when it is due, and reads its result.

    Args:
        config: the settings file for the audit.
        every_seconds: from the start of one audit to the next.
        keep: file that keeps a finding over a restart; None keeps it in memory only.
        start: starts an audit, in place of `tidegate audit`.
    """

    def __init__(
        self, config: Path, every_seconds: float, *, keep: Path | None = None, start: Start | None = None
    ) -> None:
        self._every_seconds = every_seconds
        self._start = start or (lambda w: AuditRun(audit_command(config, w), timeout_seconds=TIMEOUT_SECONDS))
        self._due_at = time.monotonic() + min(FIRST_SECONDS, every_seconds)
        self._run: AuditRun | None = None
        self._window_seconds = 0.0
        self._proven_until = time.time() - every_seconds
        self._was_too_long = self._has_seen = self._is_look_back = False
        self._look_back_at = 0.0
        self._skipped_seconds = 0.0
        self._finding = FindingFile(keep)
        self._samples: Samples = _samples_of(self._finding.held) if self._finding.held else {}
        self.newest: Mapping[str, Any] | None = None

    def look(self) -> Samples:
        """Return the figures of the newest audit.

        Raises:
            UnavailableError: the audit that was running failed.
            OSError: an audit cannot be started.
        """
        if accepted := self._finding.was_accepted():
            self._restart(accepted)
        if self._run is None and time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + self._every_seconds
            self._window_seconds = self._window(time.time())
            self._run = self._start(self._window_seconds)
        if self._run is not None:
            self._follow(self._run)
        return self._samples

    def close(self) -> None:
        """End the running audit."""
        if self._run is not None:
            self._run.close()
            self._run = None

    def _restart(self, accepted: AuditFinding) -> None:
        """Start at once with a new audit after the accepted time: a running audit would find the same again."""
        self.close()
        self._proven_until = max(self._proven_until, accepted.until)
        self._due_at = time.monotonic()

    def _window(self, now: float) -> float:
        """Return the window of the next audit in seconds: back to the proven time, up to a limit.

        After an audit that was stopped, the window is not longer than usual. From time to time it reaches back to the finding,
        however old that is.
        """
        most = self._every_seconds + OVERLAP_SECONDS if self._was_too_long else MOST_WINDOW_SECONDS
        usual = min(most, max(0.0, now - self._proven_until) + OVERLAP_SECONDS)
        held = self._finding.held
        self._is_look_back = held is not None and held.provable and time.monotonic() >= self._look_back_at
        return max(usual, now - held.since + OVERLAP_SECONDS) if held is not None and self._is_look_back else usual

    def _rest(self, run: AuditRun) -> None:
        """Set the earliest time of the next look back: each one may take longer, and must not take all of the time."""
        if self._is_look_back:
            self._look_back_at = time.monotonic() + run.seconds / LOOK_BACK_SHARE

    def _follow(self, run: AuditRun) -> None:
        try:
            found = run.poll()
        except Exception as error:
            self._run = None
            if isinstance(error, AuditTimeoutError):
                self._was_too_long = not self._is_look_back
                self._rest(run)
            else:
                # The error is mostly temporary, and figures are missing until the next audit ends: start it soon.
                self._due_at = min(self._due_at, time.monotonic() + FIRST_SECONDS)
            raise
        if found is not None:
            self._run, self._was_too_long = None, False
            self._rest(run)
            audited = FinishedAudit.of(found, began_at=run.began_at, window_seconds=self._window_seconds)
            self._finding.take(audited)
            skipped = self._prove(run.began_at, pending=audited.pending)
            self._take(found, took=run.seconds, skipped=skipped)
            self._check_again_soon(messages=int(found["received"]))

    def _check_again_soon(self, *, messages: int) -> None:
        """Start the next audit soon until one has seen messages: nothing is proven before."""
        self._has_seen = self._has_seen or messages > 0
        if not self._has_seen:
            self._due_at = min(self._due_at, time.monotonic() + FIRST_SECONDS)

    def _prove(self, at: float, *, pending: int) -> float:
        """Keep how far the balance is proven; return the seconds before the window that no audit will cover.

        With messages that have not landed nothing is proven: they may still be lost, so the next audit covers them again. A
        finding is kept separately and does not delay this.
        """
        if pending:
            return 0.0
        skipped = max(0.0, at - self._window_seconds - self._proven_until)
        self._proven_until = at
        self._skipped_seconds += skipped
        return skipped

    def _take(self, found: Mapping[str, Any], *, took: float, skipped: float) -> None:
        held = self._finding.held
        self.newest = {
            "at": time.time(),
            **(held.faults if held else BalanceFaults())._asdict(),
            "messages": int(found["received"]),
            "since": found.get("since"),
            "notes": [*found.get("notes", []), *self._notes(held, skipped)],
        }
        self._samples = {
            **_samples_of(held),
            "tidegate_audit_messages": [((), float(found["received"]))],
            "tidegate_audit_timestamp_seconds": [((), time.time())],
            "tidegate_audit_duration_seconds": [((), took)],
            "tidegate_audit_skipped_seconds_total": [((), self._skipped_seconds)],
        }

    def _notes(self, held: AuditFinding | None, skipped: float) -> Iterator[str]:
        if skipped:
            yield _gap(skipped, self._window_seconds)
        if held is not None:
            yield held.describe()
        if self._finding.fault:
            yield self._finding.fault


def _samples_of(held: AuditFinding | None) -> Samples:
    """Return the samples of the faults found by the newest audit, and by earlier ones that no audit has cleared."""
    faults = held.faults if held else BalanceFaults()
    return {
        "tidegate_audit_unaccounted_messages": [((), float(faults.unaccounted))],
        "tidegate_audit_duplicate_rows": [((), float(faults.duplicate_rows))],
        "tidegate_audit_order_violations": [((), float(faults.order_violations))],
    }


def _gap(skipped: float, window: float) -> str:
    return (
        f"Messages received in the {skipped:.0f} s before were not audited: this audit reaches back {window:.0f} s. "
        f"To audit all of them, run `tidegate audit --since {skipped + window:.0f}s`."
    )
