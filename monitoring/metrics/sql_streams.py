"""Metrics of SQL-defined streams: one label value per applied stream, removed when the stream is dropped."""

from contextlib import suppress
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

__all__ = ["SqlStreamMetrics"]

LABELS: Final = ("stream",)


class SqlStreamMetrics:
    """Metrics of SQL-defined streams. Call `add` when a stream is applied and `remove` when it is dropped."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.behind = Gauge(
            "tidegate_stream_sql_offsets_behind",
            "Records that a SQL-defined stream has not read yet.",
            LABELS,
            registry=registry,
        )
        self.late = Counter(
            "tidegate_stream_sql_late_rows_total",
            "Rows that a SQL-defined stream dropped because they arrived behind its watermark.",
            LABELS,
            registry=registry,
        )
        self.errors = Counter(
            "tidegate_stream_sql_errors_total",
            "Times that a SQL-defined stream ended with an error.",
            LABELS,
            registry=registry,
        )
        self.rows = Counter(
            "tidegate_stream_sql_rows_total",
            "Rows that a SQL-defined stream committed to its table.",
            LABELS,
            registry=registry,
        )
        self.committed = Gauge(
            "tidegate_stream_sql_last_commit_timestamp_seconds",
            "Unix time at which a SQL-defined stream last finished a batch.",
            LABELS,
            registry=registry,
        )
        self._all = (self.behind, self.late, self.errors, self.rows, self.committed)

    def add(self, name: str) -> None:
        """Start the series of a stream at 0."""
        for metric in self._all:
            metric.labels(name)

    def remove(self, name: str) -> None:
        """Remove the series of a stream."""
        for metric in self._all:
            with suppress(KeyError):
                metric.remove(name)
