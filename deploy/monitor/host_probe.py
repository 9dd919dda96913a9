"""The probe `host`: CPUs, memory and the disks with data, under node_exporter's names, and a forecast of when a disk is full.

The forecast uses the median growth per hour over the last hours. Within an hour the effects of maintenance even out: old files
are deleted once an hour, and joins write existing data a second time. The median ignores single events, such as a copy or a
deletion of a large file, since they affect a minority of the hours.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from monitoring.metrics.families import Samples

__all__ = ["DiskForecast", "HostProbe", "days_to_full", "mountpoint"]

# node_exporter's modes; a platform reports those that it has (macOS: four). Guests' time is already part of `user`.
_MODES: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_BLOCK_DEVICES: Final = Path("/sys/block")

_Series = list[tuple[tuple[str, ...], float]]

SAMPLE_SECONDS: Final = 600.0
SPAN_SECONDS: Final = 3600.0
WINDOW_SECONDS: Final = 6 * 3600.0
LEAST_SECONDS: Final = 3 * 3600.0
"""Least known time: then a single event affects less than half of the spans, and caches and backlog of a start are over."""
Used = Sequence[tuple[float, float]]
"""(seconds, used bytes) in order of time."""


class DiskForecast:
    """Memory of each disk's use over the last hours."""

    def __init__(self) -> None:
        self._used: dict[str, deque[tuple[float, float]]] = {}

    def days(self, mount: str, *, used: float, free: float, now: float) -> float | None:
        """Add a sample at `now` (seconds of a monotonic clock) and return the days until the disk is full."""
        known = self._used.setdefault(mount, deque())
        if not known or now - known[-1][0] >= SAMPLE_SECONDS:
            known.append((now, used))
        while now - known[0][0] > WINDOW_SECONDS:
            known.popleft()
        return days_to_full(known, free)


def days_to_full(used: Iterable[tuple[float, float]], free: float) -> float | None:
    """Return the days until the disk is full; infinite if its use does not grow, None while too little is known.

    Args:
        used: (seconds, bytes) in order of time.
        free: bytes.
    """
    known = list(used)
    if not known or known[-1][0] - known[0][0] < LEAST_SECONDS:
        return None
    per_second = median(_paces(known))
    return free / per_second / 86_400 if per_second > 0 else float("inf")


def _paces(known: Used) -> list[float]:
    """Return the bytes per second from each sample to the first one at least an hour later."""
    paces, later = [], 0
    for at, bytes_ in known:
        while later < len(known) and known[later][0] - at < SPAN_SECONDS:
            later += 1
        if later == len(known):
            break
        paces.append((known[later][1] - bytes_) / (known[later][0] - at))
    return paces


class HostProbe:
    """Probe of this machine; `paths` are the folders whose disks matter, such as Kafka's and the tables'.

    Two folders on one disk are one series. For a folder that does not exist yet, the nearest parent counts.
    """

    def __init__(self, paths: Iterable[Path], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._mounts = tuple(sorted({mountpoint(path) for path in paths}))
        self._spent: dict[str, float] = {}
        self._forecast, self._clock = DiskForecast(), clock

    def look(self) -> Samples:
        """Return all families of the probe `host`; figures that the platform does not report are left out, not 0."""
        memory = psutil.virtual_memory()
        return {
            "node_cpu_seconds_total": self._cpu(),
            "node_memory_MemAvailable_bytes": [((), float(memory.available))],
            "node_memory_MemTotal_bytes": [((), float(memory.total))],
            **self._disks(),
            "node_disk_io_time_seconds_total": _disk_busy(),
        }

    def _cpu(self) -> _Series:
        """Return CPU seconds by mode, never less than before: Linux may reduce `idle` and `iowait`, as if after a restart."""
        times: Any = psutil.cpu_times()
        for mode in _MODES:
            if hasattr(times, mode):
                self._spent[mode] = max(float(getattr(times, mode)), self._spent.get(mode, 0.0))
        return [((mode,), seconds) for mode, seconds in self._spent.items()]

    def _disks(self) -> dict[str, _Series]:
        free: _Series = []
        size: _Series = []
        days: _Series = []
        for mount in self._mounts:
            # A removed disk must not hide the figures of the others.
            with suppress(OSError):
                usage = psutil.disk_usage(mount)
                free.append(((mount,), float(usage.free)))
                size.append(((mount,), float(usage.total)))
                left = self._forecast.days(mount, used=usage.total - usage.free, free=usage.free, now=self._clock())
                if left is not None:
                    days.append(((mount,), left))
        return {
            "node_filesystem_avail_bytes": free,
            "node_filesystem_size_bytes": size,
            "tidegate_table_disk_full_days": days,
        }


def mountpoint(path: Path) -> str:
    """Return the mount point of the file system that holds `path`, or will hold it."""
    place = path.resolve()
    while not place.exists() or not os.path.ismount(place):
        if place == place.parent:
            break
        place = place.parent
    return str(place)


def _disk_busy() -> _Series:
    """Return the busy seconds of real devices only: a volume or loop device on top would count the time twice."""
    counters: dict[str, Any] = psutil.disk_io_counters(perdisk=True) or {}
    told = {name: each.busy_time for name, each in counters.items() if hasattr(each, "busy_time")}
    real = {name: busy for name, busy in told.items() if (_BLOCK_DEVICES / name / "device").exists()}
    return [((), sum((real or told).values()) / 1000)] if told else []
