"""Alerts on Kafka fire on a bad series and not on a good one, by promtool and built-in alike."""

from collections.abc import Callable
from math import inf
from typing import Any

from tidegate_tests_fixtures_promtool import (
    HOUR,
    STEP,
    Case,
    Key,
    Wave,
    alerts_of,
    always,
    as_test,
    counter,
    each_built_in,
    fired,
    firing_and_quiet,
    gauge,
    key,
    monitor_first,
    of,
    pairs,
    rules_of,
    steps,
)

from ingest.contract.topics import LAND_GROUP
from monitoring.alerts.catalog_stream import LANDING


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


def test_each_alert_fires_and_does_not_in_promtool(promtool_test: Any, as_input_series: Any) -> None:
    promtool_test(*pairs(CASES, as_input_series))


@each_built_in(CASES)
def test_each_alert_fires_and_does_not_by_the_monitors_own_check(case: Case, built_in: Any) -> None:
    assert fired(case, built_in) == case.firing


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    fires, quiet = firing_and_quiet(CASES)
    assert fires == alerts_of("kafka")
    assert quiet == alerts_of("kafka")


def test_prometheus_fills_the_sentences_in(promtool_test: Any, as_input_series: Any) -> None:
    rules = rules_of("KafkaLagIsTooHigh")
    (rule,) = (rule for group in rules["groups"] for rule in group["rules"])
    filled = {
        "{{ $labels.consumergroup }}": "tidegate-land",
        "{{ $value | humanize }}": "120k",
        "{{ $labels.topic }}": "telemetry.readings",
    }
    description = rule["annotations"]["description"]
    for template, text in filled.items():
        description = description.replace(template, text)
    assert description.startswith("tidegate-land is 120k records behind in telemetry.readings.\n\nImpact: ")
    labels = {"job": "tidegate-monitor", "consumergroup": "tidegate-land", "topic": "telemetry.readings"}
    expected = {
        "exp_labels": {**rule["labels"], **labels},
        "exp_annotations": {**rule["annotations"], "description": description},
    }
    case = Case("KafkaLagIsTooHigh", "far behind", {**old_lag(120_000, 400), **lag(lambda _: always(60_000))}, {330: 1})
    test = as_test(case, as_input_series)
    test["alert_rule_test"] = [{"eval_time": "330s", "alertname": case.alert, "exp_alerts": [expected]}]
    promtool_test((rules, {"evaluation_interval": f"{STEP}s", "tests": [test]}))


def test_the_group_of_the_landing_is_the_one_that_it_mirrors_to() -> None:
    assert LANDING == LAND_GROUP
