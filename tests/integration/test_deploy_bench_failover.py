"""Failover in ZooKeeper mode on a real cluster: the leader of three ZooKeepers is killed under load."""

from pathlib import Path

import pytest

from deploy.bench.kafka_load.failover import run_failover
from deploy.bench.kafka_load.feed import SteadyLoad
from deploy.bench.suite.cell_beds import without_zookeeper
from deploy.local import artifacts
from deploy.testbed.cluster import open_cluster
from ingest.contract.errors import UnavailableError

LOAD = SteadyLoad(topic="tidegate-bench-failover", partitions=3, replication=3, rate=100)


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
