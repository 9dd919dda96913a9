"""`doctor --config` against a real broker and a real Kafka: limits, topics, names, retention, clocks, and exit codes."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from deploy.cli import run
from gateway.memory.restart_state import SessionRecord
from ingest.contract.topics import DEAD_LETTERS, GATEWAY_STATE, OUTCOMES, READINGS
from ingest.kafka_settings import KafkaSettings
from ingest.topics.setup import ensure_topics

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
