"""`doctor --config` against a real broker and a real Kafka: limits, topics, names, retention, clocks, and exit codes."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from deploy.cli import run
from deploy.testbed.cluster import open_cluster
from gateway.memory.restart_state import SessionRecord
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, OUTCOMES, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.lag.cluster_probe import ClusterProbe, is_own_topic
from ingest.topics.overview import topic_overviews
from ingest.topics.setup import delete_topic, ensure_topics, topic_differences

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def pipeline(mqtt_broker: Callable[..., Any], empty_kafka: Any, tmp_path: Path) -> tuple[Path, KafkaSettings]:
    """A settings file for a real broker and a real Kafka without topics."""
    broker, kafka = mqtt_broker("mosquitto"), empty_kafka
    file = tmp_path / "prod.toml"
    file.write_text(
        f'[mqtt]\nhost = "{broker.host}"\nport = {broker.port_v5}\nusername = "{broker.username}"\n'
        f'password = "{broker.password}"\n'
        f'[kafka]\nbootstrap_servers = "{kafka.bootstrap_servers}"\npartitions = 2\n'
        f'[lake]\nroot = "{tmp_path / "tables"}"\n[stream]\ncheckpoint = "{tmp_path / "checkpoints" / "land"}"\n'
    )
    return file, KafkaSettings(bootstrap_servers=kafka.bootstrap_servers, partitions=2)


def examined(file: Path, capsys: Captured, *more: str) -> tuple[int, list[dict[str, str]]]:
    code = run(["doctor", "--config", str(file), "--json", *more])
    return code, json.loads(capsys.readouterr().out)["checks"]


def of(checks: list[dict[str, str]], name: str) -> list[tuple[str, str]]:
    return [(one["state"], one["text"]) for one in checks if one["name"] == name]


def write_record(kafka: KafkaSettings, topic: str, key: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, key=key, value=value)
    assert producer.flush(60) == 0


def test_a_pipeline_from_its_first_day_on(
    pipeline: tuple[Path, KafkaSettings], capsys: Captured, tmp_path: Path
) -> None:
    file, kafka = pipeline
    code, checks = examined(file, capsys)
    assert [one for one in checks if one["state"] == "fail"] == []
    assert code == 0
    ((state, text),) = of(checks, "topics")
    assert (state, READINGS in text and "do not exist" in text) == ("warn", True)
    assert list((tmp_path / "tables").glob("*")) == [], "it leaves nothing behind"

    ensure_topics(kafka)
    code, checks = examined(file, capsys)
    assert of(checks, "topics") == [("ok", of(checks, "topics")[0][1])]
    assert of(checks, "copies")[0][0] == "warn", "one broker"
    assert [state for state, _ in of(checks, "retention")] == ["ok", "ok", "ok"]
    assert of(checks, "client id") == [("ok", "tidegate-gateway: not used by a running gateway")]
    code, checks = examined(file, capsys, "--outage", "10d")
    assert (code, {state for state, _ in of(checks, "retention")}) == (1, {"fail"})


def test_a_second_gateway_with_the_same_session_is_found(
    pipeline: tuple[Path, KafkaSettings], capsys: Captured
) -> None:
    file, kafka = pipeline
    ensure_topics(kafka)
    port = next(line for line in file.read_text().splitlines() if line.startswith("port")).split()[-1]
    other = SessionRecord(
        f"tidegate-gateway@127.0.0.1:{port}", ("site/#",), time.time_ns() // 1_000_000, process="elsewhere/7"
    )
    write_record(kafka, GATEWAY_STATE, "tidegate/east/held", msgspec.json.encode(other))
    code, checks = examined(file, capsys)
    assert code == 1
    assert "the running gateway east uses the MQTT session" in of(checks, "client id")[0][1]
    assert "of the running gateway east" in of(checks, "filters")[0][1]


def test_topics_that_differ_and_a_clock_are_reported(pipeline: tuple[Path, KafkaSettings], capsys: Captured) -> None:
    file, kafka = pipeline
    ensure_topics(kafka.model_copy(update={"retention_hours": 24}))
    write_record(kafka, OUTCOMES, "gw", b"{}")
    _, checks = examined(file, capsys, "--outage", "12h")
    assert any(f"Topic {DEAD_LETTERS} has retention.ms=86400000" in text for _, text in of(checks, "topics"))
    assert [state for state, _ in of(checks, "retention")] == ["ok", "ok", "ok"]
    assert of(checks, "clock")[0][0] == "ok"


def lower_in_sync(kafka: KafkaSettings, topic: str) -> None:
    """Somebody makes one copy enough."""
    change = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(60)


def test_three_brokers_get_three_copies_and_one_copy_is_found(
    tmp_path: Path, capsys: Captured, wait_until: Any
) -> None:
    """K17: on three brokers the defaults made topics with one copy, and nothing said so."""
    with open_cluster(tmp_path / "bed", brokers=3) as cluster:
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
        lower_in_sync(kafka, READINGS)

        def both() -> dict[str, list[str]] | None:
            """The differences; a broker that still shows the deleted topic does not let it be created."""
            ensure_topics(kafka.model_copy(update={"replication": 1}))
            found = topic_differences(kafka)
            return found if len(found.get(DEAD_LETTERS, [])) == 1 and found.get(READINGS) else None

        found = wait_until(both, what="both differences")
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
        warning = ("warn", f"on 3 brokers one copy is enough for an acknowledgement of {DEAD_LETTERS}")
        wait_until(lambda: warning in of(examined(file, capsys)[1], "copies"), what="a warning of the other topic only")
