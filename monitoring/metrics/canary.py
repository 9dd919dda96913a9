"""Metrics of the canary."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from monitoring.metrics.buckets import HOP_BUCKETS, LATENCY_BUCKETS

__all__ = ["HOPS", "CanaryMetrics"]

HOPS: Final = ("device_to_gateway", "gateway_to_kafka", "kafka_to_read", "read_to_commit", "commit_to_queryable")
"""The way of a reading, in its order: publish -> received -> in Kafka -> batch begins -> committed -> read back."""


class CanaryMetrics:
    """The canary: one reading published over MQTT and read back from Delta, by a reader apart from the writer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.end_to_end = Histogram(
            "tidegate_end_to_end_latency_seconds",
            "Publish over MQTT to row readable in Delta.",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.hops = Histogram(
            "tidegate_canary_hop_seconds",
            "The same latency, hop by hop; a hop that differing clocks make negative counts as 0.",
            ["hop"],
            buckets=HOP_BUCKETS,
            registry=registry,
        )
        self.clock_skew = Gauge(
            "tidegate_canary_clock_skew_seconds",
            "How negative the hop was at worst among the last 100 readings: its two clocks differ at least so much.",
            ["hop"],
            registry=registry,
        )
        self.published = Counter(
            "tidegate_canary_published_total",
            "Canary readings that were due, whether or not the broker took them: an outage counts too.",
            registry=registry,
        )
        self.acknowledged = Counter(
            "tidegate_canary_acknowledged_total",
            "Canary readings that the broker took: what figures of the fleet take off.",
            registry=registry,
        )
        self.seen = Counter("tidegate_canary_seen_total", "Canary readings read back.", registry=registry)
        self.last_seen = Gauge(
            "tidegate_canary_last_seen_timestamp_seconds",
            "When a canary reading was last read back.",
            registry=registry,
        )
        self.oldest_wait = Gauge(
            "tidegate_canary_oldest_wait_seconds",
            "For how long the oldest canary reading that is due and may still come back has waited; 0 where none waits.",
            registry=registry,
        )
        for hop in HOPS:
            self.hops.labels(hop)
            self.clock_skew.labels(hop)
