"""`tidegate status`: the parts, rates, latency, lag and alerts of the embedded run, for people and as JSON."""

import json
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import typer

from deploy.local.runfile import read_state, require_run
from deploy.settings import load_settings
from ingest.contract.errors import TidegateError

__all__ = ["follow_status", "read_status", "render_status"]

STALE_SECONDS: Final = 10.0
FULL_BYTES: Final = 64 * 1024**2
"""With less than this the supervisor may be unable to write down what it sees."""


def read_status(data: Path) -> dict[str, Any]:
    """The state as the supervisor last saw it, with Kafka's own figure for the lag where Kafka answers.

    Raises:
        UnavailableError: nothing runs on this folder.
    """
    run = require_run(data)
    state = dict(read_state(data))
    parts = {
        name: {key: part[key] for key in ("state", "since", "detail", "pid", "restarts")}
        for name, part in state.get("parts", {}).items()
    }
    alerts = list(state.get("alerts", []))
    if (age := time.time() - state.get("at", run.started_at)) > STALE_SECONDS:
        alerts.append(_why_stale(data, run.pid, age, began=bool(state)))
    return {
        "ready": bool(state.get("ready")) and age <= STALE_SECONDS,
        "parts": parts,
        "rates": state.get("rates", {}),
        "latency_ms": state.get("latency_ms", {"p50": None, "p95": None, "p99": None}),
        "lag": _lag(data, parts) or state.get("lag", {}),
        "alerts": alerts,
        "ports": run.ports,
        "pid": run.pid,
    }


def _why_stale(data: Path, pid: int, age: float, *, began: bool) -> dict[str, str]:
    """Why the state on disk is old: mostly because the disk has no room for a newer one."""
    free = shutil.disk_usage(data).free
    if free < FULL_BYTES:
        text = (
            f"The disk of {data} is full ({free // 1024**2} MB free): the gateway stops accepting; free some space and "
            "the run resumes by itself."
        )
        return {"part": "disk", "text": text}
    if not began:
        text = f"The run (pid {pid}) began {age:.0f} s ago and started no part yet: it gets what is missing first."
        return {"part": "supervisor", "text": text}
    text = f"The supervisor (pid {pid}) has not looked for {age:.0f} s: see `tidegate logs supervisor`."
    return {"part": "supervisor", "text": text}


def _lag(data: Path, parts: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Records behind per topic as the consumer group shows it: true also while the stream is down."""
    if parts.get("kafka", {}).get("state") != "ready":
        return {}
    from ingest.contract.topics import LAND_GROUP
    from ingest.groups import group_lag

    with suppress(TidegateError):
        settings = load_settings(data / "config.toml", environ={})
        lag = group_lag(settings.kafka, LAND_GROUP)
        return {topic: sum(end - done for done, end in parts.values()) for topic, parts in lag.items()}
    return {}


def render_status(status: Mapping[str, Any]) -> str:
    """The status as a table, then figures, then what to do."""
    lines = [f"{'PART':<10} {'STATE':<11} {'FOR':>8}  DETAIL"]
    for name, part in status["parts"].items():
        restarts = f" ({part['restarts']} restarts)" if part["restarts"] else ""
        lines.append(f"{name:<10} {part['state']:<11} {_span(part['since']):>8}  {part['detail']}{restarts}".rstrip())
    rates, latency = status["rates"], status["latency_ms"]
    shown = "  ".join(
        f"{name.replace('_', ' ')} {value:g}/s" for name, value in rates.items() if value or name == "received"
    )
    lines += ["", f"Rates      {shown or 'not known yet'}"]
    if latency.get("p50") is not None:
        lines.append(
            "Latency    "
            + "  ".join(f"{name} {value} ms" for name, value in latency.items())
            + "  (canary: publish to row)"
        )
    lag = "  ".join(f"{topic} {count:g}" for topic, count in status["lag"].items())
    lines.append(f"Lag        {lag or 'not known yet'}")
    lines += ["", "Ready." if status["ready"] else "Not ready."]
    lines += [f"! {alert['text']}" for alert in status["alerts"]]
    return "\n".join(lines)


def _span(since: float) -> str:
    seconds = time.time() - since
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def follow_status(data: Path, *, as_json: bool) -> None:
    """Show the status every 2 s until interrupted; one JSON line each with `as_json`."""
    while True:
        status = read_status(data)
        if as_json:
            typer.echo(json.dumps(status))
        else:
            home = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
            typer.echo(home + render_status(status))
        time.sleep(2.0)
