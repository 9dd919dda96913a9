"""The gateway with its broker and its Kafka for a benchmark: own processes, free ports, a temporary folder, no trace."""

import json
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.local import artifacts
from deploy.local.broker import EmbeddedBroker, find_broker, make_broker
from deploy.local.java import find_java
from deploy.local.kafka import EmbeddedKafka
from deploy.local.logs import last_lines
from deploy.local.ports import choose_port
from deploy.settings import child_environment
from ingest.admin import ensure_topics
from ingest.contract.errors import UnavailableError
from ingest.settings import KafkaSettings
from monitoring.scrape import healthz

__all__ = ["Stage", "stage"]

USER: Final = "bench"
START_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Stage:
    """What a benchmark needs to know of the running parts."""

    broker: EmbeddedBroker
    password: str
    kafka: KafkaSettings
    gateway_pid: int
    metrics_url: str


@contextmanager
def stage(
    *, partitions: int = 6, protocol: str = "5", settings: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[Stage]:
    """Start broker, Kafka and gateway; everything is stopped and removed afterwards.

    Args:
        partitions: of `telemetry.readings`.
        protocol: MQTT version of the gateway's session.
        settings: further settings of the gateway, by section and key.

    Raises:
        UnavailableError: a part did not start; the text says which and ends with its last words.
    """
    folder = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    with ExitStack() as parts:
        parts.callback(shutil.rmtree, folder, ignore_errors=True)
        password = secrets.token_hex(8)
        broker = _broker(folder, password)
        parts.enter_context(_process(broker.command(), folder / "broker.log", ready=broker.ready))
        kafka_node = _kafka(folder)
        command, environment = kafka_node.command(), kafka_node.env()
        parts.enter_context(_process(command, folder / "kafka.log", ready=kafka_node.ready, environment=environment))
        kafka = KafkaSettings(bootstrap_servers=kafka_node.bootstrap_servers, partitions=partitions)
        ensure_topics(kafka)
        port, _ = choose_port(0)
        config = folder / "gateway.toml"
        own: dict[str, dict[str, Any]] = {
            "mqtt": {
                "host": broker.host, "port": broker.port if protocol != "5" else broker.port_v5, "protocol": protocol,
                "username": USER, "password": password,
            },
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "partitions": partitions},
            "monitoring": {"gateway_port": port},
        }  # fmt: skip
        for section, values in (settings or {}).items():
            own[section] = own.get(section, {}) | dict(values)
        config.write_text(_toml(own), encoding="utf-8")
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-P", "-m", "deploy.cli", "gateway", "--config", str(config)]
        gateway = parts.enter_context(
            _process(command, folder / "gateway.log", ready=lambda: healthz(f"{url}/healthz")[0])
        )
        yield Stage(broker, password, kafka, gateway.pid, f"{url}/metrics")


def _broker(folder: Path, password: str) -> EmbeddedBroker:
    port, _ = choose_port(0)
    port_v5, _ = choose_port(0)
    broker = make_broker(find_broker(), folder / "broker", port, port_v5=port_v5, users={USER: password})
    broker.prepare()
    return broker


def _kafka(folder: Path) -> EmbeddedKafka:
    artifacts.ensure("kafka", lambda text: None)
    port, _ = choose_port(0)
    controller_port, _ = choose_port(0)
    node = EmbeddedKafka(folder / "kafka", find_java(), port, controller_port)
    node.prepare()
    return node


@contextmanager
def _process(
    command: list[str], log: Path, *, ready: Any, environment: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            env={**child_environment("bench"), **(environment or {})}, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                words = " / ".join(line.strip() for line in last_lines(log, 3))
                message = f"{log.stem} did not start for the benchmark: {words}"
                raise UnavailableError(message)
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Settings as TOML; JSON's texts, numbers and lists are TOML's too."""
    lines: list[str] = []
    for section, values in sections.items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"
