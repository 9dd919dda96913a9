"""Client of the monitor for other processes: its snapshot over HTTP, the address of its page, and the page's token.

The token allows redrives from the page. `status` and the page show the same snapshot.
"""

import http.client
import json
import secrets
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from deploy.settings_file import write_private
from monitoring.addresses import reached_at
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.page.page_tokens import needs_login, read_token
from monitoring.scrape import OPENER

__all__ = [
    "PAGE_TOKEN",
    "UNKNOWN",
    "Snapshot",
    "ask_monitor",
    "figures_of",
    "make_page_token",
    "page_address",
    "page_token",
]

PAGE_TOKEN: Final = "page-token"  # noqa: S105 - the name of the file, not what is in it

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


def make_page_token(data: Path) -> Path:
    """Return the file of the token. It is made once per data folder, so that an open page keeps its right over restarts."""
    file = data / PAGE_TOKEN
    if not file.exists():
        write_private(file, secrets.token_urlsafe(24) + "\n")
    return file


def page_token(monitoring: MonitoringSettings) -> str | None:
    """Return the token from its file; None if there is none that this user may read."""
    return read_token(monitoring.page_token_file)


def page_address(monitoring: MonitoringSettings, *, token: str | None = None) -> str:
    """Return the page's address on this machine. A token comes after `#`, which no browser sends to a server."""
    return f"http://{reached_at(monitoring.host, monitoring.page_port)}/{f'#token={token}' if token else ''}"


def ask_monitor(monitoring: MonitoringSettings, *, timeout_seconds: float = 1.0) -> Snapshot | None:
    """Return the newest snapshot; None if the monitor does not answer in time, or not with a snapshot.

    If the page needs a login, the request carries the token that this user may read.
    """
    token = (read_token(monitoring.read_token_file) or page_token(monitoring)) if needs_login(monitoring) else None
    asked = urllib.request.Request(  # noqa: S310 - the address is of http
        f"{page_address(monitoring)}api/status", headers={"Authorization": f"Bearer {token}"} if token else {}
    )
    try:
        with OPENER.open(asked, timeout=timeout_seconds) as answer:
            found = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return found if isinstance(found, dict) and "at" in found else None


def figures_of(snapshot: Snapshot, group: str) -> dict[str, Any]:
    """Return the part of a snapshot that `status` shows, with the lag of the consumer group `group`."""
    groups = [entry for entry in snapshot.get("kafka", {}).get("groups", []) if entry["group"] == group]
    found = {name: snapshot.get(name, unknown) for name, unknown in UNKNOWN.items()}
    found["lag_seconds"] = {entry["topic"]: entry["lag_seconds"] for entry in groups}
    found["time_to_data_loss_seconds"] = {entry["topic"]: entry["time_to_data_loss_seconds"] for entry in groups}
    found["alerts"] = [alert for alert in snapshot.get("alerts", []) if alert["state"] in RECENT]
    return found
