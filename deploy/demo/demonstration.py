"""One demonstration: wait for calm, break a part, follow the alerts, end the fault, wait for recovery, and audit."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from deploy.demo.faults import DemoFault
from deploy.demo.part_faults import crash_part, hang_part, started_at
from deploy.local.monitor_client import ask_monitor, page_address
from deploy.local.runfile import RunFile, read_run, read_state, require_run
from deploy.settings import Settings, load_settings
from ingest.contract.errors import UnavailableError

__all__ = ["AlertChange", "AlertTimeline", "Demo", "DemoReport"]

LOOK_SECONDS: Final = 0.5
CALM_SECONDS: Final = 240.0
HEALED_SECONDS: Final = 240.0
"""Time after the fault for alerts to resolve and parts to be ready: a machine may be busy."""
LINGER_SECONDS: Final = 30.0
"""Time to wait for late alerts of the fault: some look back over a quarter of an hour."""
MARGIN_SECONDS: Final = 60.0
BALANCE: Final = ("received", "stored", "dead_lettered", "ignored", "duplicate", "unaccounted")

Tell = Callable[[str], None]
Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class AlertChange:
    """Change of an alert's state, in seconds after the fault. The state `over` is the end of a pending alert that never fired."""

    after_seconds: float
    alert: str
    state: str
    severity: str
    text: str
    runbook: str

    def as_dict(self) -> dict[str, Any]:
        """Return the change as JSON-ready data."""
        return asdict(self)


class AlertTimeline:
    """Changes of alerts since the fault, from the monitor's snapshots. Older alerts are left out until they change."""

    def __init__(self, before: Mapping[str, Any], *, began_at: float) -> None:
        self._began_at = began_at
        self._known = {_key(alert): alert for alert in before.get("alerts", [])}
        self._before = dict(self._known)
        self.changes: list[AlertChange] = []

    def look(self, snapshot: Mapping[str, Any]) -> list[AlertChange]:
        """Return the changes in this snapshot."""
        found = {_key(alert): alert for alert in snapshot.get("alerts", [])}
        new = [*self._begun(found), *self._ended(found, float(snapshot["at"]))]
        self._known = found
        self.changes += sorted(new, key=lambda change: change.after_seconds)
        return new

    @property
    def unfinished(self) -> list[str]:
        """Return the names of alerts that are pending or firing now, and were not before the fault."""
        return self._in("pending", "firing")

    @property
    def still_firing(self) -> list[str]:
        """Return the names of the unfinished alerts that fire."""
        return self._in("firing")

    def _in(self, *states: str) -> list[str]:
        now = self._known.items()
        return [one["name"] for key, one in now if one["state"] in states and not _same(self._before.get(key), one)]

    def went(self, alert: str, *states: str) -> bool:
        """Return whether an alert came into each of these states, one after the other."""
        seen = iter(change.state for change in self.changes if change.alert == alert)
        return all(state in seen for state in states)

    def _begun(self, found: Mapping[Key, Mapping[str, Any]]) -> Iterator[AlertChange]:
        for key, alert in found.items():
            if not _same(self._known.get(key), alert):
                yield self._change(alert, alert["state"], float(alert["since"]))

    def _ended(self, found: Mapping[Key, Mapping[str, Any]], at: float) -> Iterator[AlertChange]:
        """Yield alerts that are no longer listed: Prometheus drops resolved alerts, the monitor those that never fired."""
        for key, alert in self._known.items():
            if key not in found and alert["state"] != "resolved":
                yield self._change(alert, "resolved" if alert["state"] == "firing" else "over", at)

    def _change(self, alert: Mapping[str, Any], state: str, at: float) -> AlertChange:
        after = round(max(0.0, at - self._began_at), 1)
        return AlertChange(after, alert["name"], state, alert["severity"], alert["text"], alert["runbook"])


