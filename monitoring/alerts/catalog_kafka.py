"""Alerts on Kafka: reachability, lag, replicas. Names that the Kafka mixins made known are kept.

Exporters of others tell the same names about clusters of others, so each is asked of the job that tells it of ours.
"""

from typing import Final

from monitoring.alerts.model import Alert
from monitoring.alerts.operands import Gain, Select, Sum, select
from monitoring.alerts.signals import Both, Compare, Either, Grows, Signal, Unless, young

__all__ = ["KAFKA"]

HOUR: Final = 3600
MONITOR: Final = "tidegate-monitor"
BROKERS: Final = "tidegate-kafka"
_LAG: Final = select("kafka_consumergroup_lag", job=MONITOR)
_REPLICAS: Final = "kafka_server_replicamanager"


def _loss_within(hours: int) -> Signal:
    """Retention comes near, and the group really is behind: a short retention alone is no alarm."""
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
        summary=f"Kafka deletes unread records within {hours} hours",
        text="In {value} Kafka's retention deletes records of {topic} that {consumergroup} has not read.",
        impact="What Kafka deletes unread is lost for good, though it was acknowledged to the device.",
        causes=(
            "The stream is down or slower than what comes in.",
            "`kafka.retention_hours` or `kafka.retention_bytes` is too small for this outage.",
            "A SQL-defined stream (`tidegate streams ls`), or a program of yours that `monitoring.consumer_groups` names, is "
            "down or not needed any more.",
        ),
        actions=(
            "`tidegate status`: lag, and whether the stream runs.",
            "Give time first: `tidegate topics set TOPIC --retention-hours 720 --retention-bytes unlimited`; mind the disk.",
            "`tidegate logs stream -n 100`: bring the stream back; `tidegate repair` shows what keeps it from starting.",
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
            "`tidegate status`: how many brokers answer.",
            "`tidegate logs kafka -n 100` (embedded), or the log of each broker: which one left, and why.",
            "`tidegate topics ls --all`: which partitions, and which brokers are missing.",
            "Bring the broker back; partitions recover by themselves. Then `tidegate audit --since 1h`.",
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
            young(MONITOR, 60),
            on=("job", "instance"),
        ),
        for_seconds=10,
        summary="Kafka does not answer",
        text="Kafka does not answer the monitor.",
        impact="Nothing is acknowledged and nothing lands. Devices with QoS 1 lose nothing as long as the broker's queue holds.",
        causes=(
            "Kafka is down, hangs (a stopped process, a full disk, a long garbage collection), or restarts.",
            "Its address, certificate or credentials changed.",
            "A network rule.",
        ),
        actions=(
            "`tidegate status`: state of the part `kafka`; the embedded one is restarted by itself when it dies.",
            "`tidegate logs kafka -n 100`: its last words.",
            "`tidegate doctor --config FILE`: does it answer with these settings, is there room on the disk?",
            "When it is back, watch lag fall to 0 with `tidegate status --watch`, then `tidegate audit --since 1h`.",
        ),
    ),
    _time_to_data_loss("critical", 6),
    _time_to_data_loss("warning", 24),
    Alert(
        name="KafkaLagKeepsIncreasing",
        part="kafka",
        severity="warning",
        signal=Grows(_LAG, ("partition",), step_seconds=120, floor=1000),
        for_seconds=180,
        keep_firing_seconds=120,
        summary="A consumer group falls behind more and more",
        text="{consumergroup} is {value} records behind in {topic} and falls further behind.",
        impact="Tables grow older; at the end Kafka's retention deletes what was not read.",
        causes=(
            "The stream is down.",
            "More comes in than the stream takes: batches take longer than they bring.",
            "Another group than Tidegate's: the program is down or too slow (`monitoring.consumer_groups` names it).",
            "A chore (joining files, a large correction) holds the machine.",
        ),
        actions=(
            "`tidegate status`: does the stream run, how do rates in and out compare?",
            "`tidegate logs stream -n 100`: how long batches take, and what they wait for.",
            "`tidegate tables ls`: many small files make commits slow; `tidegate maintain` joins them.",
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
        impact="Tables are old by as much as it takes to work this off.",
        causes=(
            "The stream was down for long.",
            "The stream is too slow for what comes in.",
            "Another group than Tidegate's: the program is down or too slow (`monitoring.consumer_groups` names it).",
        ),
        actions=(
            "`tidegate status --watch`: does lag fall? Then it is catching up, and needs only time.",
            "`tidegate logs stream -n 100`: if it does not fall, what batches wait for.",
            "See KafkaLagKeepsIncreasing where it grows.",
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
        impact="One more broker lost may stop producing, or lose data if unclean elections are allowed.",
    ),
    _replica_alert(
        "KafkaUnderMinISRPartitionCount",
        Either(
            _positive(select(f"{_REPLICAS}_underminisrpartitioncount", job=BROKERS)),
            Compare(select("tidegate_kafka_under_min_isr_partitions"), ">", 0),
        ),
        seconds=60,
        summary="Partitions have fewer replicas in sync than they must",
        text="{value} partitions have fewer replicas in sync than min.insync.replicas.",
        impact="Kafka takes no record for them: the gateway acknowledges nothing that belongs there.",
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
        impact="Nobody can read or write them: devices whose key falls there are not acknowledged.",
    ),
    _replica_alert(
        "KafkaISRShrinkRate",
        Compare(Sum(Gain(select(f"{_REPLICAS}_isrshrinks_total", job=BROKERS), 300)), ">", 0),
        seconds=0,
        critical=False,
        summary="Replicas fall out of sync",
        text="Replicas fell out of sync {value} times in the last 5 minutes.",
        impact="Less safety until they are back; often the first sign of a sick disk or network.",
    ),
)
