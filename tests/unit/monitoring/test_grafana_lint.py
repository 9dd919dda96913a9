"""Each rule of the linter refuses what it is for: a good dashboard with one thing wrong."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from monitoring.grafana.dashboard_files import dashboards
from monitoring.monitoring_settings import MonitoringSettings

GOOD = dashboards(MonitoringSettings())[2]
"""Kafka's has no excuses."""


def _panel(dashboard: Any) -> Any:
    return next(panel for panel in dashboard["panels"] if panel["type"] == "timeseries")


def _variable(dashboard: Any, name: str) -> Any:
    return next(each for each in dashboard["templating"]["list"] if each["name"] == name)


def _expr(text: str) -> Callable[[Any], None]:
    def change(dashboard: Any) -> None:
        _panel(dashboard)["targets"][0]["expr"] = text

    return change


def _set(path: str, value: Any) -> Callable[[Any], None]:
    """`panel.title`, `job.multi` or `tags`: where, and what it becomes."""

    def change(dashboard: Any) -> None:
        *way, last = path.split(".")
        at = dashboard
        for step in way:
            at = _panel(at) if step == "panel" else _variable(at, step[1:]) if step.startswith("$") else at[step]
        at[last] = value

    return change


def _drop(name: str) -> Callable[[Any], None]:
    def change(dashboard: Any) -> None:
        dashboard["templating"]["list"].remove(_variable(dashboard, name))

    return change


def _swap(dashboard: Any) -> None:
    variables = dashboard["templating"]["list"]
    variables[1], variables[2] = variables[2], variables[1]


def _twin(dashboard: Any) -> None:
    dashboard["panels"][2]["id"] = dashboard["panels"][1]["id"]


CHOSEN = 'job=~"$job", instance=~"$instance"'
MUTATIONS: list[tuple[str, Callable[[Any], None]]] = [
    ("template-datasource-rule", _drop("datasource")),
    ("template-datasource-rule", _set("$datasource.label", "Source")),
    ("template-datasource-rule", _set("$datasource.query", "loki")),
    ("template-job-rule", _drop("job")),
    ("template-job-rule", _set("$job.multi", False)),
    ("template-job-rule", _set("$job.allValue", ".*")),
    ("template-job-rule", _set("$job.datasource", {"uid": "abc"})),
    ("template-instance-rule", _drop("instance")),
    ("template-instance-rule", _set("$instance.label", "instance")),
    ("template-label-promql-rule", _set("$topic.query", "label_values(kafka_topic_partitions{job=}, topic)")),
    ("template-label-promql-rule", _set("$topic.query", "values(kafka_topic_partitions, topic)")),
    ("template-on-time-change-reload-rule", _set("$topic.refresh", 1)),
    ("variable-order", _swap),
    ("uneditable-dashboard", _set("editable", True)),
    ("uneditable-dashboard", lambda dashboard: dashboard.pop("editable")),
    ("no-inputs", _set("__inputs", [{"name": "DS_PROMETHEUS"}])),
    ("no-inputs", _set("panel.datasource", {"type": "prometheus", "uid": "${DS_PROMETHEUS}"})),
    ("identity", _set("uid", "")),
    ("identity", _set("tags", [])),
    ("identity", _set("links", [])),
    ("identity", _set("graphTooltip", 0)),
    ("identity", _twin),
    ("identity", _set("panel.title", "Brokers")),
    ("layout", _set("panel.gridPos", {"h": 8, "w": 12, "x": 18, "y": 500})),
    ("layout", _set("panel.gridPos", {"h": 8, "w": 12, "x": 0, "y": 0})),
    ("full-lines", lambda dashboard: dashboard["panels"].pop(-1)),
    ("full-lines", lambda dashboard: dashboard["panels"][-1]["gridPos"].update(h=3)),
    ("panel-datasource-rule", _set("panel.datasource", {"type": "prometheus", "uid": "P1809F7CD0C75ACF3"})),
    ("panel-datasource-rule", _set("panel.targets", [{"refId": "A", "expr": "vector(1)"}])),
    ("panel-title-description-rule", _set("panel.title", "")),
    ("panel-title-description-rule", _set("panel.description", "")),
    ("panel-units-rule", _set("panel.fieldConfig", {"defaults": {}})),
    ("panel-units-rule", _set("panel.fieldConfig", {"defaults": {"unit": "furlong"}})),
    ("panel-no-targets-rule", _set("panel.targets", [])),
    ("target-promql-rule", _expr(f"sum(kafka_brokers{{{CHOSEN}}}")),
    ("target-promql-rule", _expr("")),
    ("target-job-rule", _expr('kafka_brokers{instance=~"$instance"}')),
    ("target-job-rule", _expr(f'kafka_brokers{{{CHOSEN}}} + kafka_brokers{{job="$job", instance=~"$instance"}}')),
    ("target-instance-rule", _expr('kafka_brokers{job=~"$job"}')),
    ("target-instance-rule", _expr('sum(rate(node_cpu_seconds_total{job=~"$job"}[$__rate_interval])) by (mode)')),
    ("fixed-window", _expr(f"rate(node_cpu_seconds_total{{{CHOSEN}}}[5m])")),
    ("fixed-window", _expr(f"sum(increase(node_cpu_seconds_total{{{CHOSEN}}}[$__interval]))")),
    ("target-counter-agg-rule", _expr(f"sum(node_cpu_seconds_total{{{CHOSEN}}})")),
    ("target-counter-agg-rule", _expr(f"max_over_time(node_cpu_seconds_total{{{CHOSEN}}}[$__rate_interval])")),
    ("target-counter-agg-rule", _expr(f"histogram_quantile(0.5, tidegate_end_to_end_latency_seconds_bucket{{{CHOSEN}}})")),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "change"), MUTATIONS, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(MUTATIONS)])
def test_one_thing_wrong_is_found_by_its_rule(rule: str, change: Callable[[Any], None], lint: Any) -> None:
    wrong = copy.deepcopy(GOOD)
    change(wrong)

    assert rule in {each.rule for each in lint(wrong)}


def test_an_excuse_is_for_one_panel_and_one_rule(lint: Any) -> None:
    overview = copy.deepcopy(dashboards(MonitoringSettings())[0])
    burn = next(panel for panel in overview["panels"] if panel["title"] == "Freshness burn rate")
    burn["targets"][0]["expr"] = "rate(tidegate_canary_published_total[5m])"

    assert {each.rule for each in lint(overview)} == {"target-job-rule", "target-instance-rule"}


def test_every_rule_is_broken_once(lint: Any) -> None:
    rules = {rule for rule, _ in MUTATIONS}
    module = type(lint).__call__.__globals__
    assert rules == {*module["DASHBOARD_RULES"], *module["PANEL_RULES"], *module["TARGET_RULES"], "target-promql-rule"}
