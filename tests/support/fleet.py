"""Rows of devices, minutes and dead letters as the monitor finds them; `from tests.support.fleet import device`."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from deploy.monitor.silent_devices import HealthyFlowSpans
from ingest.contract.topics import DEAD_LETTERS


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def device(
    name: str, *, seen: float, interval: float | None = 10.0, skew: int | None = 0, **more: Any
) -> dict[str, Any]:
    times = {"first_seen": ago(90_000), "last_seen": ago(seen)}
    return {"device": name, **times, "interval_learned_s": interval, "clock_skew_ms": skew, **more}


def minute(name: str, *, received: int, at: float = 120, settled: bool = True, **more: int) -> dict[str, Any]:
    stored = received - sum(more.get(each, 0) for each in ("dead_lettered", "ignored", "duplicate"))
    moment = ago(at).replace(second=0, microsecond=0)
    return {
        "device": name, "minute": moment, "date": moment.date(), "received": received, "stored": stored,
        "settled": settled, **more,
    }  # fmt: skip


def flowed(*spans: tuple[float, float], flowing: bool = True) -> HealthyFlowSpans:
    """Spans in which all was well, in seconds ago."""
    flow = HealthyFlowSpans()
    flow.spans, flow.flowing = tuple((time.time() - since, time.time() - until) for since, until in spans), flowing
    return flow


def letter(
    number: int, *, device: str | None = None, topic: str = "t", payload: bytes = b"x", **more: Any
) -> dict[str, Any]:
    return {
        "reason": "bad_json", "stage": "gateway", "device": device, "mqtt_topic": topic, "payload": payload,
        "received_at": ago(60), "partition": 0, "offset": number, "source_topic": DEAD_LETTERS, "partial": False,
        "payload_bytes": len(payload), "attempt": 0, "landed_at": ago(50), **more,
    }  # fmt: skip
