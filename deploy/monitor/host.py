"""The machine under the pipeline: processors, memory, and the disks that hold its data, under node_exporter's names."""

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

# node_exporter's; a platform tells those that it has (macOS: four). Guests' time is in `user` already.
_MODES: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_BLOCK_DEVICES: Final = Path("/sys/block")

_Series = list[tuple[tuple[str, ...], float]]


class HostProbe:
    """Looks at this machine; `paths` are the folders whose disks matter, such as Kafka's and the tables'.

    Two folders on one disk are one series. A folder that is not there yet counts by the nearest one above it.
    """

    def __init__(self, paths: Iterable[Path], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._mounts = tuple(sorted({mountpoint(path) for path in paths}))
        self._spent: dict[str, float] = {}
        self._forecast, self._clock = DiskForecast(), clock

    def look(self) -> Samples:
        """All families of the probe `host`; what this platform does not tell is left out, not 0."""
        memory = psutil.virtual_memory()
        return {
            "node_cpu_seconds_total": self._cpu(),
            "node_memory_MemAvailable_bytes": [((), float(memory.available))],
            "node_memory_MemTotal_bytes": [((), float(memory.total))],
            **self._disks(),
            "node_disk_io_time_seconds_total": _disk_busy(),
        }

    def _cpu(self) -> _Series:
        """Never less than before: Linux takes back some of `idle` and `iowait`, and a counter that falls reads as a restart."""
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
            # A disk that was taken away has no figures; the others have.
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
    """Where the file system that holds `path`, or will hold it, is mounted."""
    place = path.resolve()
    while not place.exists() or not os.path.ismount(place):
        if place == place.parent:
            break
        place = place.parent
    return str(place)


def _disk_busy() -> _Series:
    """Summed over real devices alone: a volume or a loop on top of one would count its time twice."""
    counters: dict[str, Any] = psutil.disk_io_counters(perdisk=True) or {}
    told = {name: each.busy_time for name, each in counters.items() if hasattr(each, "busy_time")}
    real = {name: busy for name, busy in told.items() if (_BLOCK_DEVICES / name / "device").exists()}
    return [((), sum((real or told).values()) / 1000)] if told else []
