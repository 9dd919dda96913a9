"""Alertmanager's configuration: groups, inhibition of alerts whose cause fires, receivers."""

from typing import Any, Final

from monitoring.alerts.catalog import alerts
from monitoring.monitoring_settings import MonitoringSettings

__all__ = ["RECEIVERS", "alertmanager_config"]

RECEIVERS: Final = ("critical", "warning", "watchdog")
"""Names without an address: nobody is notified until a person adds one."""
SAME_THING: Final = [
    "alertname",
    "cluster",
    "service",
    "job",
    "instance",
    "consumergroup",
    "topic",
    "server",
    "mountpoint",
]
TARGET_DOWN: Final = "TidegateTargetDown"


def alertmanager_config(settings: MonitoringSettings) -> dict[str, Any]:
    """Return the content of alertmanager.yml."""
    return {
        "route": {
            "receiver": "warning",
            "group_by": ["alertname", "cluster", "service"],
            "group_wait": "10s",
            "group_interval": "1m",
            "repeat_interval": "4h",
            "routes": [
                {
                    "receiver": "watchdog",
                    "matchers": ['alertname="TidegateWatchdog"'],
                    "group_wait": "0s",
                    "group_interval": "1m",
                    "repeat_interval": "1m",
                },
                {"receiver": "critical", "matchers": ['severity="critical"'], "repeat_interval": "1h"},
            ],
        },
        "inhibit_rules": [
            {
                "source_matchers": ['severity="critical"'],
                "target_matchers": ['severity="warning"'],
                "equal": SAME_THING,
            },
            {
                "source_matchers": [f'alertname="{TARGET_DOWN}"'],
                "target_matchers": [f'alertname!="{TARGET_DOWN}"', 'job!=""'],
                "equal": ["cluster", "job", "instance"],
            },
            *_consequences(settings),
        ],
        "receivers": [{"name": name} for name in RECEIVERS],
    }


def _consequences(settings: MonitoringSettings) -> list[dict[str, Any]]:
    """Return one rule per cause: while it fires, it inhibits the alerts that follow from it.

    If only one severity of an alert follows, the other one is still sent.
    """
    known = alerts(settings)
    follow: dict[tuple[str, str], dict[str, None]] = {}
    for alert in known:
        for cause in alert.follows:
            whole = all(cause in other.follows for other in known if other.name == alert.name)
            follow.setdefault((cause, "" if whole else alert.severity), {})[alert.name] = None
    return [
        {
            "source_matchers": _source(cause),
            "target_matchers": [
                f'alertname=~"{"|".join(names)}"',
                *([f'severity="{severity}"'] if severity else []),
            ],
            "equal": ["cluster"],
        }
        for (cause, severity), names in follow.items()
    ]


def _source(cause: str) -> list[str]:
    name, _, job = cause.partition("/")
    return [f'alertname="{name}"', *([f'job="{job}"'] if job else [])]
