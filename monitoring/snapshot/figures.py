"""Figures for the page: throughput, latency, errors, objectives, the canary, tables and the machine.

Figures of the fleet exclude the canary's own messages. The sizes of tables come from the stream's metrics; their versions and
commit times come from the tables' logs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from monitoring.indicators import ARRIVED, EventCount, Indicator, freshness, validity
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.sample_history import History
from monitoring.snapshot.sums import by_label, finite, is_silent, subtract_other, total

__all__ = [
    "METRICS",
    "canary",
    "clock_skew_ms",
    "disk",
    "errors",
    "fleet_rates",
    "hops",
    "host",
    "latency_ms",
    "objectives",
    "readings_latency_ms",
    "tables",
]

RATE_SECONDS: Final = 10.0
LATENCY_SECONDS: Final = 120.0
MEMORY_SECONDS: Final = 1200.0
BURNING_SECONDS: Final = (300.0, 60.0)
"""An objective counts as missed now if it is missed in both windows: one bad minute is not enough, and recovery ends it soon."""
QUANTILES: Final = (0.5, 0.95, 0.99)
CPU_SECONDS: Final = 30.0
CPU_MINUTE_SECONDS: Final = 60.0

_RECEIVED: Final = "tidegate_gateway_messages_received_total"
_ACCEPTED: Final = "tidegate_gateway_messages_accepted_total"
_READINGS: Final = "tidegate_gateway_readings_total"
_REJECTED: Final = "tidegate_gateway_messages_rejected_total"
_PARTS_REJECTED: Final = "tidegate_gateway_parts_rejected_total"
_IGNORED: Final = "tidegate_gateway_messages_ignored_total"
_ACKNOWLEDGED: Final = "tidegate_gateway_messages_acknowledged_total"
_ROWS: Final = "tidegate_stream_rows_total"
_CONFLICTS: Final = "tidegate_stream_conflicting_duplicates_total"
_PUBLISHED: Final = "tidegate_canary_published_total"
_SEEN: Final = "tidegate_canary_seen_total"
_LAST_SEEN: Final = "tidegate_canary_last_seen_timestamp_seconds"
_OLDEST_WAIT: Final = "tidegate_canary_oldest_wait_seconds"
_END_TO_END: Final = "tidegate_end_to_end_latency_seconds"
_HOP: Final = "tidegate_canary_hop_seconds"
_SKEW: Final = "tidegate_canary_clock_skew_seconds"
_STAGE: Final = "tidegate_stage_latency_seconds"
_TABLE: Final = {
    "files": "tidegate_table_files",
    "small_files": "tidegate_table_small_files",
    "bytes": "tidegate_table_size_bytes",
}
_COMMITTED: Final = "tidegate_table_last_commit_timestamp_seconds"
_DISK_DAYS: Final = "tidegate_table_disk_full_days"
_DISK_FREE: Final = "node_filesystem_avail_bytes"
_CPU: Final = "node_cpu_seconds_total"
_MEMORY_FREE: Final = "node_memory_MemAvailable_bytes"
_MEMORY: Final = "node_memory_MemTotal_bytes"

_GATEWAY: Final = "tidegate-gateway"
_STREAM: Final = "tidegate-stream"
_CANARY: Final = "tidegate-canary"

HOPS: Final = ("device_to_gateway", "gateway_to_kafka", "kafka_to_read", "read_to_commit", "commit_to_queryable")

METRICS: Final = frozenset(
    {
        ARRIVED, _RECEIVED, _ACCEPTED, _READINGS, _REJECTED, _PARTS_REJECTED, _IGNORED, _ACKNOWLEDGED, _ROWS, _CONFLICTS,
        _PUBLISHED, _SEEN, _LAST_SEEN, _OLDEST_WAIT, _SKEW, *_TABLE.values(), _COMMITTED, _DISK_DAYS, _DISK_FREE, _CPU,
        _MEMORY_FREE, _MEMORY,
        *(f"{name}{end}" for name in (_END_TO_END, _HOP, _STAGE) for end in ("_bucket", "_count")),
    }
)  # fmt: skip
"""Sample names that the memory must keep for these figures."""


def fleet_rates(memory: History) -> dict[str, float | None]:
    """Return messages and rows per second of the fleet; None while unknown."""
    mute = {job for job in (_GATEWAY, _STREAM) if is_silent(memory, job)}

    def rate(metric: str, job: str = _GATEWAY, **labels: str) -> float | None:
        return None if job in mute else total(memory.rate(metric, RATE_SECONDS, **labels))

    arrived, seen = rate(ARRIVED, _CANARY), rate(_SEEN, _CANARY)
    return {
        "received": subtract_other(rate(_RECEIVED), [arrived]),
        "accepted": subtract_other(rate(_ACCEPTED), [arrived]),
        "readings": subtract_other(rate(_READINGS), [arrived]),
        "dead_lettered": rate(_REJECTED),
        "ignored": rate(_IGNORED),
        "acknowledged": subtract_other(rate(_ACKNOWLEDGED), [arrived]),
        "rows": subtract_other(rate(_ROWS, _STREAM, table="readings"), [seen]),
    }


def latency_ms(memory: History) -> dict[str, float | None]:
    """Return the canary's latency from publish to queryable, over the last two minutes."""
    return _quantiles_ms(memory, _END_TO_END)


