"""Asks the monitor for its snapshot over HTTP: it is the one source of `status` and of the page."""

import http.client
import json
from collections.abc import Mapping
from typing import Any, Final

from deploy.local.page_access import page_address
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.scrape import OPENER

__all__ = ["UNKNOWN", "Snapshot", "ask_monitor", "figures_of"]

Snapshot = Mapping[str, Any]

UNKNOWN: Final[Mapping[str, Any]] = {
    "rates": {},
    "latency_ms": {"p50": None, "p95": None, "p99": None},
    "lag": {},
    "lag_seconds": {},
    "time_to_data_loss_seconds": {},
    "hops": [],
    "slo": {},
    "devices": {},
    "errors": [],
    "audit": None,
    "canary": {},
    "disk": {},
}
"""The figures of a run whose monitor does not answer."""
RECENT: Final = ("pending", "firing")


def ask_monitor(monitoring: MonitoringSettings, *, timeout_seconds: float = 1.0) -> Snapshot | None:
    """The newest snapshot; None where the monitor does not answer in time, or answers with something else."""
    try:
        with OPENER.open(f"{page_address(monitoring)}api/status", timeout=timeout_seconds) as answer:
            found = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return found if isinstance(found, dict) and "at" in found else None


def figures_of(snapshot: Snapshot, group: str) -> dict[str, Any]:
    """The part of a snapshot that `status` shows, with the lag of one consumer group in time."""
    groups = [entry for entry in snapshot.get("kafka", {}).get("groups", []) if entry["group"] == group]
    found = {name: snapshot.get(name, unknown) for name, unknown in UNKNOWN.items()}
    found["lag_seconds"] = {entry["topic"]: entry["lag_seconds"] for entry in groups}
    found["time_to_data_loss_seconds"] = {entry["topic"]: entry["time_to_data_loss_seconds"] for entry in groups}
    found["alerts"] = [alert for alert in snapshot.get("alerts", []) if alert["state"] in RECENT]
    return found
