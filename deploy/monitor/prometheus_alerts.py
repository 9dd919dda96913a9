"""Alerts from Prometheus that the built-in checks cannot evaluate, such as the burn of an error budget over hours."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from http.client import HTTPException
from typing import Any, Final

from monitoring.alerts.model import Alert
from monitoring.scrape import OPENER

__all__ = ["burning", "is_ready"]

TIMEOUT_SECONDS: Final = 1.0
WATCHDOG: Final = "TidegateWatchdog"
"""Alert that always fires, for a dead man's switch; it is not shown to people."""
MOST_BYTES: Final = 4 * 1024**2

Burning = tuple[bool, list[dict[str, Any]]]


def is_ready(url: str) -> Callable[[], bool]:
    """Return a check of whether the server at this address is ready; for Prometheus and Alertmanager."""

    def ask() -> bool:
        try:
            with OPENER.open(f"{url.rstrip('/')}/-/ready", timeout=TIMEOUT_SECONDS) as answer:
                return bool(answer.status == 200)
        except (OSError, HTTPException, ValueError):
            return False

    return ask


def burning(url: str, alerts: Iterable[Alert]) -> Callable[[], Burning]:
    """Return a query for (whether Prometheus answers, its alerts among `alerts` without a built-in check)."""
    wanted = {alert.name: alert for alert in alerts if not alert.builtin and alert.name != WATCHDOG}

    def ask() -> Burning:
        try:
            with OPENER.open(f"{url.rstrip('/')}/api/v1/alerts", timeout=TIMEOUT_SECONDS) as answer:
                told = json.loads(answer.read(MOST_BYTES))["data"]["alerts"]
            return True, [_shown(each, wanted[name]) for each in told if (name := _name(each)) in wanted]
        except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError):
            return False, []

    return ask


def _name(told: Mapping[str, Any]) -> str:
    return str(told["labels"].get("alertname"))


def _shown(told: Mapping[str, Any], alert: Alert) -> dict[str, Any]:
    labels = {str(name): str(text) for name, text in told["labels"].items()}
    words = told.get("annotations", {})
    return {
        "name": alert.name,
        "severity": alert.severity,
        "state": "firing" if told["state"] == "firing" else "pending",
        "since": datetime.fromisoformat(told["activeAt"]).timestamp(),
        "value": float(told["value"]),
        "labels": {name: text for name, text in labels.items() if name not in ("alertname", "severity")},
        "summary": alert.summary,
        "impact": alert.impact,
        "causes": list(alert.causes),
        "actions": list(alert.actions),
        "runbook": alert.runbook,
        "source": "prometheus",
        "part": alert.part,
        "text": str(words.get("description") or words.get("summary") or alert.summary).strip().split("\n", 1)[0],
        "explained_by": [],
    }
