"""Metrics of the canary."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from monitoring.metrics.buckets import LATENCY_BUCKETS

__all__ = ["CanaryMetrics"]


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
