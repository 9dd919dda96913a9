"""`tidegate status`: parts as the supervisor sees them, everything else as the monitor sees it."""

import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from deploy.command_line import commands_for_data
from deploy.local.monitor_client import UNKNOWN, Snapshot, ask_monitor, figures_of, page_address
from deploy.local.runfile import RunFile, read_state, require_run
from deploy.settings import Settings, data_dir, load_settings
from ingest.contract.errors import TidegateError, UnavailableError
from ingest.contract.topics import LAND_GROUP
from monitoring.page.page_tokens import needs_login

__all__ = ["monitored_status", "read_status"]

STALE_SECONDS: Final = 10.0
OLD_LOOK_SECONDS: Final = 15.0
FULL_BYTES: Final = 64 * 1024**2
"""Free space below which the supervisor may be unable to write down what it sees."""
PART_FIELDS: Final = ("state", "since", "detail", "pid", "restarts")

Parts = Mapping[str, Mapping[str, Any]]


def read_status(data: Path) -> dict[str, Any]:
    """The embedded run. Where the monitor does not answer, its figures are unknown, except the lag: Kafka is asked.

    Raises:
        UnavailableError: nothing runs on this folder.
    """
    run = require_run(data)
    state = read_state(data)
    parts = {name: {key: part[key] for key in PART_FIELDS} for name, part in state.get("parts", {}).items()}
    alerts = list(state.get("alerts", []))
    if (age := time.time() - state.get("at", run.started_at)) > STALE_SECONDS:
        alerts.append(_why_stale(data, run.pid, age, began=bool(state)))
    settings = _settings(data, run)
    snapshot = ask_monitor(settings.monitoring) if settings is not None else None
    figures = _figures(snapshot)
    if snapshot is None and settings is not None and parts.get("kafka", {}).get("state") == "ready":
        figures["lag"] = _lag(settings)
    return {
        **figures,
        "ready": bool(state.get("ready")) and age <= STALE_SECONDS,
        "at": time.time(),
        "page": page_address(settings.monitoring) if settings is not None else None,
        "parts": parts,
        "alerts": [*alerts, *(_silent_monitor(parts) if snapshot is None else []), *figures["alerts"]],
        "command": commands_for_data(data, is_default=data == data_dir(None)).as_dict(),
        "ports": run.ports,
        "pid": run.pid,
    }


def monitored_status(settings: Settings) -> dict[str, Any]:
    """The pipeline that a monitor of its own watches.

    Raises:
        UnavailableError: it does not answer.
    """
    address = page_address(settings.monitoring)
    snapshot = ask_monitor(settings.monitoring)
    if snapshot is None:
        login = (
            ", and that you may read the file monitoring.read_token_file" if needs_login(settings.monitoring) else ""
        )
        msg = (
            f"The monitor does not answer at {address}. Start it with `tidegate monitor --config …`, or check "
            f"monitoring.host and monitoring.page_port{login}."
        )
        raise UnavailableError(msg)
    parts = {
        name: {"since": None, "detail": "", "pid": None, "restarts": 0, **part}
        for name, part in snapshot.get("parts", {}).items()
    }
    return {
        **_figures(snapshot),
        "ready": bool(snapshot.get("ready")),
        "at": time.time(),
        "page": address,
        "parts": parts,
        "command": snapshot.get("command"),
    }


def _figures(snapshot: Snapshot | None) -> dict[str, Any]:
    if snapshot is None:
        return {**UNKNOWN, "alerts": []}
    figures = figures_of(snapshot, LAND_GROUP)
    if (age := time.time() - snapshot["at"]) > OLD_LOOK_SECONDS:
        text = f"The monitor's figures are {age:.0f} s old. See `tidegate logs monitor`."
        figures["alerts"].insert(0, {"part": "monitor", "text": text})
    return figures


def _settings(data: Path, run: RunFile) -> Settings | None:
    """Return the settings of the run; None while it fetches its parts and has chosen nothing yet."""
    if not run.ports:
        return None
    with suppress(TidegateError):
        return load_settings(data / run.config, environ={})
    return None


def _silent_monitor(parts: Parts) -> list[dict[str, str]]:
    """Return an alert if a monitor that was ready does not answer; before that the parts say enough."""
    if parts.get("monitor", {}).get("state") != "ready":
        return []
    text = "The monitor does not answer: rates, latency and its alerts are unknown. See `tidegate logs monitor`."
    return [{"part": "monitor", "text": text}]


def _why_stale(data: Path, pid: int, age: float, *, began: bool) -> dict[str, str]:
    """Why the state on disk is old: mostly because the disk has no room for a newer one."""
    free = shutil.disk_usage(data).free
    if free < FULL_BYTES:
        text = (
            f"The disk of {data} is full ({free // 1024**2} MB free), and the gateway stops accepting messages. Free some "
            "space; the run then resumes by itself."
        )
        return {"part": "disk", "text": text}
    if not began:
        text = (
            f"The run (pid {pid}) began {age:.0f} s ago and has not started a part yet: it first fetches missing files."
        )
        return {"part": "supervisor", "text": text}
    text = f"The supervisor (pid {pid}) has not checked the parts for {age:.0f} s. See `tidegate logs supervisor`."
    return {"part": "supervisor", "text": text}


def _lag(settings: Settings) -> dict[str, float]:
    """Records behind per topic as the consumer group shows it: true also while the stream is down."""
    from ingest.groups.offset_mirror import group_lag

    with suppress(TidegateError):
        lag = group_lag(settings.kafka, LAND_GROUP)
        return {topic: sum(end - done for done, end in parts.values()) for topic, parts in lag.items()}
    return {}
