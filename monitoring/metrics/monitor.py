"""Metrics of the monitor: about Kafka, the broker, the host and the tables, and about the monitor itself.

Names of kafka_exporter, node_exporter and mosquitto's exporter are kept, so that dashboards made for them work.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from monitoring.metrics.buckets import CHORE_BUCKETS
from monitoring.metrics.families import MetricFamily, ProbeCollector

__all__ = ["AUDIT", "BROKER", "HOST", "KAFKA", "PROBES", "MonitorMetrics"]

_PARTITION: Final = ("topic", "partition")
_GROUP: Final = ("consumergroup", "topic", "partition")

KAFKA: Final = (
    MetricFamily("kafka_brokers", "Brokers that the cluster lists."),
    MetricFamily("kafka_topic_partitions", "Partitions of the topic.", ("topic",)),
    MetricFamily("kafka_topic_partition_current_offset", "Next offset to be written to the partition.", _PARTITION),
    MetricFamily("kafka_topic_partition_oldest_offset", "Oldest offset that the partition still has.", _PARTITION),
    MetricFamily("kafka_topic_partition_in_sync_replica", "Replicas of the partition that are in sync.", _PARTITION),
    MetricFamily("kafka_topic_partition_leader", "Id of the partition's leader; -1 without a leader.", _PARTITION),
    MetricFamily(
        "kafka_topic_partition_under_replicated_partition",
        "1 while a replica of the partition is out of sync.",
        _PARTITION,
    ),
    MetricFamily(
        "tidegate_kafka_under_min_isr_partitions",
        "Partitions of the topic with fewer replicas in sync than min.insync.replicas: Kafka rejects records for them.",
        ("topic",),
    ),
    MetricFamily(
        "tidegate_kafka_missing_copies",
        "Copies that an acknowledged record of the topic may lack, compared with kafka.replication and kafka.min_in_sync.",
        ("topic",),
    ),
    MetricFamily("kafka_consumergroup_current_offset", "Next offset that the group reads.", _GROUP),
    MetricFamily(
        "kafka_consumergroup_lag", "Records that the group has not read; grows while the stream is down.", _GROUP
    ),
    MetricFamily("tidegate_kafka_reachable", "1 while Kafka answers the monitor."),
    MetricFamily(
        "tidegate_kafka_lag_seconds",
        "Age in seconds of the oldest record that the group has not read, by Kafka's clock; 0 if it has read all.",
        ("consumergroup", "topic"),
    ),
    MetricFamily(
        "tidegate_kafka_time_to_data_loss_seconds",
        "Seconds until retention deletes a record that the group has not read, at the present pace; infinite without lag.",
        ("consumergroup", "topic"),
    ),
)
"""Filled by the probe `kafka`; only Tidegate's own topics and groups."""

BROKER: Final = (
    MetricFamily("tidegate_broker_reachable", "1 while the MQTT broker accepts the monitor's connection."),
    MetricFamily("tidegate_broker_sys_available", "1 if the broker publishes its own figures under $SYS."),
    MetricFamily("broker_clients_connected", "Connected clients."),
    MetricFamily("broker_clients_disconnected", "Disconnected clients whose sessions the broker keeps."),
    MetricFamily("broker_messages_received", "MQTT packets received since the broker's start."),
    MetricFamily("broker_messages_sent", "MQTT packets sent since the broker's start."),
    MetricFamily("broker_messages_stored", "Messages that the broker holds, including retained ones."),
    MetricFamily("broker_messages_stored_bytes", "Bytes of the messages that the broker holds, if it reports them."),
    MetricFamily("broker_publish_messages_received", "PUBLISH packets received since the broker's start."),
    MetricFamily("broker_publish_messages_sent", "PUBLISH packets sent since the broker's start."),
    MetricFamily("broker_publish_messages_dropped", "PUBLISH packets that the broker dropped since its start."),
    MetricFamily("broker_bytes_received", "Bytes received since the broker's start."),
    MetricFamily("broker_bytes_sent", "Bytes sent since the broker's start."),
    MetricFamily("broker_uptime", "Seconds since the broker's start."),
)
"""Filled by the probe `broker` from `$SYS`; mosquitto-exporter's names, which carry no `_total`."""

HOST: Final = (
    MetricFamily("node_cpu_seconds_total", "CPU time in seconds by mode, all CPUs together.", ("mode",), "counter"),
    MetricFamily("node_memory_MemAvailable_bytes", "Bytes of memory that programs can use without swapping."),
    MetricFamily("node_memory_MemTotal_bytes", "Bytes of memory of the machine."),
    MetricFamily("node_filesystem_avail_bytes", "Free bytes of the disks that hold data.", ("mountpoint",)),
    MetricFamily("node_filesystem_size_bytes", "Size in bytes of the disks that hold data.", ("mountpoint",)),
    MetricFamily(
        "tidegate_table_disk_full_days",
        "Days until a disk that holds data is full, at the pace of the last hours; infinite if its data does not grow.",
        ("mountpoint",),
    ),
    MetricFamily("node_disk_io_time_seconds_total", "Seconds that disks were busy, all together.", (), "counter"),
)
"""Filled by the probe `host`; `rate(node_cpu_seconds_total{mode="iowait"})` over all modes is the IO wait ratio."""

