"""Test bed of a gateway with its broker and its Kafka: own processes, free ports, and a temporary folder that is removed."""

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.bench.temporary import own_folder
from deploy.local.broker import EmbeddedBroker, find_broker, make_broker
from deploy.local.logs import last_lines
from deploy.local.ports import choose_port
from deploy.settings import child_environment
from deploy.testbed.cluster import open_cluster
from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings
from ingest.topics.setup import ensure_topics
from monitoring.scrape import healthz

__all__ = ["BenchTestbed", "gateway_testbed", "kafka_testbed", "run_process", "to_toml"]

USER: Final = "bench"
KAFKA_HEAP: Final = "512m"
START_SECONDS: Final = 60.0


@dataclass(frozen=True)
class BenchTestbed:
    """Facts about the running parts that a benchmark needs."""

    broker: EmbeddedBroker
    password: str
    kafka: KafkaSettings
    gateway_pid: int
    metrics_url: str
    limited: "subprocess.Popen[str] | None" = None


@contextmanager
def gateway_testbed(
    *,
    partitions: int = 6,
    protocol: str = "5",
    inflight: int = 0,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[BenchTestbed]:
    """Start broker, Kafka and gateway; everything is stopped and removed afterwards.

    Args:
        partitions: of `telemetry.readings`.
        protocol: MQTT version of the gateway's session.
        inflight: not 0: the gateway is at a broker of its own that has at most so many messages on the way.
        settings: further settings of the gateway, by section and key.

    Raises:
        UnavailableError: a part did not start; the text says which and ends with its last words.
    """
    with ExitStack() as parts:
        folder = parts.enter_context(own_folder())
        password = secrets.token_hex(8)
        broker = _broker(folder, password)
        parts.enter_context(run_process(broker.command(), folder / "broker.log", ready=broker.ready))
        kafka = parts.enter_context(kafka_testbed(folder, partitions=partitions))
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
        limited = None
        if inflight:
            limited, limited_port = parts.enter_context(_limited(inflight))
            own["mqtt"] |= {"port": limited_port, "protocol": "3.1.1"}
        for section, values in (settings or {}).items():
            own[section] = own.get(section, {}) | dict(values)
        config.write_text(to_toml(own), encoding="utf-8")
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-P", "-m", "deploy.cli", "gateway", "--config", str(config)]
        gateway = parts.enter_context(
            run_process(command, folder / "gateway.log", ready=lambda: healthz(f"{url}/healthz")[0])
        )
        yield BenchTestbed(broker, password, kafka, gateway.pid, f"{url}/metrics", limited)


@contextmanager
def kafka_testbed(folder: Path, *, partitions: int) -> Iterator[KafkaSettings]:
    """One Kafka node with our topics, its files under `folder`, while the block runs.

    Raises:
        UnavailableError: it did not start.
    """
    with open_cluster(folder / "kafka", heap=KAFKA_HEAP, jmx=False) as cluster:
        kafka = KafkaSettings(bootstrap_servers=cluster.bootstrap_servers, partitions=partitions)
        ensure_topics(kafka)
        yield kafka


def _broker(folder: Path, password: str) -> EmbeddedBroker:
    port, _ = choose_port(0)
    port_v5, _ = choose_port(0)
    broker = make_broker(find_broker(), folder / "broker", port, port_v5=port_v5, users={USER: password})
    broker.prepare()
    return broker


@contextmanager
def _limited(inflight: int) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    command = [sys.executable, "-P", "-m", "deploy.bench.limited_broker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdin is None or process.stdout is None:
                raise AssertionError
            process.stdin.write(f"{inflight}\n")
            process.stdin.flush()
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def run_process(command: list[str], log: Path, *, ready: Callable[[], bool]) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is ready once `ready` says so, ended with the block.

    Raises:
        UnavailableError: it ended or was not ready in time; with its last words.
    """
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            env=child_environment("bench"), start_new_session=True,
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


def to_toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Settings as TOML; JSON's texts, numbers and lists are TOML's too."""
    lines: list[str] = []
    for section, values in sections.items():
        tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
        plain = {key: value for key, value in values.items() if key not in tables}
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in plain.items())]
        for name, table in tables.items():
            lines += [
                f"[{section}.{name}]",
                *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()),
            ]
    return "\n".join(lines) + "\n"