def _same(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> bool:
    return before is not None and (before["state"], before["since"]) == (now["state"], now["since"])


def _key(alert: Mapping[str, Any]) -> Key:
    """Return a key with the source: Prometheus and the monitor may report the same alert, which counts as two."""
    labels = {**alert.get("labels", {}), "source": alert.get("source", "")}
    return alert["name"], tuple(sorted(labels.items()))


@dataclass
class DemoReport:
    """Result of a demo."""

    fault: DemoFault
    kill: bool
    seconds: float
    changes: list[AlertChange] = field(default_factory=list)
    fired: bool = False
    resolved: bool = False
    ready_after_seconds: float | None = None
    audit: dict[str, Any] = field(default_factory=dict)
    balanced: bool = False

    @property
    def ok(self) -> bool:
        """True if the alert fired and resolved, the run is ready again, and no message was lost, duplicated or reordered."""
        return self.fired and self.resolved and self.balanced and self.ready_after_seconds is not None

    def balance(self) -> str:
        """Return the audit's figures in one line."""
        return "Audit: " + ", ".join(f"{name.replace('_', ' ')} {self.audit[name]:,}" for name in BALANCE)

    def verdict(self) -> str:
        """Return the result of the demo in one sentence."""
        if self.ok:
            return f"{self.fault.alert} fired and resolved, the run is ready, and the audit balances."
        missing = {
            f"{self.fault.alert} did not fire": not self.fired,
            f"{self.fault.alert} did not resolve": self.fired and not self.resolved,
            "the run is not ready again": self.ready_after_seconds is None,
            "the audit does NOT balance": not self.balanced,
        }
        return f"The demo failed: {', '.join(text for text, holds in missing.items() if holds)}."

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready data."""
        return {
            "ok": self.ok,
            "part": self.fault.part,
            "way": "kill" if self.kill else "hang",
            "seconds": self.seconds,
            "alert": self.fault.alert,
            "fired": self.fired,
            "resolved": self.resolved,
            "ready_after_seconds": self.ready_after_seconds,
            "changes": [change.as_dict() for change in self.changes],
            "audit": self.audit,
        }


class Demo:
    """One fault of a running pipeline, for `seconds`; `tell` gets a line per event."""

    def __init__(self, data: Path, fault: DemoFault, *, seconds: float, kill: bool, tell: Tell) -> None:
        self._data, self._fault, self._seconds, self._kill = data, fault, seconds, kill
        self._run_file: RunFile = require_run(data)
        self._settings: Settings = load_settings(data / self._run_file.config, environ={})
        self._page = page_address(self._settings.monitoring)
        self._told = tell
        self._began_at = 0.0

    def run(self) -> DemoReport:
        """Break the part, follow the alerts, end the fault, and audit.

        Raises:
            UnavailableError: the run is not ready, or its monitor does not answer.
        """
        report = DemoReport(self._fault, self._kill, self._seconds)
        self._wait_for_calm()
        before = ask_monitor(self._settings.monitoring)
        if before is None:
            msg = f"The monitor does not answer at {self._page}. See `tidegate logs monitor`."
            raise UnavailableError(msg)
        self._began_at = time.time()
        story = AlertTimeline(before, began_at=self._began_at)
        self._tell(f"{self._fault.part} {'is killed' if self._kill else 'hangs'} for {self._seconds:g} s. {self._page}")
        self._tell(self._fault.shows)
        with self._broken():
            self._follow(story, lambda: time.time() - self._began_at >= self._seconds, self._seconds + LOOK_SECONDS)
        self._tell("fault ended: the part continues" if not self._kill else "fault ended: the part may start again")
        self._follow(story, lambda: self._is_over(story), HEALED_SECONDS)
        if self._ready():
            report.ready_after_seconds = round(time.time() - self._began_at, 1)
            self._tell("all parts are ready")
        self._follow(story, lambda: not story.unfinished, LINGER_SECONDS)
        for name in sorted(set(story.still_firing)):
            self._tell(f"{name} is not over yet, because its window is longer than this fault")
        report.changes = story.changes
        report.fired = story.went(self._fault.alert, "firing")
        report.resolved = story.went(self._fault.alert, "firing", "resolved")
        self._strike(report)
        return report

    def _tell(self, text: str, after_seconds: float | None = None) -> None:
        after = time.time() - self._began_at if after_seconds is None else after_seconds
        self._told(f"{after:6.1f} s  {text}")

    def _wait_for_calm(self) -> None:
        """Wait until the run is ready, calm and some minutes old: alerts wait longer while parts start."""
        watcher, age_seconds = self._fault.watcher
        deadline, told = time.monotonic() + CALM_SECONDS, ""
        while why := self._why_unsettled(watcher, age_seconds):
            if time.monotonic() > deadline:
                msg = f"The run is not ready for a demonstration: {why}. See `tidegate status`."
                raise UnavailableError(msg)
            if why != told:
                self._told(f"waiting: {why}")
                told = why
            time.sleep(LOOK_SECONDS)

    def _why_unsettled(self, watcher: str, age_seconds: float) -> str:
        if not self._ready():
            return "not all parts are ready"
        if started_at(self._pid(watcher)) > time.time() - age_seconds:
            return f"{self._fault.alert} does not fire until the {watcher} has run for {age_seconds:g} s"
        snapshot = ask_monitor(self._settings.monitoring) or {}
        states = {alert["state"] for alert in snapshot.get("alerts", []) if alert["name"] == self._fault.alert}
        if states & {"pending", "firing"}:
            return f"{self._fault.alert} is not over yet"
        return ""

    def _ready(self) -> bool:
        return bool(read_state(self._data).get("ready"))

    def _pid(self, part: str) -> int | None:
        run = read_run(self._data)
        return run.parts.get(part) if run is not None else None

    def _broken(self) -> AbstractContextManager[None]:
        if self._kill:
            return crash_part(partial(self._pid, self._fault.part), self._run_file.run_id)
        pid = self._pid(self._fault.part)
        if pid is None:
            msg = f"{self._fault.part} is not running. See `tidegate status`, and try again."
            raise UnavailableError(msg)
        return hang_part(pid, self._run_file.run_id)

    def _follow(self, story: AlertTimeline, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            snapshot = ask_monitor(self._settings.monitoring)
            for change in story.look(snapshot) if snapshot is not None else ():
                self._show(change)
            time.sleep(LOOK_SECONDS)

    def _show(self, change: AlertChange) -> None:
        """Report pending states only for the alert under test; others often go pending without firing."""
        if change.alert != self._fault.alert and change.state in ("pending", "over"):
            return
        where = f"\n{'':>10}{self._page.rstrip('/')}{change.runbook}" if change.state == "firing" else ""
        words = f"  {change.text}" if change.state in ("pending", "firing") else ""
        self._tell(f"{change.state:<8} {change.alert}{words}{where}", change.after_seconds)

    def _is_over(self, story: AlertTimeline) -> bool:
        """Return whether all parts are ready, and the alert is over or never began."""
        return self._ready() and self._fault.alert not in story.unfinished

    def _strike(self, report: DemoReport) -> None:
        from deploy.balance_audit import AuditBounds, audit

        since = timedelta(seconds=time.time() - self._began_at + MARGIN_SECONDS)
        kafka, root, bounds = self._settings.kafka, self._settings.lake.root, AuditBounds.of(self._settings)
        found = audit(kafka, root, since, bounds=bounds, wait_seconds=60.0)
        report.audit, report.balanced = found.to_dict(), found.balanced
