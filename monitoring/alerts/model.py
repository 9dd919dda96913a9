"""Alerts: a condition, how long it must hold, and its meaning for the person who is woken by it."""

from dataclasses import dataclass
from typing import Final, Literal

from monitoring.alerts.signals import PrometheusQuery, Signal

__all__ = ["Alert", "AlertPart", "Severity", "Unit"]

AlertPart = Literal["devices", "broker", "gateway", "kafka", "stream", "tables", "canary", "monitor"]
"""Part that an alert is about. The page shows it at the station that lists the part; alerts of `monitor` have no station."""
Severity = Literal["critical", "warning", "info"]
Unit = Literal["count", "seconds", "ratio", "bytes", "days"]

_HUMANIZED: Final[dict[Unit, str]] = {
    "count": "humanize",
    "seconds": "humanizeDuration",
    "ratio": "humanizePercentage",
    "bytes": "humanize1024",
    "days": "humanize",
}


@dataclass(frozen=True)
class Alert:
    """One alert. `text` is a sentence with `{value}` and `{label}` in it. Everything else is the same at every firing.

    Attributes:
        part: the part that the alert is about; the label `service` of the rule.
        for_seconds: how long the condition must hold before the alert fires.
        keep_firing_seconds: how long the alert fires on after the condition ended, for conditions that come and go.
        labels: further labels of the rule.
        follows: alerts that explain this one while they fire; after a `/` the job that they must be about.
    """

    name: str
    part: AlertPart
    severity: Severity
    signal: Signal
    summary: str
    text: str
    impact: str
    causes: tuple[str, ...]
    actions: tuple[str, ...]
    for_seconds: int = 0
    keep_firing_seconds: int = 0
    unit: Unit = "count"
    labels: tuple[tuple[str, str], ...] = ()
    follows: tuple[str, ...] = ()

    @property
    def builtin(self) -> bool:
        """Whether the monitor itself checks the alert."""
        return not isinstance(self.signal, PrometheusQuery)

    @property
    def runbook(self) -> str:
        """Path of its runbook, below the ops page."""
        return f"/runbooks/{self.name}"

    def sentence(self, value: float, labels: dict[str, str]) -> str:
        """Return `text` for one label set."""
        return self.text.format_map(_Known({"value": shown(value, self.unit), **labels}))

    def template(self) -> str:
        """Return `text` as a template for Prometheus."""
        known = _AsTemplate({"value": f"{{{{ $value | {_HUMANIZED[self.unit]} }}}}"})
        return self.text.format_map(known)


class _Known(dict[str, str]):
    def __missing__(self, label: str) -> str:
        return "?"


class _AsTemplate(dict[str, str]):
    def __missing__(self, label: str) -> str:
        return f"{{{{ $labels.{label} }}}}"


def shown(value: float, unit: Unit) -> str:
    """Return a figure as people read it."""
    if unit == "ratio":
        return f"{100 * value:.3g}%"
    if unit == "seconds":
        return _span(value)
    if unit == "bytes":
        return f"{value / 1024**3:.3g} GiB" if abs(value) >= 1024**3 else f"{value / 1024**2:.3g} MiB"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _span(seconds: float) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.0f} s"
