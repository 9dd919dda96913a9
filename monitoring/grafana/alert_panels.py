"""Panels of active alerts and of audit findings."""

from typing import Final

from monitoring.grafana.panel import Panel, PanelQuery, stat
from monitoring.grafana.promql import INSTALLED, age, select, total
from monitoring.grafana.table_panel import table

__all__ = ["alert_panels", "loss_panels"]

_NONE_GOOD: Final = [(None, "green"), (1, "red")]


def loss_panels() -> list[Panel]:
    """Return the panels of the last audit, of silent devices, and of the monitor's own alerts."""
    found = "Found by the last audit, which compares acknowledged messages with stored data. "
    return [
        stat(
            "Lost messages",
            f"{found}Anything above 0 is a loss: `tidegate audit` names the messages.",
            "short",
            PanelQuery(total("tidegate_audit_unaccounted_messages", how="max")),
            steps=_NONE_GOOD,
        ),
        stat(
            "Duplicate rows",
            f"{found}Rows that are stored twice.",
            "short",
            PanelQuery(total("tidegate_audit_duplicate_rows", how="max")),
            steps=_NONE_GOOD,
        ),
        stat(
            "Readings out of order",
            f"{found}Readings of a device that are out of order in their topic.",
            "short",
            PanelQuery(total("tidegate_audit_order_violations", how="max")),
            steps=_NONE_GOOD,
        ),
        stat(
            "Silent devices",
            "Devices that have been silent for much longer than their learned interval. The table `devices` names them.",
            "short",
            PanelQuery(total("tidegate_devices_silent", how="max")),
            steps=[(None, "green"), (1, "orange")],
        ),
        stat(
            "Last audit",
            "How long ago the last audit ended.",
            "s",
            PanelQuery(age("tidegate_audit_timestamp_seconds")),
        ),
        stat(
            "Alerts without Prometheus",
            "Alerts of the monitor's own checks, which also work without Prometheus.",
            "short",
            PanelQuery(select("tidegate_monitor_alerts"), "{{state}}"),
            steps=_NONE_GOOD,
        ),
    ]


def alert_panels() -> list[Panel]:
    """Return the table of Prometheus' alerts, one per line."""
    return [
        table(
            "Alerts",
            "Alerts that are active in Prometheus now. TidegateWatchdog always fires: it shows that alerting works.",
            "short",
            PanelQuery(f'ALERTS{{{INSTALLED}, alertname=~"Tidegate.+|Kafka.+|AlertmanagerDown"}}', "active"),
            by=("severity", "alertname", "alertstate"),
            hide=("__name__", "job", "instance"),
            width=24,
        ),
    ]
