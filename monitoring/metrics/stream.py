"""Metrics of hop 3: the landing and SQL streams.

A SQL stream has one label value, which is removed when the stream is dropped. Histograms take many observations with one call,
because a call of `observe` per reading would cost more than landing the reading.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from monitoring.metrics.buckets import CHORE_BUCKETS, LATENCY_BUCKETS

__all__ = ["PHASES", "STAGES", "StreamMetrics", "bucket_bounds", "observe_counts", "observe_same"]

STAGES: Final = ("receive_to_kafka", "kafka_to_batch", "batch_to_commit", "receive_to_commit", "kafka_to_commit")
"""Stages of a reading, and the whole way from the gateway and from Kafka."""
PHASES: Final = (
    "latestOffset", "queryPlanning", "walCommit", "getBatch", "addBatch", "commitOffsets", "triggerExecution",
)  # fmt: skip
"""Phases of a batch under Spark's names; `triggerExecution` is the whole batch."""

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


class StreamMetrics:
    """Hop 3: batches from Kafka to Delta. `readings_landed` counts the rows of `readings` for code of this process."""

    readings_landed = 0

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        query: str,
        tables: Iterable[str],
        topics: Iterable[str],
        chores: Iterable[str] = (),
    ) -> None:
        self.batch_duration = Histogram(
            "tidegate_stream_batch_duration_seconds",
            "Duration of one micro-batch in seconds, from trigger to end.",
            ["query"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        ).labels(query)
        self.phases = Counter(
            "tidegate_stream_phase_seconds_total",
            "Seconds that batches spent in each phase, as Spark reports them.",
            ["query", "phase"],
            registry=registry,
        )
        self.input_rate = Gauge(
            "tidegate_stream_input_rows_per_second",
            "Records that arrived per second before the newest batch, as Spark reports it; 0 while idle.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.processed_rate = Gauge(
            "tidegate_stream_processed_rows_per_second",
            "Records that the newest batch processed per second, as Spark reports it; 0 while idle.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.last_batch = Gauge(
            "tidegate_stream_last_batch_timestamp_seconds",
            "Unix time of the end of the last batch; 0 before the first one.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.commit_duration = Histogram(
            "tidegate_stream_commit_duration_seconds",
            "Seconds to write and commit one table.",
            ["table"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.rows = Counter("tidegate_stream_rows_total", "Rows committed.", ["table"], registry=registry)
        self.late = Counter(
            "tidegate_stream_late_rows_total",
            "Rows of readings that were older than the watermark's delay when the gateway received them; all of them are stored.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.duplicates = Counter(
            "tidegate_stream_duplicate_rows_total",
            "Rows dropped because their identity was already stored.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.conflicts = Counter(
            "tidegate_stream_conflicting_duplicates_total",
            "Records rejected because one of their identities was stored with other content, or long ago.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.unchecked = Counter(
            "tidegate_stream_duplicate_rows_unchecked_total",
            "Copies rejected as unchecked_duplicate: the stored row is gone, or look-ups used up their share of time.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.identities = Gauge(
            "tidegate_stream_identities",
            "Identities for recognising redeliveries, by kind: ranges of counters, and points (all other ids) of the horizon.",
            ["kind"],
            registry=registry,
        )
        self.identities_fill = Gauge(
            "tidegate_stream_identities_fill_ratio",
            "Share of the limit that the identities of a kind use; above the limit the oldest are forgotten.",
            ["kind"],
            registry=registry,
        )
        self.identities_evicted = Counter(
            "tidegate_stream_identities_evicted_total",
            "Identities forgotten because the limit of their kind was reached.",
            ["kind"],
            registry=registry,
        )
        for kind in ("range", "point"):
            self.identities.labels(kind)
            self.identities_fill.labels(kind)
            self.identities_evicted.labels(kind)
        stage_latency = Histogram(
            "tidegate_stage_latency_seconds",
            "Seconds between stages for every reading: kafka_to_batch is backlog, batch_to_commit is processing.",
            ["stage"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.stages = {stage: stage_latency.labels(stage) for stage in STAGES}
        self.lag = Gauge(
            "tidegate_stream_offsets_behind",
            "Records in Kafka that the query has not committed yet.",
            ["query", "topic"],
            registry=registry,
        )
        self.last_commit = Gauge(
            "tidegate_table_last_commit_timestamp_seconds",
            "Unix time at which the table was last written.",
            ["table"],
            registry=registry,
        )
        self.table_files = Gauge(
            "tidegate_table_files", "Data files of the table's newest version.", ["table"], registry=registry
        )
        self.table_small_files = Gauge(
            "tidegate_table_small_files",
            "Data files of the table that wait to be joined.",
            ["table"],
            registry=registry,
        )
        self.table_bytes = Gauge(
            "tidegate_table_size_bytes",
            "Bytes of the data files of the table's newest version.",
            ["table"],
            registry=registry,
        )
        self.table_snapshot_load = Gauge(
            "tidegate_table_snapshot_load_seconds",
            "Seconds to open the table, which reads its log up to the newest version.",
            ["table"],
            registry=registry,
        )
        self.table_maintained = Gauge(
            "tidegate_table_maintained_timestamp_seconds",
            "Unix time at which all due maintenance of the table was last done; maintenance is overdue after some minutes.",
            ["table"],
            registry=registry,
        )
        self.retention_waiting = Gauge(
            "tidegate_table_retention_waiting_partitions",
            "Days past their retention that wait for a person: the clock may be wrong, or they are a large part of the table.",
            ["table"],
            registry=registry,
        )
        self.clock_behind = Gauge(
            "tidegate_stream_clock_behind_seconds",
            "Seconds that the newest landed row is ahead of this machine's clock; 0 if it is not, as it should be.",
            registry=registry,
        )
        self.restarts = Counter(
            "tidegate_stream_query_restarts_total",
            "Restarts of the query after a temporary error.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.chore_duration = Histogram(
            "tidegate_stream_chore_duration_seconds",
            "Duration in seconds of one run of a background task, which is work of the writing process besides landing.",
            ["chore"],
            buckets=CHORE_BUCKETS,
            registry=registry,
        )
        self.chore_failures = Counter(
            "tidegate_stream_chore_failures_total",
            "Runs of a background task that failed; each is tried again.",
            ["chore"],
            registry=registry,
        )
        self.rollup_watermark = Gauge(
            "tidegate_rollup_watermark_timestamp_seconds",
            "Event time up to which every rollup is final.",
            registry=registry,
        )
        self.rollup_bound = Gauge(
            "tidegate_rollup_watermark_bound_seconds",
            "Age in seconds that the watermark reaches by the settings: its delay, plus the idle timeout without readings.",
            registry=registry,
        )
        self.rollup_newest = Gauge(
            "tidegate_rollup_newest_reading_timestamp_seconds",
            "Unix time at which the newest reading in the rollups was received; its age is their freshness.",
            registry=registry,
        )
        self.rollup_windows = Counter(
            "tidegate_rollup_windows_written_total",
            "Windows written because they were new, changed or became final.",
            ["table"],
            registry=registry,
        )
        self.rollup_corrections = Counter(
            "tidegate_rollup_corrections_total",
            "Windows corrected after they were final.",
            ["table"],
            registry=registry,
        )
        self.sql = SqlStreamMetrics(registry)
        self.poison_outcomes = Counter(
            "tidegate_stream_poison_outcomes_total",
            "Records in the outcomes topic that are not outcomes; the ledger skips them.",
            registry=registry,
        )
        self.ledger_unaccounted = Gauge(
            "tidegate_ledger_unaccounted_messages",
            "Messages missing or surplus in settled ledger rows that were written in the last 24 hours.",
            registry=registry,
        )
        for phase in PHASES:
            self.phases.labels(query, phase)
        for chore in chores:
            self.chore_duration.labels(chore)
            self.chore_failures.labels(chore)
        for table in tables:
            self.commit_duration.labels(table)
            self.rows.labels(table)
            self.last_commit.labels(table)
            self.retention_waiting.labels(table)
            if table.startswith("roll"):
                self.rollup_windows.labels(table)
                self.rollup_corrections.labels(table)
        for topic in topics:
            self.lag.labels(query, topic)


def bucket_bounds(histogram: Histogram) -> list[float]:
    """Return the histogram's upper bounds; the last one is infinite."""
    return list(histogram._upper_bounds)


def observe_counts(histogram: Histogram, counts: Sequence[int], total: float) -> None:
    """Add `counts[i]` observations to bucket i (each observation in one bucket only); `total` is the sum of their values."""
    for bucket, count in zip(histogram._buckets, counts, strict=True):
        if count:
            bucket.inc(count)
    histogram._sum.inc(total)


def observe_same(histogram: Histogram, value: float, count: int) -> None:
    """Add `count` observations of one value."""
    within = next(index for index, bound in enumerate(histogram._upper_bounds) if value <= bound)
    histogram._buckets[within].inc(count)
    histogram._sum.inc(value * count)
