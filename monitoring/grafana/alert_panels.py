"""Panels of active alerts and of audit findings.

A panel of rows and columns.
"""

from collections.abc import Sequence
from typing import Final

from monitoring.grafana.panel import Panel, PanelQuery, field, panel, stat
from monitoring.grafana.promql import INSTALLED, age, select, total

__all__ = ["alert_panels", "loss_panels"]

_NONE_GOOD: Final = [(None, "green"), (1, "red")]


def table(
    title: str,
    description: str,
    unit: str,
    *queries: PanelQuery,
    by: Sequence[str],
    hide: Sequence[str] = (),
    width: int = 12,
    height: int = 8,
) -> Panel:
    """Return the newest values, one row per combination of the labels `by`, one column per query."""
    options = {"cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""}}
    made = panel("table", title, description, queries, field(unit, ()), options, width, height)
    for target in made["targets"]:
        target["format"] = "table"
    values = [f"Value #{target['refId']}" for target in made["targets"]] if len(queries) > 1 else ["Value"]
    made["transformations"] = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {name: True for name in ("Time", *hide)},
                "indexByName": {name: place for place, name in enumerate((*by, *values))},
                "renameByName": {value: query.legend for value, query in zip(values, queries, strict=True)},
            },
        },
    ]
    return made


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
