"""Metrics of hop 3: the stream."""

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from monitoring.metrics.buckets import CHORE_BUCKETS, LATENCY_BUCKETS
from monitoring.metrics.sql_streams import SqlStreamMetrics

__all__ = ["PHASES", "STAGES", "StreamMetrics"]

STAGES: Final = ("receive_to_kafka", "kafka_to_batch", "batch_to_commit", "receive_to_commit", "kafka_to_commit")
"""Parts of a reading's way, and its whole from the gateway and from Kafka on."""
PHASES: Final = (
    "latestOffset", "queryPlanning", "walCommit", "getBatch", "addBatch", "commitOffsets", "triggerExecution",
)  # fmt: skip
"""What Spark says a batch consists of, in its own words; `triggerExecution` is the whole."""


class StreamMetrics:
    """Hop 3: batches from Kafka to Delta."""

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
            "One micro-batch, trigger to done.",
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
            "Records that the newest batch worked off per second, as Spark reports it; 0 while idle.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.last_batch = Gauge(
            "tidegate_stream_last_batch_timestamp_seconds",
            "When a batch last ended; 0 before the first one.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.commit_duration = Histogram(
            "tidegate_stream_commit_duration_seconds",
            "One table's write and commit.",
            ["table"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.rows = Counter("tidegate_stream_rows_total", "Rows committed.", ["table"], registry=registry)
        self.late = Counter(
            "tidegate_stream_late_rows_total",
            "Rows of readings that were older than the watermark's delay when the gateway received them; all are stored.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.duplicates = Counter(
            "tidegate_stream_duplicate_rows_total",
            "Rows dropped: identity already stored.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.conflicts = Counter(
            "tidegate_stream_conflicting_duplicates_total",
            "Records refused: an identity of theirs is stored with other content, or long ago.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.unchecked = Counter(
            "tidegate_stream_duplicate_rows_unchecked_total",
            "Copies refused as unchecked_duplicate: the stored row is gone, or look-ups took their share of time.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.identities = Gauge(
            "tidegate_stream_identities",
            "Identities that redeliveries are recognised by: ranges of counters, and points (all other ids) of the horizon.",
            ["kind"],
            registry=registry,
        )
        self.identities_fill = Gauge(
            "tidegate_stream_identities_fill_ratio",
            "Identities held against the limit of their kind; past it the oldest are forgotten.",
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
            "From stage to stage, every reading of every batch: kafka_to_batch is backlog, batch_to_commit processing.",
            ["stage"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.stages = {stage: stage_latency.labels(stage) for stage in STAGES}
        self.lag = Gauge(
            "tidegate_stream_offsets_behind",
            "Records in Kafka not yet committed.",
            ["query", "topic"],
            registry=registry,
        )
        self.last_commit = Gauge(
            "tidegate_table_last_commit_timestamp_seconds",
            "When the table was last written.",
            ["table"],
            registry=registry,
        )
        self.table_files = Gauge(
            "tidegate_table_files", "Data files of the table's newest version.", ["table"], registry=registry
        )
        self.table_small_files = Gauge(
            "tidegate_table_small_files", "Files of those that wait to be joined.", ["table"], registry=registry
        )
        self.table_bytes = Gauge(
            "tidegate_table_size_bytes", "Size of the data files of the newest version.", ["table"], registry=registry
        )
        self.table_snapshot_load = Gauge(
            "tidegate_table_snapshot_load_seconds",
            "What opening the table takes: the log is read up to its newest version.",
            ["table"],
            registry=registry,
        )
        self.table_maintained = Gauge(
            "tidegate_table_maintained_timestamp_seconds",
            "When all that was due to the table had last been done; overdue where that is some minutes ago.",
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
            "How far the newest landed row is ahead of this machine's clock; 0 where the clock is later, as it should be.",
            registry=registry,
        )
        self.restarts = Counter(
            "tidegate_stream_query_restarts_total",
            "Query restarts after a passing fault.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.chore_duration = Histogram(
            "tidegate_stream_chore_duration_seconds",
            "What the writing process does beside landing: one run of it.",
            ["chore"],
            buckets=CHORE_BUCKETS,
            registry=registry,
        )
        self.chore_failures = Counter(
            "tidegate_stream_chore_failures_total",
            "Runs that failed and are tried again.",
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
            "How old the watermark becomes by the settings: its delay, and without readings the idle timeout as well.",
            registry=registry,
        )
        self.rollup_newest = Gauge(
            "tidegate_rollup_newest_reading_timestamp_seconds",
            "When the newest reading that the rollups hold was received; its age is their freshness.",
            registry=registry,
        )
        self.rollup_windows = Counter(
            "tidegate_rollup_windows_written_total",
            "Windows that were new, changed or became final.",
            ["table"],
            registry=registry,
        )
        self.rollup_corrections = Counter(
            "tidegate_rollup_corrections_total",
            "Windows that were corrected after they were final.",
            ["table"],
            registry=registry,
        )
        self.sql = SqlStreamMetrics(registry)
        self.poison_outcomes = Counter(
            "tidegate_stream_poison_outcomes_total",
            "Records in the outcomes topic that are no outcomes: the ledger passes them over.",
            registry=registry,
        )
        self.ledger_unaccounted = Gauge(
            "tidegate_ledger_unaccounted_messages",
            "Messages that are missing or too many in settled rows of the ledger, of rows written in the last 24 hours.",
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
