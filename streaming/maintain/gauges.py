"""What maintenance tells the operator: sizes, times, and when the disk will be full."""

import shutil
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakehouse.files import is_local
from lakehouse.maintenance import TableState
from monitoring.metrics.stream import StreamMetrics

__all__ = ["Gauges", "days_to_full"]

WINDOW_SECONDS: Final = 6 * 3600.0
SAMPLE_SECONDS: Final = 60.0
LEAST_SECONDS: Final = 3600.0
"""What is filled in the first minutes, by caches and by a backlog, says nothing of the days to come."""


class Gauges:
    """Sets the gauges; keeps some hours of the disk's use."""

    def __init__(self, metrics: StreamMetrics, root: str) -> None:
        self._metrics, self._root = metrics, root
        self._tables: set[str] = set()
        self._used: deque[tuple[float, int]] = deque(maxlen=int(WINDOW_SECONDS / SAMPLE_SECONDS))

    def table(self, state: TableState) -> None:
        """One table as it is now."""
        metrics = self._metrics
        metrics.table_files.labels(state.name).set(state.file_count)
        metrics.table_small_files.labels(state.name).set(state.small_count)
        metrics.table_bytes.labels(state.name).set(state.bytes)
        metrics.table_snapshot_load.labels(state.name).set(state.load_seconds)

    def keep(self, names: Collection[str]) -> None:
        """The tables that there are: the clock of a new one runs from now on, a table that is gone waits for nothing."""
        metrics = self._metrics
        gauges = metrics.table_files, metrics.table_small_files, metrics.table_bytes, metrics.table_snapshot_load
        for name in self._tables.difference(names):
            for gauge in (*gauges, metrics.table_maintained):
                with suppress(KeyError):
                    gauge.remove(name)
        for name in set(names) - self._tables:
            self.done(name)
        self._tables = set(names)

    def done(self, name: str) -> None:
        """All that was due to a table has been done."""
        self._metrics.table_maintained.labels(name).set(time.time())

    def disk(self) -> None:
        """How long the disk under the tables will do, at the pace of the last hours."""
        if not is_local(self._root):
            return
        usage = shutil.disk_usage(Path(self._root.removeprefix("file://")))
        now = time.monotonic()
        if not self._used or now - self._used[-1][0] >= SAMPLE_SECONDS:
            self._used.append((now, usage.used))
        self._metrics.disk_full_days.set(days_to_full(list(self._used), usage.free))


def days_to_full(used: list[tuple[float, int]], free: int) -> float:
    """Days until the disk is full; infinite where its use does not grow, or is not known for long enough yet.

    Args:
        used: (seconds, bytes) in order of time.
        free: bytes.
    """
    if not used or used[-1][0] - used[0][0] < LEAST_SECONDS:
        return float("inf")
    per_second = (used[-1][1] - used[0][1]) / (used[-1][0] - used[0][0])
    return free / per_second / 86_400 if per_second > 0 else float("inf")
