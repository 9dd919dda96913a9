"""Every metric of the product: name, unit, labels, buckets. One object per process, on a registry passed in.

Names: `tidegate_<hop>_<noun>_<unit>[_total]`. Label values come from closed sets and start at 0, so that a rate exists
before the first event. No device, no topic with an id and no text is ever a label: the series count does not grow
with the fleet.
"""

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from monitoring.sql_streams import SqlStreamMetrics

__all__ = ["CanaryMetrics", "GatewayMetrics", "StreamMetrics", "build_info"]

LATENCY_BUCKETS: Final = (0.05, 0.1, 0.2, 0.35, 0.5, 0.8, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds; the boundaries hold the latency goals (0.35, 0.8, 1.5), so that "within the goal" is exact."""
CHORE_BUCKETS: Final = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0)
PRODUCE_BUCKETS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


def build_info(registry: CollectorRegistry, version: str, part: str) -> None:
    """One series that says which version of which part answers."""
    Gauge("tidegate_build_info", "Version of the running part.", ["version", "part"], registry=registry).labels(
        version, part
    ).set(1)


class GatewayMetrics:
    """Hop 1: what came in over MQTT and what became of it. Call sites add per batch, never per reading."""

    def __init__(self, registry: CollectorRegistry, *, reasons: Iterable[str], ignored_reasons: Iterable[str]) -> None:
        self.received = Counter(
            "tidegate_gateway_messages_received_total", "MQTT messages received.", ["qos"], registry=registry
        )
        self.accepted = Counter(
            "tidegate_gateway_messages_accepted_total",
            "Messages of which at least one reading is in Kafka.",
            registry=registry,
        )
        self.partial = Counter(
            "tidegate_gateway_messages_partial_total",
            "Accepted messages of which a part was refused.",
            registry=registry,
        )
        self.readings = Counter("tidegate_gateway_readings_total", "Readings produced to Kafka.", registry=registry)
        self.rejected = Counter(
            "tidegate_gateway_messages_rejected_total", "Messages dead-lettered.", ["reason"], registry=registry
        )
        self.rejected_parts = Counter(
            "tidegate_gateway_parts_rejected_total",
            "Parts of accepted messages dead-lettered.",
            ["reason"],
            registry=registry,
        )
        self.ignored = Counter(
            "tidegate_gateway_messages_ignored_total",
            "Messages that hold no reading by rule.",
            ["reason"],
            registry=registry,
        )
        self.dropped = Counter(
            "tidegate_gateway_messages_dropped_total",
            "QoS 0 messages dropped while Kafka did not answer (QoS 1 is never dropped).",
            registry=registry,
        )
        self.acknowledged = Counter(
            "tidegate_gateway_messages_acknowledged_total", "PUBACKs sent to the broker.", registry=registry
        )
        self.replies = Counter(
            "tidegate_gateway_replies_total",
            "Messages published to the device side (receipts, rebirth requests), and those the connection did not take.",
            ["result"],
            registry=registry,
        )
        self.in_flight = Gauge(
            "tidegate_gateway_inflight_messages", "Messages received and not yet acknowledged.", registry=registry
        )
        self.produce = Histogram(
            "tidegate_gateway_produce_duration_seconds",
            "From receipt to Kafka's report of the outcome record, oldest message of each acknowledged batch.",
            buckets=PRODUCE_BUCKETS,
            registry=registry,
        )
        self.connected = Gauge("tidegate_gateway_connected", "1 while the MQTT session is up.", registry=registry)
        self.connections = Counter("tidegate_gateway_connections_total", "MQTT connections made.", registry=registry)
        self.sessions_lost = Counter(
            "tidegate_gateway_sessions_lost_total",
            "Reconnects at which the broker had forgotten the session.",
            registry=registry,
        )
        self.stale_acks = Counter(
            "tidegate_gateway_stale_acks_total", "Delivery reports of an older connection, dropped.", registry=registry
        )
        self.errors = Counter(
            "tidegate_gateway_errors_total", "Faults survived, by stage.", ["stage"], registry=registry
        )
        self.profile_reloads = Counter(
            "tidegate_gateway_profile_reloads_total",
            "Changes of profiles or registered devices that were taken in.",
            registry=registry,
        )
        self.profiles_refused = Gauge(
            "tidegate_gateway_profile_files_refused",
            "Files of profiles or devices that are wrong now; what they said before stays.",
            registry=registry,
        )
        self.receipts_sent = Counter(
            "tidegate_gateway_receipts_sent_total",
            "Receipts of refusals handed to the MQTT session.",
            registry=registry,
        )
        self.stored_receipts_sent = Counter(
            "tidegate_gateway_stored_receipts_sent_total", "Positive receipts published.", registry=registry
        )
        self.receipts_held_back = Counter(
            "tidegate_gateway_receipts_held_back_total",
            "Receipts not sent: over the device's or the total rate, or to an address that devices may not name.",
            ["why"],
            registry=registry,
        )
        for qos in ("0", "1"):
            self.received.labels(qos)
        for why in ("device", "total", "address"):
            self.receipts_held_back.labels(why)
        for reason in reasons:
            self.rejected.labels(reason)
            self.rejected_parts.labels(reason)
        for reason in ignored_reasons:
            self.ignored.labels(reason)
        for result in ("sent", "dropped"):
            self.replies.labels(result)
        for stage in ("receive", "decode", "produce", "acknowledge", "receipts", "tick"):
            self.errors.labels(stage)


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
        self.commit_duration = Histogram(
            "tidegate_stream_commit_duration_seconds",
            "One table's write and commit.",
            ["table"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.rows = Counter("tidegate_stream_rows_total", "Rows committed.", ["table"], registry=registry)
        self.duplicates = Counter(
            "tidegate_stream_duplicate_rows_total",
            "Rows dropped: identity already stored.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.conflicts = Counter(
            "tidegate_stream_conflicting_duplicates_total",
            "Records refused: an identity of theirs is stored with other content.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.unchecked = Counter(
            "tidegate_stream_duplicate_rows_unchecked_total",
            "Dropped rows whose content was not compared: the stored row is gone, or look-ups took their share of time.",
            ["query"],
            registry=registry,
        ).labels(query)
        self.receive_to_commit = Histogram(
            "tidegate_stage_latency_seconds",
            "Age of readings at their commit, counted from the stage's clock: every reading of every batch.",
            ["stage"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
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
        self.disk_full_days = Gauge(
            "tidegate_table_disk_full_days",
            "Days until the disk under the tables is full, at the pace of the last hours; infinite where it does not grow.",
            registry=registry,
        )
        self.disk_full_days.set(float("inf"))
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
        for chore in chores:
            self.chore_duration.labels(chore)
            self.chore_failures.labels(chore)
        for table in tables:
            self.commit_duration.labels(table)
            self.rows.labels(table)
            self.last_commit.labels(table)
            if table.startswith("roll"):
                self.rollup_windows.labels(table)
                self.rollup_corrections.labels(table)
        for topic in topics:
            self.lag.labels(query, topic)
        for stage in ("receive_to_commit", "kafka_to_commit"):
            self.receive_to_commit.labels(stage)


class CanaryMetrics:
    """The canary: one reading published over MQTT and read back from Delta, by a reader apart from the writer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.end_to_end = Histogram(
            "tidegate_end_to_end_latency_seconds",
            "Publish over MQTT to row readable in Delta.",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.published = Counter("tidegate_canary_published_total", "Canary readings published.", registry=registry)
        self.seen = Counter("tidegate_canary_seen_total", "Canary readings read back.", registry=registry)
        self.last_seen = Gauge(
            "tidegate_canary_last_seen_timestamp_seconds",
            "When a canary reading was last read back.",
            registry=registry,
        )
