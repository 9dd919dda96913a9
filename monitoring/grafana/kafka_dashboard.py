"""Dashboard Kafka: brokers (JMX), lag of consumers, the machine, and the MQTT broker."""

from typing import Any, Final

from monitoring.grafana.dashboard import Row, dashboard
from monitoring.grafana.kafka_requests import request_panels
from monitoring.grafana.machine import broker_panels, host_panels, jvm_panels
from monitoring.grafana.panel import Panel, PanelQuery, stat, timeseries
from monitoring.grafana.promql import OURS, rate, select, total
from monitoring.grafana.variables import label_variable, selection

__all__ = ["kafka"]

_TOPIC: Final = 'topic=~"$topic"'
_GROUP: Final = 'topic=~"$topic", consumergroup=~"$consumergroup"'
_REPLICAS: Final = "kafka_server_replicamanager"
_GOOD: Final = [(None, "green"), (1, "red")]


def kafka() -> dict[str, Any]:
    """Return the dashboard for people who run the brokers."""
    topic = label_variable("topic", select("kafka_topic_partitions"))
    group = label_variable("consumergroup", select("kafka_consumergroup_lag", _TOPIC), title="Group")
    rows = [
        Row("State", _state()),
        Row("Unread records", _unread()),
        Row("Traffic and requests", [*_traffic(), *request_panels()]),
        Row("JVM", jvm_panels()),
        Row("Machine", host_panels()),
        Row("MQTT broker", broker_panels()),
    ]
    return dashboard(
        "tidegate-kafka",
        "Tidegate / Kafka",
        "Brokers, consumers and the machine: bytes, request times, errors, purgatory, lag and time to data loss.",
        [*selection(f"up{{{OURS}}}"), topic, group],
        rows,
        span="1h",
    )


def _state() -> list[Panel]:
    return [
        stat(
            "Brokers",
            "Brokers that the cluster reports.",
            "short",
            PanelQuery(total("kafka_brokers", how="max")),
            width=3,
        ),
        stat(
            "Active controllers",
            "Number of active controllers. It must be exactly one.",
            "short",
            PanelQuery(total("kafka_controller_kafkacontroller_activecontrollercount")),
            width=3,
            steps=[(None, "red"), (1, "green"), (2, "red")],
        ),
        stat(
            "Offline partitions",
            "Partitions without a leader: no client can write to them or read them.",
            "short",
            PanelQuery(total("kafka_controller_kafkacontroller_offlinepartitionscount")),
            width=3,
            steps=_GOOD,
        ),
        stat(
            "Under-replicated",
            "Partitions with a replica out of sync.",
            "short",
            PanelQuery(total(f"{_REPLICAS}_underreplicatedpartitions")),
            width=3,
            steps=_GOOD,
        ),
        stat(
            "Under minimum",
            "Partitions with fewer replicas in sync than required: the gateway cannot produce to them.",
            "short",
            PanelQuery(total(f"{_REPLICAS}_underminisrpartitioncount")),
            width=3,
            steps=_GOOD,
        ),
        stat(
            "Partitions",
            "Partitions that brokers hold, and partitions that they lead.",
            "short",
            PanelQuery(total(f"{_REPLICAS}_partitioncount"), "held"),
            PanelQuery(total(f"{_REPLICAS}_leadercount"), "led"),
            width=5,
        ),
        stat(
            "Failed data folders",
            "Data folders that Kafka stopped using after a disk error.",
            "short",
            PanelQuery(total("kafka_log_logmanager_offlinelogdirectorycount")),
            steps=_GOOD,
        ),
    ]


def _unread() -> list[Panel]:
    name = "{{consumergroup}} {{topic}}"
    return [
        timeseries(
            "Lag",
            "Records that the group has not read. The stream commits its offsets as a group, so other tools show it too.",
            "short",
            PanelQuery(total("kafka_consumergroup_lag", "consumergroup, topic", _GROUP), name),
        ),
        timeseries(
            "Lag in seconds",
            "Age of the oldest record that the group has not read, by Kafka's clock.",
            "s",
            PanelQuery(total("tidegate_kafka_lag_seconds", "consumergroup, topic", _GROUP, how="max"), name),
        ),
        timeseries(
            "Time to data loss",
            "Time until retention deletes a record that the group has not read, at the present pace. No line if there is no lag.",
            "s",
            PanelQuery(
                total("tidegate_kafka_time_to_data_loss_seconds", "consumergroup, topic", _GROUP, how="min"), name
            ),
            logarithmic=True,
        ),
        timeseries(
            "Written by topic",
            "Records per second, calculated from the growth of the end offsets.",
            "cps",
            PanelQuery(
                f"sum by (topic) (rate({select('kafka_topic_partition_current_offset', _TOPIC)}[$__rate_interval]))",
                "{{topic}}",
            ),
        ),
        timeseries(
            "Read by group",
            "Records per second, calculated from the growth of the committed offsets.",
            "cps",
            PanelQuery(
                "sum by (consumergroup, topic) "
                f"(rate({select('kafka_consumergroup_current_offset', _GROUP)}[$__rate_interval]))",
                name,
            ),
        ),
        timeseries(
            "Records in Kafka",
            "Records between the oldest and the newest offset.",
            "short",
            PanelQuery(
                f"{total('kafka_topic_partition_current_offset', 'topic', _TOPIC)} - "
                f"{total('kafka_topic_partition_oldest_offset', 'topic', _TOPIC)}",
                "{{topic}}",
            ),
        ),
    ]


def _traffic() -> list[Panel]:
    topics = "kafka_server_brokertopicmetrics"
    return [
        timeseries(
            "Bytes in and out",
            "BytesInPerSec and BytesOutPerSec of all brokers, without replication.",
            "Bps",
            PanelQuery(rate(f"{topics}_bytesin_total"), "in"),
            PanelQuery(rate(f"{topics}_bytesout_total"), "out"),
            PanelQuery(rate(f"{topics}_bytesrejected_total"), "refused for size"),
        ),
        timeseries(
            "Size on disk",
            "Size of the topics' logs. Retention limits it.",
            "bytes",
            PanelQuery(total("kafka_log_log_size", "topic", _TOPIC), "{{topic}}"),
        ),
        timeseries(
            "Under-replicated by topic",
            "Partitions with a replica out of sync, as seen by a client. This works without a JMX agent.",
            "short",
            PanelQuery(total("kafka_topic_partition_under_replicated_partition", "topic", _TOPIC), "{{topic}}"),
        ),
        timeseries(
            "In-sync replicas leaving and joining",
            "ISR shrinks and expands per second. Normally both are 0.",
            "ops",
            PanelQuery(rate(f"{_REPLICAS}_isrshrinks_total"), "shrinks"),
            PanelQuery(rate(f"{_REPLICAS}_isrexpands_total"), "expands"),
        ),
    ]
