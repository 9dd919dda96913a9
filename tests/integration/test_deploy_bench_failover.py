"""Failover on real clusters: the leader of a KRaft quorum and the leader of three ZooKeepers are killed under load."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.bench.kafka_load.failover import run_failover
from deploy.bench.kafka_load.feed import SteadyLoad
from deploy.bench.suite.cell_beds import active_controller, without_controller, without_zookeeper
from deploy.local import artifacts
from deploy.testbed.cluster import open_cluster
from ingest.contract.errors import UnavailableError
from ingest.topics.admin import admin_client, partition_counts

LOAD = SteadyLoad(topic="tidegate-bench-failover", partitions=3, replication=3, rate=100)


def test_all_goes_on_without_the_leader_of_the_quorum(tmp_path: Path, wait_until: Callable[..., Any]) -> None:
    artifacts.fetch_jars("all", lambda text: None)
    with open_cluster(tmp_path / "bed", brokers=3) as cluster:
        killed: list[int] = []

        @contextmanager
        def outage() -> Iterator[int]:
            leader = wait_until(lambda: active_controller(cluster), what="a leader")
            with without_controller(cluster) as killed_us:
                assert [node.node_id for node in cluster.nodes if not node.alive] == [leader]
                yield killed_us
                # Once the killed one is back it may lead again, by another election on a busy machine.
                wait_until(lambda: active_controller(cluster), what="another leader")
                killed.append(leader)

        found = run_failover(LOAD, cluster.settings, outage)
        assert len(killed) == 1
        assert all(node.alive for node in cluster.nodes)
        assert [found[name] for name in ("lost", "again", "out_of_order", "failed")] == [0, 0, 0, 0]
        assert 0 < found["first_produce_ms"] <= found["all_partitions_ms"]
        assert found["least_in_sync"] == 2
        assert found["full_isr_ms"] > 0 and found["new_topic_ms"] > 0

        def left() -> list[str]:
            counts = partition_counts(admin_client(cluster.settings), cluster.settings)
            return [name for name in counts if name.startswith(LOAD.topic)]

        wait_until(lambda: not left(), what="the end of its topics")


@pytest.mark.chaos
def test_records_go_on_without_the_zookeeper_that_leads(tmp_path: Path) -> None:
    """Six servers start for it; that one ZooKeeper and one broker of its mode work is in test_deploy_testbed.py."""
    try:
        artifacts.fetch_jars("zookeeper", lambda text: None)
    except UnavailableError as error:
        pytest.skip(f"the jars of ZooKeeper mode are not here: {error}")
    with open_cluster(tmp_path / "bed", brokers=3, mode="zookeeper") as cluster:
        leader = cluster.zookeepers.leader()
        assert leader is not None and len(cluster.zookeepers.servers) == 3
        found = run_failover(LOAD, cluster.settings, lambda: without_zookeeper(cluster))
        follower = next(keeper for keeper in cluster.zookeepers if keeper is leader)
        assert follower.role() == "follower", "started again, it follows the one that was elected"
        assert [found[name] for name in ("lost", "again", "out_of_order", "failed")] == [0, 0, 0, 0]
        assert (found["least_in_sync"], "full_isr_ms" in found) == (3, False), "no broker was away"
