"""Metrics of maintenance: sizes, and how long tables wait for it."""

import time
from collections.abc import Collection
from contextlib import suppress

from lakehouse.maintenance import TableState
from monitoring.metrics.stream import StreamMetrics

__all__ = ["MaintenanceGauges"]


class MaintenanceGauges:
    """Sets the gauges; knows which tables have some."""

    def __init__(self, metrics: StreamMetrics) -> None:
        self._metrics = metrics
        self._tables: set[str] = set()

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
            for gauge in (*gauges, metrics.table_maintained, metrics.retention_waiting):
                with suppress(KeyError):
                    gauge.remove(name)
        for name in set(names) - self._tables:
            self.done(name)
        self._tables = set(names)

    def done(self, name: str) -> None:
        """Mark all due work of a table as done."""
        self._metrics.table_maintained.labels(name).set(time.time())
