"""What a real Kafka tells of itself by the JMX agent: each declared name is there, moves as it should, and costs little."""

import os
import socket
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics

from deploy.local import artifacts, jmx
from deploy.local.java import find_java
from deploy.local.ports import choose_port
from deploy.settings import java_locale
from monitoring.metrics.jvm import AGENT, KAFKA_JVM
from monitoring.scrape import Scrape, scrape
from tests.support.servers import make_topics

TOPICS = "kafka_server_brokertopicmetrics"
REQUESTS = "kafka_network_requestmetrics"
TOPIC = "telemetry.jmx-test"
RECORDS, RECORD_BYTES = 1000, 100


def look(url: str) -> Scrape:
    found = scrape(url, timeout_seconds=30)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def kafka(jmx_kafka: Any) -> tuple[Any, str]:
    """With a topic of Tidegate's family, which was written and read once."""
    server, url = jmx_kafka
    make_topics(server.bootstrap_servers, NewTopic(TOPIC, 2, 1, config={"max.message.bytes": "200000"}))
    send(server, [b"x"])
    read(server, 1)
    return server, url


def send(server: Any, values: list[bytes]) -> list[KafkaError | None]:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True, "linger.ms": 50})
    for value in values:
        producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(60) == 0
    return errors


def read(server: Any, count: int) -> None:
    consumer = Consumer({
        "bootstrap.servers": server.bootstrap_servers, "group.id": "jmx", "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    got = 0
    while got < count:
        messages = consumer.consume(count - got, timeout=30)
        assert messages
        got += len(messages)
    consumer.close()


def test_every_declared_name_is_served_with_its_labels(kafka: tuple[Any, str]) -> None:
    served: dict[str, set[str]] = {}
    for name, labels in look(kafka[1]).values:
        served.setdefault(name, set()).update(label for label, _ in labels)
    declared = {family.name: set(family.labels) for family in (*AGENT, *KAFKA_JVM)}
    assert {name: labels for name, labels in declared.items() if served.get(name) != labels} == {}
    assert {name for name in served if name.startswith("kafka")} <= set(declared)


def test_prometheus_is_told_the_same_names_in_its_own_format(kafka: tuple[Any, str]) -> None:
    request = urllib.request.Request(kafka[1], headers={"Accept": "application/openmetrics-text; version=1.0.0"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        families = list(openmetrics(answer.read().decode()))
    served = {sample.name for family in families for sample in family.samples}
    assert {family.name for family in (*AGENT, *KAFKA_JVM)} <= served


def test_what_is_produced_and_consumed_is_counted_once(kafka: tuple[Any, str]) -> None:
    server, url = kafka
    before = look(url)
    assert send(server, [os.urandom(RECORD_BYTES) for _ in range(RECORDS)]) == [None] * RECORDS
    read(server, RECORDS + 1)
    after = look(url)

    def grown(name: str, **labels: str) -> float:
        return after.total(name, **labels) - before.total(name, **labels)

    assert grown(f"{TOPICS}_messagesin_total") == RECORDS
    sent = RECORDS * RECORD_BYTES
    assert sent < grown(f"{TOPICS}_bytesin_total") < 1.3 * sent
    assert sent < grown(f"{TOPICS}_bytesout_total") < 1.3 * sent + 1000
    assert sent < grown("kafka_log_log_size", topic=TOPIC) < 1.3 * sent
    assert grown(f"{REQUESTS}_totaltimems_count", request="Produce") >= 1
    assert grown(f"{REQUESTS}_totaltimems_count", request="FetchConsumer") >= 1
    median, worst = (after.total(f"{REQUESTS}_totaltimems", request="Produce", quantile=q) for q in ("0.50", "0.999"))
    assert 0 <= median <= worst < 60_000
    assert after.total("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert after.total("kafka_server_raft_metrics_current_state", state="leader") == 1


def test_a_refused_record_is_an_error_by_its_name(kafka: tuple[Any, str]) -> None:
    server, url = kafka
    before = look(url)
    (error,) = send(server, [os.urandom(500_000)])
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    after = look(url)
    wrong = {"request": "Produce", "error": "MESSAGE_TOO_LARGE"}
    assert after.total(f"{REQUESTS}_errors_total", **wrong) - before.total(f"{REQUESTS}_errors_total", **wrong) == 1
    assert after.total(f"{TOPICS}_bytesrejected_total") - before.total(f"{TOPICS}_bytesrejected_total") > 500_000
    assert after.total(f"{TOPICS}_messagesin_total") == before.total(f"{TOPICS}_messagesin_total")


def test_who_waits_for_records_is_in_purgatory(kafka: tuple[Any, str], wait_until: Callable[..., Any]) -> None:
    server, url = kafka
    consumer = Consumer({
        "bootstrap.servers": server.bootstrap_servers, "group.id": "waits", "fetch.wait.max.ms": 5000,
    })  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, 1, 0)])
    purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize"
    try:

        def waits() -> bool:
            consumer.poll(0)
            return look(url).total(purgatory, delayedOperation="Fetch") >= 1

        wait_until(waits, seconds=30, what="a fetch in purgatory")
    finally:
        consumer.close()


def test_an_answer_is_quick_and_its_series_are_few(kafka: tuple[Any, str], wait_until: Callable[..., Any]) -> None:
    def seconds() -> float:
        began = time.perf_counter()
        look(kafka[1])
        return time.perf_counter() - began

    # What else runs on this machine may slow eleven answers down, but not all that follow.
    wait_until(lambda: statistics.median(seconds() for _ in range(11)) < 0.2, what="quick answers")
    assert len(look(kafka[1]).values) < 400


def test_the_agent_listens_on_loopback_only(kafka: tuple[Any, str]) -> None:
    server, url = kafka
    port = int(url.rsplit(":", 1)[1].split("/")[0])
    listening = [entry.laddr for entry in psutil.Process(server.pid).net_connections("tcp") if entry.laddr.port == port]
    assert {entry.ip.removeprefix("::ffff:") for entry in listening} == {"127.0.0.1"}


@pytest.mark.parametrize("folder", ["plain", "Regeln, mit ü = 1: (2)"])
def test_java_takes_the_flag_whatever_the_folder_is_called(folder: str, tmp_path: Path) -> None:
    artifacts.fetch_jars("all", lambda text: None)
    place = tmp_path / folder
    place.mkdir()
    rules = place / "rules.yml"
    rules.write_bytes(jmx.KAFKA_RULES.read_bytes())
    port, _ = choose_port(0)
    with socket.create_server(("127.0.0.1", port)):
        refused = start(jmx.agent_flag(host="127.0.0.1", port=port, rules=rules))
        assert jmx.agent_obstacle("127.0.0.1", port)
    # What the obstacle is for: an agent that cannot listen takes its JVM along.
    assert refused.returncode != 0
    assert jmx.agent_obstacle("127.0.0.1", port) is None
    taken_up = start(jmx.agent_flag(host="127.0.0.1", port=port, rules=rules))
    assert (taken_up.returncode, taken_up.stderr) == (0, "")


def start(flag: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(find_java().executable), flag, "--version"],
        capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **java_locale()},
    )  # fmt: skip


def test_kafka_starts_though_the_port_of_its_agent_is_taken(new_kafka: Any, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = new_kafka(jmx=("127.0.0.1", port))
        assert server.part.ready()
    assert f"Kafka starts without metrics of its JVM: port {port} on 127.0.0.1 is taken" in caplog.text