DEVICES: Final = (
    MetricFamily("tidegate_devices_known", "Devices that have ever sent a message."),
    MetricFamily(
        "tidegate_devices_heard",
        "Devices checked for silence: seen within 3 days or 20 of their intervals, and for long enough to know the interval.",
    ),
    MetricFamily("tidegate_devices_active", "Devices seen within the last hour."),
    MetricFamily(
        "tidegate_devices_silent", "Devices silent for much longer than their learned interval, among those checked."
    ),
    MetricFamily(
        "tidegate_devices_skewed", "Devices with a clock more than a minute off, seen within the last 24 hours."
    ),
    MetricFamily(
        "tidegate_devices_newly_refused",
        "Pairs of device and reason with rejections within the last hour and none in the 24 hours before.",
    ),
    MetricFamily("tidegate_ledger_messages", "Messages of the last settled hour, by outcome.", ("outcome",)),
    MetricFamily("tidegate_ledger_gap_messages", "Messages missing between sequence numbers in the last hour."),
    MetricFamily("tidegate_ledger_late_messages", "Stored messages of the last hour that were late."),
)
"""Filled by the probe `tables` from `devices` and `ledger`."""

AUDIT: Final = (
    MetricFamily(
        "tidegate_audit_unaccounted_messages",
        "Acknowledged messages that were lost. Kept until an audit of that time finds none, or the finding is accepted.",
    ),
    MetricFamily(
        "tidegate_audit_duplicate_rows", "Rows stored twice. Kept until a later audit or acceptance clears it."
    ),
    MetricFamily(
        "tidegate_audit_order_violations",
        "Readings of a device that are out of order in their topic. Kept until a later audit or acceptance clears it.",
    ),
    MetricFamily("tidegate_audit_messages", "Messages that the last audit examined."),
    MetricFamily("tidegate_audit_timestamp_seconds", "Unix time of the end of the last audit."),
    MetricFamily("tidegate_audit_duration_seconds", "Duration of the last audit in seconds."),
    MetricFamily(
        "tidegate_audit_skipped_seconds_total",
        "Seconds of receive time that no audit covered, since the monitor's start: an outage was longer than an audit's reach.",
        (),
        "counter",
    ),
)
"""Filled by the probe `audit`."""

CERTIFICATES: Final = (
    MetricFamily(
        "tidegate_certificate_expiry_timestamp_seconds",
        "Unix time at which the certificate of a server, or a client certificate of Tidegate, expires.",
        ("server",),
    ),
)
"""Filled by the probe `certificates`; `server` is `mqtt`, `kafka`, or `mqtt_client` and others for ours."""

PROBES: Final = {
    "kafka": KAFKA,
    "broker": BROKER,
    "host": HOST,
    "tables": DEVICES,
    "audit": AUDIT,
    "certificates": CERTIFICATES,
}


class MonitorMetrics:
    """The monitor's own metrics: probes, alerts, page. The probes fill `families`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.families = ProbeCollector(registry, (family for probe in PROBES.values() for family in probe))
        self.probe_duration = Histogram(
            "tidegate_monitor_probe_duration_seconds",
            "Duration of one look of a probe in seconds.",
            ["probe"],
            buckets=CHORE_BUCKETS,
            registry=registry,
        )
        self.probe_failures = Counter(
            "tidegate_monitor_probe_failures_total", "Looks of a probe that failed.", ["probe"], registry=registry
        )
        self.probe_complete = Gauge(
            "tidegate_monitor_probe_complete_timestamp_seconds",
            "Unix time of the probe's last complete look; before the first one the monitor's start; 0 if it does not run.",
            ["probe"],
            registry=registry,
        )
        self.alerts = Gauge(
            "tidegate_monitor_alerts", "Alerts of the monitor's own checks, by state.", ["state"], registry=registry
        )
        self.viewers = Gauge("tidegate_monitor_page_viewers", "Browsers that follow the page.", registry=registry)
        self.requests = Counter(
            "tidegate_monitor_page_requests_total",
            "Answers of the page, by class of HTTP status.",
            ["code"],
            registry=registry,
        )
        for probe in PROBES:
            self.probe_duration.labels(probe)
            self.probe_failures.labels(probe)
            self.probe_complete.labels(probe)
        for state in ("pending", "firing"):
            self.alerts.labels(state)
        for code in ("2xx", "3xx", "4xx", "5xx"):
            self.requests.labels(code)
