"""Prometheus' rule file: recorded shares and rates, and every alert."""

from typing import Any, Final

from monitoring.addresses import reached_at
from monitoring.alerts.catalog import alerts
from monitoring.alerts.model import Alert
from monitoring.alerts.objectives import WINDOWS, objectives
from monitoring.settings import MonitoringSettings

__all__ = ["rule_file"]

LONG: Final = frozenset({"6h", "3d"})
RATES: Final = {
    "job:tidegate_gateway_messages_received:rate5m": (
        "sum without(qos, instance) (rate(tidegate_gateway_messages_received_total[5m]))"
    ),
    "job:tidegate_gateway_messages_accepted:rate5m": (
        "sum without(instance) (rate(tidegate_gateway_messages_accepted_total[5m]))"
    ),
    "job_reason:tidegate_gateway_messages_rejected:rate5m": (
        "sum without(instance) (rate(tidegate_gateway_messages_rejected_total[5m]))"
    ),
    "job_table:tidegate_stream_rows:rate5m": "sum without(instance) (rate(tidegate_stream_rows_total[5m]))",
    "job_le:tidegate_end_to_end_latency_seconds_bucket:rate5m": (
        "sum without(instance) (rate(tidegate_end_to_end_latency_seconds_bucket[5m]))"
    ),
    "job_stage_le:tidegate_stage_latency_seconds_bucket:rate5m": (
        "sum without(instance) (rate(tidegate_stage_latency_seconds_bucket[5m]))"
    ),
    "job_consumergroup_topic:kafka_consumergroup_lag:sum": "sum without(partition, instance) (kafka_consumergroup_lag)",
    "job_consumergroup_topic:kafka_consumergroup_lag:max_partition": (
        "max without(partition, instance) (kafka_consumergroup_lag)"
    ),
    "job:node_cpu_iowait:ratio_rate5m": (
        'sum without(mode, instance) (rate(node_cpu_seconds_total{mode="iowait"}[5m])) '
        "/ sum without(mode, instance) (rate(node_cpu_seconds_total[5m]))"
    ),
}
"""What dashboards ask again and again."""


def rule_file(settings: MonitoringSettings) -> dict[str, Any]:
    """The file's content; YAML takes it as it is."""
    short = tuple(window for window in WINDOWS if window not in LONG)
    budgets = [alert for alert in alerts(settings) if "window" in dict(alert.labels)]
    return {
        "groups": [
            _recorded("tidegate-rates", "15s", RATES),
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
    """All of it in one text, since many receivers show only the description."""
    causes = "\n".join(f"- {cause}" for cause in alert.causes)
    return f"{alert.template()}\n\nImpact: {alert.impact}\n\nPossible causes:\n{causes}\n\nActions:\n{_numbered(alert.actions)}"


def _numbered(actions: tuple[str, ...]) -> str:
    return "\n".join(f"{number}. {action}" for number, action in enumerate(actions, start=1))


def runbook_url(alert: Alert, settings: MonitoringSettings) -> str:
    """Where the page of the alert is read: the given place, else the ops page."""
    if settings.runbook_base_url:
        return f"{settings.runbook_base_url.rstrip('/')}/{alert.name}"
    return f"http://{reached_at(settings.host, settings.page_port)}{alert.runbook}"
