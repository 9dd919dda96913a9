"""Figures of the machine: CPU, I/O wait, memory, free disk space."""

from typing import Any, Final

from monitoring.sample_history import History
from monitoring.snapshot.sums import by_label, finite, total

__all__ = ["METRICS", "disk", "host"]

RATE_SECONDS: Final = 30.0
MINUTE_SECONDS: Final = 60.0
_CPU: Final = "node_cpu_seconds_total"
_AVAILABLE: Final = "node_memory_MemAvailable_bytes"
_TOTAL: Final = "node_memory_MemTotal_bytes"
_FREE: Final = "node_filesystem_avail_bytes"
_DAYS: Final = "tidegate_table_disk_full_days"

METRICS: Final = frozenset({_CPU, _AVAILABLE, _TOTAL, _FREE, _DAYS})


def host(memory: History) -> dict[str, float | None]:
    """Return memory and shares of CPU time: busy and I/O wait over the last half minute, busy over the last minute."""
    busy, waited = _shares(memory, RATE_SECONDS)
    return {
        "cpu_ratio": finite(busy),
        "cpu_minute_ratio": finite(_shares(memory, MINUTE_SECONDS)[0]),
        "iowait_ratio": finite(waited, 4),
        "memory_available_bytes": total(memory.latest(_AVAILABLE)),
        "memory_total_bytes": total(memory.latest(_TOTAL)),
    }


def _shares(memory: History, seconds: float) -> tuple[float | None, float | None]:
    """Return the shares of CPU time that were busy and that waited for a disk."""
    modes = by_label(memory.rate(_CPU, seconds), "mode")
    spent, waited = sum(modes.values()), modes.get("iowait", 0.0)
    return (1 - (modes.get("idle", 0.0) + waited) / spent, waited / spent) if spent > 0 else (None, None)


def disk(memory: History, free_bytes: float | None, now: float) -> dict[str, Any]:
    """Return the least free space of the disks that hold data, and the soonest time until one is full.

    `free_bytes` is used while no probe has figures.
    """
    told, days = memory.latest(_FREE), memory.latest(_DAYS)
    soonest = min(days.values()) if days else None
    return {
        "free_bytes": min(told.values()) if told else free_bytes,
        "full_days": finite(soonest, 1),
        "full_at": None if soonest is None else finite(now + 86_400 * soonest, 0),
    }
