"""Real servers for tests: one Kafka per session, brokers as a test asks for them. Loopback, free ports, own folders."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from deploy.local import artifacts, broker
from deploy.local.java import find_java
from deploy.local.kafka import EmbeddedKafka, KafkaProfile
from deploy.local.ports import choose_port
from deploy.testbed.server_process import SingleServer
from ingest.contract.topics import LAND_GROUP
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_probe import is_own_topic
from ingest.producer import KafkaWriter
from ingest.read.browse import browse_topic
from ingest.topics.admin import admin_client
from ingest.topics.describe import topic_names
from ingest.topics.overview import topic_overviews
from ingest.topics.setup import await_topics, delete_topic


class KafkaServer(SingleServer):
    part: EmbeddedKafka

    @property
    def bootstrap_servers(self) -> str:
        return self.part.bootstrap_servers


class BrokerServer(SingleServer):
    """`port` speaks MQTT 3.1.1, `port_v5` MQTT 5: the same number where the broker serves both on one."""

    part: broker.Mosquitto | broker.Iotcore

    def __init__(self, part: broker.Mosquitto | broker.Iotcore, log: Path, username: str, password: str) -> None:
        self.host, self.port, self.port_v5 = part.host, part.port, part.port_v5
        self.username, self.password, self.durable = username, password, part.durable
        super().__init__(part, log)


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A real Kafka for the whole session: use topic names of your own; to kill one, ask for `new_kafka`.

    A topic keeps its records where it names no retention: with Kafka's week, records of an old time are gone after the
    next check, in the middle of a test. Checks are frequent, for the test that waits for one.
    """
    keep = KafkaProfile(properties={"log.retention.ms": -1, "log.retention.check.interval.ms": 2000})
    server = _kafka(tmp_path_factory.mktemp("kafka"), profile=keep)
    yield server
    server.stop()


@pytest.fixture
def empty_kafka(kafka_server: KafkaServer) -> Iterator[KafkaServer]:
    """The session's Kafka without Tidegate's topics, before this test and after it; as good as a new one, and there at once."""
    _remove_own_topics(kafka_server)
    yield kafka_server
    _remove_own_topics(kafka_server)


def _remove_own_topics(server: KafkaServer) -> None:
    settings = KafkaSettings(bootstrap_servers=server.bootstrap_servers)
    for name in filter(is_own_topic, topic_names(settings)):
        delete_topic(settings, name)
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    # A Kafka that never saw a group has no coordinator to ask for one.
    if LAND_GROUP in {one.group_id for one in admin.list_consumer_groups(request_timeout=60).result(60).valid}:
        admin.delete_consumer_groups([LAND_GROUP])[LAND_GROUP].result(60)


@pytest.fixture(scope="session")
def jmx_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaServer, str]]:
    """A Kafka with the JMX agent and the address of its metrics; the names of its folders are hard to pass on."""
    artifacts.fetch_jars("all", lambda text: None)
    folder = tmp_path_factory.mktemp("kafka mit Metriken über JMX")
    jars = folder / "jars, (ü) 1"
    jars.mkdir()
    for jar in artifacts.read_lock():
        (jars / jar.file_name).symlink_to(artifacts.cache_dir() / jar.file_name)
    jmx_port, _ = choose_port(0)
    server = _kafka(folder, cache=jars, jmx=("127.0.0.1", jmx_port))
    yield server, f"http://127.0.0.1:{jmx_port}/metrics"
    server.stop()


@pytest.fixture
def no_kafka(monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    """A Kafka that is not there, which is not waited for as long as one that may come."""
    for user in ("admin", "offsets", "config", "describe"):
        monkeypatch.setattr(f"ingest.topics.{user}.TIMEOUT_SECONDS", 0.5)
    for look in (topic_overviews, browse_topic):
        monkeypatch.setitem(look.__kwdefaults__, "most_seconds", 0.5)
    monkeypatch.setattr("deploy.commands.topics.LOOK_SECONDS", 0.5)
    return KafkaSettings(bootstrap_servers="127.0.0.1:1")


@pytest.fixture
def new_kafka(tmp_path: Path) -> Iterator[Callable[..., KafkaServer]]:
    """Makes a Kafka for this test alone, which it may kill and restart."""
    started: list[KafkaServer] = []

    def make(**more: Any) -> KafkaServer:
        started.append(_kafka(tmp_path / f"kafka-{len(started)}", **more))
        return started[-1]

    yield make
    for server in started:
        server.kill()


def _kafka(folder: Path, **more: Any) -> KafkaServer:
    artifacts.fetch_jars("kafka", lambda text: None)
    port, _ = choose_port(0)
    controller_port, _ = choose_port(0)
    folder.mkdir(parents=True, exist_ok=True)
    return KafkaServer(EmbeddedKafka(folder, find_java(), port, controller_port, **more), folder / "stdout.log")


@pytest.fixture
def mqtt_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerServer]]:
    """`mqtt_broker("mosquitto" | "iotcore")` starts a real broker; a test skips where mosquitto is not there."""
    started: list[BrokerServer] = []

    def make(kind: broker.BrokerKind | None = None, **limits: int) -> BrokerServer:
        if kind == "mosquitto" and broker.find_mosquitto() is None:
            pytest.skip("mosquitto is not on this machine")
        folder = tmp_path / f"broker-{len(started)}"
        folder.mkdir()
        users = {"tester": "a secret: with spaces"}
        port, _ = choose_port(0)
        port_v5, _ = choose_port(0)
        part = broker.make_broker(kind or broker.find_broker(), folder, port, port_v5=port_v5, users=users, **limits)
        started.append(BrokerServer(part, folder / "stdout.log", "tester", users["tester"]))
        return started[-1]

    yield make
    for server in started:
        server.kill()


@pytest.fixture(scope="session")
def await_save(wait_until: Callable[..., Any]) -> Callable[[Any], None]:
    """`await_save(server)`: mosquitto has saved all that it holds now; it does so each two seconds, and a kill takes the rest."""

    def wait(server: Any) -> None:
        database, now = server.part.database, time.time()
        wait_until(lambda: database.exists() and database.stat().st_mtime > now, what="the broker's next save")

    return wait


def make_topics(servers: str, *wanted: NewTopic) -> AdminClient:
    """Make topics by Kafka's own client, and see them in Kafka: it answers before the next look shows them."""
    admin = AdminClient({"bootstrap.servers": servers})
    # A node that hung for longer than its session makes no topic before its controller has it back.
    made = admin.create_topics(list(wanted), request_timeout=60)
    for future in made.values():
        future.result(60)
    await_topics(admin, list(made))
    return admin


def set_scram_password(admin: KafkaSettings, user: str, password: str) -> None:
    """Give a user this password for SCRAM-SHA-512; a user that does not exist is made."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    client = admin_client(admin)
    [done] = client.alter_user_scram_credentials([change], request_timeout=30).values()
    done.result(60)


def refuses(servers: str, topic: str, value: bytes) -> bool:
    """Whether this record is too large: a broker goes by a new limit some time after the controller has answered."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, value, on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(60) == 0
    return errors[0] is not None and errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def fill(settings: KafkaSettings, topic: str, count: int) -> None:
    """Write so many records, numbered as key and value, and see them in Kafka."""
    writer = KafkaWriter(settings, None)
    for number in range(count):
        writer.produce(topic, b"%d" % number, b"%d" % number, lambda _error: None)
    assert writer.flush(60) == 0
    writer.close()
