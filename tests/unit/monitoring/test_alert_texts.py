"""What alerts, runbooks and RECOVERY.md tell people to do can be done: commands, settings, tables and metrics exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import duckdb
import pytest
import typer

from deploy.cli import app
from deploy.commands.topics import parse_bytes, parse_hours
from deploy.settings import Settings
from ingest.contract.reasons import Reason
from lakehouse.derived_tables import ALL_TABLES
from monitoring.alerts.catalog import ALERTS, alerts
from monitoring.alerts.evaluate import used_metrics
from monitoring.alerts.model import Alert, AlertPart
from monitoring.alerts.rules import rule_file
from monitoring.metrics.names import declared_samples
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.snapshot.flow import PARTS

ROOT = Path(__file__).parents[3]
RUNBOOKS = ROOT / "monitoring" / "runbooks"
NAMES = sorted({alert.name for alert in ALERTS})
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
COMMAND = re.compile(r"tidegate [a-z][^`\n]*")
SETTING = re.compile(r"`((?:mqtt|gateway|kafka|stream|lake|monitoring|receipts|embedded)\.[a-z_]+)")


def page(name: str) -> str:
    return (RUNBOOKS / f"{name}.md").read_text("utf-8")


def texts() -> Iterator[tuple[str, str]]:
    for alert in ALERTS:
        yield from ((f"{alert.name} action", action) for action in (*alert.actions, *alert.causes))
    pages = (ROOT / "RECOVERY.md", *sorted(RUNBOOKS.glob("*.md")))
    yield from ((f"{file.stem} page", file.read_text("utf-8")) for file in pages)


def commands() -> list[tuple[str, str]]:
    return sorted({(where, found.strip()) for where, text in texts() for found in COMMAND.findall(text)})


def test_every_part_of_an_alert_is_used_and_all_but_the_monitor_have_a_station() -> None:
    assert {alert.part for alert in ALERTS} == set(get_args(AlertPart))
    assert set(get_args(AlertPart)) - {part for parts in PARTS.values() for part in parts} == {"monitor"}


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert sorted(file.stem for file in RUNBOOKS.glob("*.md")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_its_name_and_four_sections_that_say_something(name: str) -> None:
    text = page(name)
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    parts = re.split(r"^## .*$", text, flags=re.MULTILINE)
    assert all(len(part.split()) >= 4 for part in parts[1:])
    assert text.count("```") % 2 == 0
    assert "```sh" in parts[3], "the diagnosis has commands to copy"


def test_commands_that_people_are_told_to_run_exist() -> None:
    root: Any = typer.main.get_command(app)
    for where, command in commands():
        words = shlex.split(command.rstrip(".,;:"))[1:]
        found = root
        while words and hasattr(found, "commands") and not words[0].startswith("-"):
            assert words[0] in found.commands, f"{where}: {command}"
            found = found.commands[words.pop(0)]
        assert not hasattr(found, "commands"), f"{where}: {command}: names a group"
        options = {name for each in found.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
        assert {word.split("=")[0] for word in words if word.startswith("-")} <= options, f"{where}: {command}"
    assert len(commands()) > 100


def test_no_tool_is_told_that_a_run_of_ours_does_not_bring() -> None:
    """An embedded run has Kafka's jars and none of its scripts; a cluster has those of its own Kafka."""
    for where, text in texts():
        for line in text.splitlines():
            assert not re.search(r"kafka-[a-z-]+\.sh", line) or "the tools of your Kafka" in line, f"{where}: {line}"


def test_limits_that_people_are_told_to_set_are_taken() -> None:
    told = [re.findall(r"--retention-(hours|bytes) (\w+)", command) for _, command in commands()]
    limits = {limit for found in told for limit in found}
    assert {kind for kind, _ in limits} == {"hours", "bytes"}
    for kind, value in limits:
        assert (parse_hours if kind == "hours" else parse_bytes)(value)


def test_settings_that_texts_name_exist() -> None:
    sections = {name: field.annotation for name, field in Settings.model_fields.items()}
    for where, text in texts():
        for found in SETTING.findall(text):
            section, name = found.split(".")
            assert name in sections[section].model_fields, f"{where}: {found}"  # type: ignore[union-attr]


