"""Changes of alerts since a moment: from the monitor's snapshots to a list of changes. Pure: snapshots in, changes out."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["AlertChange", "AlertTimeline"]

Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class AlertChange:
    """An alert came into a state so many seconds after the fault. `over` is a pending one that never fired."""

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
    """All changes since the fault; alerts from before it are left out until they change."""

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
        """Names of alerts that are pending or firing since the fault, and were not before it."""
        return self._in("pending", "firing")

    @property
    def still_firing(self) -> list[str]:
        """Names of those alerts that fire."""
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
        """Yield alerts that are gone: Prometheus no longer lists what is over, the monitor not what never fired."""
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
