"""Metrics of the canary."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from monitoring.metrics.buckets import HOP_BUCKETS, LATENCY_BUCKETS

__all__ = ["HOPS", "CanaryMetrics"]

HOPS: Final = ("device_to_gateway", "gateway_to_kafka", "kafka_to_read", "read_to_commit", "commit_to_queryable")
"""Hops of a reading in order: publish -> received -> in Kafka -> batch begins -> committed -> read back."""


class CanaryMetrics:
    """Metrics of the canary, which publishes a reading over MQTT and reads it back from Delta with its own reader."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.end_to_end = Histogram(
            "tidegate_end_to_end_latency_seconds",
            "Seconds from publishing over MQTT to a readable row in Delta.",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.hops = Histogram(
            "tidegate_canary_hop_seconds",
            "Latency of the canary per hop in seconds; a hop that is negative because of differing clocks counts as 0.",
            ["hop"],
            buckets=HOP_BUCKETS,
            registry=registry,
        )
        self.clock_skew = Gauge(
            "tidegate_canary_clock_skew_seconds",
            "Most negative latency of the hop in the last 100 readings, in seconds: its two clocks differ at least this much.",
            ["hop"],
            registry=registry,
        )
        self.published = Counter(
            "tidegate_canary_published_total",
            "Canary readings that were due, even if the broker did not accept them: an outage counts too.",
            registry=registry,
        )
        self.acknowledged = Counter(
            "tidegate_canary_acknowledged_total",
            "Canary readings that the broker accepted; figures of the fleet exclude them.",
            registry=registry,
        )
        self.seen = Counter("tidegate_canary_seen_total", "Canary readings read back.", registry=registry)
        self.last_seen = Gauge(
            "tidegate_canary_last_seen_timestamp_seconds",
            "Unix time at which a canary reading was last read back.",
            registry=registry,
        )
        self.oldest_wait = Gauge(
            "tidegate_canary_oldest_wait_seconds",
            "Seconds that the oldest due canary reading has waited, if it may still come back; 0 if none waits.",
            registry=registry,
        )
        for hop in HOPS:
            self.hops.labels(hop)
            self.clock_skew.labels(hop)