def test_questions_to_the_tables_can_be_asked() -> None:
    kinds = {
        "string": "VARCHAR",
        "binary": "BLOB",
        "int": "INTEGER",
        "array<string>": "VARCHAR[]",
        "map<string,string>": "MAP(VARCHAR, VARCHAR)",
    }
    database = duckdb.connect()
    for name, table in ALL_TABLES.items():
        columns = ", ".join(f'"{each.name}" {kinds.get(each.type, each.type)}' for each in table.columns)
        database.execute(f"CREATE TABLE {name} ({columns})")
    asked = [shlex.split(command)[2] for _, command in commands() if command.startswith('tidegate sql "')]
    assert len(asked) > 8
    for question in asked:
        database.execute(question)


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_says_what_it_means_and_what_to_do(name: str) -> None:
    for alert in (each for each in ALERTS if each.name == name):
        assert alert.summary
        assert not alert.summary.endswith(".")
        assert alert.text.endswith(".")
        assert alert.impact.endswith(".")
        assert alert.causes
        assert len(alert.actions) >= 2
        assert alert.severity in ("critical", "warning", "info")
        assert "?" not in alert.sentence(3.0, dict.fromkeys(re.findall(r"\{(\w+)\}", alert.text), "x"))


def test_reasons_that_texts_name_exist() -> None:
    named = set(re.findall(r"`([a-z]+_[a-z_]+)`", page("TidegateDeadLetterRatio")))
    named |= {found for _, text in texts() for found in re.findall(r"reason = '(\w+)'", text)}
    assert len(named) > 6
    assert named <= set(Reason)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_sentence_does_not_claim_how_long_it_has_been(alert: Alert) -> None:
    """It stands there from the first look on, while the alert is pending; since when is shown beside it."""
    claims = re.findall(
        r"[^.]*(?<!in the )(?<!within )(?:for|since) (?:\d+|half a|a|some) ?(?:s|seconds?|minutes?)\b", alert.text
    )
    assert not claims


def test_causes_that_alerts_follow_from_are_alerts() -> None:
    assert {cause.split("/")[0] for alert in ALERTS for cause in alert.follows} <= set(NAMES)


def test_the_memory_needs_declared_metrics_only() -> None:
    assert used_metrics(ALERTS) <= set(declared_samples())


def test_only_budgets_and_prometheus_itself_need_prometheus() -> None:
    assert {alert.name for alert in ALERTS if not alert.builtin} == {
        "TidegateWatchdog",
        "AlertmanagerDown",
        "TidegateFreshnessBudgetBurns",
        "TidegateValidityBudgetBurns",
    }


def test_bounds_follow_the_settings() -> None:
    settings = MonitoringSettings(
        freshness_seconds=5.0,
        freshness_objective=0.9,
        runbook_base_url="https://wiki.example/runbooks/",
        audit_seconds=0,
    )
    text = str(rule_file(settings))
    assert 'le="5.0"' in text
    assert "14.4 * 0.1)" in text
    assert "https://wiki.example/runbooks/TidegateWatchdog" in text
    assert "TidegateAuditOld" not in {alert.name for alert in alerts(settings)}


def test_a_rule_carries_all_that_a_receiver_may_show() -> None:
    rules = [rule for group in rule_file(MonitoringSettings())["groups"] for rule in group["rules"] if "alert" in rule]
    assert len(rules) == len(ALERTS)
    for rule in rules:
        assert set(rule["annotations"]) == {"summary", "description", "impact", "causes", "actions", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"http://127.0.0.1:9470/runbooks/{rule['alert']}"
        assert set(rule["labels"]) >= {"severity", "service"}
        for part in ("Impact:", "Possible causes:", "Actions:\n1. "):
            assert part in rule["annotations"]["description"]


def test_a_sentence_is_filled_in_alike_by_us_and_by_prometheus() -> None:
    alert: Alert = next(each for each in ALERTS if each.name == "KafkaLagIsTooHigh")
    assert alert.sentence(123456.0, {"topic": "t", "consumergroup": "g"}) == "g is 123,456 records behind in t."
    assert (
        alert.template()
        == "{{ $labels.consumergroup }} is {{ $value | humanize }} records behind in {{ $labels.topic }}."
    )
