"""`bench run` from flags to results: an existing cluster is asked about, capped and left alone."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from deploy.bench.suite import command
from deploy.bench.suite.cell_beds import CellBed, RunTopics, check_rights
from deploy.bench.suite.cell_kinds import run_cell
from deploy.bench.suite.command import (
    RunRequest,
    check_disk,
    clusters_too_large,
    exit_code,
    plan_of,
    render_result,
    run_scenarios,
)
from deploy.bench.suite.scenario import Parameters
from deploy.testbed.budget import check_budget
from ingest.contract.errors import ConfigError, FatalError, RetryableError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.topics.rights import missing_group_rights, missing_rights

SCENARIO = """
title = "one"
repeats = 2
[workload]
messages = 1000
message_bytes = 500
[[matrix]]
rate = [0, 100]
[[targets]]
[[targets]]
metadata = "zookeeper"
[[goals]]
figure = "lost"
at_most = 0
[short]
repeats = 1
workload = { messages = 10 }
"""


@pytest.fixture(autouse=True)
def no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunTopics, "sweep", lambda self: [])
    monkeypatch.setattr("deploy.bench.suite.cell_beds.check_rights", lambda kafka: None)


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    (tmp_path / "own.toml").write_text(SCENARIO)
    return str(tmp_path / "own.toml")


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    (tmp_path / "cluster.toml").write_text('[kafka]\nbootstrap_servers = "broker.example:9092"\n')
    return tmp_path / "cluster.toml"


def test_an_existing_cluster_is_asked_about_once_with_what_will_be_written(scenario: str, cluster: Path) -> None:
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    def never(work: Parameters, topic: str, bed: CellBed) -> Mapping[str, Any]:
        raise AssertionError

    with pytest.raises(FatalError, match="Nothing was written"):
        run_scenarios(RunRequest((scenario,), target=cluster), say=print, ask=refuse, run_cell=never)
    assert asked == [
        "Write 5,000 messages (3 MB) to topics tidegate-bench-* of broker.example:9092, at most 10,000 a second? "
        "Each topic is deleted after its run; other topics stay."
    ]


def test_an_existing_cluster_is_measured_once_within_the_rate_cap(scenario: str, cluster: Path) -> None:
    seen: list[tuple[str, float, bool]] = []

    def run_cell(work: Parameters, topic: str, bed: CellBed) -> Mapping[str, Any]:
        seen.append((bed.kafka.bootstrap_servers, work.rate, topic.startswith("tidegate-bench-")))
        assert dict(bed.jmx_urls) == {"127.0.0.1:1": "http://127.0.0.1:1/metrics"}
        return {"lost": 0, "produce_per_second": 99.0}

    cluster.write_text(cluster.read_text() + '[monitoring.targets]\nkafka = ["127.0.0.1:1"]\n')
    request = RunRequest((scenario, scenario), target=cluster, agreed=True, max_rate=500)
    (result,) = run_scenarios(request, say=print, ask=lambda question: False, run_cell=run_cell)
    at = "broker.example:9092"
    assert seen == [(at, 500, True)] * 3 + [(at, 100, True)] * 2
    assert "metadata" not in result["cells"][0]
    assert "those of the machine that ran the load" in result["note"]
    assert exit_code([result]) == 0
    assert "rate=100" in render_result(result)
    result["cells"][0]["spread"]["pause_ms"] = result["cells"][0]["spread"]["produce_per_second"]
    assert "pause_ms 99" not in render_result(result)
    assert "lost 0 (0 to 0), pause_ms 99 (99 to 99), produce_per_second" in render_result(
        {**result, "shows": ["pause_ms"]}
    )
    goals = [
        {"figure": goal.split()[0], "goal": goal, "met": met, "why": why}
        for goal, met, why in (("lost <= 0", True, ""), ("p50_ms <= 5", False, "p50_ms is 9"), ("rate >= 1", True, ""))
    ]
    said = render_result({**result, "cells": [{**result["cells"][0], "goals": goals}]}).splitlines()
    assert "    MISSED: p50_ms <= 5 (p50_ms is 9)" in said
    assert "    met: lost <= 0; rate >= 1" in said
    assert exit_code([{**result, "interrupted": True}]) == 130
    assert exit_code([{**result, "cells": [{"met": False, "spread": {"lost": 1}}]}]) == 1


def test_a_missing_right_is_said_once_for_all_cells(scenario: str, cluster: Path) -> None:
    def run_cell(work: Parameters, topic: str, bed: CellBed) -> Mapping[str, Any]:
        message = "guest may not create topic x: grant CREATE, WRITE, READ and DELETE on tidegate-bench-*"
        raise UnavailableError(message)

    said: list[str] = []
    request = RunRequest((scenario,), target=cluster, agreed=True)
    results = run_scenarios(request, say=said.append, ask=lambda question: False, run_cell=run_cell)
    assert sum("grant CREATE" in line for line in said) == 1
    assert all("grant CREATE" in cell["why"] for cell in results[0]["cells"])
    assert exit_code(results) == 1


@pytest.mark.parametrize("missing", [[], ["WRITE", "READ"], ["DELETE"]])
@pytest.mark.parametrize("of_group", [[], ["READ"]])
def test_rights_are_asked_for_before_the_first_message(
    monkeypatch: pytest.MonkeyPatch, missing: list[str], of_group: list[str]
) -> None:
    done: list[str] = []
    monkeypatch.setattr(
        "ingest.topics.setup.create_topic", lambda kafka, name, partitions: done.append(f"made {name[:15]}")
    )
    monkeypatch.setattr("ingest.topics.setup.delete_topic", lambda kafka, name: done.append("removed"))
    monkeypatch.setattr("ingest.topics.rights.missing_rights", lambda kafka, name: missing)
    monkeypatch.setattr("ingest.topics.rights.missing_group_rights", lambda kafka, name: of_group)
    with pytest.raises(FatalError) if missing or of_group else nullcontext() as fault:
        check_rights(KafkaSettings())
    assert done == ["made tidegate-bench-", *(["removed"] if "DELETE" not in missing else [])]
    if fault is not None:
        words = str(fault.value)
        assert (f"{' and '.join(missing)} on topics tidegate-bench-*" in words) == bool(missing)
        assert ("READ on groups tidegate-bench-*" in words) == bool(of_group)
        assert ("could not be deleted" in words) == ("DELETE" in missing)


def test_who_may_not_make_topics_is_asked_for_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kafka: KafkaSettings, name: str, partitions: int) -> None:
        message = "may not create topic"
        raise FatalError(message)

    monkeypatch.setattr("ingest.topics.setup.create_topic", refuse)
    with pytest.raises(FatalError, match=r"ANONYMOUS lacks CREATE on topics tidegate-bench-\*: grant CREATE, DESCRIBE"):
        check_rights(KafkaSettings())


@pytest.mark.parametrize(
    ("ask", "code", "missing"),
    [
        (missing_rights, KafkaError.TOPIC_AUTHORIZATION_FAILED, ["WRITE", "READ", "DELETE"]),
        (missing_group_rights, KafkaError.GROUP_AUTHORIZATION_FAILED, ["READ"]),
        (missing_group_rights, KafkaError.GROUP_ID_NOT_FOUND, []),
        (missing_group_rights, KafkaError.NOT_COORDINATOR, []),
        (missing_group_rights, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, []),
        (missing_rights, KafkaError.GROUP_ID_NOT_FOUND, None),
    ],
)
def test_who_may_not_even_describe_lacks_all(
    monkeypatch: pytest.MonkeyPatch, ask: Any, code: int, missing: list[str] | None
) -> None:
    def answer(*_: object, **__: object) -> Any:
        raise KafkaException(KafkaError(code))

    client = SimpleNamespace(describe_topics=answer, describe_consumer_groups=answer)
    monkeypatch.setattr("ingest.topics.rights.admin_client", lambda settings: client)
    with pytest.raises(RetryableError) if missing is None else nullcontext():
        assert ask(KafkaSettings(), "x") == missing


@pytest.mark.parametrize("error", [RetryableError("Kafka does not answer"), KeyboardInterrupt()])
def test_a_question_for_rights_that_is_cut_off_leaves_no_topic(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    made, removed = list[str](), list[str]()

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("ingest.topics.setup.create_topic", lambda kafka, name, partitions: made.append(name))
    monkeypatch.setattr("ingest.topics.setup.delete_topic", lambda kafka, name: removed.append(name))
    monkeypatch.setattr("ingest.topics.rights.missing_rights", fail)
    with pytest.raises(type(error)):
        check_rights(KafkaSettings())
    assert made == removed and len(made) == 1


def test_a_target_without_a_cluster_is_refused_before_anything_starts(scenario: str, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[mqtt]\nport = 1884\n")
    request = RunRequest((scenario,), target=tmp_path / "other.toml", agreed=True)
    with pytest.raises(ConfigError, match=r"no section \[kafka\]"):
        run_scenarios(request, say=print, ask=lambda question: True)
    with pytest.raises(ConfigError, match="Did you mean dsbs"):
        run_scenarios(RunRequest((scenario, "dsb")), say=print, ask=lambda question: True)


def test_more_copies_than_brokers_in_all_cells_is_refused_with_the_flag_that_helps(scenario: str) -> None:
    with pytest.raises(ConfigError, match=r"has no cell: replication=3 needs 3 brokers.* Add --set brokers=3"):
        plan_of(scenario, RunRequest((scenario,), parameters=("replication=3",)), None)
    assert len(plan_of(scenario, RunRequest((scenario,), parameters=("replication=3", "brokers=3")), None).cells) == 4


@pytest.mark.parametrize(
    ("name", "parameters", "why"),
    [
        (
            "failover",
            ("metadata=kraft", "kill=zookeeper"),
            "kill=zookeeper needs a ZooKeeper, and metadata=kraft has none.",
        ),
        ("failover", ("replication=5",), "replication=5 needs 5 brokers. Add --set brokers=5."),
        ("dsbs", ("kind=mqtt", "message_bytes=32"), "kind=mqtt needs a mosquitto. Add --set runs=mosquitto."),
        ("secure", ("kind=load", "runs=mosquitto"), "kind=load does not run on a mosquitto."),
        ("secure", ("replication=3",), "replication=3 needs 3 brokers. Add --set brokers=3."),
        ("ksql", ("disk_mb=0", "disturbance=disk_full", "rate=9"), "disturbance=disk_full needs a small disk."),
        ("ksql", ("disk_mb=99", "disturbance=none"), "disk_mb=99 is for disturbance=disk_full only."),
    ],
)
def test_a_scenario_without_a_cell_says_what_keeps_each_of_them_from_running(
    name: str, parameters: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ConfigError, match="has no cell: ") as fault:
        plan_of(name, RunRequest((name,), parameters=parameters), None)
    said = str(fault.value).partition("has no cell: ")[2]
    assert said.startswith(why) and said.count("--set") <= 2, said


def test_a_cluster_that_memory_cannot_hold_is_named_before_the_first_starts(
    scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        command, "check_budget", lambda wish, folder: check_budget(wish, folder, memory_mb=600, disk_mb=9999)
    )
    plan = plan_of(scenario, RunRequest((scenario,)), None)
    (line,) = clusters_too_large([plan])
    assert "Cannot measure 1 broker, ZooKeeper, plaintext: The test bed" in line and "needs 684 MB of memory" in line


def test_a_scenario_that_the_disk_cannot_hold_is_refused_with_what_would_fit(scenario: str) -> None:
    plan = plan_of(scenario, RunRequest((scenario,)), None)
    check_disk([plan], 3)
    with pytest.raises(UnavailableError, match="needs about 2 MB of disk") as fault:
        check_disk([plan], 1)
    assert "480 messages of 500 B would fit" in str(fault.value)


def test_each_session_counts_as_disk(scenario: str) -> None:
    plan = plan_of(scenario, RunRequest((scenario,), parameters=("sessions=10",)), None)
    with pytest.raises(UnavailableError, match="needs about 21 MB of disk"):
        check_disk([plan], 3)


def test_retained_data_counts_as_disk_once_for_its_files_are_waited_for() -> None:
    plan = plan_of("segments", RunRequest(("segments",)), None)
    check_disk([plan], 25_000)
    with pytest.raises(UnavailableError, match=r"needs about 23,5\d\d MB of disk") as fault:
        check_disk([plan], 10_000)
    assert "retained_mb = 6459 in a copy of its file would fit" in str(fault.value)
    cell = next(cell for cell in plan.cells if cell.workload.retained_mb == 20_000)
    less = cell.model_copy(update={"workload": cell.workload.model_copy(update={"retained_mb": 6459})})
    check_disk([replace(plan, cells=[less])], 10_000)
    check_disk([plan_of("segments", RunRequest(("segments",), short=True), None)], 5_000)


def test_a_parameter_of_the_command_line_holds_for_all_cells(scenario: str) -> None:
    def plan(*parameters: str) -> list[tuple[Any, ...]]:
        cells = plan_of(scenario, RunRequest((scenario,), parameters=parameters), None).cells
        return [(one.workload.replication, one.target.brokers, one.target.metadata) for one in cells if one.target]

    assert set(plan("brokers=3", "replication=3")) == {(3, 3, "kraft"), (3, 3, "zookeeper")}
    assert len(plan("brokers=3")) == 4
    assert len(plan("metadata=kraft", "rate=7")) == 1
    for wrong, words in {
        "broker=3": "Did you mean brokers",
        "brokers": r"NAME=VALUE, such as brokers=3\.$",
        "brokers=x": "brokers",
        "mode=both": "mode",
    }.items():
        with pytest.raises(ConfigError, match=words):
            plan(wrong)


def test_short_and_repeats_change_the_plan(scenario: str) -> None:
    plan = plan_of(scenario, RunRequest((scenario,)), None)
    assert (plan.name, len(plan.cells), plan.repeats, plan.steps) == ("own", 4, 2, 8)
    short = plan_of(scenario, RunRequest((scenario,), short=True), None)
    assert (short.repeats, {cell.workload.messages for cell in short.cells}) == (1, {10})
    assert plan_of(scenario, RunRequest((scenario,), repeats=7, short=True), None).repeats == 7


def test_a_whole_pipeline_is_not_measured_on_a_bare_kafka(cluster: Path) -> None:
    with pytest.raises(ConfigError, match="Use `bench e2e --config`"):
        run_scenarios(RunRequest(("pipeline",), target=cluster, agreed=True), say=print, ask=lambda _: True)
    with pytest.raises(FatalError, match='Give the target `runs = "pipeline"`'):
        run_cell(Parameters(kind="pipeline"), "t", CellBed(KafkaSettings()))
