"""A Prometheus that watches more than one Tidegate: exporters of others raise no alarm, and no installation hides another."""

from collections.abc import Mapping
from typing import Any

import pytest

from monitoring.alerts.rules import rule_file
from monitoring.monitoring_settings import MonitoringSettings
from tests.support.promtool import (
    OLD,
    STEP,
    Case,
    Key,
    Wave,
    always,
    as_test,
    counter,
    key,
    rules_of,
)

BORROWED = {
    "node_filesystem_avail_bytes": ("monitor", {"mountpoint": "/boot/efi"}, always(2.0**20)),
    "kafka_consumergroup_lag": ("monitor", {"consumergroup": "g", "topic": "t", "partition": "0"}, counter(1000)),
    "kafka_topic_partition_under_replicated_partition": ("monitor", {"topic": "t", "partition": "0"}, always(1)),
    "kafka_topic_partition_leader": ("monitor", {"topic": "t", "partition": "0"}, always(-1)),
    "kafka_server_replicamanager_underminisrpartitioncount": ("kafka", {}, always(1)),
    "kafka_controller_kafkacontroller_offlinepartitionscount": ("kafka", {}, always(1)),
    "kafka_server_replicamanager_isrshrinks_total": ("kafka", {}, counter(1)),
    "broker_publish_messages_dropped": ("monitor", {}, counter(1)),
    "process_start_time_seconds": ("gateway", {}, float),
}
"""Name of another exporter -> which job of ours tells it too, its labels, and a course that we would wake somebody for."""
AT = 900


def _firing(series: Mapping[Key, Wave], as_input_series: Any, count: int) -> dict[str, Any]:
    """As many of all alerts as that fire."""
    expr = 'count(count by (alertname) (ALERTS{alertname!="TidegateWatchdog", alertstate="firing"}))'
    told = {each: [wave(second) for second in range(0, AT + 1, STEP)] for each, wave in series.items()}
    expected = [{"labels": "{}", "value": count}] if count else []
    return {
        "interval": f"{STEP}s",
        "input_series": as_input_series(told),
        "promql_expr_test": [{"expr": expr, "eval_time": f"{AT}s", "exp_samples": expected}],
    }


def test_exporters_of_others_raise_no_alarm(promtool_test: Any, as_input_series: Any) -> None:
    theirs = {
        (name, tuple(sorted({**labels, "job": "theirs", "instance": "theirs:1"}.items()))): wave
        for name, (_, labels, wave) in BORROWED.items()
    }
    ours = {key(name, job, **labels): wave for name, (job, labels, wave) in BORROWED.items()}
    tests = [_firing(theirs, as_input_series, 0), _firing(ours, as_input_series, 8)]
    promtool_test((rule_file(MonitoringSettings()), {"evaluation_interval": f"{STEP}s", "tests": tests}))


def monitor(started: float, **values: float) -> dict[Key, Wave]:
    return {
        key("process_start_time_seconds", "monitor"): always(started),
        **{key(metric, "monitor"): always(value) for metric, value in values.items()},
    }


def fleet(*, refused: float) -> dict[Key, Wave]:
    return {
        key("tidegate_gateway_messages_received_total", "gateway", qos="1"): counter(20),
        key("tidegate_gateway_messages_rejected_total", "gateway", reason="invalid_json"): counter(refused),
    }


LAG = key("tidegate_kafka_lag_seconds", "monitor", consumergroup="tidegate-land", topic="t")
ROWS = key("tidegate_stream_rows_total", "stream", table="readings")
CANARY = key("tidegate_canary_acknowledged_total", "canary")
HURT: dict[str, dict[Key, Wave]] = {
    "TidegateStreamStalled": {LAG: always(300), ROWS: always(7)},
    "TidegateTargetDown": {key("up", "gateway"): always(0), **monitor(OLD)},
    "TidegateBrokerUnreachable": monitor(OLD, tidegate_broker_reachable=0),
    "TidegateDeadLetterRatio": fleet(refused=2),
    "TidegateAllDevicesSilent": monitor(OLD, tidegate_devices_heard=9, tidegate_devices_silent=9),
}
"""Alert -> the series of an installation for which it fires."""
HEALTHY: dict[Key, Wave] = {
    LAG: always(0),
    ROWS: counter(60),
    key("up", "gateway"): always(1),
    **monitor(OLD, tidegate_broker_reachable=1, tidegate_devices_heard=9, tidegate_devices_silent=0),
    # Started anew just then: it waits for its own parts, and for nobody else's.
    key("process_start_time_seconds", "monitor"): lambda second: OLD if second < 480 else 480.0,
    **fleet(refused=0),
    # More than all that the other one receives.
    CANARY: counter(25),
}


def of_cluster(cluster: str, told: Mapping[Key, Wave]) -> dict[Key, Wave]:
    return {(metric, tuple(sorted((*labels, ("cluster", cluster))))): wave for (metric, labels), wave in told.items()}


@pytest.mark.parametrize("alert", HURT)
def test_a_healthy_installation_beside_it_hides_nothing(alert: str, promtool_test: Any, as_input_series: Any) -> None:
    """Alone without a label, alone with one, and beside another: the addresses are the same, as behind a tunnel."""
    beside = {**of_cluster("a", HURT[alert]), **of_cluster("b", HEALTHY)}
    tests = [
        as_test(Case(alert, title, told, {15: 0, 540: 1}), as_input_series)
        for title, told in {
            "alone": HURT[alert],
            "with a label": of_cluster("a", HURT[alert]),
            "beside": beside,
        }.items()
    ]
    if alert == "TidegateDeadLetterRatio":
        tests.append(
            as_test(Case(alert, "less its own canary", {**HURT[alert], CANARY: counter(5)}, {540: 1}), as_input_series)
        )
    promtool_test((rules_of(alert), {"evaluation_interval": f"{STEP}s", "tests": tests}))


def test_the_budget_of_an_installation_is_its_own(promtool_test: Any, as_input_series: Any) -> None:
    """The recorded share, of which a tenth of refused messages is a tenth whatever is beside."""
    told = {**of_cluster("a", fleet(refused=2)), **of_cluster("b", HEALTHY)}
    series = {each: [wave(second) for second in range(0, AT + 1, STEP)] for each, wave in told.items()}
    share = 'count(abs(job:tidegate_validity_errors:ratio_rate5m{cluster="a"} - 0.1) < 0.001)'
    check = {"expr": share, "eval_time": f"{AT}s", "exp_samples": [{"labels": "{}", "value": 1}]}
    test = {"interval": f"{STEP}s", "input_series": as_input_series(series), "promql_expr_test": [check]}
    promtool_test((rules_of("tidegate_validity"), {"evaluation_interval": f"{STEP}s", "tests": [test]}))
