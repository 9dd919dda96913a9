"""Metrics of hop 1: the gateway."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from monitoring.metrics.buckets import PRODUCE_BUCKETS

__all__ = ["GatewayMetrics"]


class GatewayMetrics:
    """Hop 1: messages from MQTT and their outcomes. Callers add per batch, never per reading."""

    def __init__(self, registry: CollectorRegistry, *, reasons: Iterable[str], ignored_reasons: Iterable[str]) -> None:
        self.received = Counter(
            "tidegate_gateway_messages_received_total", "MQTT messages received.", ["qos"], registry=registry
        )
        self.accepted = Counter(
            "tidegate_gateway_messages_accepted_total",
            "Messages with at least one reading in Kafka.",
            registry=registry,
        )
        self.partial = Counter(
            "tidegate_gateway_messages_partial_total",
            "Accepted messages with rejected parts.",
            registry=registry,
        )
        self.readings = Counter("tidegate_gateway_readings_total", "Readings produced to Kafka.", registry=registry)
        self.rejected = Counter(
            "tidegate_gateway_messages_rejected_total",
            "Messages that became dead letters.",
            ["reason"],
            registry=registry,
        )
        self.rejected_parts = Counter(
            "tidegate_gateway_parts_rejected_total",
            "Parts of accepted messages that became dead letters.",
            ["reason"],
            registry=registry,
        )
        self.ignored = Counter(
            "tidegate_gateway_messages_ignored_total",
            "Messages that a rule leaves out.",
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
            "Messages to devices (receipts, rebirth requests) that were published (sent) or not accepted (dropped).",
            ["result"],
            registry=registry,
        )
        self.in_flight = Gauge(
            "tidegate_gateway_inflight_messages", "Messages received and not yet acknowledged.", registry=registry
        )
        self.broker_limit = Gauge(
            "tidegate_gateway_broker_inflight_limit",
            "Unacknowledged messages at which the broker stops sending, while this limits the gateway; otherwise 0.",
            registry=registry,
        )
        self.contended = Gauge(
            "tidegate_gateway_session_contended",
            "1 while connections end early for an unknown reason: another client may use the same client id.",
            registry=registry,
        )
        self.id_shared = Gauge(
            "tidegate_gateway_id_shared",
            "1 while another live gateway writes outcomes under the same gateway_id.",
            registry=registry,
        )
        self.lease_held = Gauge(
            "tidegate_gateway_lease_held",
            "1 while this process works for a gateway with gateway.standby; 0 without this setting.",
            registry=registry,
        )
        self.standby_waits = Gauge(
            "tidegate_gateway_standby_waiting", "1 while this process waits as a standby.", registry=registry
        )
        self.produce = Histogram(
            "tidegate_gateway_produce_duration_seconds",
            "Seconds from receipt to Kafka's report of the outcome record, for the oldest message of each acknowledged batch.",
            buckets=PRODUCE_BUCKETS,
            registry=registry,
        )
        self.clock_skew = Gauge(
            "tidegate_gateway_clock_skew_seconds",
            "Seconds that Kafka's clock is at least ahead of the gateway's; negative if the gateway's clock is ahead.",
            registry=registry,
        )
        self.connected = Gauge(
            "tidegate_gateway_connected",
            "1 while the MQTT session is up, or while this process waits as a standby and needs none.",
            registry=registry,
        )
        self.connections = Counter("tidegate_gateway_connections_total", "MQTT connections made.", registry=registry)
        self.sessions_lost = Counter(
            "tidegate_gateway_sessions_lost_total",
            "Reconnects after which the broker no longer had the session.",
            registry=registry,
        )
        self.sequence_restarts = Counter(
            "tidegate_gateway_sequence_restarts_total",
            "Devices that restarted their sequence under the same boot, so that their readings look like copies.",
            registry=registry,
        )
        self.memory_fill = Gauge(
            "tidegate_gateway_memory_fill_ratio",
            "Used share of the memory for devices, 0 to 1: sequence (gaps), rate (limits), tracks (step and stuck checks).",
            ["memory"],
            registry=registry,
        )
        self.stale_acks = Counter(
            "tidegate_gateway_stale_acks_total", "Dropped delivery reports of an older connection.", registry=registry
        )
        self.errors = Counter(
            "tidegate_gateway_errors_total", "Errors that the gateway survived, by stage.", ["stage"], registry=registry
        )
        self.profile_reloads = Counter(
            "tidegate_gateway_profile_reloads_total",
            "Loaded changes of profiles or registered devices.",
            registry=registry,
        )
        self.profiles_refused = Gauge(
            "tidegate_gateway_profile_files_refused",
            "Profile or device files that are invalid now; their last valid content stays in use.",
            registry=registry,
        )
        self.receipts_sent = Counter(
            "tidegate_gateway_receipts_sent_total",
            "Receipts of rejections handed to the MQTT session.",
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
        for memory in ("sequence", "rate", "tracks"):
            self.memory_fill.labels(memory)
        for stage in ("receive", "decode", "produce", "acknowledge", "receipts", "tick"):
            self.errors.labels(stage)
