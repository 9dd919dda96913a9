"""Figures of a failover from what was acknowledged, seen and stored; which targets can run which kill."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.kafka_load.failover import FailoverTimes, figures_of
from deploy.bench.kafka_load.feed import SteadyLoad
from deploy.bench.suite.cell_beds import CellBed, _properties, active_controller, without_zookeeper
from deploy.bench.suite.cell_kinds import run_cell, run_peer
from deploy.bench.suite.command import RunRequest, plan_of
from deploy.bench.suite.judge import MeasuredCell, judge_cells
from deploy.bench.suite.library import load_scenario
from deploy.bench.suite.scenario import Parameters, ScenarioTarget
from deploy.testbed.cluster import KafkaCluster
from deploy.testbed.cluster_layout import ClusterRequest, new_layout
from ingest.contract.errors import ConfigError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from monitoring.scrape import Scrape

LOAD = SteadyLoad(topic="t", partitions=2, replication=3)
COURSE = FailoverTimes(
    killed_us=100_000, first_after=4, new_topic_us=400_000, restarted_us=900_000, answered_us=950_000,
    # Record 3 was on its way at the kill: its late acknowledgement is no sign that anything works again.
    acknowledged={0: 10_000, 1: 20_000, 2: 30_000, 3: 101_000, 4: 350_000, 5: 300_000, 6: 360_000, 7: 310_000},
    in_sync=[(90_000, 3), (200_000, 3), (250_000, 2), (899_000, 2), (901_000, 2), (970_000, 3), (980_000, 3)],
    records=[(0, 0, 0), (0, 2, 0), (0, 4, 0), (0, 6, 0), (1, 1, 0), (1, 3, 0), (1, 5, 0), (1, 7, 0)],
)  # fmt: skip


def test_each_clock_starts_at_the_kill_and_that_of_the_copies_at_the_restart() -> None:
    assert figures_of(LOAD, COURSE) == {
        "first_produce_ms": 200.0, "all_partitions_ms": 250.0, "partition_unacknowledged_ms": 320.0, "new_topic_ms": 300.0,
        "restart_ms": 50.0, "full_isr_ms": 70.0, "least_in_sync": 2, "lost": 0, "again": 0, "out_of_order": 0,
    }  # fmt: skip


def test_copies_that_were_in_sync_all_the_time_have_no_time_to_come_back() -> None:
    found = figures_of(LOAD, replace(COURSE, in_sync=[(200_000, 3), (800_000, 3), (970_000, 3)]))
    assert "full_isr_ms" not in found
    assert found["least_in_sync"] == 3


def test_what_was_not_seen_is_absent() -> None:
    assert not {"full_isr_ms", "least_in_sync"} & figures_of(LOAD, replace(COURSE, in_sync=[])).keys()


@given(st.data())
def test_loss_repeats_and_wrong_order_are_counted_whatever_happened_where(data: st.DataObject) -> None:
    stored = list(COURSE.records)
    lost = data.draw(st.sets(st.sampled_from(range(8)), max_size=7))
    again = data.draw(st.sets(st.sampled_from(sorted(set(range(8)) - lost))))
    kept = [record for record in stored if record[1] not in lost]
    # A repeat comes after its first copy, at the end of its partition.
    found = figures_of(LOAD, replace(COURSE, records=kept + [record for record in kept if record[1] in again]))
    assert (found["lost"], found["again"], found["out_of_order"]) == (len(lost), len(again), 0)
    swapped = [stored[1], stored[0], *stored[2:]]
    assert figures_of(LOAD, replace(COURSE, records=swapped))["out_of_order"] == 1


def test_a_zookeeper_is_killed_where_there_is_one() -> None:
    _, scenario = load_scenario("failover")
    cells = [(cell.target.metadata, cell.workload.kill) for cell in scenario.cells() if cell.target]
    assert cells == [("zookeeper", "controller"), ("zookeeper", "zookeeper"), ("kraft", "controller")]
    assert {cell.workload.replication for cell in scenario.cells()} == {3}
    judged = judge_cells(scenario, [MeasuredCell(cell.parameters) for cell in scenario.cells()])
    assert [[goal["figure"] for goal in cell["goals"]][3:] for cell in judged] == [
        ["all_partitions_ms", "new_topic_ms", "full_isr_ms"],
        ["partition_unacknowledged_ms", "new_topic_ms"],
        ["all_partitions_ms", "new_topic_ms", "full_isr_ms"],
    ]
    # The parameter of another kind of run leaves a cluster in.
    assert ScenarioTarget().can_run(Parameters(kill="zookeeper"))


def test_the_properties_of_a_target_count_over_the_benchmarks_own() -> None:
    own = "broker.session.timeout.ms=9000 group.consumer.session.timeout.ms=7000"
    found = _properties(ScenarioTarget(broker_properties=own))
    assert found["broker.session.timeout.ms"] == "9000"
    assert found["group.consumer.session.timeout.ms"] == "7000"
    assert found["group.consumer.heartbeat.interval.ms"] == 1000
    assert not any(name.startswith("group") for name in _properties(ScenarioTarget(metadata="zookeeper")))


def test_a_cluster_whose_servers_are_not_ours_is_refused(tmp_path: Path) -> None:
    work = Parameters(kind="failover", replication=3)
    with pytest.raises(UnavailableError, match="starts its own cluster"):
        run_cell(work, "t", CellBed(KafkaSettings()))
    assert run_peer(work, "t", KafkaSettings(), lambda *arguments: []) == {}
    with pytest.raises(ConfigError, match="failover kills servers"):
        plan_of("failover", RunRequest(("failover",)), KafkaSettings())


def test_a_killed_server_starts_again_also_where_the_run_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_layout(ClusterRequest(brokers=3, mode="zookeeper")).write(tmp_path)
    cluster = KafkaCluster.attach(tmp_path)
    done: list[str] = []
    monkeypatch.setattr(cluster, "kill", lambda server: done.append(f"kill {server}"))
    monkeypatch.setattr(cluster, "restart", lambda server: done.append(f"restart {server}"))
    roles = {"zookeeper-1": "follower", "zookeeper-2": "leader", "zookeeper-3": "follower"}
    monkeypatch.setattr("deploy.testbed.zookeeper.ZooKeeper.alive", True)
    monkeypatch.setattr("deploy.testbed.zookeeper.ZooKeeper.role", lambda keeper: roles[keeper.server_id])
    fault = UnavailableError("no new topic")
    with pytest.raises(UnavailableError), without_zookeeper(cluster) as killed_us:
        assert done == ["kill zookeeper-2"] and killed_us > 0
        raise fault
    assert done == ["kill zookeeper-2", "restart zookeeper-2"]


@pytest.mark.parametrize(
    ("answers", "found"), [([0, 1, 0], 2), ([0, 0, 0], None), ([1, 1, 0], None), ([0, None, 1], 3)]
)
def test_the_controller_is_the_one_node_that_says_so(
    answers: list[float | None], found: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_layout(ClusterRequest(brokers=3)).write(tmp_path)
    cluster = KafkaCluster.attach(tmp_path)
    monkeypatch.setattr("deploy.testbed.node.KafkaNode.alive", True)
    given: dict[str, float | None] = {}
    for node, answer in zip(cluster.nodes, answers, strict=True):
        node.jmx_url = f"http://node-{node.node_id}"
        given[node.jmx_url] = answer

    def scrape(url: str, **_: Any) -> Scrape | None:
        value = given[url]
        name = "kafka_controller_kafkacontroller_activecontrollercount"
        return None if value is None else Scrape(0.0, {(name, ()): value})

    monkeypatch.setattr("deploy.bench.suite.cell_beds.scrape", scrape)
    assert active_controller(cluster) == found
