"""Metrics of SQL-defined streams: one label value per applied stream, which ends when the stream is dropped."""

from contextlib import suppress
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

__all__ = ["SqlStreamMetrics"]

LABELS: Final = ("stream",)


class SqlStreamMetrics:
    """`add` when a stream is applied, `remove` when it is dropped."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.behind = Gauge(
            "tidegate_stream_sql_offsets_behind",
            "Records that a SQL-defined stream has not read yet.",
            LABELS,
            registry=registry,
        )
        self.late = Counter(
            "tidegate_stream_sql_late_rows_total",
            "Rows that came after the watermark of a SQL-defined stream and were dropped.",
            LABELS,
            registry=registry,
        )
        self.errors = Counter(
            "tidegate_stream_sql_errors_total",
            "Times that a SQL-defined stream ended by a fault.",
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
            "When a SQL-defined stream last finished a batch.",
            LABELS,
            registry=registry,
        )
        self._all = (self.behind, self.late, self.errors, self.rows, self.committed)

    def add(self, name: str) -> None:
        """Its series begin at 0."""
        for metric in self._all:
            metric.labels(name)

    def remove(self, name: str) -> None:
        """Its series end."""
        for metric in self._all:
            with suppress(KeyError):
                metric.remove(name)
