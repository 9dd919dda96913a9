"""The rules of the JMX agent emit what is declared, and nothing else."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import monitoring
from monitoring.metrics.families import MetricFamily
from monitoring.metrics.jvm import AGENT, JVM, KAFKA_JVM, SPARK_JVM
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.prometheus.export_files import prometheus_files

FOLDER = Path(monitoring.__file__).parent / "jmx"
FILES = [("kafka.yml", KAFKA_JVM), ("spark.yml", SPARK_JVM)]
# What a value may be called without the agent of version 1 changing it.
CUT_OFF = ("_info", "_created", "_bucket")


def rules(file: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((FOLDER / file).read_text("utf-8"))["rules"]
    return found


@pytest.mark.parametrize(("file", "families"), FILES)
def test_every_rule_is_declared_and_every_declared_name_has_one_rule(
    file: str, families: tuple[MetricFamily, ...]
) -> None:
    assert sorted(rule["name"] for rule in rules(file)) == sorted(family.name for family in families)


@pytest.mark.parametrize(("file", "families"), FILES)
def test_rules_have_the_words_the_labels_and_the_kind_that_are_declared(
    file: str, families: tuple[MetricFamily, ...]
) -> None:
    declared = {family.name: family for family in families}
    for rule in rules(file):
        family = declared[rule["name"]]
        assert tuple(rule.get("labels", {})) == family.labels, family.name
        assert rule["help"] == family.help, family.name
        assert (rule["type"] == "COUNTER") == family.name.endswith("_total"), family.name
        assert family.kind == "counter" or rule["type"] == "GAUGE", family.name
        assert not family.name.endswith(CUT_OFF)
        assert family.name == family.name.lower()


@pytest.mark.parametrize(("file", "families"), FILES)
def test_beans_are_named_so_that_a_scrape_asks_for_few(file: str, families: tuple[MetricFamily, ...]) -> None:
    asked = yaml.safe_load((FOLDER / file).read_text("utf-8"))["includeObjectNames"]
    # No pattern over a whole type: its beans grow with topics and kinds of requests.
    assert len(asked) == len(set(asked))
    assert all("name=" in bean or bean.endswith("raft-metrics") for bean in asked)


def test_the_rules_are_handed_over_for_brokers_of_other_people() -> None:
    exported = yaml.safe_load(prometheus_files(MonitoringSettings())["kafka-jmx.yml"])
    assert exported["rules"] == rules("kafka.yml")


def test_no_name_is_declared_twice() -> None:
    names = [family.name for family in JVM]
    assert len(names) == len(set(names))
    assert all(family.help.endswith(".") for family in JVM)
    assert not {family.name for family in AGENT} & {rule["name"] for file, _ in FILES for rule in rules(file)}
