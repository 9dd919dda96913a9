"""Real payloads of 30 formats through a real MQTT connection, amid a good fleet: one outcome each, nothing made up."""

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from gateway.devtools.publisher import Publisher
from gateway.message_processor import Message, MessageProcessor
from gateway.routes import compile_routes
from ingest.contract.reading import decode_record
from ingest.contract.topics import DEAD_LETTERS, READINGS

pytestmark = pytest.mark.promise("P1")

PAYLOADS = Path(__file__).parents[1] / "data" / "payloads.jsonl"
RATE, SECONDS = 500, 20


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PAYLOADS.read_text("utf-8").splitlines()]


def raw(line: dict[str, Any]) -> bytes:
    import base64

    return base64.b64decode(line["payload_base64"]) if "payload_base64" in line else line["payload"].encode()


def table(pipeline: Any, name: str, columns: list[str], topics: set[str]) -> list[dict[str, Any]]:
    dataset = DeltaTable(f"{pipeline.settings.lake.root}/{name}").to_pyarrow_dataset()
    found: list[dict[str, Any]] = dataset.to_table(
        columns=columns, filter=pc.field("mqtt_topic").isin(topics)
    ).to_pylist()
    return found


def test_every_line_ends_in_exactly_one_outcome_and_expected_readings_are_stored(
    pipeline: Any, start_fleet: Callable[..., Any], lines: list[dict[str, Any]], unique_name: str
) -> None:
    fleet = start_fleet(pipeline, devices=100, rate=RATE)
    publisher = Publisher(pipeline.settings.mqtt.with_login("devices"), client_id=f"{unique_name}-lines")
    publisher.connect()
    pause = threading.Event()
    for line in lines:
        publisher.publish(line["topic"], raw(line))
        pause.wait(SECONDS / len(lines))
    assert publisher.drain(timeout_seconds=60)
    publisher.close()
    totals = fleet.finish()
    assert totals.acknowledged == totals.sent

    report = pipeline.audit()
    assert (report["unaccounted"], report["duplicate_rows"], report["order_violations"]) == (0, 0, 0), report
    assert report["received"] >= totals.sent + len(lines)

    stored_of_fleet = DeltaTable(f"{pipeline.settings.lake.root}/readings").to_pyarrow_dataset()
    rows = stored_of_fleet.count_rows(filter=pc.field("boot") == fleet.boot)
    assert rows == 2 * totals.sent
    check_tables(pipeline, lines)


def check_tables(pipeline: Any, lines: list[dict[str, Any]]) -> None:
    topics = {line["topic"] for line in lines}
    columns = ["mqtt_topic", "device", "metric", "value", "text", "unit"]
    stored: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in table(pipeline, "readings", columns, topics):
        stored[row["mqtt_topic"]].append(row)
    dead = Counter(row["mqtt_topic"] for row in table(pipeline, "dead_letters", ["mqtt_topic"], topics))
    gate = MessageProcessor(
        compile_routes(pipeline.settings.routes, pipeline.settings.gateway), pipeline.settings.gateway
    )
    wanted: dict[str, Counter[Any]] = defaultdict(Counter)
    refused: Counter[str] = Counter()
    seen: set[tuple[str, str, str, int]] = set()
    for number, line in enumerate(lines):
        message = Message(number, 0, time.time_ns() // 1000, line["topic"].encode(), raw(line))
        outcome = gate.decide(message)
        # What a line's readings are is tests/unit/gateway/test_payloads.py's; here, that they are rows, once.
        assert outcome.accepted == bool(line["expect"]), line["id"]
        refused[line["topic"]] += sum(record.topic == DEAD_LETTERS for record in outcome.records)
        for record in (decode_record(record.value) for record in outcome.records if record.topic == READINGS):
            for reading in record.readings:
                identity = reading.message_id or record.message_id
                place = (identity or "", record.device, reading.metric, reading.index)
                if identity is None or place not in seen:
                    wanted[line["topic"]][record.device, reading.metric, reading.value, reading.text, reading.unit] += 1
                    seen.add(place)
    for topic in topics:
        assert Counter(key(row) for row in stored[topic]) == wanted[topic], topic
        assert dead[topic] == refused[topic], topic


def key(reading: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(reading[name] for name in ("device", "metric", "value", "text", "unit"))
