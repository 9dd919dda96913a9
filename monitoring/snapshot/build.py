"""Build the snapshot of one look for the page, `status` and the stream of snapshots."""

from typing import Any, Final

from monitoring.monitoring_settings import MonitoringSettings
from monitoring.sample_history import History
from monitoring.snapshot import figures
from monitoring.snapshot import flow as stations
from monitoring.snapshot import kafka_figures as kafka
from monitoring.snapshot.snapshot_inputs import KafkaNames, SnapshotInputs

__all__ = ["METRICS", "build_snapshot"]

METRICS: Final = figures.METRICS | kafka.METRICS | stations.METRICS
"""Sample names that the memory must keep for a snapshot."""

_NO_DEVICES: Final[dict[str, Any]] = {
    "known": None,
    "active": None,
    "silent": [],
    "talkers": [],
    "offenders": [],
    "skewed": [],
}


def build_snapshot(
    memory: History, side: SnapshotInputs, names: KafkaNames, settings: MonitoringSettings, *, now: float
) -> dict[str, Any]:
    """Return one snapshot as JSON-ready data; unknown values are None or empty, never zero."""
    rates, latency = figures.fleet_rates(memory), figures.latency_ms(memory)
    behind = kafka.lag(memory, names)
    listed = figures.tables(memory, side.tables, now)
    parts = stations.parts_of(memory, side)
    return {
        "at": now,
        "version": side.version,
        "ready": all(part["state"] in ("ready", "done") for part in parts.values())
        if side.ready is None
        else side.ready,
        "read_only": True,
        "redrive": side.redrive,
        "command": side.command,
        "prometheus": {"url": settings.prometheus_url, "up": side.prometheus_up},
        "alertmanager": {"url": settings.alertmanager_url, "up": side.alertmanager_up},
        "parts": parts,
        "flow": stations.flow(
            memory,
            side,
            names,
            rates=rates,
            tables=listed,
            latency_seconds=None if latency["p50"] is None else latency["p50"] / 1000,
            wanted_seconds=settings.freshness_seconds,
        ),
        "kafka": kafka.kafka(memory, names),
        "rates": rates,
        "latency_ms": latency,
        "hops": figures.hops(memory),
        "readings_latency_ms": figures.readings_latency_ms(memory),
        "clock_skew_ms": figures.clock_skew_ms(memory),
        "lag": behind,
        "errors": figures.errors(memory),
        "slo": figures.objectives(memory, settings, watched_seconds=now - side.started_at),
        "alerts": list(side.alerts),
        "burn_rate_alerts": bool(side.prometheus_up),
        "canary": figures.canary(memory, now),
        "devices": {**_NO_DEVICES, **side.devices},
        "tables": listed,
        "disk": figures.disk(memory, side.disk_free_bytes, now),
        "host": figures.host(memory),
        "audit": side.audit,
        "point": {
            "received": rates["received"],
            "readings": rates["readings"],
            "rows": rates["rows"],
            "dead_lettered": rates["dead_lettered"],
            "lag": sum(behind.values()) if behind else None,
            "latency_p50": latency["p50"],
            "latency_p95": latency["p95"],
            "latency_p99": latency["p99"],
        },
    }
