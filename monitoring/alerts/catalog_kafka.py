"""Alerts on Kafka: reachability, lag, replicas. They keep the names that the Kafka mixins use.

Other exporters use the same metric names for other clusters, so each query names the job that serves Tidegate's cluster.
"""

from typing import Final

from monitoring.alerts.model import Alert
from monitoring.alerts.operands import Increase, Select, Sum, select
from monitoring.alerts.signals import Both, Compare, Either, Growing, Signal, Unless, started_within

__all__ = ["KAFKA"]

HOUR: Final = 3600
MONITOR: Final = "tidegate-monitor"
BROKERS: Final = "tidegate-kafka"
_LAG: Final = select("kafka_consumergroup_lag", job=MONITOR)
_REPLICAS: Final = "kafka_server_replicamanager"


def _loss_within(hours: int) -> Signal:
    """Return the condition: retention is near and the group is behind. A short retention alone does not fire it."""
    return Both(
        Compare(select("tidegate_kafka_time_to_data_loss_seconds"), "<", hours * HOUR),
        Compare(select("tidegate_kafka_lag_seconds"), ">", 600),
        on=("consumergroup", "topic"),
    )


def _time_to_data_loss(severity: str, hours: int) -> Alert:
    return Alert(
        name="TidegateTimeToDataLoss",
        part="kafka",
        severity="critical" if severity == "critical" else "warning",
        signal=_loss_within(hours),
        for_seconds=60,
        unit="seconds",
        summary=f"Kafka will delete unread records within {hours} hours",
        text="In {value} Kafka's retention will delete records of {topic} that {consumergroup} has not read.",
        impact="Unread records that Kafka deletes are lost for good, although they were acknowledged to the device.",
        causes=(
            "The stream is down, or too slow for the incoming records.",
            "`kafka.retention_hours` or `kafka.retention_bytes` is too small for this outage.",
            "A SQL-defined stream (`tidegate streams ls`), or one of your own programs that `monitoring.consumer_groups` "
            "names, is down or not needed any more.",
        ),
        actions=(
            "`tidegate status`: check the lag, and whether the stream runs.",
            "First gain time: `tidegate topics set TOPIC --retention-hours 720 --retention-bytes unlimited`. Watch the disk.",
            "Start the stream again. `tidegate logs stream -n 100` and `tidegate repair` show what keeps it from starting.",
            "When it has caught up: `tidegate audit --since 1d`, then `tidegate topics set TOPIC --as-settings`.",
        ),
    )


def _replica_alert(
    name: str, signal: Signal, *, seconds: int, summary: str, text: str, impact: str, critical: bool = True
) -> Alert:
    return Alert(
        name=name,
        part="kafka",
        severity="critical" if critical else "warning",
        signal=signal,
        for_seconds=seconds,
        keep_firing_seconds=0 if critical else 300,
        summary=summary,
        text=text,
        impact=impact,
        causes=(
            "A broker is down, hangs or restarts.",
            "A broker's disk is full, slow or broken.",
            "The network between brokers loses packets or is saturated.",
        ),
        actions=(
            "`tidegate status`: check how many brokers answer.",
            "`tidegate logs kafka -n 100` (embedded), or the log of each broker: find the one that left, and why.",
            "`tidegate topics ls --all`: find the partitions, and the brokers that are missing.",
            "Start the broker again. The partitions recover automatically. Then `tidegate audit --since 1h`.",
        ),
        follows=("TidegateKafkaUnreachable",),
    )


def _positive(metric: Select, *over: str) -> Signal:
    return Compare(Sum(metric, over), ">", 0)


