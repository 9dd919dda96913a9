"""Three real brokers: their topics get three copies, and all goes on when the leader of the quorum is killed."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from deploy.bench.kafka_load.failover import run_failover
from deploy.bench.kafka_load.feed import SteadyLoad
from deploy.bench.suite.cell_beds import active_controller, without_controller
from deploy.cli import run
from deploy.local import artifacts
from deploy.testbed.cluster import KafkaCluster, open_cluster
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, OUTCOMES, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_probe import ClusterProbe, is_own_topic
from ingest.topics.admin import admin_client, partition_counts
from ingest.topics.overview import topic_overviews
from ingest.topics.setup import delete_topic, ensure_topics, topic_differences

Captured = pytest.CaptureFixture[str]
LOAD = SteadyLoad(topic="tidegate-bench-failover", partitions=3, replication=3, rate=100)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    artifacts.fetch_jars("all", lambda text: None)
    with open_cluster(tmp_path_factory.mktemp("three") / "bed", brokers=3) as made:
        yield made


def test_all_goes_on_without_the_leader_of_the_quorum(cluster: KafkaCluster, wait_until: Callable[..., Any]) -> None:
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
    left = partition_counts(admin_client(cluster.settings), cluster.settings)
    assert not [name for name in left if name.startswith(LOAD.topic)]


def lower_in_sync(kafka: KafkaSettings, topic: str) -> None:
    """Somebody makes one copy enough."""
    change = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(60)


def test_three_brokers_get_three_copies_and_one_copy_is_found(
    cluster: KafkaCluster, tmp_path: Path, capsys: Captured, wait_until: Any
) -> None:
    """K17: on three brokers the defaults made topics with one copy, and nothing said so."""
    kafka = cluster.settings.model_copy(update={"replication": None, "min_in_sync": None})
    ensure_topics(kafka)

    def copies() -> set[tuple[int, int]]:
        """Copies, and those that must be in sync; each broker learns of a new topic at its own time."""
        found = topic_overviews(kafka, is_own_topic, with_times=False)
        return {
            (len(part.replicas), one.settings.min_in_sync if one.settings else 0)
            for one in found
            for part in one.partitions
        }

    wait_until(lambda: copies() == {(3, 2)}, what="three copies, of which two must be in sync")
    known = {READINGS, DEAD_LETTERS, OUTCOMES, GATEWAY_STATE}
    wait_until(lambda: topic_differences(kafka) == {name: [] for name in known}, what="topics as the settings say")

    delete_topic(kafka, DEAD_LETTERS)
    ensure_topics(kafka.model_copy(update={"replication": 1}))
    lower_in_sync(kafka, READINGS)
    wait_until(
        lambda: len(topic_differences(kafka).get(DEAD_LETTERS, [])) == 1 and topic_differences(kafka)[READINGS],
        what="both differences",
    )
    found = topic_differences(kafka)
    assert [words in found[DEAD_LETTERS][-1] for words in ("has 1 copy", "kafka-reassign-partitions")] == [
        True,
        True,
    ]
    assert "has min.insync.replicas=1, the settings say 2" in " ".join(found[READINGS])
    probe = ClusterProbe(kafka, list)
    try:
        wait_until(
            lambda: (
                dict(probe.look()["tidegate_kafka_missing_copies"])
                == {
                    (READINGS,): 1.0,
                    (DEAD_LETTERS,): 2.0,
                    (OUTCOMES,): 0.0,
                    (GATEWAY_STATE,): 0.0,
                }
            ),
            what="the monitor to see both",
        )
    finally:
        probe.close()

    file = tmp_path / "prod.toml"
    file.write_text(f'[mqtt]\nport = 1\n[kafka]\nbootstrap_servers = "{kafka.bootstrap_servers}"\n')
    assert run(["topics", "set", READINGS, "--as-settings", "--config", str(file)]) == 0
    capsys.readouterr()
    wait_until(lambda: topic_differences(kafka)[READINGS] == [], what="the topic to be as the settings say")
    run(["doctor", "--config", str(file), "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    told = [(one["state"], one["text"]) for one in checks if one["name"] == "copies"]
    assert ("warn", f"on 3 brokers one copy is enough for an acknowledgement of {DEAD_LETTERS}") in told
