"""Real payloads of 30 formats through a real MQTT connection, amid a good fleet: one outcome each, nothing made up."""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from gateway.decode_file import decode_lines
from gateway.publisher import Publisher

PAYLOADS = Path(__file__).parents[3] / "shared" / "data" / "payloads.jsonl"
OURS = {"plain", "json-edge"}
RATE, SECONDS = 500, 20


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    if not PAYLOADS.exists():
        pytest.skip(f"the shared example payloads are not beside this checkout ({PAYLOADS.parent.name} is missing)")
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
    publisher = Publisher(pipeline.settings.mqtt, client_id=f"{unique_name}-lines")
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
    decoded = decode_lines(map(json.dumps, lines), pipeline.settings.routes, pipeline.settings.gateway)
    wanted: dict[str, Counter[Any]] = defaultdict(Counter)
    refused: Counter[str] = Counter()
    for line, outcome in zip(lines, decoded, strict=True):
        keys = [key(reading) for reading in outcome["readings"]]
        wanted[line["topic"]].update(keys)
        refused[line["topic"]] += len(outcome["rejected"]) + (outcome["outcome"] == "dead_letter")
        if line["format"] in OURS and outcome["outcome"] == "reading":
            numbers = {(reading["device"], reading["metric"], float(reading["value"])) for reading in line["expect"]}
            assert numbers <= {(device, metric, value) for device, metric, value, _, _ in keys}, line["id"]
        elif line["format"] not in OURS:
            assert outcome["outcome"] != "reading", line["id"]
    for topic in topics:
        assert Counter(key(row) for row in stored[topic]) == wanted[topic], topic
        assert dead[topic] == refused[topic], topic


def key(reading: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(reading[name] for name in ("device", "metric", "value", "text", "unit"))
