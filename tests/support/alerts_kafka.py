"""What alerts on Kafka are tried with."""

from collections.abc import Callable
from math import inf

from tests.support.promtool import (
    HOUR,
    Case,
    Key,
    Wave,
    always,
    counter,
    gauge,
    key,
    monitor_first,
    of,
    steps,
)


def lag(of: Callable[[int], Wave], partitions: int = 2) -> dict[Key, Wave]:
    group = {"consumergroup": "tidegate-land", "topic": "telemetry.readings"}
    return {key("kafka_consumergroup_lag", "monitor", partition=str(n), **group): of(n) for n in range(partitions)}


def old_lag(records: float, seconds: float) -> dict[Key, Wave]:
    group = {"consumergroup": "tidegate-land", "topic": "telemetry.readings"}
    behind = lag(lambda n: always(records / 2 + n))
    return {**behind, key("tidegate_kafka_lag_seconds", "monitor", **group): always(seconds)}


def data_loss(hours: float, lag_seconds: float, group_id: str = "tidegate-land") -> dict[Key, Wave]:
    group = {"consumergroup": group_id, "topic": "telemetry.readings"}
    return {
        key("tidegate_kafka_time_to_data_loss_seconds", "monitor", **group): always(hours * HOUR),
        key("tidegate_kafka_lag_seconds", "monitor", **group): always(lag_seconds),
    }


CASES: list[Case] = [
    *gauge("TidegateKafkaUnreachable", "tidegate_kafka_reachable", "monitor", good=1, bad=0, seconds=10),
    monitor_first("TidegateKafkaUnreachable", "tidegate_kafka_reachable"),
    Case("KafkaLagKeepsIncreasing", "it grows", lag(lambda n: counter(20 + n)), {60: 0, 600: 1}),
    Case(
        "KafkaLagKeepsIncreasing",
        "it grows out of what was small and uneven",
        lag(lambda n: lambda second: second % 45 + n + 20.0 * max(0, second - 150)),
        {300: 0, 600: 1, 615: 1, 645: 1, 660: 1, 675: 1, 690: 1, 705: 1},
    ),
    Case(
        "KafkaLagKeepsIncreasing",
        "it is small and uneven",
        lag(lambda n: lambda second: float(second % 45 + n)),
        {300: 0, 900: 0},
    ),
    Case(
        "KafkaLagKeepsIncreasing",
        "a backlog that falls",
        lag(lambda n: lambda second: 90_000.0 - 50 * second + n),
        {300: 0, 900: 0},
    ),
    Case("KafkaLagIsTooHigh", "far behind", old_lag(120_000, 400), {285: 0, 330: 1}),
    Case("KafkaLagIsTooHigh", "a little", old_lag(80_000, 400), {900: 0}),
    Case("KafkaLagIsTooHigh", "a few seconds of a large fleet", old_lag(300_000, 6), {900: 0}),
    Case("TidegateTimeToDataLoss", "two hours", data_loss(2, 9 * HOUR), {45: 0, 90: 2}),
    Case("TidegateTimeToDataLoss", "twelve hours", data_loss(12, 9 * HOUR), {45: 0, 90: 1}),
    Case("TidegateTimeToDataLoss", "a program of theirs", data_loss(2, 9 * HOUR, "my-app"), {45: 0, 90: 2}),
    Case("TidegateTimeToDataLoss", "no lag", data_loss(inf, 0), {900: 0}),
    Case("TidegateTimeToDataLoss", "retention of an hour by intent", data_loss(0.99, 30), {900: 0}),
    *gauge(
        "KafkaUnderReplicatedPartitionCount",
        "kafka_topic_partition_under_replicated_partition",
        "monitor",
        good=0,
        bad=1,
        seconds=300,
        topic="t",
        partition="0",
    ),
    *gauge(
        "KafkaUnderMinISRPartitionCount",
        "kafka_server_replicamanager_underminisrpartitioncount",
        "kafka",
        good=0,
        bad=3,
        seconds=60,
    ),
    *gauge(
        "KafkaUnderMinISRPartitionCount",
        "tidegate_kafka_under_min_isr_partitions",
        "monitor",
        good=0,
        bad=2,
        seconds=60,
        topic="telemetry.readings",
    ),
    *gauge(
        "TidegateKafkaTooFewCopies",
        "tidegate_kafka_missing_copies",
        "monitor",
        good=0,
        bad=2,
        seconds=60,
        topic="telemetry.readings",
    ),
    *gauge(
        "KafkaOfflinePartitionCount",
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka",
        good=0,
        bad=3,
        seconds=60,
    ),
    *gauge(
        "KafkaOfflinePartitionCount",
        "kafka_topic_partition_leader",
        "monitor",
        good=1,
        bad=-1,
        seconds=60,
        topic="t",
        partition="0",
    ),
    *of(
        "KafkaISRShrinkRate",
        key("kafka_server_replicamanager_isrshrinks_total", "kafka"),
        ("shrinks", steps((0, 0.0), (300, 1.0)), {285: 0, 330: 1, 1200: 0}),
        ("two restarts", steps((0, 4.0), (60, None), (90, 0.0), (120, None), (150, 0.0)), {105: 0, 600: 0}),
    ),
]