def readings_latency_ms(memory: History) -> dict[str, float | None]:
    """Return the latency of all readings from receive to commit."""
    return _quantiles_ms(memory, _STAGE, stage="receive_to_commit")


def hops(memory: History) -> list[dict[str, Any]]:
    """Return the canary's latency per hop."""
    return [{"hop": hop, **_quantiles_ms(memory, _HOP, hop=hop)} for hop in HOPS]


def clock_skew_ms(memory: History) -> dict[str, float]:
    """Return the hops that differing clocks made negative, each with its lowest value."""
    worst = by_label(memory.latest(_SKEW), "hop")
    return {hop: round(-abs(seconds) * 1000, 1) for hop, seconds in worst.items() if seconds}


def errors(memory: History) -> list[dict[str, Any]]:
    """Return the rejections since the gateway's start by reason, most frequent first; the stream rejects conflicting copies."""
    totals, parts = by_label(memory.latest(_REJECTED), "reason"), by_label(memory.latest(_PARTS_REJECTED), "reason")
    rates = by_label(memory.rate(_REJECTED, RATE_SECONDS), "reason")
    conflict = "conflicting_duplicate"
    if conflicts := total(memory.latest(_CONFLICTS)):
        totals[conflict] = totals.get(conflict, 0.0) + conflicts
        rates[conflict] = rates.get(conflict, 0.0) + (total(memory.rate(_CONFLICTS, RATE_SECONDS)) or 0.0)
    found = [
        {
            "reason": reason,
            "per_second": finite(rates.get(reason, 0.0)),
            "total": totals.get(reason, 0.0),
            "parts": parts.get(reason, 0.0),
        }
        for reason in totals.keys() | parts.keys()
        if totals.get(reason) or parts.get(reason)
    ]
    return sorted(found, key=lambda each: (-each["total"], -each["parts"], each["reason"]))


def objectives(memory: History, settings: MonitoringSettings, *, watched_seconds: float) -> dict[str, Any]:
    """Return the good share of each objective over the monitor's memory, and the rest of its budget at this pace.

    The rest is 1 if everything was good, 0 if as much was bad as the objective allows, and negative below that. `burns` says
    whether the objective is missed now.
    """
    window = min(MEMORY_SECONDS, watched_seconds)

    def ratio(indicator: Indicator, seconds: float) -> float | None:
        def increase(count: EventCount) -> float | None:
            return total(memory.increase(count.metric, seconds, **({"le": count.le} if count.le else {})))

        return indicator.ratio(increase)

    def kept(objective: float, indicator: Indicator) -> dict[str, float | bool | None]:
        recent = [ratio(indicator, seconds) for seconds in BURNING_SECONDS]
        burns = None if None in recent else all(each is not None and each < objective for each in recent)
        return {**_kept(objective, ratio(indicator, MEMORY_SECONDS)), "burns": burns}

    return {
        "freshness": {
            **kept(settings.freshness_objective, freshness(settings.freshness_seconds)),
            "threshold_seconds": settings.freshness_seconds,
            "window_seconds": finite(window, 0),
        },
        "validity": {
            **kept(settings.validity_objective, validity()),
            "threshold_seconds": None,
            "window_seconds": finite(window, 0),
        },
    }


