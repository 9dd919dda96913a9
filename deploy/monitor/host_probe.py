"""Figures of the machine: CPUs, memory, and the disks that hold data, under node_exporter's names."""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from deploy.monitor.disk_forecast import DiskForecast
from monitoring.metrics.families import Samples

__all__ = ["HostProbe", "mountpoint"]

# node_exporter's modes; a platform reports those that it has (macOS: four). Guests' time is already part of `user`.
_MODES: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_BLOCK_DEVICES: Final = Path("/sys/block")

_Series = list[tuple[tuple[str, ...], float]]


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
