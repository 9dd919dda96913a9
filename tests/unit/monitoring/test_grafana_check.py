"""The checker asks what Grafana would ask, and tells nothing from something."""

from typing import Any

from monitoring.grafana.dashboard_files import dashboards
from monitoring.grafana.query_check import EXPECTED_EMPTY, ONLY_WITH, empty_queries
from monitoring.monitoring_settings import MonitoringSettings

ALL = dashboards(MonitoringSettings())
ONE = [{"metric": {}, "value": [0, "1"]}]


def test_every_query_is_asked_with_no_variable_left(promql: Any) -> None:
    asked: list[str] = []

    def ask(expr: str) -> list[Any]:
        asked.append(expr)
        promql.selectors(expr)
        return ONE

    assert empty_queries(ALL, ask) == []
    targets = sum(len(panel.get("targets", ())) for each in ALL for panel in each["panels"])
    variables = sum(len(each["templating"]["list"]) - 1 for each in ALL)
    assert len(asked) == targets + variables
    assert not any("$" in expr for expr in asked)


def test_nothing_no_number_and_a_refusal_are_three_words() -> None:
    answers = {
        "kafka_brokers": [],
        "kafka_topic_partition_current_offset": [{"metric": {}, "value": [0, "NaN"]}],
    }

    def ask(expr: str) -> list[Any]:
        if "jvm_threads_current" in expr:
            raise ValueError("parse error")
        return next((answer for name, answer in answers.items() if name in expr), ONE)

    found = {(each.panel, each.why) for each in empty_queries(ALL, ask)}
    assert ("Brokers", "no series") in found
    assert ("Written by topic", "no number") in found
    assert ("Threads", "refused: parse error") in found


def test_what_may_be_empty_says_why_and_is_told_apart() -> None:
    found = empty_queries(ALL, lambda _: [])
    expected = {each.expr: each.why for each in found if each.expected}

    assert 0 < len(expected) < len(found) / 4
    assert set(expected.values()) == {*EXPECTED_EMPTY.values(), *(why for _, why in ONLY_WITH.values())}


def test_each_exception_is_a_panel_or_a_variable() -> None:
    titles = {panel["title"] for each in ALL for panel in each["panels"]}
    variables = {f"variable {one['name']}" for each in ALL for one in each["templating"]["list"]}
    assert set(EXPECTED_EMPTY) <= titles | variables


def test_a_benchmark_that_runs_has_no_excuse() -> None:
    def ask(expr: str) -> list[Any]:
        return ONE if expr == "tidegate_bench_runs_planned" else []

    found = [each for each in empty_queries(ALL, ask) if each.dashboard == "tidegate-bench"]
    assert len(found) > 15
    assert not any(each.expected for each in found)


def test_a_refused_query_is_never_expected() -> None:
    def ask(_: str) -> list[Any]:
        raise ValueError("parse error")

    assert not any(each.expected for each in empty_queries(ALL, ask))
