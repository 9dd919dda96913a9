"""Each alert fires on a bad series and not on a good one, by promtool and by the monitor's own check alike.

The cases stand in tests/support/alerts_*.py, those of budgets in test_monitoring_alerts_budgets.py.
"""

from typing import Any

import pytest

from ingest.contract.topics import LAND_GROUP
from monitoring.alerts.catalog import ALERTS
from monitoring.alerts.catalog_stream import LANDING
from tests.support.alerts_counters import CASES as COUNTERS
from tests.support.alerts_kafka import CASES as KAFKA
from tests.support.alerts_kafka import lag, old_lag
from tests.support.alerts_parts import CASES as PARTS
from tests.support.alerts_stream import CASES as STREAM
from tests.support.alerts_tables import CASES as TABLES
from tests.support.promtool import (
    STEP,
    Case,
    always,
    as_test,
    each_built_in,
    fired,
    firing_and_quiet,
    pairs,
    rules_of,
)

pytestmark = pytest.mark.promise("P8")

CASES = {"parts": PARTS, "kafka": KAFKA, "stream": STREAM, "tables": TABLES, "counters": COUNTERS}
ALL: list[Case] = [case for cases in CASES.values() for case in cases]


@pytest.mark.parametrize("about", CASES)
def test_each_alert_fires_and_does_not_in_promtool(about: str, promtool_test: Any, as_input_series: Any) -> None:
    promtool_test(*pairs(CASES[about], as_input_series))


@each_built_in(ALL)
def test_each_alert_fires_and_does_not_by_the_monitors_own_check(case: Case, built_in: Any) -> None:
    assert fired(case, built_in) == case.firing


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    wanted = {alert.name for alert in ALERTS if not alert.name.endswith("BudgetBurns")}
    fires, quiet = firing_and_quiet(ALL)
    assert fires == wanted
    assert quiet == wanted - {"TidegateWatchdog"}


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
