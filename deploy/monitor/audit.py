"""The probe `audit`: proves the balance of what came in, in a process of its own, one at a time.

A look starts an audit that is due, and tells the newest figures, however long one takes. Each audit reaches back to what the one
before has proven: through an outage in which none could be made, and through one in which what came in did not land. Messages
that have only not landed yet are no loss: the stream's lag has alerts of its own.

What one finds wrong is told until one that reaches back to it finds nothing. Such a look back grows longer with time, so it
follows the one before only after twenty times what that took; between them new time is looked at as usual.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from deploy.monitor.audit_finding import Audited, Faults, Finding, FindingFile
from deploy.monitor.audit_run import AuditRun, TooLongError, audit_command
from monitoring.metrics.families import Samples

__all__ = ["AuditProbe"]

FIRST_SECONDS: Final = 60.0
MOST_WINDOW_SECONDS: Final = 6 * 3600.0
OVERLAP_SECONDS: Final = 60.0
TIMEOUT_SECONDS: Final = 900.0
LOOK_BACK_SHARE: Final = 0.05
"""Of the time, at most, for looks back at what was found wrong."""

Start = Callable[[float], AuditRun]
"""(window in seconds) -> an audit that is under way."""


class AuditProbe:
    """Looks at `tidegate audit`, and starts one when it is due.

    Args:
        config: the settings file that the audit is given.
        every_seconds: between the starts of two audits.
        keep: where what is wrong is kept over a restart; None keeps it in memory only.
        start: starts one, in place of `tidegate audit`.
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
        """The figures of the newest audit.

        Raises:
            UnavailableError: the one that was under way found nothing.
            OSError: none can be started.
        """
        if accepted := self._finding.was_accepted():
            self._begin_anew(accepted)
        if self._run is None and time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + self._every_seconds
            self._window_seconds = self._window(time.time())
            self._run = self._start(self._window_seconds)
        if self._run is not None:
            self._follow(self._run)
        return self._samples

    def close(self) -> None:
        """End the one that is under way."""
        if self._run is not None:
            self._run.close()
            self._run = None

    def _begin_anew(self, accepted: Finding) -> None:
        """At once, and behind what was accepted: one that is under way would find it again."""
        self.close()
        self._proven_until = max(self._proven_until, accepted.until)
        self._due_at = time.monotonic()

    def _window(self, now: float) -> float:
        """Back to what is proven; but no longer than can be read, and after one that was broken off no longer than usual.

        Now and then all the way back to what is wrong, however long that is.
        """
        most = self._every_seconds + OVERLAP_SECONDS if self._was_too_long else MOST_WINDOW_SECONDS
        usual = min(most, max(0.0, now - self._proven_until) + OVERLAP_SECONDS)
        held = self._finding.held
        self._is_look_back = held is not None and held.provable and time.monotonic() >= self._look_back_at
        return max(usual, now - held.since + OVERLAP_SECONDS) if held is not None and self._is_look_back else usual

    def _rest(self, run: AuditRun) -> None:
        """After a look back: it may become longer each time, and must not take all of the time."""
        if self._is_look_back:
            self._look_back_at = time.monotonic() + run.seconds / LOOK_BACK_SHARE

    def _follow(self, run: AuditRun) -> None:
        try:
            found = run.poll()
        except Exception as error:
            self._run = None
            if isinstance(error, TooLongError):
                self._was_too_long = not self._is_look_back
                self._rest(run)
            else:
                # What kept it from being made mostly passes; figures are missing until the next one ends.
                self._due_at = min(self._due_at, time.monotonic() + FIRST_SECONDS)
            raise
        if found is not None:
            self._run, self._was_too_long = None, False
            self._rest(run)
            audited = Audited.of(found, began_at=run.began_at, window_seconds=self._window_seconds)
            self._finding.take(audited)
            skipped = self._prove(run.began_at, pending=audited.pending)
            self._take(found, took=run.seconds, skipped=skipped)
            self._look_soon_again(messages=int(found["received"]))

    def _look_soon_again(self, *, messages: int) -> None:
        """Until one has looked at messages nothing is proven: the first ones are waited for no longer than need be."""
        self._has_seen = self._has_seen or messages > 0
        if not self._has_seen:
            self._due_at = min(self._due_at, time.monotonic() + FIRST_SECONDS)

    def _prove(self, at: float, *, pending: int) -> float:
        """Remember how far the balance is proven; how many seconds before its window nobody will ever look at.

        With messages that have not landed, nothing is: they may still be lost, so the next audit looks at them again.
        What is wrong is held by itself, and need not hold this back.
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
            **(held.faults if held else Faults())._asdict(),
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

    def _notes(self, held: Finding | None, skipped: float) -> Iterator[str]:
        if skipped:
            yield _gap(skipped, self._window_seconds)
        if held is not None:
            yield held.told()
        if self._finding.fault:
            yield self._finding.fault


def _samples_of(held: Finding | None) -> Samples:
    """What is wrong: what the newest audit found is in it, and what earlier ones found and nothing has cleared up."""
    faults = held.faults if held else Faults()
    return {
        "tidegate_audit_unaccounted_messages": [((), float(faults.unaccounted))],
        "tidegate_audit_duplicate_rows": [((), float(faults.duplicate_rows))],
        "tidegate_audit_order_violations": [((), float(faults.order_violations))],
    }


def _gap(skipped: float, window: float) -> str:
    return (
        f"What was received in the {skipped:.0f} s before was not looked at: this audit reaches back {window:.0f} s. "
        f"`tidegate audit --since {skipped + window:.0f}s` looks at all of it."
    )