def canary(memory: History, now: float) -> dict[str, float | None]:
    """Return the canary's counts since its start, the age of its last reading and its longest wait."""
    last_seen = total(memory.latest(_LAST_SEEN))
    return {
        "published": total(memory.latest(_PUBLISHED)),
        "seen": total(memory.latest(_SEEN)),
        "last_seen_seconds_ago": finite(max(0.0, now - last_seen), 1) if last_seen else None,
        "oldest_wait_seconds": finite(total(memory.latest(_OLDEST_WAIT)), 1),
    }


def tables(memory: History, known: Sequence[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    """Return one row per table that is on the disk or that the stream reports.

    Args:
        memory: the memory of scrapes.
        known: name, version and committed_at (epoch seconds) of the tables on the disk.
        now: epoch seconds.
    """
    told = {name: by_label(memory.latest(metric), "table") for name, metric in _TABLE.items()}
    here = {str(each["name"]): each for each in known}
    times = by_label(memory.latest(_COMMITTED), "table")
    found = []
    for name in sorted(here.keys() | {table for table, at in times.items() if at}):
        row = here.get(name, {})
        at = max(times.get(name, 0.0), row.get("committed_at") or 0.0)
        figures = {key: values.get(name) for key, values in told.items()}
        ago = finite(max(0.0, now - at), 1) if at else None
        found.append({"name": name, "version": row.get("version"), **figures, "last_commit_seconds_ago": ago})
    return found


def disk(memory: History, free_bytes: float | None, now: float) -> dict[str, Any]:
    """Return the least free space of the disks that hold data, and the soonest time until one is full.

    `free_bytes` is used while no probe has figures.
    """
    told, days = memory.latest(_DISK_FREE), memory.latest(_DISK_DAYS)
    soonest = min(days.values()) if days else None
    return {
        "free_bytes": min(told.values()) if told else free_bytes,
        "full_days": finite(soonest, 1),
        "full_at": None if soonest is None else finite(now + 86_400 * soonest, 0),
    }


def host(memory: History) -> dict[str, float | None]:
    """Return memory and shares of CPU time: busy and I/O wait over the last half minute, busy over the last minute."""
    busy, waited = _cpu_shares(memory, CPU_SECONDS)
    return {
        "cpu_ratio": finite(busy),
        "cpu_minute_ratio": finite(_cpu_shares(memory, CPU_MINUTE_SECONDS)[0]),
        "iowait_ratio": finite(waited, 4),
        "memory_available_bytes": total(memory.latest(_MEMORY_FREE)),
        "memory_total_bytes": total(memory.latest(_MEMORY)),
    }


def _cpu_shares(memory: History, seconds: float) -> tuple[float | None, float | None]:
    """Return the shares of CPU time that were busy and that waited for a disk."""
    modes = by_label(memory.rate(_CPU, seconds), "mode")
    spent, waited = sum(modes.values()), modes.get("iowait", 0.0)
    return (1 - (modes.get("idle", 0.0) + waited) / spent, waited / spent) if spent > 0 else (None, None)


def _kept(objective: float, ratio: float | None) -> dict[str, float | None]:
    left = None if ratio is None else 1 - (1 - ratio) / (1 - objective)
    return {"objective": objective, "good_ratio": finite(ratio, 5), "budget_left": finite(left)}


def _quantiles_ms(memory: History, metric: str, **labels: str) -> dict[str, float | None]:
    found: Sequence[float | None] = memory.quantiles(metric, LATENCY_SECONDS, QUANTILES, **labels) or (None,) * 3
    names = ("p50", "p95", "p99")
    return {
        name: None if seconds is None else finite(seconds * 1000, 1) for name, seconds in zip(names, found, strict=True)
    }