KAFKA: Final = (
    Alert(
        name="TidegateKafkaUnreachable",
        part="kafka",
        severity="critical",
        signal=Unless(
            Compare(select("tidegate_kafka_reachable"), "==", 0),
            started_within(MONITOR, 60),
            on=("job", "instance"),
        ),
        for_seconds=10,
        summary="Kafka does not answer",
        text="Kafka does not answer the monitor.",
        impact="Nothing is acknowledged and nothing lands. Devices with QoS 1 lose nothing until the broker's queue is full.",
        causes=(
            "Kafka is down, hangs (a stopped process, a full disk, a long garbage collection), or restarts.",
            "Its address, certificate or credentials changed.",
            "A network rule blocks the monitor.",
        ),
        actions=(
            "`tidegate status`: check the state of the part `kafka`. If the embedded Kafka exits, it restarts automatically.",
            "`tidegate logs kafka -n 100`: read its last lines.",
            "`tidegate doctor --config FILE`: check that it answers with these settings, and that the disk has room.",
            "When it answers, watch the lag fall to 0 with `tidegate status --watch`, then run `tidegate audit --since 1h`.",
        ),
    ),
    _time_to_data_loss("critical", 6),
    _time_to_data_loss("warning", 24),
    Alert(
        name="KafkaLagKeepsIncreasing",
        part="kafka",
        severity="warning",
        signal=Growing(_LAG, ("partition",), step_seconds=120, floor=1000),
        for_seconds=180,
        keep_firing_seconds=120,
        summary="The lag of a consumer group keeps growing",
        text="{consumergroup} is {value} records behind in {topic} and falls further behind.",
        impact="Tables get more and more out of date. Finally Kafka's retention deletes records that were not read.",
        causes=(
            "The stream is down.",
            "More comes in than the stream can process: batches take too long.",
            "The group belongs to another program (`monitoring.consumer_groups` names it), which is down or too slow.",
            "A background task (joining files, a large correction) uses the machine.",
        ),
        actions=(
            "`tidegate status`: check whether the stream runs, and compare the rates in and out.",
            "`tidegate logs stream -n 100`: check how long batches take, and what they wait for.",
            "`tidegate tables ls`: many small files make commits slow. `tidegate maintain` joins them.",
            "Give the stream more cores (`stream.master`) or memory (`stream.driver_memory`).",
        ),
        follows=("TidegateKafkaUnreachable", "TidegateStreamStalled", "TidegateTargetDown/tidegate-stream"),
    ),
    Alert(
        name="KafkaLagIsTooHigh",
        part="kafka",
        severity="warning",
        signal=Both(
            Compare(Sum(_LAG, ("partition",)), ">", 100_000),
            Compare(select("tidegate_kafka_lag_seconds"), ">", 300),
            on=("consumergroup", "topic"),
        ),
        for_seconds=300,
        keep_firing_seconds=60,
        summary="A consumer group is far behind",
        text="{consumergroup} is {value} records behind in {topic}.",
        impact="Tables are out of date until the stream has read the backlog.",
        causes=(
            "The stream was down for a long time.",
            "The stream is too slow for the incoming records.",
            "The group belongs to another program (`monitoring.consumer_groups` names it), which is down or too slow.",
        ),
        actions=(
            "`tidegate status --watch`: if the lag falls, the group is catching up and only needs time.",
            "`tidegate logs stream -n 100`: if the lag does not fall, find out what batches wait for.",
            "If the lag grows, see KafkaLagKeepsIncreasing.",
        ),
        follows=("TidegateKafkaUnreachable", "TidegateStreamStalled", "TidegateTargetDown/tidegate-stream"),
    ),
    _replica_alert(
        "KafkaUnderReplicatedPartitionCount",
        _positive(select("kafka_topic_partition_under_replicated_partition", job=MONITOR), "partition"),
        seconds=300,
        critical=False,
        summary="Partitions have replicas out of sync",
        text="{value} partitions of {topic} have a replica that is out of sync.",
        impact="If one more broker is lost, Kafka may refuse records, or lose data if unclean elections are allowed.",
    ),
    _replica_alert(
        "KafkaUnderMinISRPartitionCount",
        Either(
            _positive(select(f"{_REPLICAS}_underminisrpartitioncount", job=BROKERS)),
            Compare(select("tidegate_kafka_under_min_isr_partitions"), ">", 0),
        ),
        seconds=60,
        summary="Partitions have fewer replicas in sync than required",
        text="{value} partitions have fewer replicas in sync than min.insync.replicas.",
        impact="Kafka refuses records for these partitions, so the gateway does not acknowledge their messages.",
    ),
    Alert(
        name="TidegateKafkaTooFewCopies",
        part="kafka",
        severity="warning",
        signal=_positive(select("tidegate_kafka_missing_copies", job=MONITOR)),
        for_seconds=60,
        summary="A topic keeps fewer copies than the settings ask for",
        text="An acknowledged record of {topic} may have {value} copies fewer than the settings ask for.",
        impact="If a broker loses its disk, acknowledged records may be lost for good.",
        causes=(
            "The topic was created with fewer copies, for example while the cluster had fewer brokers.",
            "Somebody lowered `min.insync.replicas` of the topic.",
            "`kafka.replication` or `kafka.min_in_sync` was raised after the topic was created.",
        ),
        actions=(
            "`tidegate doctor --config FILE`: compare each topic with the settings.",
            "`tidegate topics set TOPIC --as-settings`: apply `min.insync.replicas` of the settings.",
            "Add copies with Kafka's `kafka-reassign-partitions`, or set `kafka.replication` to what the topic has.",
        ),
        follows=("TidegateKafkaUnreachable",),
    ),
    _replica_alert(
        "KafkaOfflinePartitionCount",
        Either(
            _positive(select("kafka_controller_kafkacontroller_offlinepartitionscount", job=BROKERS)),
            Compare(select("kafka_topic_partition_leader", job=MONITOR), "<", 0),
        ),
        seconds=60,
        summary="Partitions have no leader",
        text="Partitions have no leader (value {value}).",
        impact="No client can read or write these partitions. Devices whose key belongs to them get no acknowledgement.",
    ),
    _replica_alert(
        "KafkaISRShrinkRate",
        Compare(Sum(Increase(select(f"{_REPLICAS}_isrshrinks_total", job=BROKERS), 300)), ">", 0),
        seconds=0,
        critical=False,
        summary="Replicas fall out of sync",
        text="Replicas fell out of sync {value} times in the last 5 minutes.",
        impact="Fewer copies of the data until the replicas are back. Often this is the first sign of a disk or network problem.",
    ),
)
