"""The same load by a C client and by Kafka's own performance tools, as a comparison on the same cluster."""

import re
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from deploy.bench.kafka_load.temporary_topic import temporary_topic
from deploy.bench.kafka_load.workload import Workload, producer_options, split_evenly
from deploy.bench.kafka_load.workload_run import run_workload
from deploy.bench.temporary import signed_folder
from ingest.contract.errors import UnavailableError
from ingest.kafka_settings import KafkaSettings

__all__ = ["Tool", "batch_bytes", "run_peer"]

Tool = Callable[..., list[str]]
"""(class, arguments…) to a command line, see `KafkaCluster.tool`."""

_PRODUCER: Final = "org.apache.kafka.tools.ProducerPerformance"
_CONSUMER: Final = "org.apache.kafka.tools.ConsumerPerformance"
_SECONDS: Final = 600.0
_SESSIONS: Final = 10
"""Sessions of a load that are one run of Kafka's tools, which have no sessions."""
_BATCH_HEADER_BYTES: Final = 61
_RECORD_HEADER_BYTES: Final = 7
"""Bytes of a record without key and headers: length, attributes, and the differences of time and offset (Kafka's record format
v2).
"""
_SENT = re.compile(
    r"(?P<records>\d+) (?:steady state )?records sent, (?P<rate>[\d.]+) records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, "
    r"(?P<max>[\d.]+) ms max latency, (?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99.9th"
)


def run_peer(workload: Workload, kafka: KafkaSettings, tool: Tool) -> dict[str, float]:
    """Produce with librdkafka in C, then produce and consume with `kafka-producer-perf-test` and `kafka-consumer-perf-test`.

    As many producers as the load has, at the same time, and one consumer of Kafka's tools reads all; a batch there is a number of
    bytes: those that `batch_records` records take. Kafka's tools write and read one after the other, so they are left out in mode
    `stream`. The C client meets the load's own consumers there; it is left out where the load has keys, a rate, or records that
    the topic holds before.

    Returns:
        `peer_produce_per_second`, `peer_consume_per_second` (records), `peer_ack_p50_ms`, `peer_ack_p99_ms` of Kafka's tools;
        `peer_c_produce_per_second` and `peer_c_cpu_us_per_message` of the C client, or `peer_c_lost` alone where it lost records.

    Raises:
        UnavailableError: a tool failed; the text has its last words.
    """
    found = {} if workload.mode == "stream" else _by_tools(workload, kafka, tool)
    return found | _produce_in_c(workload, kafka)


def _by_tools(workload: Workload, kafka: KafkaSettings, tool: Tool) -> dict[str, float]:
    topic = f"{workload.topic}-peer"
    with temporary_topic(workload, kafka, topic):
        return {**_produce(workload, topic, kafka, tool), **_consume(workload, topic, kafka, tool)}


def _produce_in_c(workload: Workload, kafka: KafkaSettings) -> dict[str, float]:
    if workload.rate or workload.keys != "none" or workload.retained or workload.cold:
        return {}
    streams = workload.mode == "stream" and workload.consume
    load = replace(workload, topic=f"{workload.topic}-c", consume=streams, sessions=min(workload.sessions, _SESSIONS))
    found = run_workload(load, kafka, producer="native")
    if found["lost"]:
        return {"peer_c_lost": found["lost"]}
    return {
        "peer_c_produce_per_second": found["produce_per_second"],
        "peer_c_cpu_us_per_message": found["client_cpu_us_per_message"],
    }


def _records(workload: Workload) -> int:
    """Return the number of records after the warm-up: one session would hardly be more than a JVM's start."""
    return workload.messages * min(workload.sessions, _SESSIONS)


def batch_bytes(workload: Workload) -> int:
    """`batch.size` of Kafka's Java producer for batches of this many records; 0 sends each record alone.

    At most what our client takes: a larger one than a request may be makes the Java client slow.
    """
    if workload.batch_records == 1:
        return 0
    # A length above 63 takes a second byte, in the value's own length and in the record's.
    wide = workload.message_bytes > 60
    whole = _BATCH_HEADER_BYTES + workload.batch_records * (workload.message_bytes + _RECORD_HEADER_BYTES + 2 * wide)
    return min(whole, int(producer_options(workload)["batch.size"]))


