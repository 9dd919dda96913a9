"""Metric names: Prometheus' conventions, closed labels, and that each is watched by somebody or is left alone for a reason."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from monitoring.alerts.rules import rule_file
from monitoring.grafana.dashboard_files import dashboards
from monitoring.indicators import INSTALLATION
from monitoring.metrics.names import declared_samples
from monitoring.monitoring_settings import MonitoringSettings

OWN = "tidegate_"
HOPS = {
    "gateway", "stream", "canary", "monitor", "kafka", "broker", "table", "rollup", "devices", "ledger", "audit", "certificate",
    "build", "stage", "end", "bench",
}  # fmt: skip
"""The second word of a name of ours says where it is counted, or of what."""
NOT_BASE = re.compile(r"_(ms|milliseconds|minutes|hours|days|kb|mb|kib|mib|percent|pct)(_|$)")
ODD = {"tidegate_table_disk_full_days": "People plan disks in days, and infinity reads the same in any unit."}
"""Names that break a convention on purpose."""
OPEN_LABELS = {
    "device",
    "device_id",
    "client",
    "client_id",
    "topic_with_id",
    "mqtt_topic",
    "error",
    "message",
    "text",
    "id",
    "user",
}

UNWATCHED = {
    "python_": "Garbage collection of our own Python: read when somebody profiles.",
    "process_virtual_memory_bytes": "Says nothing on Linux; resident memory is watched.",
    "jvm_memory_committed_bytes": "Used and most are watched; committed lies between.",
    "jvm_gc_collection_seconds_count": "The time is watched; counts are for tuning a collector.",
    "broker_messages_received": "All packets, pings included; PUBLISH packets are watched.",
    "broker_messages_sent": "All packets, pings included; PUBLISH packets are watched.",
    "kafka_network_requestmetrics_totaltimems_mean": "Since the broker's start; a benchmark makes the mean of a run from it.",
    "kafka_topic_partition_in_sync_replica": "Kept for dashboards made for kafka_exporter; whether it is too few is watched.",
    "kafka_server_raft_metrics_current_state": "A word as a number; the active controllers are watched.",
    "spark_driver_structured_streaming_eventtime_watermark": "0 for the landing, which has none; rollups tell their own.",
}
"""Beginning of a name -> why no dashboard and no rule reads it."""


@pytest.fixture(scope="module")
def families(metrics_feed: Any) -> list[Any]:
    """Every family that a job serves; a counter's name is without `_total`."""
    return [family for registry in metrics_feed.registries.values() for family in registry.collect()]


@pytest.fixture(scope="module")
def own(families: list[Any]) -> list[Any]:
    return [family for family in families if family.name.startswith(OWN)]


def _rules() -> Iterator[Any]:
    for group in rule_file(MonitoringSettings())["groups"]:
        yield from group["rules"]


RECORDED = {rule["record"] for rule in _rules() if "record" in rule}


def _family(sample: str) -> str:
    return (
        re.sub(r"_(bucket|sum|count)$", "", sample)
        if f"{sample.rsplit('_', 1)[0]}_bucket" in declared_samples()
        else sample
    )


def _series(variable: Any) -> str:
    """What a variable of a dashboard asks for its values; the choice of a data source asks nothing."""
    found = re.match(r"label_values\((.+), \w+\)", variable["query"])
    return found[1] if found else "vector(1)"


def test_names_say_where_and_what_in_small_words(own: list[Any]) -> None:
    assert len(own) > 80
    for family in own:
        assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", family.name), family.name
        assert family.name.split("_")[1] in HOPS, family.name


def test_names_carry_base_units(own: list[Any]) -> None:
    odd = {family.name for family in own if NOT_BASE.search(family.name)}
    assert odd == set(ODD)
    for family in own:
        if family.type == "histogram":
            assert family.name.endswith("_seconds"), family.name


def test_only_counters_are_totals_and_instants_are_timestamps(own: list[Any]) -> None:
    for family in own:
        assert all(sample.name.endswith("_total") for sample in family.samples) == (family.type == "counter"), (
            family.name
        )
        assert "_total" not in family.name, family.name
        if family.documentation.startswith(("Unix time", "Event time")):
            assert family.name.endswith("_timestamp_seconds"), family.name
        if family.name.endswith("_timestamp_seconds"):
            assert family.type == "gauge", family.name


