"""Real clusters of the test bed: three secured nodes that lose their leader, and a Kafka of ZooKeeper mode."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pydantic import SecretStr

from deploy.local import artifacts
from deploy.settings import java_locale
from deploy.testbed.cluster import KafkaCluster, open_cluster
from ingest.contract.errors import FatalError, RetryableError, UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.producer import KafkaWriter
from ingest.security import client_conf, consumer_conf
from ingest.topics.offsets import end_offsets
from tests.support.processes import runs


class Tidegate:
    """The command line, each command a process of its own, as a person has it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, *arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-P", "-m", "deploy.cli", "cluster", *arguments, "--data", str(self._folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if "--json" in arguments else done.stdout + done.stderr


def make_topic(settings: KafkaSettings, name: str, copies: int) -> AdminClient:
    admin = AdminClient(client_conf(settings, client_id="test"))
    for future in admin.create_topics([NewTopic(name, 1, copies)]).values():
        future.result()
    return admin


def write(settings: KafkaSettings, topic: str, numbers: range) -> list[KafkaError | None]:
    """Acknowledged by all copies in sync."""
    outcomes: list[Any] = []
    writer = KafkaWriter(settings, None)
    for number in numbers:
        writer.produce(topic, b"key", b"%d" % number, outcomes.append)
    assert writer.flush(90) == 0
    writer.close()
    return outcomes


def read(settings: KafkaSettings, topic: str, count: int) -> list[int]:
    consumer = Consumer(consumer_conf(settings, client_id="test", group="test"))
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[int] = []
    while len(got) < count:
        messages = consumer.consume(count - len(got), timeout=60)
        assert messages, f"{len(got)} of {count} came"
        got += [int(message.value()) for message in messages]
    consumer.close()
    return got


def refused(settings: KafkaSettings, topic: str) -> int | None:
    """The error that a user without rights gets."""
    admin = AdminClient(client_conf(settings, client_id="test"))  # held until it has answered
    (outcome,) = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    error = outcome.exception(60)
    return None if error is None else int(error.args[0].code())


@pytest.fixture
def bed(tmp_path: Path) -> Any:
    """A folder whose servers are gone after the test, however it ends."""
    folder = tmp_path / "ein Bett für Kafka"
    yield folder
    if (folder / "testbed.json").exists():
        KafkaCluster.attach(folder).stop(0)


def test_three_secured_nodes_write_on_without_their_leader(bed: Path, unique_name: str, wait_until: Any) -> None:
    tidegate = Tidegate(bed)
    state = json.loads(tidegate("up", "--brokers", "3", "--secure", "--json"))
    assert state["ready"]
    pids = [node["pid"] for node in state["nodes"]]
    cluster = KafkaCluster.attach(bed)
    settings = cluster.settings
    admin = make_topic(settings, unique_name, 3)

    assert refused(cluster.settings_of("guest"), unique_name) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(FatalError, match="or user guest may not see it"):
        end_offsets(cluster.settings_of("guest"), unique_name)
    wrong = settings.model_copy(update={"sasl_password": SecretStr("wrong")})
    with pytest.raises(RetryableError, match="invalid credentials"):
        end_offsets(wrong, unique_name)
    assert write(settings, unique_name, range(100)) == [None] * 100

    def partition() -> Any:
        return admin.list_topics(unique_name, timeout=30).topics[unique_name].partitions[0]

    leader = partition().leader
    assert f"Node {leader}" in tidegate("kill", str(leader))
    assert write(settings, unique_name, range(100, 200)) == [None] * 100
    assert partition().leader != leader
    down = json.loads(tidegate("status", "--json", code=1))
    assert [node["node_id"] for node in down["nodes"] if not node["alive"]] == [leader]
    assert "is not running" in tidegate("kill", str(leader), code=69)

    tidegate("restart", str(leader))
    wait_until(lambda: len(partition().isrs) == 3, seconds=90, what="three copies in sync")
    assert read(settings, unique_name, 200) == list(range(200))
    listed = subprocess.run(
        cluster.tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", settings.bootstrap_servers, "--list"),
        capture_output=True, text=True, check=True, timeout=120, env=os.environ | java_locale(),
    )  # fmt: skip
    assert unique_name in listed.stdout.split()

    pids += [node["pid"] for node in json.loads(tidegate("status", "--json"))["nodes"]]
    assert "another test bed" in tidegate("up", "--brokers", "1", code=78)
    assert "1 to 3, not 4" in tidegate("kill", "4", code=78)
    tidegate("down")
    assert not [pid for pid in pids if runs(pid)]
    assert "No server of the cluster" in tidegate("down", code=69)
    assert "removed" in tidegate("down", "--remove")
    assert not bed.exists()


def test_a_kafka_of_zookeeper_mode_takes_users_and_records(tmp_path: Path, unique_name: str) -> None:
    try:
        artifacts.fetch_jars("zookeeper", lambda text: None)
    except UnavailableError as error:
        pytest.skip(f"the jars of ZooKeeper mode are not here: {error}")
    with open_cluster(tmp_path / "bed", mode="zookeeper", security="sasl_ssl") as cluster:
        (keeper,) = cluster.zookeepers
        assert keeper.role() == "standalone"
        pids = [keeper.process.pid, cluster.nodes[0].pid]
        make_topic(cluster.settings, unique_name, 1)
        assert write(cluster.settings, unique_name, range(50)) == [None] * 50
        cluster.kill(1)
        assert keeper.keeps(1), "its session lasts for seconds, and it could not be started meanwhile"
        assert not keeper.keeps(11)
        cluster.restart(1)
        assert read(cluster.settings, unique_name, 50) == list(range(50))
    assert not [pid for pid in pids if pid is None or runs(pid)]