def _produce(workload: Workload, topic: str, kafka: KafkaSettings, tool: Tool) -> dict[str, float]:
    options = {
        "bootstrap.servers": kafka.bootstrap_servers, "acks": workload.acks, "batch.size": batch_bytes(workload),
        "linger.ms": 5 if workload.batch_records > 1 else 0, "compression.type": workload.compression,
        # As librdkafka: five requests at a time, the tool's default, would measure how long one takes.
        "max.in.flight.requests.per.connection": 1_000_000, "enable.idempotence": "false",
    }  # fmt: skip
    parts = zip(
        split_evenly(_records(workload), workload.producers),
        split_evenly(workload.warmup_messages, workload.producers),
        strict=True,
    )
    with ThreadPoolExecutor(workload.producers) as pool:
        found = list(pool.map(lambda part: _produce_part(workload, topic, options, tool, *part), parts))
    return {
        "peer_produce_per_second": sum(float(one["rate"]) for one in found),
        "peer_ack_p50_ms": max(float(one["p50"]) for one in found),
        "peer_ack_p99_ms": max(float(one["p99"]) for one in found),
    }


def _produce_part(
    workload: Workload, topic: str, options: Mapping[str, Any], tool: Tool, records: int, warmup: int
) -> re.Match[str]:
    """One of the producers; the tool's last line, which counts what came after the warm-up."""
    rate = max(1, round(workload.rate / workload.producers)) if workload.rate else -1
    arguments = [
        "--topic", topic, "--num-records", str(records + warmup),
        "--record-size", str(workload.message_bytes), "--throughput", str(rate),
    ]  # fmt: skip
    # One flag with all of them: of several flags the tool takes the last alone. The names are those that Kafka 3.9 knows too.
    arguments += ["--producer-props", *(f"{name}={value}" for name, value in options.items())]
    try:
        text = _run(tool(_PRODUCER, *(["--warmup-records", str(warmup)] if warmup else []), *arguments))
    except UnavailableError as error:
        if "unrecognized" not in str(error):
            raise
        # The figures of Kafka 3.9 include the warm-up.
        text = _run(tool(_PRODUCER, *arguments))
    found = list(_SENT.finditer(text))
    if not found:
        message = f"Kafka's producer test printed no figures: {text.strip()[-300:]}"
        raise UnavailableError(message)
    return found[-1]


def _consume(workload: Workload, topic: str, kafka: KafkaSettings, tool: Tool) -> dict[str, float]:
    wanted = _records(workload) + workload.warmup_messages
    arguments = [
        "--topic", topic, "--bootstrap-server", kafka.bootstrap_servers, "--messages", str(wanted),
        "--fetch-size", str(workload.fetch_bytes),
    ]  # fmt: skip
    lines = [line.split(", ") for line in _run(tool(_CONSUMER, *arguments)).splitlines()]
    # A newer Kafka warns about the name of an option before its table.
    heads = next((line for line in lines if "fetch.nMsg.sec" in line), [])
    named = dict(zip(heads, lines[-1] if lines else [], strict=False))
    try:
        # The tool's own rate has the seconds in it that its group took to form.
        return {"peer_consume_per_second": float(named["fetch.nMsg.sec"])}
    except (KeyError, ValueError):
        message = f"Kafka's consumer test printed no figures: {lines[-1:]}"
        raise UnavailableError(message) from None


def _run(command: list[str]) -> str:
    # Our servers do without the second compiler; a peer runs as people start it.
    command = [word for word in command if word != "-XX:TieredStopAtLevel=1"]
    with signed_folder() as folder:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=folder)
        except subprocess.TimeoutExpired:
            message = f"Kafka's own test took longer than {_SECONDS:g} s: {command[-1]}"
            raise UnavailableError(message) from None
    if done.returncode:
        words = " ".join((done.stderr or done.stdout).split())
        message = f"Kafka's own test failed: {words[-400:]}"
        raise UnavailableError(message)
    return done.stdout
