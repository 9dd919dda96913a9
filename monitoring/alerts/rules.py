"""Prometheus' rule file: all alerts, and the recorded ratios that burn-rate alerts read."""

from typing import Any, Final

from monitoring.addresses import reached_at
from monitoring.alerts.catalog import alerts
from monitoring.alerts.model import Alert
from monitoring.alerts.objectives import GUARDED, WINDOWS, objectives
from monitoring.monitoring_settings import MonitoringSettings

__all__ = ["rule_file"]

LONG: Final = frozenset({"6h", "3d"})


def rule_file(settings: MonitoringSettings) -> dict[str, Any]:
    """Return the content of the file, ready for YAML."""
    short = tuple(window for window in WINDOWS if window not in LONG)
    budgets = [alert for alert in alerts(settings) if "window" in dict(alert.labels)]
    return {
        "groups": [
            _recorded("tidegate-objectives", "15s", _shares(settings, short)),
            _recorded("tidegate-objectives-long", "60s", _shares(settings, tuple(LONG & set(WINDOWS)))),
            {
                "name": "tidegate-alerts",
                "interval": "5s",
                "rules": [_rule(alert, settings) for alert in alerts(settings) if alert not in budgets],
            },
            {
                "name": "tidegate-budgets",
                "interval": "15s",
                "rules": [_rule(alert, settings) for alert in budgets],
            },
        ]
    }


def _recorded(name: str, interval: str, rules: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "interval": interval,
        "rules": [{"record": record, "expr": expression} for record, expression in rules.items()],
    }


def _shares(settings: MonitoringSettings, windows: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for objective in objectives(settings):
        for window in sorted(windows):
            bad, events = (text.replace("WINDOW", window) for text in (objective.bad, objective.all))
            found[objective.errors(window)] = f"{bad} / ({events} > 0)"
            if window in GUARDED:
                found[objective.events(window)] = events.replace("rate(", "increase(")
    return found


def _rule(alert: Alert, settings: MonitoringSettings) -> dict[str, Any]:
    rule: dict[str, Any] = {"alert": alert.name, "expr": alert.signal.promql()}
    if alert.for_seconds:
        rule["for"] = f"{alert.for_seconds}s"
    if alert.keep_firing_seconds:
        rule["keep_firing_for"] = f"{alert.keep_firing_seconds}s"
    rule["labels"] = {"severity": alert.severity, "service": alert.part, **dict(alert.labels)}
    rule["annotations"] = {
        "summary": alert.summary,
        "description": _description(alert),
        "impact": alert.impact,
        "causes": "\n".join(f"- {cause}" for cause in alert.causes),
        "actions": _numbered(alert.actions),
        "runbook_url": runbook_url(alert, settings),
    }
    return rule


def _description(alert: Alert) -> str:
    """Return all texts of the alert as one, since many receivers show only the description."""
    causes = "\n".join(f"- {cause}" for cause in alert.causes)
    return f"{alert.template()}\n\nImpact: {alert.impact}\n\nPossible causes:\n{causes}\n\nActions:\n{_numbered(alert.actions)}"


def _numbered(actions: tuple[str, ...]) -> str:
    return "\n".join(f"{number}. {action}" for number, action in enumerate(actions, start=1))


def runbook_url(alert: Alert, settings: MonitoringSettings) -> str:
    """Return the address of the runbook: below `runbook_base_url` if that is set, else on the ops page."""
    if settings.runbook_base_url:
        return f"{settings.runbook_base_url.rstrip('/')}/{alert.name}"
    return f"http://{reached_at(settings.host, settings.page_port)}{alert.runbook}"