def test_every_help_text_is_a_sentence(families: list[Any]) -> None:
    ours = [each for each in families if not each.name.startswith(("python_", "process_"))]
    for family in ours:
        assert family.documentation[0].isupper() or family.documentation[0].isdigit(), family.name
        assert family.documentation.endswith("."), f"{family.name}: {family.documentation}"
        assert len(family.documentation) < 160, family.name


def test_no_label_of_ours_grows_with_the_fleet(metrics_feed: Any) -> None:
    for part in ("gateway", "stream", "canary", "monitor", "bench"):
        for family in metrics_feed.registries[part].collect():
            for sample in family.samples:
                assert not OPEN_LABELS & set(sample.labels), sample.name


def test_every_metric_is_watched_or_left_alone_for_a_reason(promql: Any, every_query: Any) -> None:
    texts = [expr for each in dashboards(MonitoringSettings()) for _, expr in every_query(each)]
    texts += [_series(variable) for each in dashboards(MonitoringSettings()) for variable in each["templating"]["list"]]
    texts += [rule["expr"] for rule in _rules()]
    watched = {_family(metric) for text in texts for metric in promql.labels(text)}
    unwatched = {_family(name) for name in declared_samples()} - watched
    excused = {name for name in unwatched if name.startswith(tuple(UNWATCHED))}

    assert unwatched - excused == set(), "show it in a dashboard, use it in an alert, or say in UNWATCHED why not"
    stale = {reason for reason in UNWATCHED if not any(name.startswith(reason) for name in unwatched)}
    assert stale == set(), "these are watched now, or gone"


def test_rules_read_declared_metrics_and_labels_only(promql: Any) -> None:
    known = {**declared_samples(), **dict.fromkeys(RECORDED)}
    for rule in _rules():
        for metric, labels in promql.labels(rule["expr"]).items():
            assert metric in known, f"{rule.get('alert') or rule['record']}: nothing serves {metric}"
            if metric not in RECORDED:
                assert labels - {"job", "instance", INSTALLATION} <= set(known[metric] or ()), (rule, metric)


def test_rules_ask_for_names_of_others_by_job(promql: Any) -> None:
    """A Prometheus that watches other things too has exporters that tell the same names about machines of others."""
    asked = [(rule, each) for rule in _rules() for each in promql.selectors(rule["expr"])]
    borrowed = [(rule, each) for rule, each in asked if not each.metric.startswith(OWN) and each.metric not in RECORDED]
    assert {each.metric for _, each in borrowed} >= {"up", "node_filesystem_avail_bytes", "kafka_consumergroup_lag"}
    for rule, each in borrowed:
        jobs = [value for name, operator, value in each.matchers if name == "job" and operator in ("=", "=~")]
        named = any(job.startswith("tidegate-") for job in jobs) or (each.metric, jobs) == ("up", ["alertmanager"])
        assert named, f"{rule.get('alert') or rule['record']}: {each.metric} of any job"


def test_rules_match_within_one_installation() -> None:
    """What holds of one in the same Prometheus says nothing of another."""
    for rule in _rules():
        matched = re.findall(r"(?<![a-z])(?:on|by) ?\(([^)]*)\)", rule["expr"])
        assert all(INSTALLATION in labels.split(", ") for labels in matched), rule["expr"]
        assert not re.search(r"\b(sum|max|min|count) ?\(", rule["expr"]), f"without any label: {rule['expr']}"


def test_recorded_names_say_level_metric_and_operation(promql: Any) -> None:
    """`level:metric:operations`, the level's labels kept, `_total` stripped after a rate."""
    for rule in _rules():
        if "record" not in rule:
            continue
        level, metric, operation = rule["record"].split(":")
        assert level.split("_")[0] == "job", rule["record"]
        assert "_total" not in metric, rule["record"]
        assert re.fullmatch(r"(ratio_rate|increase)\d+[mhd]", operation), rule["record"]
        if "/" in rule["expr"]:
            assert operation.startswith("ratio"), rule["record"]


def test_recorded_names_are_read_by_an_alert() -> None:
    """What no alert reads would be recorded for nothing: the dashboards ask the raw counters, so that they need no rules."""
    expressions = " ".join(rule["expr"] for rule in _rules() if "alert" in rule)
    assert {name for name in RECORDED if name not in expressions} == set()
