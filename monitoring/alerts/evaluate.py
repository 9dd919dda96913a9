"""States of the alerts as in Prometheus: pending, firing, resolved. The caller gives the time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from monitoring.alerts.model import Alert
from monitoring.sample_history import History, Labels

__all__ = ["AlertState", "Evaluator", "used_metrics"]

RESOLVED_SECONDS: Final = 900.0
"""How long an ended alert is still reported."""
_ORDER: Final = {"firing": 0, "pending": 1, "resolved": 2}
_SEVERITIES: Final = {"critical": 0, "warning": 1, "info": 2}


@dataclass
class AlertState:
    """One alert for one label set. `since` is the start of its state; `explained_by` names the firing alerts that cause it."""

    alert: Alert
    labels: Labels
    state: Literal["pending", "firing", "resolved"]
    since: float
    value: float
    active_since: float
    quiet_since: float | None = None
    explained_by: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the alert as the page and `status` show it."""
        alert, labels = self.alert, {**dict(self.labels), **dict(self.alert.labels)}
        return {
            "name": alert.name,
            "severity": alert.severity,
            "state": self.state,
            "since": self.since,
            "value": self.value,
            "labels": labels,
            "summary": alert.summary,
            "impact": alert.impact,
            "causes": list(alert.causes),
            "actions": list(alert.actions),
            "runbook": alert.runbook,
            "source": "builtin",
            "part": alert.part,
            "text": alert.sentence(self.value, labels),
            "explained_by": list(self.explained_by),
        }


class Evaluator:
    """Keeps pending and firing alerts from step to step."""

    def __init__(self, alerts: Iterable[Alert]) -> None:
        self._alerts = tuple(alert for alert in alerts if alert.builtin)
        self._states: dict[tuple[int, Labels], AlertState] = {}
        self._now = 0.0

    def step(self, history: History, now: float) -> list[AlertState]:
        """Evaluate once; return the alerts that are pending, firing, or ended recently, the worst first."""
        if now < self._now:
            self._set_back(now)
        self._now = now
        for number, alert in enumerate(self._alerts):
            values = alert.signal.value(history, now)
            for labels, value in values.items():
                self._active(number, alert, labels, value, now)
            for key in [key for key in self._states if key[0] == number and key[1] not in values]:
                self._quiet(key, now)
        self._explain()
        return sorted(self._states.values(), key=_rank)

    def _active(self, number: int, alert: Alert, labels: Labels, value: float, now: float) -> None:
        state = self._states.get((number, labels))
        if state is None or state.state == "resolved":
            state = AlertState(alert, labels, "pending", now, value, now)
            self._states[number, labels] = state
        state.value, state.quiet_since = value, None
        if state.state == "pending" and now - state.active_since >= alert.for_seconds:
            state.state, state.since = "firing", now

    def _quiet(self, key: tuple[int, Labels], now: float) -> None:
        state = self._states[key]
        if state.state == "pending" or (state.state == "resolved" and now - state.since >= RESOLVED_SECONDS):
            del self._states[key]
        elif state.state == "firing":
            state.quiet_since = now if state.quiet_since is None else state.quiet_since
            if now - state.quiet_since >= state.alert.keep_firing_seconds:
                state.state, state.since = "resolved", now

    def _set_back(self, now: float) -> None:
        """Limit all times to now, after the clock was set back."""
        for state in self._states.values():
            state.since, state.active_since = min(state.since, now), min(state.active_since, now)
            state.quiet_since = None if state.quiet_since is None else min(state.quiet_since, now)

    def _explain(self) -> None:
        """Name the firing causes of each alert, which the page shows first. A critical alert also explains its own warning."""
        firing = [state for state in self._states.values() if state.state == "firing"]
        causes = {state.alert.name for state in firing}
        causes |= {f"{state.alert.name}/{dict(state.labels).get('job', '')}" for state in firing}
        worse = {(state.alert.name, state.labels) for state in firing if state.alert.severity == "critical"}
        for state in self._states.values():
            same = (state.alert.name, state.labels) in worse and state.alert.severity != "critical"
            follows = (*((state.alert.name,) if same else ()), *state.alert.follows)
            state.explained_by = tuple(cause for cause in follows if cause in causes)


def _rank(state: AlertState) -> tuple[int, int, str, Labels]:
    return _ORDER[state.state], _SEVERITIES[state.alert.severity], state.alert.name, state.labels


def used_metrics(alerts: Iterable[Alert]) -> frozenset[str]:
    """Return the metrics that a `History` must hold for these alerts."""
    return frozenset[str]().union(*(alert.signal.metrics() for alert in alerts if alert.builtin))
